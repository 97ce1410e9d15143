//! Watchers of a running gateway: page, metrics and event log, each on its own thread. Message forwarding
//! never waits for a watcher.

use std::collections::VecDeque;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use nix::time::{ClockId, clock_gettime};
use skybraid_gateway::event::What;
use skybraid_gateway::snapshot::Snapshot;
use skybraid_gateway::{Event, GatewayConfig, Side};
use skybraid_units::{Duration, Instant};

use super::host::Hosts;
use super::http;
use super::verdict::{self, Verdict};
use super::{Lockdown, Shared, SocketCounters, log, metrics, page};
use skybraid_io::clock::Clock;

/// Maximum events kept for the page.
const MAX_EVENTS: usize = 200;
/// Maximum events queued for a thread.
const MAX_WAITING: usize = 1024;
/// Samples that the page draws: two minutes, twice a second.
const MAX_SAMPLES: usize = 240;
const SAMPLE_INTERVAL: Duration = Duration::from_millis(500);
const POLL_INTERVAL: std::time::Duration = std::time::Duration::from_millis(100);
/// Pause before a taken port of the page is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum time that threads may take to end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the wall clock in seconds since 1970; for display, never for durations.
pub(super) fn unix_s() -> f64 {
    clock_gettime(ClockId::CLOCK_REALTIME)
        .map_or(0.0, |time| time.tv_sec() as f64 + time.tv_nsec() as f64 * 1e-9)
}

/// Description of a gateway for its page and its log.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct GatewayInfo {
    pub version: &'static str,
    pub name: String,
    pub side: Side,
    pub paths: Vec<String>,
}

/// A timestamped event in the log and on the page.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct LoggedEvent {
    /// Time by the gateway's clock.
    t_ms: f64,
    unix: f64,
    event: Event,
}

/// State of the log.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub(super) struct LogState {
    /// File that is written, or the configured name before there is one.
    pub file: String,
    /// Error of the last writing, if it failed.
    pub fails: Option<String>,
    /// Number of lost lines.
    pub lost: u64,
}

/// A sample of the history shown on the page.
#[derive(Clone, Debug, serde::Serialize)]
struct HistorySample {
    t_ms: f64,
    /// One-way delay of each path from the peer, in the order of the paths.
    paths_ms: Vec<Option<f64>>,
    control_ms: Option<f64>,
}

/// Content of `/status.json`: the state with verdict and alarms.
#[derive(serde::Serialize)]
pub(super) struct Status {
    #[serde(flatten)]
    state: State,
    about: GatewayInfo,
    unix: f64,
    verdict: Verdict,
    alarms: Vec<String>,
    edges: SocketCounters,
    log: Option<LogState>,
    lockdown: Option<Lockdown>,
}

/// State of the gateway for the page and the log.
#[derive(serde::Serialize)]
#[serde(untagged)]
enum State {
    Known(Box<Snapshot>),
    /// The gateway has just started.
    Starting {
        session: bool,
        paths: [(); 0],
        classes: [(); 0],
    },
}

/// State that the threads share.
pub(super) struct WatchState {
    shared: Arc<Shared>,
    about: GatewayInfo,
    events: Mutex<VecDeque<LoggedEvent>>,
    history: Mutex<VecDeque<HistorySample>>,
    log: Mutex<Option<LogState>>,
    /// Error that keeps the page away.
    page: Mutex<Option<String>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WatchState {
    fn new(config: &GatewayConfig, shared: Arc<Shared>) -> Self {
        let about = GatewayInfo {
            version: env!("CARGO_PKG_VERSION"),
            name: config.name.clone(),
            side: config.side,
            paths: config.path.keys().cloned().collect(),
        };
        let log = config
            .log
            .as_ref()
            .map(|log| LogState { file: log.file.clone(), ..LogState::default() });
        Self {
            shared,
            about,
            events: Mutex::default(),
            history: Mutex::default(),
            log: Mutex::new(log),
            page: Mutex::default(),
        }
    }

    pub fn about(&self) -> &GatewayInfo {
        &self.about
    }

    pub fn state(&self) -> Option<Snapshot> {
        self.shared.snapshot()
    }

    fn stamp(&self, event: Event) -> LoggedEvent {
        let logged = LoggedEvent { t_ms: event.at.as_nanos() as f64 * 1e-6, unix: unix_s(), event };
        let mut events = locked(&self.events);
        if events.len() >= MAX_EVENTS {
            events.pop_front();
        }
        events.push_back(logged.clone());
        logged
    }

    /// Raises an alarm of the watchers.
    fn alarm(&self, text: String) -> LoggedEvent {
        let uptime_ms = self.state().map_or(0.0, |state| state.uptime_ms);
        let at = Instant::from_secs_f64(uptime_ms * 1e-3);
        self.stamp(Event { at, what: What::Alarm { text } })
    }

    /// Records lost log lines.
    pub fn log_lost(&self, lines: u64, why: &str) {
        let begins = {
            let mut log = locked(&self.log);
            let Some(log) = log.as_mut() else { return };
            log.lost += lines;
            log.fails.replace(why.to_string()).is_none()
        };
        if begins {
            self.alarm(format!("the event log cannot be written: {why}"));
        }
    }

    /// Records that the log was written to `path`. Returns an event to report if it could not be before.
    pub fn log_works(&self, path: &Path) -> Option<LoggedEvent> {
        let lost = {
            let mut log = locked(&self.log);
            let log = log.as_mut()?;
            log.file = std::path::absolute(path).unwrap_or(path.into()).display().to_string();
            log.fails.take()?;
            log.lost
        };
        Some(self.alarm(format!("the event log is written again; it lacks {lost} lines so far")))
    }

    fn remember(&self) {
        let Some(state) = self.state() else { return };
        let control = state.classes.iter().find(|class| class.name == "control");
        let moment = HistorySample {
            t_ms: state.uptime_ms,
            paths_ms: state.paths.iter().map(|path| path.incoming_delay_ms).collect(),
            control_ms: control.and_then(|class| class.delay_p50_ms),
        };
        let mut history = locked(&self.history);
        if history.len() >= MAX_SAMPLES {
            history.pop_front();
        }
        history.push_back(moment);
    }

    pub fn status(&self) -> Status {
        let (state, edges) = (self.state(), self.shared.edges());
        let mut alarms = verdict::alarms(state.as_ref(), &edges);
        let log = locked(&self.log).clone();
        if let Some(LogState { fails: Some(why), lost, .. }) = &log {
            alarms.push(format!("the event log cannot be written: {why}; {lost} lines are lost"));
        }
        alarms.extend(locked(&self.page).clone());
        let verdict = verdict::judge(state.as_ref(), &alarms);
        let state = match state {
            Some(state) => State::Known(Box::new(state)),
            None => State::Starting { session: false, paths: [], classes: [] },
        };
        Status {
            state,
            about: self.about.clone(),
            unix: unix_s(),
            verdict,
            alarms,
            edges,
            log,
            lockdown: self.shared.lockdown(),
        }
    }

    pub fn events_json(&self) -> String {
        serde_json::to_string(&*locked(&self.events)).unwrap_or_default()
    }

    pub fn history_json(&self) -> String {
        serde_json::to_string(&*locked(&self.history)).unwrap_or_default()
    }

    pub fn metrics(&self) -> String {
        let log = locked(&self.log).clone();
        let (state, edges) = (self.state(), self.shared.edges());
        metrics::text(self.about.version, state.as_ref(), &edges, log.as_ref())
    }
}

/// Threads that watch a gateway.
pub struct Watchers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Watchers {
    /// Starts the threads; the log is written to `log` (with a time added to its name). Events sent to the
    /// returned channel appear on the page and in the log.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(
        config: &GatewayConfig,
        log: Option<PathBuf>,
        shared: Arc<Shared>,
    ) -> std::io::Result<(SyncSender<Event>, Self)> {
        let watch = Arc::new(WatchState::new(config, shared.clone()));
        let (sender, events) = sync_channel(MAX_WAITING);
        let mut threads = Vec::new();
        let mut start = |name: &str, work: Box<dyn FnOnce() + Send>| {
            thread::Builder::new()
                .name(name.to_string())
                .spawn(work)
                .map(|thread| threads.push(thread))
        };
        let to_log = match (log, &config.log) {
            (Some(name), Some(config)) => {
                let (to_log, logged) = sync_channel(MAX_WAITING);
                let (watch, config) = (watch.clone(), config.clone());
                start("log", Box::new(move || log::keep(&watch, name, &config, &logged)))?;
                Some(to_log)
            }
            _ => None,
        };
        let listen = config.status.listen.clone();
        if !listen.is_empty() {
            let watch = watch.clone();
            let hosts = Hosts::new(&config.status.hosts);
            start("page", Box::new(move || serve(&watch, &listen, &hosts)))?;
        }
        start("events", Box::new(move || distribute(&watch, &events, to_log.as_ref())))?;
        Ok((sender, Self { shared, threads }))
    }

    /// Ends the threads, once the gateway has ended and its end of the channel is closed. A thread blocked on
    /// the disk is left running.
    pub fn finish(self) {
        self.shared.end();
        let clock = Clock::starting_now();
        while self.threads.iter().any(|thread| !thread.is_finished())
            && clock.now() < Instant::ZERO + SHUTDOWN_TIMEOUT
        {
            thread::sleep(POLL_INTERVAL / 10);
        }
    }
}

/// Distributes events to the page and the log.
fn distribute(
    watch: &WatchState,
    events: &Receiver<Event>,
    to_log: Option<&SyncSender<LoggedEvent>>,
) {
    let clock = Clock::starting_now();
    let mut remember_at = Instant::ZERO;
    loop {
        match events.recv_timeout(POLL_INTERVAL) {
            Ok(event) => {
                let logged = watch.stamp(event);
                if let Some(Err(TrySendError::Full(_))) = to_log.map(|log| log.try_send(logged)) {
                    watch.log_lost(1, "the disk is too slow");
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if clock.now() >= remember_at {
            remember_at = clock.now() + SAMPLE_INTERVAL;
            watch.remember();
        }
    }
}

/// Serves the page as soon as its port is free.
fn serve(watch: &WatchState, listen: &str, hosts: &Hosts) {
    let ended = || watch.shared.ended();
    let clock = Clock::starting_now();
    while !ended() {
        match TcpListener::bind(listen) {
            Ok(listener) => {
                *locked(&watch.page) = None;
                let served =
                    http::serve(&listener, hosts, &ended, &|path| page::answer(watch, path));
                if let Err(error) = served {
                    watch.alarm(format!("the page on {listen} has ended: {error}"));
                }
            }
            Err(error) => {
                let why = format!("there is no page on {listen}: {error}");
                if locked(&watch.page).replace(why.clone()).is_none() {
                    watch.alarm(why);
                }
            }
        }
        let again = clock.now() + RETRY_INTERVAL;
        while clock.now() < again && !ended() {
            thread::sleep(POLL_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use skybraid_gateway::event::{Direction, PathState};
    use std::fs;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    /// Returns an unused port.
    fn free_port() -> u16 {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
    }

    fn config(listen: &str, log: &str) -> GatewayConfig {
        let text = format!(
            "name = 'kite'\nside = 'ground'\nkey = 'k'\npeer = 'AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8='\n\
             [path.dish]\nlisten = '[::]:9417'\n[path.lte]\nlisten = '[::]:9417'\n[status]\nlisten = '{listen}'\n{log}"
        );
        let file = skybraid_scenario::GatewayFile::parse(&text, std::path::Path::new("g.toml"));
        file.unwrap().config
    }

    fn path_event(at_ms: i64) -> Event {
        let what = What::Path {
            path: "lte".into(),
            from: PathState::Up,
            to: PathState::Down,
            direction: Direction::Incoming,
        };
        Event { at: Instant::from_millis(at_ms), what }
    }

    fn until<T>(mut found: impl FnMut() -> Option<T>) -> T {
        for _ in 0..400 {
            if let Some(found) = found() {
                return found;
            }
            thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("never came true");
    }

    fn raw(address: &str, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[test]
    fn page_data_and_metrics_are_served_and_nothing_else() {
        let address = format!("127.0.0.1:{}", free_port());
        let shared = Arc::new(Shared::default());
        let (events, watchers) =
            Watchers::start(&config(&address, ""), None, shared.clone()).unwrap();
        let get = |path: &str| http::ask(&address, path);
        let json = |path: &str| serde_json::from_slice(&get(path).unwrap()).unwrap();
        let before: serde_json::Value =
            until(|| get("/status.json").ok().map(|_| json("/status.json")));
        assert_eq!(before["verdict"]["text"], "Starting.");
        assert_eq!((&before["session"], &before["paths"]), (&false.into(), &serde_json::json!([])));
        shared.publish(sample::snapshot(), SocketCounters::default());
        let status: serde_json::Value = json("/status.json");
        assert_eq!(status["verdict"]["text"], "Control arrives in 31 ms over 2 of 2 paths.");
        assert_eq!(status["paths"][1]["name"], "lte");
        assert_eq!(status["about"]["paths"][0], "dish");
        for at in 0..250 {
            events.send(path_event(at)).unwrap();
        }
        let logged: serde_json::Value = until(|| {
            Some(json("/events.json"))
                .filter(|value: &serde_json::Value| value[199]["t_ms"] == 249.0)
        });
        assert_eq!(logged.as_array().unwrap().len(), 200);
        assert_eq!(logged[0]["event"]["event"], "path");
        until(|| {
            Some(json("/history.json"))
                .filter(|value: &serde_json::Value| value[0]["control_ms"] == 31.2)
        });
        let text = String::from_utf8(get("/metrics").unwrap()).unwrap();
        assert!(text.contains("skybraid_path_rtt_seconds{path=\"lte\"} 0.06\n"));
        let html = String::from_utf8(get("/?from=phone").unwrap()).unwrap();
        assert!(html.starts_with("<!doctype html>"));
        let head = raw(&address, b"GET /metrics HTTP/1.0\r\n\r\n");
        assert!(head.contains("Content-Type: text/plain; version=0.0.4"), "{head}");
        for (request, status) in [
            ("GET /etc/passwd HTTP/1.1\r\n\r\n", "404"),
            ("GET /../ HTTP/1.1\r\n\r\n", "404"),
            ("POST /status.json HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi", "405"),
            ("HEAD / HTTP/1.1\r\n\r\n", "405"),
            ("nonsense\r\n\r\n", "400"),
            ("GET /status.json HTTP/1.1\r\nHost: rebound.example:9418\r\n\r\n", "421"),
            ("GET / HTTP/1.1\r\nHost: localhost\r\nhost: rebound.example\r\n\r\n", "421"),
            ("GET / HTTP/1.1\r\nHost: localhost:9418\r\n\r\n", "200"),
        ] {
            let answer = raw(&address, request.as_bytes());
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}\n{answer}");
            assert!(!answer.contains("Access-Control"), "{answer}");
        }
        let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(20_000));
        assert!(raw(&address, long.as_bytes()).starts_with("HTTP/1.1 431 "));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(65));
        assert!(raw(&address, many.as_bytes()).starts_with("HTTP/1.1 431 "));
        drop(events);
        watchers.finish();
        assert!(get("/status.json").is_err());
    }

    #[test]
    fn clients_that_say_nothing_keep_nobody_out() {
        let address = format!("127.0.0.1:{}", free_port());
        let shared = Arc::new(Shared::default());
        let (events, watchers) = Watchers::start(&config(&address, ""), None, shared).unwrap();
        until(|| http::ask(&address, "/status.json").ok());
        let silent: Vec<TcpStream> =
            (0..100).map(|_| TcpStream::connect(&address).unwrap()).collect();
        assert!(http::ask(&address, "/status.json").is_ok());
        drop((events, silent));
        watchers.finish();
    }

    #[test]
    fn a_port_in_use_is_reported_and_waited_for() {
        let holder = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = holder.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared::default());
        let watch = Arc::new(WatchState::new(&config(&address, ""), shared.clone()));
        let serving = {
            let (watch, address) = (watch.clone(), address.clone());
            thread::spawn(move || serve(&watch, &address, &Hosts::default()))
        };
        let alarm = until(|| watch.status().alarms.first().cloned());
        assert!(alarm.starts_with(&format!("there is no page on {address}: ")), "{alarm}");
        drop(holder);
        until(|| http::ask(&address, "/status.json").ok());
        assert_eq!(watch.status().alarms, Vec::<String>::new());
        shared.end();
        serving.join().unwrap();
    }

    /// Returns the lines of the only log in a folder.
    fn logged(folder: &std::path::Path) -> Vec<serde_json::Value> {
        let files: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(files.len(), 1);
        let text = fs::read_to_string(&files[0]).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn the_log_has_a_header_events_and_samples() {
        let folder = std::env::temp_dir().join(format!("skybraid-watch-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let name = folder.join("flight.jsonl");
        let shared = Arc::new(Shared::default());
        shared.publish(sample::snapshot(), SocketCounters::default());
        let text = "[log]\nfile = 'flight.jsonl'\nevery = '100ms'\n";
        let (events, watchers) = Watchers::start(&config("", text), Some(name), shared).unwrap();
        events.send(path_event(1500)).unwrap();
        thread::sleep(std::time::Duration::from_millis(300));
        drop(events);
        watchers.finish();
        let lines = logged(&folder);
        assert_eq!(lines[0]["format"], "skybraid-gateway-log");
        assert_eq!(lines[0]["version"], 1);
        assert_eq!(lines[0]["paths"][1], "lte");
        assert_eq!(lines[0]["side"], "ground");
        let event = lines.iter().find(|line| line.get("event").is_some()).unwrap();
        assert_eq!((&event["t_ms"], &event["event"]["to"]), (&1500.0.into(), &"down".into()));
        let samples: Vec<_> = lines.iter().filter(|line| line.get("sample").is_some()).collect();
        assert!(samples.len() >= 2);
        assert_eq!(samples[0]["t_ms"], 61_500.0);
        assert_eq!(samples[0]["sample"]["paths"][1]["rtt_ms"], 60.0);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_log_ends_with_the_state_at_the_end() {
        let folder = std::env::temp_dir().join(format!("skybraid-end-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let shared = Arc::new(Shared::default());
        let text = "[log]\nfile = 'flight.jsonl'\nevery = '1h'\n";
        let name = folder.join("flight.jsonl");
        let (events, watchers) =
            Watchers::start(&config("", text), Some(name), shared.clone()).unwrap();
        let mut state = sample::snapshot();
        state.uptime_ms += 1000.0;
        shared.publish(state, SocketCounters::default());
        drop(events);
        watchers.finish();
        assert_eq!(logged(&folder).last().unwrap()["sample"]["uptime_ms"], 62_500.0);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_status_names_the_log_that_is_written() {
        let text = "[log]\nfile = 'flight.jsonl'\n";
        let watch = WatchState::new(&config("", text), Arc::new(Shared::default()));
        let name = || watch.status().log.unwrap().file;
        assert_eq!(name(), "flight.jsonl");
        assert!(watch.log_works(Path::new("log/flight-1.jsonl")).is_none());
        let folder = std::env::current_dir().unwrap();
        assert_eq!(name(), folder.join("log/flight-1.jsonl").display().to_string());
    }

    #[test]
    fn an_unwritable_log_is_an_alarm_and_blocks_nothing() {
        let shared = Arc::new(Shared::default());
        shared.publish(sample::snapshot(), SocketCounters::default());
        let text = "[log]\nfile = '/proc/flight.jsonl'\nevery = '100ms'\n";
        let watch = Arc::new(WatchState::new(&config("", text), shared));
        let (to_log, logged) = sync_channel(MAX_WAITING);
        let keeping = {
            let watch = watch.clone();
            let config = config("", text).log.unwrap();
            thread::spawn(move || log::keep(&watch, "/proc/flight.jsonl".into(), &config, &logged))
        };
        let alarm = until(|| watch.status().alarms.first().cloned());
        assert!(
            alarm.starts_with("the event log cannot be written: /proc/flight.jsonl: "),
            "{alarm}"
        );
        assert_eq!(watch.status().verdict.level, verdict::Level::Limited);
        until(|| Some(()).filter(|()| watch.metrics().contains("skybraid_log_lost_lines_total ")));
        assert!(watch.events_json().contains("cannot be written"));
        drop(to_log);
        keeping.join().unwrap();
    }
}
