//! Live control over its socket, on a forwarder at work. Takes root.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration as StdDuration;

use crate::bed::Bed;
use serde_json::{Map, Value};
use skybraid_emulator::control::Server;
use skybraid_emulator::forward::{Forwarder, Lane, Options};
use skybraid_io::clock::Clock;
use skybraid_link::{Link, LinkConfig, RateSource};
use skybraid_units::{Duration, Rate, Seed};

fn place(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("skybraid-{name}-{}.socket", std::process::id()))
}

fn forwarder(bed: &Bed) -> Forwarder {
    let rate = RateSource::Constant(Rate::from_mbps(10.0));
    let config = LinkConfig::plain(rate, Duration::from_millis(20));
    let lane = Lane {
        name: "lte".into(),
        ends: bed.ends(0),
        up: vec![Link::new(&config, "lte", "uplink", Seed(1))],
        down: vec![Link::new(&config, "lte", "downlink", Seed(1))],
    };
    let options = Options::new(Clock::starting_now());
    bed.emulator.run(|| Forwarder::start(vec![lane], options)).unwrap()
}

struct Client(BufReader<UnixStream>);

impl Client {
    fn connect(path: &PathBuf) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(StdDuration::from_secs(60))).unwrap();
        Self(BufReader::new(stream))
    }

    fn read(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn ask(&mut self, line: &str) -> Value {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
        self.read()
    }
}

#[test]
fn a_path_is_cut_set_and_reset_by_hand() {
    let Some(bed) = Bed::new(&[1500]) else { return };
    let forwarder = forwarder(&bed);
    let path = place("hand");
    let stopped = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&stopped);
    let stop = move || {
        count.fetch_add(1, Ordering::Relaxed);
    };
    let server = Server::start(&path, forwarder.controls(), Map::new(), stop).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let (mut client, mut other) = (Client::connect(&path), Client::connect(&path));

    assert_eq!(client.ask(r#"{"do":"cut","path":"lte"}"#)["ok"], true);
    let status = other.ask(r#"{"do":"status"}"#);
    assert_eq!(status["paths"][0]["path"], "lte");
    assert_eq!(status["paths"][0]["uplink"]["up"], false);
    assert!(status["paths"][0]["downlink"]["down_since_s"].as_f64().unwrap() > 0.0);
    assert_eq!(client.ask(r#"{"do":"restore","path":"lte"}"#)["ok"], true);

    let set = r#"{"do":"set","path":"lte","direction":"downlink","rate":"5Mbit/s","delay":"30ms","loss":"1%"}"#;
    assert_eq!(client.ask(set)["ok"], true);
    let status = other.ask(r#"{"do":"status"}"#);
    let paths = &status["paths"][0];
    assert_eq!(paths["uplink"]["rate_bps"], 10_000_000);
    assert_eq!(paths["downlink"]["rate_bps"], 5_000_000);
    assert_eq!(paths["downlink"]["delay_ms"], 30.0);
    assert!((paths["downlink"]["loss"].as_f64().unwrap() - 0.01).abs() < 1e-12);
    assert_eq!(client.ask(r#"{"do":"reset","path":"lte"}"#)["ok"], true);
    let status = other.ask(r#"{"do":"status"}"#);
    assert_eq!(status["paths"][0]["downlink"]["rate_bps"], 10_000_000);

    let refused = client.ask(r#"{"do":"cut","path":"sat"}"#);
    assert_eq!(refused["ok"], false);
    assert_eq!(refused["error"], "found path `sat`, expected one of `lte`");
    assert_eq!(client.ask("nonsense")["ok"], false);
    assert_eq!(client.ask(r#"{"do":"stop"}"#)["ok"], true);
    assert_eq!(stopped.load(Ordering::Relaxed), 1);

    drop(server);
    assert!(!path.exists());
    forwarder.stop().unwrap();
}

#[test]
fn watchers_get_updates_and_a_stuck_client_harms_nobody() {
    let Some(bed) = Bed::new(&[1500]) else { return };
    let forwarder = forwarder(&bed);
    let path = place("watch");
    let _server = Server::start(&path, forwarder.controls(), Map::new(), || {}).unwrap();
    // Asks on and reads nothing, until the server drops it.
    let deaf = std::thread::spawn({
        let mut deaf = UnixStream::connect(&path).unwrap();
        move || while deaf.write_all(b"{\"do\":\"status\"}\n").is_ok() {}
    });
    let mut watcher = Client::connect(&path);
    let times = [watcher.ask(r#"{"do":"watch"}"#), watcher.read(), watcher.read()]
        .map(|status| status["at_s"].as_f64().unwrap());
    for pair in times.windows(2) {
        assert!((0.35..0.8).contains(&(pair[1] - pair[0])), "{times:?}");
    }
    deaf.join().unwrap();
    forwarder.stop().unwrap();
    assert!(
        Client::connect(&path).ask(r#"{"do":"cut","path":"lte"}"#)["error"]
            .as_str()
            .unwrap()
            .contains("the run has ended")
    );
}

#[test]
fn only_a_socket_at_which_nobody_answers_is_replaced() {
    let Some(bed) = Bed::new(&[1500]) else { return };
    let forwarder = forwarder(&bed);
    let path = place("place");
    let start = || Server::start(&path, forwarder.controls(), Map::new(), || {});
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let server = start().unwrap();
    assert!(start().err().unwrap().to_string().contains("the socket of another run"));
    drop(server);
    std::fs::write(&path, "mine").unwrap();
    assert!(start().err().unwrap().to_string().contains("found a file"));
    let mut text = String::new();
    std::fs::File::open(&path).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "mine");
    std::fs::remove_file(&path).unwrap();
}
