//! Status page of a running gateway, and its data.

use super::http::Answer;
use super::metrics;
use super::watch::Books;

/// Complete page: style and script, no other file.
const PAGE: &str = include_str!("page.html");
const JSON: &str = "application/json";

/// Returns the answer to a path.
pub(super) fn answer(books: &Books, path: &str) -> Answer {
    match path {
        "/" => Answer::new("text/html; charset=utf-8", PAGE),
        "/status.json" => match serde_json::to_vec(&books.status()) {
            Ok(body) => Answer::new(JSON, body),
            Err(_) => Answer::refused(503),
        },
        "/events.json" => Answer::new(JSON, books.events_json()),
        "/history.json" => Answer::new(JSON, books.history_json()),
        "/metrics" => Answer::new(metrics::KIND, books.metrics()),
        _ => Answer::refused(404),
    }
}
