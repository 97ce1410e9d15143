//! Status of a gateway in plain words.

use skybraid_gateway::Side;
use skybraid_gateway::health::MtuState;
use skybraid_gateway::snapshot::{ClassSnapshot, PathSnapshot, Snapshot};
use skybraid_units::invariant;

use super::{PathCounters, SocketCounters};

/// Silence of control after which it counts as stopped: autopilots and ground stations send a heartbeat each second.
const MAX_SILENCE_MS: f64 = 3_000.0;
/// Minimum loss of a path that raises an alarm, as a share of its datagrams.
const MAX_LOSS: f64 = 0.2;

/// Level of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Everything works.
    Good,
    /// Works with restrictions.
    Limited,
    /// No traffic gets through.
    Bad,
}

/// State of a gateway in words.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Verdict {
    /// Level of the state.
    pub level: Level,
    /// Status as a sentence.
    pub text: String,
}

/// Returns true if a path works in both directions.
pub(super) fn is_path_alive(path: &PathSnapshot) -> bool {
    path.incoming.is_alive() && path.outgoing.is_alive()
}

/// Returns true if control from the other end arrives by a path in time.
const fn brings_in_time(path: &PathSnapshot) -> bool {
    path.incoming.is_alive() && !path.incoming_late
}

/// Returns true if control reaches the other end by a path in time.
const fn reaches_in_time(path: &PathSnapshot) -> bool {
    path.outgoing.is_alive() && !path.outgoing_late
}

fn control(state: &Snapshot) -> Option<&ClassSnapshot> {
    state.classes.iter().find(|class| class.name == "control")
}

fn peer(side: Side) -> &'static str {
    match side {
        Side::Aircraft => "the ground station",
        Side::Ground => "the aircraft",
    }
}

/// Formats milliseconds with a suitable number of digits.
fn span(ms: f64) -> String {
    match ms {
        _ if ms < 10.0 => format!("{ms:.1} ms"),
        _ if ms < 1000.0 => format!("{ms:.0} ms"),
        _ if ms < 60_000.0 => format!("{:.1} s", ms / 1e3),
        _ => format!("{:.0} min", ms / 60e3),
    }
}

/// Returns the verdict on a state; without one, the gateway has just started.
pub(super) fn judge(state: Option<&Snapshot>, alarms: &[String]) -> Verdict {
    let say = |level: Level, text: String| Verdict { level, text };
    let Some(state) = state else { return say(Level::Bad, "Starting.".to_string()) };
    let peer = peer(state.side);
    let silence = match state.silent_ms {
        Some(ms) => format!("Nothing has been heard from {peer} for {}.", span(ms)),
        None => format!("Nothing has been heard from {peer} yet."),
    };
    if state.session_expired {
        let text = format!("The session with {peer} has ended: no handshake gets through.");
        return say(Level::Bad, text);
    }
    if !state.session || !state.paths.iter().any(|path| path.incoming.is_alive()) {
        return say(Level::Bad, silence);
    }
    let count = state.paths.len();
    let in_time = state.paths.iter().filter(|path| brings_in_time(path) && reaches_in_time(path));
    let in_time = in_time.count();
    if !state.paths.iter().any(|path| path.outgoing.is_alive()) {
        return say(Level::Bad, format!("Nothing gets through to {peer}, which is heard."));
    }
    let paths = match in_time {
        0 => "paths that carry one way each".to_string(),
        _ if count == 1 => "the only path".to_string(),
        _ => format!("{in_time} of {count} paths"),
    };
    let control = control(state);
    if !state.paths.iter().any(brings_in_time)
        || control.is_some_and(|class| class.late_share == Some(1.0))
    {
        return say(
            Level::Bad,
            "Control arrives too late on every path and is dropped.".to_string(),
        );
    }
    if !state.paths.iter().any(reaches_in_time) {
        let text = format!("Control reaches {peer} too late on every path and is dropped there.");
        return say(Level::Bad, text);
    }
    let delay = control.and_then(|class| class.delay_p50_ms);
    let silent = control.and_then(|class| class.silent_ms).filter(|ms| *ms > MAX_SILENCE_MS);
    let text = match (silent, delay) {
        (None, Some(delay)) => format!("Control arrives in {} over {paths}.", span(delay)),
        _ => {
            let when = silent.map_or("yet".to_string(), |ms| format!("for {}", span(ms)));
            format!("Connected to {peer} over {paths}; no control message has arrived {when}.")
        }
    };
    let is_good = in_time == count && alarms.is_empty() && silent.is_none();
    say(if is_good { Level::Good } else { Level::Limited }, text)
}

/// Current problems that somebody may have to fix.
pub(super) fn alarms(state: Option<&Snapshot>, edges: &SocketCounters) -> Vec<String> {
    let mut alarms = Vec::new();
    let is_raised = |edge: &&PathCounters| edges.alarms.contains_key(&edge.name);
    for edge in edges.paths.iter().filter(|edge| !edge.open && !is_raised(edge)) {
        let why =
            edge.error.as_deref().unwrap_or("the interface, the address or the name is not there");
        alarms.push(format!("{}: cannot be used here: {why}", edge.name));
    }
    alarms.extend(edges.alarms.values().cloned());
    let Some(state) = state else { return alarms };
    if state.bugs > 0 {
        let place =
            invariant::first_bug().map_or_else(String::new, |at| format!(", first at {at}"));
        alarms.push(format!(
            "{} broken invariants in this program{place}: please report",
            state.bugs
        ));
    }
    if state.peer_duplicated {
        let text = "two gateways use the key of the other end: the first keeps the session; stop \
                    the other, or give it its own key";
        alarms.push(text.to_string());
    }
    if state.session_overdue {
        let left = state.session_left_ms.map_or_else(String::new, span);
        alarms
            .push(format!("no handshake gets through to change keys: the session ends in {left}"));
    }
    if state.session_expired {
        let text = "the session has ended, since its keys could not be changed: nothing is sent or \
                    accepted until a handshake gets through";
        alarms.push(text.to_string());
    }
    for edge in edges.paths.iter().filter(|edge| edge.open && edge.failing) {
        if let Some(why) = &edge.error {
            alarms.push(format!("{}: nothing can be sent from here: {why}", edge.name));
        }
    }
    for path in state.paths.iter().filter(|_| state.session) {
        let (to, from) = ("to the other end", "from the other end");
        let ways = [(path.outgoing, to), (path.incoming, from)];
        let dead: Vec<&str> =
            ways.into_iter().filter(|(state, _)| !state.is_alive()).map(|(_, way)| way).collect();
        match dead.as_slice() {
            [] => {}
            [way] => alarms.push(format!("{}: nothing gets through {way}", path.name)),
            _ => alarms.push(format!("{}: nothing gets through", path.name)),
        }
        let ways = [
            (to, path.outgoing_late, path.outgoing_delay_ms, path.outgoing_loss),
            (from, path.incoming_late, path.incoming_delay_ms, path.incoming_loss),
        ];
        for (way, is_late, delay, loss) in ways {
            if let Some(delay) = delay.filter(|_| is_late) {
                let delay = span(delay);
                alarms.push(format!("{}: {delay} {way}, too long for control", path.name));
            }
            if let Some(loss) = loss.filter(|loss| *loss >= MAX_LOSS) {
                alarms.push(format!("{}: {:.0} % are lost {way}", path.name, loss * 100.0));
            }
        }
    }
    for path in state.paths.iter().filter(|path| state.session && is_path_alive(path)) {
        let small = |mtu: u32| format!("larger packets than {mtu} B do not get through");
        if path.mtu_state == MtuState::Error {
            alarms.push(format!("{}: {} to the other end", path.name, small(path.mtu)));
        }
        if path.peer_mtu_error
            && let Some(mtu) = path.incoming_mtu
        {
            alarms.push(format!("{}: {} from the other end", path.name, small(mtu)));
        }
    }
    if let Some(share) = control(state).and_then(|class| class.late_share)
        && share > 0.0
    {
        let percent = (share * 100.0).max(1.0);
        alarms.push(format!("control: {percent:.0} % of messages arrive too late and are dropped"));
    }
    for path in &state.paths {
        if path.data_left == Some(0) {
            let text = "its data volume is used up; it carries only what no other path can";
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
    use crate::sample;
    use skybraid_gateway::event::PathState;

    #[test]
    fn the_verdict_is_a_plain_sentence() {
        let mut state = sample::snapshot();
        let text =
            |state: &Snapshot| judge(Some(state), &alarms(Some(state), &SocketCounters::default()));
        let good = text(&state);
        assert_eq!(good.text, "Control arrives in 31 ms over 2 of 2 paths.");
        assert_eq!(good.level, Level::Good);
        let mut silent = state.clone();
        silent.classes[0].silent_ms = Some(3_200.0);
        let connected =
            "Connected to the aircraft over 2 of 2 paths; no control message has arrived";
        let ended = Verdict { level: Level::Limited, text: format!("{connected} for 3.2 s.") };
        assert_eq!(text(&silent), ended);
        (silent.classes[0].silent_ms, silent.classes[0].delay_p50_ms) = (None, None);
        let begun = Verdict { level: Level::Good, text: format!("{connected} yet.") };
        assert_eq!(text(&silent), begun);
        state.paths[1].incoming = PathState::Down;
        assert_eq!(text(&state).text, "Control arrives in 31 ms over 1 of 2 paths.");
        assert_eq!(text(&state).level, Level::Limited);
        state.paths[0].outgoing = PathState::Down;
        let crossed = "Control arrives in 31 ms over paths that carry one way each.";
        assert_eq!((text(&state).text.as_str(), text(&state).level), (crossed, Level::Limited));
        state.paths[1].outgoing = PathState::Down;
        assert_eq!(text(&state).text, "Nothing gets through to the aircraft, which is heard.");
        assert_eq!(text(&state).level, Level::Bad);
        state.paths[1] = sample::snapshot().paths[1].clone();
        state.classes[0].late_share = Some(1.0);
        let late = "Control arrives too late on every path and is dropped.";
        assert_eq!((text(&state).text.as_str(), text(&state).level), (late, Level::Bad));
        state.classes[0].late_share = None;
        state.paths.iter_mut().for_each(|path| path.incoming_late = true);
        assert_eq!((text(&state).text.as_str(), text(&state).level), (late, Level::Bad));
        state.paths.iter_mut().for_each(|path| path.incoming_late = false);
        state.paths[1].outgoing_late = true;
        let late = "Control reaches the aircraft too late on every path and is dropped there.";
        assert_eq!((text(&state).text.as_str(), text(&state).level), (late, Level::Bad));
        state.session = false;
        state.silent_ms = Some(3210.0);
        assert_eq!(text(&state).text, "Nothing has been heard from the aircraft for 3.2 s.");
        assert_eq!(text(&state).level, Level::Bad);
        state.session_expired = true;
        let ended = "The session with the aircraft has ended: no handshake gets through.";
        assert_eq!((text(&state).text.as_str(), text(&state).level), (ended, Level::Bad));
        assert_eq!(judge(None, &[]).text, "Starting.");
    }

    #[test]
    fn an_alarm_says_which_path_or_channel_lacks_what() {
        let mut state = sample::snapshot();
        assert_eq!(alarms(Some(&state), &SocketCounters::default()), Vec::<String>::new());
        state.paths[0].incoming = PathState::Down;
        state.paths[1].data_left = Some(0);
        state.channels[1].shared = false;
        state.paths[1].mtu = 640;
        state.paths[1].mtu_state = MtuState::Error;
        state.paths[1].incoming_mtu = Some(576);
        state.paths[1].peer_mtu_error = true;
        state.session_overdue = true;
        state.peer_duplicated = true;
        state.classes[0].late_share = Some(0.25);
        (state.paths[0].outgoing_late, state.paths[0].outgoing_delay_ms) = (true, Some(14_000.0));
        state.paths[1].incoming_loss = Some(0.88);
        let edge = |name: &str, open| PathCounters {
            name: name.into(),
            open,
            error: open.then(|| "Network is unreachable".into()),
            failing: open,
            ..Default::default()
        };
        let paths = vec![edge("lte", false), edge("dish", true), edge("leo", false)];
        let gone = |key: &str, text: &str| (key.to_string(), text.to_string());
        let raised = [gone("leo", "path `leo` has no socket"), gone("serial", "serial is gone")];
        assert_eq!(
            alarms(
                Some(&state),
                &SocketCounters { paths, local: Vec::new(), alarms: raised.into() }
            ),
            [
                "lte: cannot be used here: the interface, the address or the name is not there",
                "path `leo` has no socket",
                "serial is gone",
                "two gateways use the key of the other end: the first keeps the session; stop \
                 the other, or give it its own key",
                "no handshake gets through to change keys: the session ends in 9 min",
                "dish: nothing can be sent from here: Network is unreachable",
                "dish: nothing gets through from the other end",
                "dish: 14.0 s to the other end, too long for control",
                "lte: 88 % are lost from the other end",
                "lte: larger packets than 640 B do not get through to the other end",
                "lte: larger packets than 576 B do not get through from the other end",
                "control: 25 % of messages arrive too late and are dropped",
                "lte: its data volume is used up; it carries only what no other path can",
                "video: the other end's file has no channel of this name",
            ]
        );
    }
}
