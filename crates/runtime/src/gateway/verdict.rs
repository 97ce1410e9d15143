//! How a gateway stands, in plain words.

use skybraid_gateway::Side;
use skybraid_gateway::event::PathState;
use skybraid_gateway::snapshot::{PathSnapshot, Snapshot};

use super::Edges;

/// How well it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Everything lives.
    Good,
    /// It works, and something is missing.
    Limited,
    /// Nothing gets through.
    Bad,
}

/// How a gateway stands.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Verdict {
    /// How well it goes.
    pub level: Level,
    /// A sentence.
    pub text: String,
}

/// Whether packets get through in a direction.
fn lives(state: PathState) -> bool {
    matches!(state, PathState::Up | PathState::Probation | PathState::Suspected)
}

/// Whether a path carries both ways.
pub(super) fn path_lives(path: &PathSnapshot) -> bool {
    lives(path.incoming) && lives(path.outgoing)
}

fn peer(side: Side) -> &'static str {
    match side {
        Side::Aircraft => "the ground station",
        Side::Ground => "the aircraft",
    }
}

/// A span of milliseconds with as many digits as it deserves.
fn span(ms: f64) -> String {
    match ms {
        _ if ms < 10.0 => format!("{ms:.1} ms"),
        _ if ms < 1000.0 => format!("{ms:.0} ms"),
        _ if ms < 60_000.0 => format!("{:.1} s", ms / 1e3),
        _ => format!("{:.0} min", ms / 60e3),
    }
}

/// Judges a state; without one, the gateway has only just been started.
pub(super) fn judge(state: Option<&Snapshot>, alarms: &[String]) -> Verdict {
    let say = |level: Level, text: String| Verdict { level, text };
    let Some(state) = state else { return say(Level::Bad, "Starting.".to_string()) };
    let peer = peer(state.side);
    let silence = match state.silent_ms {
        Some(ms) => format!("Nothing has been heard from {peer} for {}.", span(ms)),
        None => format!("Nothing has been heard from {peer} yet."),
    };
    if !state.session || !state.paths.iter().any(|path| lives(path.incoming)) {
        return say(Level::Bad, silence);
    }
    let count = state.paths.len();
    let living = state.paths.iter().filter(|path| path_lives(path)).count();
    if living == 0 {
        return say(Level::Bad, format!("No path carries both ways; {peer} is heard."));
    }
    let paths =
        if count == 1 { "the only path".to_string() } else { format!("{living} of {count} paths") };
    let level = if living == count && alarms.is_empty() { Level::Good } else { Level::Limited };
    let delay = state.classes.iter().find(|class| class.name == "control");
    let text = match delay.and_then(|class| class.delay_p50_ms) {
        Some(delay) => format!("Control arrives in {} over {paths}.", span(delay)),
        None => format!("Connected to {peer} over {paths}; no control message has arrived yet."),
    };
    say(level, text)
}

/// What is wrong at the moment and somebody may have to mend.
pub(super) fn alarms(state: Option<&Snapshot>, edges: &Edges) -> Vec<String> {
    let mut alarms = Vec::new();
    for edge in edges.paths.iter().filter(|edge| !edge.open) {
        let why =
            edge.error.as_deref().unwrap_or("the interface, the address or the name is not there");
        alarms.push(format!("{}: cannot be used here: {why}", edge.name));
    }
    let Some(state) = state else { return alarms };
    for path in state.paths.iter().filter(|_| state.session) {
        let ways = [(path.outgoing, "to the other end"), (path.incoming, "from the other end")];
        let dead: Vec<&str> =
            ways.into_iter().filter(|(state, _)| !lives(*state)).map(|(_, way)| way).collect();
        match dead.as_slice() {
            [] => {}
            [way] => alarms.push(format!("{}: nothing gets through {way}", path.name)),
            _ => alarms.push(format!("{}: nothing gets through", path.name)),
        }
    }
    for path in &state.paths {
        if path.data_left == Some(0) {
            let text = "its data are used up; it carries only what no other path can";
            alarms.push(format!("{}: {text}", path.name));
        }
    }
    for channel in state.channels.iter().filter(|channel| state.session && !channel.shared) {
        let name = &channel.name;
        alarms.push(format!("{name}: the other end's file has no channel of this name"));
    }
    alarms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::sample;

    #[test]
    fn the_verdict_is_a_plain_sentence() {
        let mut state = sample::snapshot();
        let text = |state: &Snapshot| judge(Some(state), &alarms(Some(state), &Edges::default()));
        let good = text(&state);
        assert_eq!(good.text, "Control arrives in 31 ms over 2 of 2 paths.");
        assert_eq!(good.level, Level::Good);
        state.paths[1].incoming = PathState::Down;
        assert_eq!(text(&state).text, "Control arrives in 31 ms over 1 of 2 paths.");
        assert_eq!(text(&state).level, Level::Limited);
        state.paths[0].outgoing = PathState::Down;
        assert_eq!(text(&state).text, "No path carries both ways; the aircraft is heard.");
        state.session = false;
        state.silent_ms = Some(3210.0);
        assert_eq!(text(&state).text, "Nothing has been heard from the aircraft for 3.2 s.");
        assert_eq!(text(&state).level, Level::Bad);
        assert_eq!(judge(None, &[]).text, "Starting.");
    }

    #[test]
    fn an_alarm_says_which_path_or_channel_lacks_what() {
        let mut state = sample::snapshot();
        assert_eq!(alarms(Some(&state), &Edges::default()), Vec::<String>::new());
        state.paths[0].incoming = PathState::Down;
        state.paths[1].data_left = Some(0);
        state.channels[1].shared = false;
        let edge = super::super::PathEdge { name: "lte".into(), ..Default::default() };
        assert_eq!(
            alarms(Some(&state), &Edges { paths: vec![edge], local: Vec::new() }),
            [
                "lte: cannot be used here: the interface, the address or the name is not there",
                "dish: nothing gets through from the other end",
                "lte: its data are used up; it carries only what no other path can",
                "video: the other end's file has no channel of this name",
            ]
        );
    }
}
