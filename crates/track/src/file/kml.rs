//! KML 2.2 with Google's extensions: `gx:Track` with `when` and `gx:coord`, else `LineString` with `coordinates`.
//!
//! Source: OGC 07-147r2 (KML 2.2); Google, KML reference, `gx:Track`.

use alloc::vec::Vec;

use roxmltree::{Document, Node};

use super::{Points, ReadError, Timed, child, date, elements, line_of, position, text_of, wrong};
use crate::position::Position;

pub(super) fn read(document: &Document<'_>) -> Result<Points, ReadError> {
    let root = document.root_element();
    if root.tag_name().name() != "kml" {
        return Err(wrong(line_of(root), root.tag_name().name(), "the element `kml`"));
    }
    let mut timed = Timed::default();
    for track in elements(root, "Track") {
        add_track(track, &mut timed)?;
    }
    if !timed.points.is_empty() {
        return Ok(Points::Timed(timed.points));
    }
    let mut bare = Vec::new();
    for string in elements(root, "LineString") {
        if let Some(coordinates) = child(string, "coordinates") {
            let line = line_of(coordinates);
            let text = text_of(coordinates);
            for tuple in text.split_whitespace() {
                bare.push(place(line, tuple, tuple.split(','), EXPECTED_TUPLE)?);
            }
        }
    }
    if bare.is_empty() {
        return Err(ReadError::Empty { expected: "a `gx:Track` or a `LineString` with points" });
    }
    Ok(Points::Bare(bare, None))
}

const EXPECTED_TUPLE: &str = "`longitude,latitude,altitude`";

/// Adds the points of a `gx:Track`. The n-th `when` belongs to the n-th `gx:coord`; a point with an empty
/// `gx:coord` is skipped.
fn add_track(track: Node<'_, '_>, timed: &mut Timed) -> Result<(), ReadError> {
    let called = |name: &'static str| {
        track.children().filter(move |node| node.is_element() && node.tag_name().name() == name)
    };
    let (times, places) = (called("when").count(), called("coord").count());
    if times != places {
        let found = alloc::format!("{times} `when` and {places} `gx:coord`");
        return Err(wrong(line_of(track), &found, "as many of one as of the other"));
    }
    for (when, coord) in called("when").zip(called("coord")) {
        let (time, tuple) = (text_of(when), text_of(coord));
        if tuple.trim().is_empty() {
            continue;
        }
        let line = line_of(when);
        let nanos = date::read(&time).ok_or_else(|| wrong(line, &time, date::EXPECTED))?;
        let fields = tuple.split_whitespace();
        let place = place(line_of(coord), &tuple, fields, "`longitude latitude altitude`")?;
        if timed.push(nanos, place).is_err() {
            return Err(wrong(line, &time, "a time not before that of the point above"));
        }
    }
    Ok(())
}

fn place<'a>(
    line: usize,
    tuple: &str,
    mut fields: impl Iterator<Item = &'a str>,
    expected: &str,
) -> Result<Position, ReadError> {
    match (fields.next(), fields.next(), fields.next(), fields.next()) {
        (Some(longitude), Some(latitude), altitude, None) => {
            position(line, latitude, longitude, altitude.unwrap_or("0"))
        }
        _ => Err(wrong(line, tuple.trim(), expected)),
    }
}
