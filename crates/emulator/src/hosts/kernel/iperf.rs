//! Results of a flow in the format of iperf3 with `--json`, for tools that read it.
//!
//! Source: the output of iperf 3.12 for a TCP test, as written by its client; `sender` in `end` is true for
//! both directions' entries there, and so it is here.

use serde_json::{Value, json};
use skybraid_host::record::SubflowRow;
use skybraid_host::{FlowSetup, Host};
use skybraid_traffic::TrafficConfig;
use skybraid_units::{Duration, Instant};

use super::Finished;

/// Results of a finished flow.
#[derive(Clone, Copy, Debug)]
pub struct Test<'a> {
    /// Flow setup of the scenario.
    pub flow: &'a FlowSetup,
    /// Index of the flow in the scenario.
    pub index: usize,
    /// Samples of subflows; those of other flows and of the other direction are ignored.
    pub rows: &'a [SubflowRow],
    /// Results of the flow's connection.
    pub finished: &'a Finished,
    /// End of the run.
    pub end: Instant,
}

/// Aggregated samples of an interval.
#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    retransmits: u64,
    /// Sum of the windows of all subflows at their last sample.
    window: u64,
    /// Sum, count, minimum and maximum of round-trip times in µs.
    srtt_sum: u64,
    srtt_count: u64,
    srtt_least: Option<u64>,
    srtt_most: u64,
}

impl Stretch {
    fn of<'a>(rows: impl Iterator<Item = &'a SubflowRow>) -> Self {
        let mut stretch = Self::default();
        let mut last = None;
        for row in rows {
            stretch.retransmits += row.retransmitted;
            if last != Some(row.at) {
                (last, stretch.window) = (Some(row.at), 0);
            }
            stretch.window += row.window;
            if let Some(srtt) = row.srtt {
                let us = srtt.as_nanos().unsigned_abs() / 1000;
                stretch.srtt_sum += us;
                stretch.srtt_count += 1;
                stretch.srtt_least = Some(stretch.srtt_least.map_or(us, |least| least.min(us)));
                stretch.srtt_most = stretch.srtt_most.max(us);
            }
        }
        stretch
    }

    fn mean_srtt(&self) -> u64 {
        self.srtt_sum.checked_div(self.srtt_count).unwrap_or(0)
    }
}

/// Returns the test as iperf3 would have written it at its sending end, in intervals that are the run's
/// seconds, counted from the flow's start.
///
/// Bytes are payload bytes, round-trip times are in µs, `snd_cwnd` is in bytes. With several subflows,
/// `snd_cwnd` is their sum, `rtt` their mean, and `retransmits` their total. Values of iperf3 about its host
/// (`cpu_utilization_percent`, `system_info`, `snd_wnd`, `rttvar`, `pmtu`) are left out; `received_bytes`,
/// the bytes received at the other end meanwhile, is an addition.
pub fn iperf_json(test: &Test<'_>) -> Value {
    let Test { flow, finished, .. } = test;
    let stop = flow.stop.min(test.end).max(flow.start);
    let seconds = (stop - flow.start).as_secs_f64();
    let vehicle = flow.from == Host::Vehicle;
    let mine = |row: &&SubflowRow| usize::from(row.flow) == test.index && row.vehicle() == vehicle;
    let socket = test.index;
    let (sent, received) = (&finished.sent_by_second, &finished.received_by_second);
    // The first interval is the second of the run in which the flow starts.
    let first = usize::try_from(flow.start.as_nanos() / 1_000_000_000).unwrap_or(0);
    // Data read shortly after the end counts to the last second before it.
    let until_ns = usize::try_from((test.end - Instant::ZERO).as_nanos().max(0)).unwrap_or(0);
    let last = sent.len().max(received.len()).min(until_ns.div_ceil(1_000_000_000)).max(first);
    let count = |seconds: &[u64], second: usize| -> u64 {
        let most = if second + 1 == last { usize::MAX } else { 1 };
        seconds.iter().skip(second).take(most).sum()
    };
    let intervals: Vec<Value> = (first..last)
        .map(|second| {
            let from = Instant::ZERO + Duration::from_secs(second as i64);
            let until = (from + Duration::from_secs(1)).min(test.end).max(from);
            let rows = test.rows.iter().filter(mine);
            let rows = rows.filter(|row| from <= row.at && row.at < from + Duration::from_secs(1));
            let stretch = Stretch::of(rows);
            let (bytes, arrived) = (count(sent, second), count(received, second));
            let (start, end) =
                ((from - flow.start).as_secs_f64(), (until - flow.start).as_secs_f64());
            let mut stream = transfer(start.max(0.0), end, bytes);
            set(&mut stream, "retransmits", stretch.retransmits);
            let mut sum = stream.clone();
            set(&mut stream, "socket", socket);
            set(&mut stream, "snd_cwnd", stretch.window);
            set(&mut stream, "rtt", stretch.mean_srtt());
            set(&mut stream, "received_bytes", arrived);
            for value in [&mut stream, &mut sum] {
                set(value, "omitted", false);
                set(value, "sender", true);
            }
            json!({ "streams": [stream], "sum": sum })
        })
        .collect();
    let most = test.rows.iter().filter(mine).map(|row| row.window).max().unwrap_or(0);
    let whole = Stretch::of(test.rows.iter().filter(mine));
    let mut sum_sent = transfer(0.0, seconds, sent.iter().sum());
    set(&mut sum_sent, "retransmits", finished.retransmitted);
    set(&mut sum_sent, "sender", true);
    let mut sum_received = transfer(0.0, seconds, received.iter().sum());
    set(&mut sum_received, "sender", true);
    let mut sender = sum_sent.clone();
    set(&mut sender, "socket", socket);
    set(&mut sender, "max_snd_cwnd", most);
    set(&mut sender, "max_rtt", whole.srtt_most);
    set(&mut sender, "min_rtt", whole.srtt_least.unwrap_or(0));
    set(&mut sender, "mean_rtt", whole.mean_srtt());
    let mut receiver = sum_received.clone();
    set(&mut receiver, "socket", socket);
    let congestion = finished.congestion;
    let mut json = json!({
        "start": start(test, seconds),
        "intervals": intervals,
        "end": {
            "streams": [{ "sender": sender, "receiver": receiver }],
            "sum_sent": sum_sent,
            "sum_received": sum_received,
            "sender_tcp_congestion": congestion,
            "receiver_tcp_congestion": congestion,
        },
    });
    if let Some(error) = &finished.ended {
        set(&mut json, "error", error.to_string());
    }
    json
}

fn start(test: &Test<'_>, seconds: f64) -> Value {
    let Test { flow, finished, .. } = test;
    let (vehicle, ground) = finished.addresses;
    let (local, remote) = match flow.from {
        Host::Vehicle => (vehicle, ground),
        Host::Ground => (ground, vehicle),
    };
    let rate = match &flow.traffic {
        TrafficConfig::Cbr { rate, .. } | TrafficConfig::OnOff { rate, .. } => rate.as_bps(),
        TrafficConfig::Video(video) => video.rate.as_bps(),
        TrafficConfig::Bulk { .. } | TrafficConfig::File { .. } | TrafficConfig::Ping { .. } => 0,
    };
    json!({
        "connected": [{
            "socket": test.index,
            "local_host": local.ip().to_string(),
            "local_port": local.port(),
            "remote_host": remote.ip().to_string(),
            "remote_port": remote.port(),
        }],
        "version": concat!("skybraid ", env!("CARGO_PKG_VERSION")),
        "connecting_to": { "host": ground.ip().to_string(), "port": ground.port() },
        "title": flow.name,
        "target_bitrate": rate,
        "test_start": {
            "protocol": "TCP",
            "num_streams": 1,
            "blksize": super::flow::message_bytes(&flow.traffic),
            "omit": 0,
            "duration": seconds,
            "bytes": 0,
            "blocks": 0,
            "reverse": u8::from(flow.from == Host::Ground),
            "tos": 0,
            "target_bitrate": rate,
        },
    })
}

/// Returns the common keys of all transfers in iperf3.
fn transfer(start: f64, end: f64, bytes: u64) -> Value {
    let seconds = end - start;
    let rate = if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 };
    json!({
        "start": start,
        "end": end,
        "seconds": seconds,
        "bytes": bytes,
        "bits_per_second": rate,
    })
}

fn set(object: &mut Value, key: &str, value: impl Into<Value>) {
    if let Some(object) = object.as_object_mut() {
        object.insert(key.to_owned(), value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ms: i64, path: u16, window: u64, srtt_ms: i64, retransmitted: u64) -> SubflowRow {
        SubflowRow {
            at: Instant::from_millis(ms),
            flow: 2,
            end: 0,
            path,
            subflow: path as u8,
            window,
            threshold: u64::MAX,
            srtt: Some(Duration::from_millis(srtt_ms)),
            in_flight: 0,
            acked_bytes: 0,
            retransmitted,
            lost: 0,
            reductions: 0,
            pacing_bps: None,
        }
    }

    fn json() -> Value {
        json_of(Instant::from_millis(10_000), vec![0, 2500, 500], vec![0, 2000, 1000])
    }

    fn json_of(end: Instant, sent_by_second: Vec<u64>, received_by_second: Vec<u64>) -> Value {
        let mut flow = super::super::tests::flow("cbr", "cubic");
        (flow.start, flow.stop) = (Instant::from_millis(1000), Instant::from_millis(3000));
        let finished = Finished {
            handshake: None,
            fell_back: false,
            subflows: 2,
            congestion: "cubic",
            addresses: ("10.0.0.1:4000".parse().unwrap(), "10.0.0.2:5000".parse().unwrap()),
            sent_by_second,
            received_by_second,
            retransmitted: 4,
            ended: None,
        };
        let other = SubflowRow { flow: 1, ..row(1200, 0, 77, 7, 7) };
        let answers = SubflowRow { end: 1, ..row(1200, 0, 77, 7, 7) };
        let rows = [
            row(1100, 0, 9000, 20, 0),
            row(1900, 0, 5000, 30, 1),
            row(1900, 1, 6000, 100, 2),
            other,
            answers,
            row(2100, 0, 4000, 40, 1),
        ];
        let index = 2;
        let (flow, finished) = (&flow, &finished);
        iperf_json(&Test { flow, index, rows: &rows, finished, end })
    }

    // Source: output of iperf 3.12 with `-J` for a TCP test.
    #[test]
    fn the_keys_that_readers_of_iperf3_look_for_are_there() {
        let json = json();
        let sum = ["start", "end", "seconds", "bytes", "bits_per_second", "retransmits", "sender"];
        for (pointer, keys) in [
            ("", &["start", "intervals", "end"][..]),
            ("/start", &["connected", "version", "connecting_to", "test_start"]),
            (
                "/start/connected/0",
                &["socket", "local_host", "local_port", "remote_host", "remote_port"],
            ),
            (
                "/start/test_start",
                &["protocol", "num_streams", "blksize", "omit", "duration", "bytes", "reverse"],
            ),
            ("/intervals/0/sum", &sum),
            ("/intervals/0/sum", &["omitted"]),
            ("/intervals/0/streams/0", &sum),
            ("/intervals/0/streams/0", &["socket", "snd_cwnd", "rtt", "omitted"]),
            ("/end/sum_sent", &sum),
            ("/end/sum_received", &["start", "end", "seconds", "bytes", "bits_per_second"]),
            ("/end/streams/0/sender", &sum),
            (
                "/end/streams/0/sender",
                &["socket", "max_snd_cwnd", "max_rtt", "min_rtt", "mean_rtt"],
            ),
            ("/end/streams/0/receiver", &["socket", "bytes", "bits_per_second"]),
            ("/end", &["sender_tcp_congestion", "receiver_tcp_congestion"]),
        ] {
            let object = json.pointer(pointer).and_then(Value::as_object);
            for key in keys {
                assert!(object.is_some_and(|object| object.contains_key(*key)), "{pointer}/{key}");
            }
        }
    }

    #[test]
    fn intervals_start_with_the_flow_and_their_bytes_add_up() {
        let json = json();
        let number = |pointer: &str| json.pointer(pointer).and_then(Value::as_f64).unwrap();
        assert_eq!(json["intervals"].as_array().unwrap().len(), 2);
        assert_eq!((number("/intervals/0/sum/start"), number("/intervals/0/sum/end")), (0.0, 1.0));
        assert_eq!(number("/intervals/0/sum/bits_per_second"), 20_000.0);
        assert_eq!(number("/intervals/0/sum/bytes") + number("/intervals/1/sum/bytes"), 3000.0);
        assert_eq!(
            (number("/end/sum_sent/bytes"), number("/end/sum_received/bytes")),
            (3000.0, 3000.0)
        );
        assert_eq!(number("/end/sum_received/bits_per_second"), 12_000.0);
        assert_eq!(number("/end/sum_sent/retransmits"), 4.0);
    }

    #[test]
    fn bytes_just_after_the_end_belong_to_the_last_interval() {
        let json = json_of(Instant::from_millis(2500), vec![0, 2500, 500], vec![0, 2000, 900, 100]);
        assert_eq!(json["intervals"].as_array().unwrap().len(), 2);
        let last = &json["intervals"][1]["streams"][0];
        assert_eq!(
            (last["end"].as_f64(), last["received_bytes"].as_u64()),
            (Some(1.5), Some(1000))
        );
        let on_the_second = json_of(Instant::from_millis(2000), vec![0, 2500], vec![0, 2000, 7]);
        assert_eq!(on_the_second["intervals"].as_array().unwrap().len(), 1);
        assert_eq!(on_the_second["intervals"][0]["streams"][0]["received_bytes"], 2007);
    }

    #[test]
    fn windows_of_subflows_add_up_and_round_trips_are_averaged() {
        let json = json();
        let stream = |second: usize| &json["intervals"][second]["streams"][0];
        assert_eq!(stream(0)["snd_cwnd"], 11_000);
        assert_eq!(stream(0)["rtt"], 50_000);
        assert_eq!((&stream(0)["retransmits"], &stream(1)["retransmits"]), (&3.into(), &1.into()));
        let sender = &json["end"]["streams"][0]["sender"];
        assert_eq!((&sender["min_rtt"], &sender["max_rtt"]), (&20_000.into(), &100_000.into()));
    }
}
