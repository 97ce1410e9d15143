//! Requirements in the keys of `require`.

use skybraid_units::Duration;
use skybraid_units::form::OneOrMany;

use crate::file::{LinkPerformanceFile, RequireFile, RequirementFile};
use crate::key::KeyPath;
use crate::text::ScenarioText;
use crate::wording::unknown;
use crate::{LinkPerformance, Requirement, ScenarioError, profiles};

/// A key below `require` and the problem with its value.
type Problem = (&'static str, String);

/// Returns the requirements in `require`.
pub(crate) fn read(
    text: &ScenarioText,
    require: OneOrMany<RequireFile>,
    key: &KeyPath,
) -> Result<Vec<Requirement>, ScenarioError> {
    let tables = match require {
        OneOrMany::One(table) => vec![(key.clone(), table)],
        OneOrMany::Many(tables) => {
            let keyed = |(index, table)| (key.index(index), table);
            tables.into_iter().enumerate().map(keyed).collect()
        }
    };
    let mut found = Vec::new();
    for (key, entry) in tables {
        let table = match entry {
            RequireFile::Table(table) => *table,
            RequireFile::Profile(name) => profiles::requirement_table(&name).ok_or_else(|| {
                let known: Vec<_> = profiles::names().collect();
                text.wrong(&key, unknown("requirement profile", &name, &known))
            })?,
        };
        let some =
            of_table(&table).map_err(|(below, problem)| text.wrong(&key.below(below), problem))?;
        found.extend(some);
    }
    Ok(found)
}

/// Returns the requirements of a table of `require`, or a key and the problem with its value.
fn of_table(table: &RequirementFile) -> Result<Vec<Requirement>, Problem> {
    let mut found = Vec::new();
    let above_zero = |key, positive: bool| {
        if positive { Ok(()) } else { Err((key, "expected above zero".to_string())) }
    };
    let alone = |key, other: &str| Err((key, format!("expected together with {other}")));
    match (table.deadline, table.share) {
        (Some(_), None) => return alone("deadline", "`share`, for example \"99.9%\""),
        (deadline, Some(share)) => {
            above_zero("deadline", deadline.is_none_or(Duration::is_positive))?;
            above_zero("share", share.ratio() > 0.0)?;
            found.push(Requirement::Share { deadline, share });
        }
        (None, None) => {}
    }
    match (table.delay, table.percentile) {
        (Some(_), None) => return alone("delay", "`percentile`, for example \"95%\""),
        (None, Some(_)) => return alone("percentile", "`delay`, for example \"100ms\""),
        (Some(delay), Some(percentile)) => {
            above_zero("delay", delay.is_positive())?;
            above_zero("percentile", percentile.ratio() > 0.0)?;
            found.push(Requirement::Delay { percentile, delay });
        }
        (None, None) => {}
    }
    if let Some(rate) = table.goodput {
        above_zero("goodput", rate.as_bps() > 0)?;
        found.push(Requirement::Goodput { rate });
    }
    found.extend(table.rlp.map(link_performance).transpose()?.map(Requirement::LinkPerformance));
    found.extend(of_video(table)?);
    if found.is_empty() {
        let expected = "expected `deadline` and `share`, `delay` and `percentile`, `goodput`, or `rlp`; of a \
                        video also `frames` and `within`, `frame_rate`, `worst_frame_rate`, `freezes`, or \
                        `ssim` and `ssim_share`";
        return Err(("", expected.to_string()));
    }
    Ok(found)
}

/// Returns the required link performance of a table `rlp`, or a key and the problem with its value.
fn link_performance(table: LinkPerformanceFile) -> Result<LinkPerformance, Problem> {
    let LinkPerformanceFile { expiration, continuity, availability, integrity, .. } = table;
    let lost_after = table.lost_after.unwrap_or(expiration);
    let above_zero = [
        ("rlp.expiration", expiration.is_positive()),
        ("rlp.continuity", continuity.ratio() > 0.0),
        ("rlp.availability", availability.is_none_or(|share| share.ratio() > 0.0)),
        ("rlp.integrity", integrity.is_none_or(|share| share.ratio() > 0.0)),
        ("rlp.lost_after", lost_after.is_positive()),
    ];
    if let Some((key, _)) = above_zero.into_iter().find(|(_, positive)| !positive) {
        return Err((key, "expected above zero".to_string()));
    }
    if let Some(bits) = table.check_bits.filter(|bits| !(1..=512).contains(bits)) {
        return Err(("rlp.check_bits", format!("found {bits}, expected 1 to 512")));
    }
    let check_bits = table.check_bits;
    Ok(LinkPerformance { expiration, continuity, availability, integrity, lost_after, check_bits })
}

/// Returns the requirements on a video of a table of `require`.
fn of_video(table: &RequirementFile) -> Result<Vec<Requirement>, Problem> {
    let mut found = Vec::new();
    let check = |key, is_valid: bool, expected: &str| {
        if is_valid { Ok(()) } else { Err((key, format!("expected {expected}"))) }
    };
    match (table.frames, table.within) {
        (Some(share), Some(within)) => {
            check("frames", share.ratio() > 0.0, "above zero")?;
            check("within", within.is_positive(), "above zero")?;
            found.push(Requirement::Frames { share, within });
        }
        (Some(_), None) => {
            return Err((
                "frames",
                "expected together with `within`, for example \"300ms\"".into(),
            ));
        }
        (None, Some(_)) => {
            return Err(("within", "expected together with `frames`, for example \"95%\"".into()));
        }
        (None, None) => {}
    }
    let rates = [
        ("frame_rate", table.frame_rate, false),
        ("worst_frame_rate", table.worst_frame_rate, true),
    ];
    for (key, min, worst) in rates {
        let Some(min) = min else { continue };
        check(key, min.is_finite() && min > 0.0, "frames a second, above zero")?;
        found.push(Requirement::FrameRate { min, worst });
    }
    if let Some(max) = table.freezes {
        check("freezes", max.is_finite() && max >= 0.0, "times a minute, zero or more")?;
        found.push(Requirement::Freezes { max });
    }
    match (table.ssim, table.ssim_share) {
        (Some(min), share) => {
            check("ssim", min > 0.0 && min <= 1.0, "above 0, at most 1")?;
            let Some(share) = share.filter(|share| share.ratio() > 0.0) else {
                let problem =
                    "expected together with `ssim_share`, for example \"95%\"".to_string();
                return Err(("ssim", problem));
            };
            found.push(Requirement::Ssim { share, min });
        }
        (None, Some(_)) => {
            return Err(("ssim_share", "expected together with `ssim`, for example 0.5".into()));
        }
        (None, None) => {}
    }
    Ok(found)
}
