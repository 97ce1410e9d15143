//! Parsers of trace files, and their errors.

use crate::common::{measurement, measurements, ms, near};
use skybraid_link::trace::{self, Quantity, csv, hypatia, ping};
use skybraid_link::{Series, TraceError, TraceFile};
use skybraid_units::{Duration, Instant};

fn rates(text: &str) -> Result<Series, String> {
    let file = csv::column(None, Some("Mbit/s"));
    csv::read(text, &file, Quantity::Rate).map_err(|error| error.to_string())
}

#[test]
fn a_table_with_headings_is_read_by_name_and_by_number() {
    let text = "time,rate,delay\n10.0,1.5,30\n10.5,2.5,40\n11.5,3.5,50\n";
    for column in ["delay", "3"] {
        let file = csv::column(Some(column), Some("ms"));
        let series = csv::read(text, &file, Quantity::Delay).unwrap();
        assert_eq!(series.values(), [30e6, 40e6, 50e6]);
        assert_eq!(series.times(), [ms(0.0), ms(500.0), ms(1500.0)]);
        assert_eq!(series.end(), ms(2500.0));
    }
}

#[test]
fn separators_comments_and_blank_lines_are_understood() {
    for text in [
        "1,5\n2,6\n",
        "1;5\n2;6\n",
        "1\t5\n2\t6\n",
        "1 5\n\n# note\n2   6",
        "\"t\",\"v\"\n1,5\n2,6",
    ] {
        assert_eq!(rates(text).unwrap().values(), [5e6, 6e6], "{text}");
    }
}

#[test]
fn lines_without_times_are_spaced_evenly() {
    let file =
        TraceFile { every: Some(Duration::from_millis(10)), ..csv::column(None, Some("ms")) };
    let series = csv::read("12\n16\n14\n", &file, Quantity::Delay).unwrap();
    assert_eq!(series.times(), [ms(0.0), ms(10.0), ms(20.0)]);
    assert_eq!((series.values(), series.end()), ([12e6, 16e6, 14e6].as_slice(), ms(30.0)));
}

#[test]
fn an_invalid_series_is_rejected_with_its_line() {
    for (text, error) in [
        ("", "the trace holds no samples; expected lines such as `0.1,25.4`"),
        ("time,rate\n", "the trace holds no samples; expected lines such as `0.1,25.4`"),
        ("1,5\n1,6\n", "line 2: found `1,6`, expected a time later than on the line before"),
        ("2,5\n1,6\n", "line 2: found `1,6`, expected a time later than on the line before"),
        ("1,5\n2,NaN\n", "line 2: found `NaN`, expected a number in column 2"),
        ("1,5\n2,inf\n", "line 2: found `inf`, expected a number in column 2"),
        ("1,5\n2,-6\n", "line 2: found `-6`, expected a rate from 0 to 1000 Tbit/s"),
        ("1,5\n2,1e308\n", "line 2: found `1e308`, expected a rate from 0 to 1000 Tbit/s"),
        ("1,5\n2,6,5\n", "line 2: found `2,6,5`, expected 2 cells, as on the first line"),
        ("1,5\n2\n", "line 2: found `2`, expected a number in column 2"),
        ("1,5\n2,six\n", "line 2: found `six`, expected a number in column 2"),
    ] {
        assert_eq!(rates(text).unwrap_err(), error);
    }
    let read =
        |file: &TraceFile| csv::read("a,b\n1,2\n", file, Quantity::Rate).unwrap_err().to_string();
    assert_eq!(
        read(&csv::column(Some("c"), Some("Mbit/s"))),
        "`column`: found `c`, expected a column of a, b"
    );
    assert!(
        read(&csv::column(None, None))
            .starts_with("`unit`: found `nothing`, expected one of bit/s")
    );
    assert!(read(&csv::column(None, Some("furlong"))).starts_with("`unit`: found `furlong`"));
    let loss = csv::read("0,50\n1,101\n", &csv::column(None, Some("%")), Quantity::Loss);
    assert!(loss.unwrap_err().to_string().starts_with("line 2: found `101`"));
    assert!(csv::read("5\n", &csv::column(None, Some("ms")), Quantity::Delay).is_err());
}

#[test]
fn units_are_known_in_the_spellings_of_tools() {
    for (quantity, size, units) in [
        (Quantity::Rate, 1e6, "Mbit/s Mb/s Mbps MBit/s Mbits/sec Mbits/second MBPS"),
        (Quantity::Rate, 1e3, "kbit/s Kbps kb/s KBPS"),
        (Quantity::Rate, 1.0, "bit/s bits/sec b/s bps"),
        (Quantity::Rate, 8e6, "MB/s MBps Mbytes/s"),
        (Quantity::Rate, 8.0 * 1024.0 * 1024.0, "MiB/s"),
        (Quantity::Delay, 1e3, "us µs μs usec"),
        (Quantity::Delay, 1e6, "ms MSEC milliseconds"),
        (Quantity::Delay, 1e9, "s Sec seconds"),
        (Quantity::Loss, 1e-2, "% pct Percent"),
    ] {
        for unit in units.split(' ') {
            assert_eq!(quantity.scale(Some(unit)), Ok(size), "{unit}");
        }
    }
    for unit in ["M", "Mbit", "xb/s", "ib", "/s", "ps", "bananas/s", "dBm", ""] {
        for quantity in [Quantity::Rate, Quantity::Delay, Quantity::Loss] {
            assert!(quantity.scale(Some(unit)).is_err(), "{unit}");
        }
    }
    let spelled = TraceFile {
        time_unit: Some("msec".to_string()),
        ..csv::column(Some("DL"), Some("Mbits/sec"))
    };
    let series = csv::read("time,DL\n0,12\n500,13\n", &spelled, Quantity::Rate).unwrap();
    assert_eq!((series.times()[1], series.values()[0]), (ms(500.0), 12e6));
}

#[test]
fn a_repeated_heading_is_rejected() {
    let error = rates("# drive\ntime,rate,rate\n0,1,2\n").unwrap_err();
    assert_eq!(error, "line 2: found `rate`, expected each column once");
    assert!(rates("time,rate,,\n0,1,2,3\n").is_ok(), "columns without a heading are not named");
    assert!(rates("1,5,5\n2,6,6\n").is_ok(), "a file without headings names nothing");
}

#[test]
fn an_unclosed_quote_is_rejected() {
    let error = rates("\"time,rate\n0,1\n").unwrap_err();
    assert_eq!(error, "line 1: found `\"time,rate`, expected a closing quote `\"`");
    assert!(rates("time,rate\n0,1\n1,\"2\n").unwrap_err().starts_with("line 3: found `1,\"2`"));
    let quoted = "\"time, of day\",\"rate\"\n0,\"1\"\n";
    let file = csv::column(Some("rate"), Some("Mbit/s"));
    assert_eq!(csv::read(quoted, &file, Quantity::Rate).unwrap().values(), [1e6]);
}

#[test]
fn a_delay_of_infinity_in_a_table_is_a_gap() {
    let delays = csv::column(None, Some("ms"));
    let series = csv::read("time,rtt\n0,5\n1,inf\n2,6\n", &delays, Quantity::Delay).unwrap();
    assert_eq!(series.values(), [5e6, f64::INFINITY, 6e6]);
    let error = |text| csv::read(text, &delays, Quantity::Delay).unwrap_err().to_string();
    assert!(error("0,5\n1,-inf\n").starts_with("line 2: found `-inf`"));
    assert!(error("0,5\ninf,5\n").starts_with("line 2: found `inf`"));
}

#[test]
fn a_ping_log_has_round_trip_times_and_losses() {
    let log = "PING 10.0.0.1 (10.0.0.1) 56(84) bytes of data.\n\
               [1000.100000] 64 bytes from 10.0.0.1: icmp_seq=1 ttl=64 time=100 ms\n\
               [1000.350000] 64 bytes from 10.0.0.1: icmp_seq=2 ttl=64 time=50.0 ms\n\
               [1000.360000] 64 bytes from 10.0.0.1: icmp_seq=2 ttl=64 time=60.0 ms (DUP!)\n\
               [1000.980000] 64 bytes from 10.0.0.1: icmp_seq=4 ttl=64 time=80.0 ms\n\
               --- 10.0.0.1 ping statistics ---\n\
               5 packets transmitted, 3 received, 40% packet loss, time 4000ms\n";
    let log = ping::read(log, None, false).unwrap();
    assert_eq!((log.sent, log.answered), (5, 3));
    assert_eq!(log.rtt.values(), [100e6, 50e6, f64::INFINITY, 80e6, f64::INFINITY]);
    let sent: Vec<f64> = log.rtt.times().iter().map(|time| time.as_secs_f64()).collect();
    for (found, expected) in sent.iter().zip([0.0, 0.3, 0.6, 0.9, 0.9 + 0.88 / 3.0]) {
        near(*found, expected, 1e-6);
    }
    assert_eq!(log.loss.values(), [0.0, 0.0, 1.0, 0.0, 1.0]);
    let one_way = log.one_way_delay().unwrap();
    assert_eq!(one_way.values(), [50e6, 25e6, f64::INFINITY, 40e6, f64::INFINITY]);
}

#[test]
fn round_trips_and_losses_of_a_ping_log_share_one_clock() {
    // The first two and the last three probes are lost: each series alone would have another start and end.
    let cut = "[1003.050] 64 bytes from a: icmp_seq=3 ttl=64 time=50 ms\n\
               [1004.050] 64 bytes from a: icmp_seq=4 ttl=64 time=50 ms\n\
               --- a ping statistics ---\n\
               7 packets transmitted, 2 received, 71% packet loss, time 6000ms\n";
    let log = ping::read(&format!("PING a (a) 56(84) bytes of data.\n{cut}"), None, true).unwrap();
    assert_eq!(log.rtt.times(), log.loss.times());
    assert_eq!((log.rtt.end(), log.loss.end()), (ms(7000.0), ms(7000.0)));
    assert_eq!(log.loss.values(), [1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
    let gap = f64::INFINITY;
    assert_eq!(log.rtt.values(), [gap, gap, 50e6, 50e6, gap, gap, gap]);
    // Without its heading a log was cut off: nothing before its first reply is known to be lost.
    let log = ping::read(cut, None, true).unwrap();
    assert_eq!(log.rtt.values(), [50e6, 50e6, gap, gap, gap]);
}

#[test]
fn a_lost_probe_is_between_its_neighbours_in_time() {
    // By the mean spacing of 5 s, probe 2 would be after probe 3, whose reply would be dropped.
    let log = "[1000.1] 64 bytes from a: icmp_seq=1 ttl=64 time=100 ms\n\
               [1002.1] 64 bytes from a: icmp_seq=3 ttl=64 time=100 ms\n\
               [1015.1] 64 bytes from a: icmp_seq=4 ttl=64 time=100 ms\n";
    let log = ping::read(log, None, true).unwrap();
    let sent: Vec<f64> = log.loss.times().iter().map(|at| at.as_secs_f64()).collect();
    for (found, expected) in sent.iter().zip([0.0, 1.0, 2.0, 15.0]) {
        near(*found, expected, 1e-6);
    }
    assert_eq!(log.loss.values(), [0.0, 1.0, 0.0, 0.0]);
}

#[test]
fn sequence_numbers_of_a_long_ping_log_start_over() {
    let reply = |number: u64| format!("64 bytes from a: icmp_seq={} time=5 ms\n", number % 65_536);
    // Probe 70 000 is lost, and the reply to 65 535 is after that to 65 536.
    let order =
        (1..=65_534).chain([65_536, 65_535]).chain((65_537..=69_999).chain(70_001..=140_000));
    let log = ping::read(&order.map(reply).collect::<String>(), None, true).unwrap();
    assert_eq!((log.sent, log.answered), (140_000, 139_999));
    assert_eq!(log.loss.values().iter().position(|lost| *lost == 1.0), Some(69_999));
}

#[test]
fn every_measured_ping_log_has_one_clock() {
    let logs = measurements(".out");
    for (name, text) in &logs {
        let log = match ping::read(text, None, true) {
            Ok(log) => log,
            // One of the logs has no reply.
            Err(TraceError::Empty { .. }) => continue,
            Err(error) => panic!("{name}: {error}"),
        };
        assert_eq!(log.rtt.times(), log.loss.times(), "{name}");
        assert_eq!(log.rtt.end(), log.loss.end(), "{name}");
        let lost = log.loss.values().iter().filter(|value| **value == 1.0).count();
        let gaps = log.rtt.values().iter().filter(|value| value.is_infinite()).count();
        assert_eq!(gaps, lost, "{name}");
    }
    if !logs.is_empty() {
        eprintln!("{} ping logs were read", logs.len());
    }
}

#[test]
fn a_ping_log_without_stamps_is_spaced_evenly() {
    let log = "64 bytes from 10.0.0.1: icmp_seq=1 ttl=64 time=0.5 ms\n\
               64 bytes from 10.0.0.1: icmp_seq=3 ttl=64 time=0.7 ms\n";
    let log = ping::read(log, Some(Duration::from_millis(200)), true).unwrap();
    assert_eq!(log.rtt.times(), [ms(0.0), ms(200.0), ms(400.0)]);
    assert_eq!(log.loss.values(), [0.0, 1.0, 0.0]);
    let log = "PING a (a) 56(84) bytes of data.\n64 bytes from a: icmp_seq=1 ttl=64 time=0.5 ms\n\
               3 packets transmitted, 1 received, 66.6667% packet loss, time 600ms\n";
    let log = ping::read(log, None, true).unwrap();
    assert_eq!(log.rtt.times(), [ms(0.0), ms(300.0), ms(600.0)]);
}

#[test]
fn a_last_reply_that_was_cut_off_is_left_out() {
    let log = "64 bytes from a: icmp_seq=1 ttl=64 time=5 ms\n";
    for end in ["64 bytes from a: icmp_s", "64 bytes from a: icmp_seq=2 ttl=64 time=1"] {
        let found = ping::read(&format!("{log}{end}"), None, true).unwrap();
        assert_eq!(found.rtt.values(), [5e6]);
        let error = ping::read(&format!("{log}{end}\n{log}"), None, true).unwrap_err().to_string();
        assert!(error.starts_with("line 2: found"), "{error}");
    }
}

#[test]
fn a_broken_ping_log_is_rejected() {
    let error = |text: &str| ping::read(text, None, true).unwrap_err().to_string();
    assert!(error("PING\n64 bytes from 10.0.0.1: ttl=64 time=1 ms").starts_with("line 2: found"));
    assert!(error("64 bytes from 10.0.0.1: icmp_seq=1 ttl=64").starts_with("line 1"));
    assert!(error("[noon] 64 bytes from a: icmp_seq=1 time=1 ms").contains("a stamp such as"));
    let huge =
        "PING a (10.0.0.1) 56(84) bytes of data.\n64 bytes from a: icmp_seq=999999999999 time=1 ms";
    assert!(error(huge).contains("fewer than"));
    assert!(error("64 bytes from a: icmp_seq=1 ttl=64 time=6,5 ms").starts_with("line 1: found"));
    let log = "PING a (10.0.0.1) 56(84) bytes of data.\n64 bytes from a: icmp_seq=1 time=1 ms\n";
    assert!(error(&log.repeat(2)).starts_with("line 3: found `PING a"));
    assert!(error("").contains("no samples"));
}

#[test]
fn a_hypatia_delay_is_half_the_round_trip_time() {
    let text = "0,1000,14000000\n0,2000,15000000\n1,2500,9\n0,2000,16000000\n0,4000,17000000\n";
    let series = hypatia::read(text, true).unwrap();
    assert_eq!(series.values(), [14e6, 16e6, 17e6]);
    assert_eq!(series.times().last().unwrap(), &Instant::from_nanos(3000));
    assert_eq!(hypatia::read_one_way(text, true).unwrap().values(), [7e6, 8e6, 8.5e6]);
    let error = |text| hypatia::read(text, true).unwrap_err().to_string();
    assert!(error("0,1,2\n0,x,2\n").starts_with("line 2: found `0,x,2`"));
    assert!(error("0,5,2\n0,4,2\n").starts_with("line 2"));
    assert!(error("0,5,-2\n").starts_with("line 1"));
    assert!(error("0\n").starts_with("line 1: found `0`, expected `flow_id,time_ns,rtt_ns` or"));
    assert!(error("").contains("no samples"));
}

/// Source: Hypatia's `print_routes_and_rtt`, which writes `"%d,%.10f"`, and 0 where there is no path.
#[test]
fn a_hypatia_file_of_a_path_has_gaps_where_there_is_no_path() {
    let text = "0,25331740.0000000000\n100000000,25331741.5000000000\n200000000,0.0000000000\n";
    let series = hypatia::read(text, true).unwrap();
    assert_eq!(series.values(), [25_331_740.0, 25_331_741.5, f64::INFINITY]);
    assert_eq!(series.end(), Instant::from_nanos(300_000_000));
    let one_way = hypatia::read_one_way(text, true).unwrap();
    assert_eq!(one_way.values(), [12_665_870.0, 12_665_870.75, f64::INFINITY]);
    let error = |text| hypatia::read(text, true).unwrap_err().to_string();
    assert!(error("0,1\n1,x\n").starts_with("line 2: found `1,x`, expected `time_ns,rtt_ns`"));
    assert!(error("0,1\n0,1,5\n").starts_with("line 2"));
    assert!(error("0,inf\n").starts_with("line 1"));
    assert!(error("0,0\n").contains("no samples"), "no path at any time");
}

#[test]
fn the_measured_files_parse() {
    let unit = |unit| csv::column(None, Some(unit));
    let Some(text) = measurement("baltaci2023_inputs/bitrate_dl.csv") else { return };
    let series = csv::read(&text, &unit("Mbit/s"), Quantity::Rate).unwrap();
    assert_eq!(series.values().len(), 1900);
    near(crate::common::mean(series.values()) / 1e6, 24.42, 0.005);
    assert_eq!(series.end(), Instant::from_secs_f64(1900.0));

    let text = measurement("baltaci2023_inputs/latency_ul.csv").unwrap();
    let series = csv::read(&text, &unit("ms"), Quantity::Delay).unwrap();
    near(crate::common::mean(series.values()) / 1e6, 52.06, 0.005);
    near(crate::common::sd(series.values()) / 1e6, 111.2, 0.1);

    let text = measurement("baltaci2023_inputs/satdelay_gw.csv").unwrap();
    let series = csv::read(&text, &unit("ms"), Quantity::Delay).unwrap();
    near(crate::common::mean(series.values()) / 1e6, 8.79, 0.005);

    let text = measurement("leocc_starlink/delay_example.txt").unwrap();
    let file = TraceFile { every: Some(Duration::from_millis(10)), ..unit("ms") };
    assert!(csv::read(&text, &file, Quantity::Delay).unwrap().values().len() > 11_000);

    let text = measurement("baltaci2023_inputs/tcp_flow_0_rtt.csv").unwrap();
    assert!(hypatia::read(&text, true).unwrap().values().len() > 4000);

    // In this file, -1 means a probe without a reply; a negative delay is rejected.
    let name = "aux_mmsys24_starlink/isl-ping-gw-lagos-230911-172603-0.1s-60min.txt";
    let text = measurement(name).unwrap();
    let file = csv::column(Some("3"), Some("ms"));
    let error = csv::read(&text, &file, Quantity::Delay).unwrap_err().to_string();
    assert!(error.starts_with("line 83: found `-1`"), "{error}");
    let answered: Vec<&str> = text.lines().filter(|line| !line.ends_with("\t-1")).collect();
    let series = csv::read(&answered.join("\n"), &file, Quantity::Delay).unwrap();
    assert_eq!(series.values().len(), 36_000 - 169);

    let folder = "pam2025_multicarrier_ping/trip2_05_13_2023/app/verizon/122651317";
    let text = measurement(&format!("{folder}/ping_123103537.out")).unwrap();
    let log = ping::read(&text, None, true).unwrap();
    assert_eq!(log.sent, 150);
    near(log.rtt.end().as_secs_f64(), 30.0, 1.5);
}

proptest::proptest! {
    #[test]
    fn no_text_makes_a_reader_panic(text in "[0-9,;. \\-\n\ta-eN]{0,80}") {
        let _ = rates(&text);
        let _ = hypatia::read(&text, true);
        let _ = trace::mahimahi::read(&text);
        let line = format!("[{text}] 64 bytes from a: icmp_seq={text} time={text} ms");
        let _ = ping::read(&line, None, true);
        let _ = ping::read(&text, None, false);
    }
}
