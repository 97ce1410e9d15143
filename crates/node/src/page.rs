//! Status page of a running gateway, and its data.

use super::http::Answer;
use super::metrics;
use super::watch::WatchState;

/// Complete page: style and script, no other file.
const PAGE: &str = include_str!("page.html");
const JSON: &str = "application/json";

/// Returns the answer to a path.
pub(super) fn answer(watch: &WatchState, path: &str) -> Answer {
    match path {
        "/" => Answer::new("text/html; charset=utf-8", PAGE),
        "/status.json" => match serde_json::to_vec(&watch.status()) {
            Ok(body) => Answer::new(JSON, body),
            Err(_) => Answer::refused(503),
        },
        "/events.json" => Answer::new(JSON, watch.events_json()),
        "/history.json" => Answer::new(JSON, watch.history_json()),
        "/metrics" => Answer::new(metrics::KIND, watch.metrics()),
        _ => Answer::refused(404),
    }
}
