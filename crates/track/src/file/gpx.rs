//! GPX 1.1 (Topografix, 2004): `trkpt` with `ele` and `time`; without a track, `rtept`.

use alloc::vec::Vec;

use roxmltree::{Document, Node};

use super::{Points, ReadError, Timed, child, date, elements, line_of, position, text_of, wrong};
use crate::position::Position;

pub(super) fn read(document: &Document<'_>) -> Result<Points, ReadError> {
    let root = document.root_element();
    if root.tag_name().name() != "gpx" {
        return Err(wrong(line_of(root), root.tag_name().name(), "the element `gpx`"));
    }
    let mut points: Vec<Node<'_, '_>> = elements(root, "trkpt").collect();
    if points.is_empty() {
        points = elements(root, "rtept").collect();
    }
    let Some(first) = points.first() else {
        return Err(ReadError::Empty { expected: "points `trkpt` or `rtept`" });
    };
    if child(*first, "time").is_none() {
        let bare = points.into_iter().map(place).collect::<Result<_, _>>()?;
        return Ok(Points::Bare(bare, None));
    }
    let mut timed = Timed::default();
    for point in points {
        let line = line_of(point);
        let Some(time) = child(point, "time") else {
            return Err(wrong(line, "a point without `time`", "one with it, as the first has it"));
        };
        let time = text_of(time);
        let nanos = date::read(&time).ok_or_else(|| wrong(line, &time, date::EXPECTED))?;
        if timed.push(nanos, place(point)?).is_err() {
            return Err(wrong(line, &time, "a time not before that of the point above"));
        }
    }
    Ok(Points::Timed(timed.points))
}

fn place(point: Node<'_, '_>) -> Result<Position, ReadError> {
    let line = line_of(point);
    let degrees = |name| {
        point
            .attribute(name)
            .ok_or_else(|| wrong(line, "a point", "the attributes `lat` and `lon`"))
    };
    let altitude = child(point, "ele").map(text_of);
    position(line, degrees("lat")?, degrees("lon")?, altitude.as_deref().unwrap_or("0"))
}
