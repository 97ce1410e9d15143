//! Parsing of requests and formatting of responses.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use skybraid_link::{Cause, Direction};
use skybraid_units::{Duration, Probability, Rate};

use crate::forward::{Command, DirectionStatus, Snapshot};

/// A request.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Report the state of each path once.
    Status {},
    /// Report the state of each path periodically.
    Watch {},
    /// Take a path down.
    Cut {
        /// Path name.
        path: String,
    },
    /// End a cut.
    Restore {
        /// Path name.
        path: String,
    },
    /// Change the rate, delay or loss.
    Set {
        /// Path name.
        path: String,
        /// Direction; both if absent.
        direction: Option<Direction>,
        /// Rate; must be above zero.
        rate: Option<Rate>,
        /// One-way delay.
        delay: Option<Duration>,
        /// Loss probability.
        loss: Option<Probability>,
    },
    /// Restore the scenario's values.
    Reset {
        /// Path name.
        path: String,
    },
    /// End the run.
    Stop {},
}

impl Request {
    /// Parses a request line.
    ///
    /// # Errors
    /// Reports the value found and the value expected.
    pub fn read(line: &[u8]) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(line).map_err(|error| {
            format!("found a line that is not JSON ({error}), expected for example {EXAMPLE}")
        })?;
        if value.get("do").is_none() {
            return Err(format!(
                "found no `do`, expected an object with one, for example {EXAMPLE}"
            ));
        }
        let request = serde_json::from_value(value).map_err(|error| error.to_string())?;
        match &request {
            Self::Set { rate: None, delay: None, loss: None, .. } => {
                Err("found nothing to set, expected `rate`, `delay` or `loss`".to_owned())
            }
            Self::Set { rate: Some(Rate::ZERO), .. } => {
                Err("found rate `0bit/s`, expected one above zero; `cut` takes a path down"
                    .to_owned())
            }
            _ => Ok(request),
        }
    }

    /// Returns the path and the command for it, if the request is one.
    pub fn command(&self) -> Option<(&str, Command)> {
        match self {
            Self::Status {} | Self::Watch {} | Self::Stop {} => None,
            Self::Cut { path } => Some((path, Command::Cut)),
            Self::Restore { path } => Some((path, Command::Restore)),
            Self::Reset { path } => Some((path, Command::Reset)),
            Self::Set { path, direction, rate, delay, loss } => Some((
                path,
                Command::Set { direction: *direction, rate: *rate, delay: *delay, loss: *loss },
            )),
        }
    }
}

const EXAMPLE: &str = r#"`{"do":"status"}`"#;

/// Formats the state of the paths as a response. Keys include the units; times are of the run.
pub fn status(snapshot: &Snapshot) -> Value {
    let paths: Vec<Value> = snapshot
        .paths
        .iter()
        .map(|path| {
            json!({
                "path": path.name,
                "uplink": direction(&path.uplink),
                "downlink": direction(&path.downlink),
            })
        })
        .collect();
    json!({
        "ok": true,
        "at_s": snapshot.at.as_secs_f64(),
        "paths": paths,
        "lost_by_emulator": snapshot.lost_by_emulator,
        "lateness_p99_ms": snapshot.lateness_p99.as_millis_f64(),
    })
}

fn direction(status: &DirectionStatus) -> Value {
    let lost: Map<String, Value> = Cause::ALL
        .iter()
        .zip(status.lost)
        .map(|(cause, count)| (cause.name().to_owned(), count.into()))
        .collect();
    let carries = status.up && status.loss.ratio() < 1.0;
    json!({
        "rate_bps": status.rate.as_bps(),
        // Where nothing arrives, nothing has a delay.
        "delay_ms": carries.then(|| status.delay.as_millis_f64()),
        "loss": status.loss.ratio(),
        "up": status.up,
        "down_since_s": status.down_since.map(|since| since.as_secs_f64()),
        "queue_bytes": status.queue.get(),
        "delivered_bps": status.delivered_rate.as_bps(),
        "delivered": status.delivered,
        "lost": lost,
    })
}

#[cfg(test)]
mod tests {
    use skybraid_units::Bytes;

    use super::*;

    fn read(line: &str) -> Result<Request, String> {
        Request::read(line.as_bytes())
    }

    #[test]
    fn a_link_over_which_nothing_arrives_has_no_delay() {
        let status = DirectionStatus {
            rate: Rate::from_bps(5_000_000),
            delay: Duration::from_millis(30),
            loss: Probability::ZERO,
            up: true,
            down_since: None,
            queue: Bytes::new(0),
            delivered_rate: Rate::ZERO,
            delivered: 0,
            lost: [0; Cause::ALL.len()],
        };
        let delay = |status| direction(&status)["delay_ms"].clone();
        assert_eq!(delay(status), json!(30.0));
        assert_eq!(delay(DirectionStatus { up: false, ..status }), Value::Null);
        assert_eq!(
            delay(DirectionStatus { loss: Probability::new(1.0).unwrap(), ..status }),
            Value::Null
        );
    }

    #[test]
    fn requests_are_read_with_their_units() {
        assert_eq!(read(r#"{"do":"status"}"#), Ok(Request::Status {}));
        let set = r#"{"do":"set","path":"lte","direction":"uplink","rate":"5Mbit/s","delay":"30ms","loss":"1%"}"#;
        let request = read(set).unwrap();
        let Some(("lte", Command::Set { direction, rate, delay, loss })) = request.command() else {
            unreachable!()
        };
        assert_eq!(direction, Some(Direction::Uplink));
        assert_eq!(rate, Some(Rate::from_bps(5_000_000)));
        assert_eq!(delay, Some(Duration::from_millis(30)));
        assert_eq!(loss, Probability::new(0.01));
    }

    #[test]
    fn a_wrong_request_is_answered_with_what_was_expected() {
        for (line, words) in [
            ("", "not JSON"),
            ("[]", "found no `do`"),
            (r#"{"do":"fly"}"#, "unknown variant `fly`, expected one of `status`"),
            (r#"{"do":"cut"}"#, "missing field `path`"),
            (r#"{"do":"cut","path":"a","rate":"1Mbit/s"}"#, "unknown field `rate`"),
            (r#"{"do":"status","path":"a"}"#, "unknown field `path`"),
            (r#"{"do":"set","path":"a"}"#, "expected `rate`, `delay` or `loss`"),
            (r#"{"do":"set","path":"a","rate":"5"}"#, "has no unit"),
            (r#"{"do":"set","path":"a","rate":"0bit/s"}"#, "above zero"),
            (r#"{"do":"set","path":"a","delay":"-1ms"}"#, "out of range"),
            (r#"{"do":"set","path":"a","loss":"101%"}"#, "from 0% to 100%"),
            (r#"{"do":"set","path":"a","direction":"up"}"#, "`uplink`"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
    }
}
