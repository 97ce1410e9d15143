//! Tests of invalid links and events.

use super::{refused_at_end, refused_at_line, refused_override};

#[test]
fn an_invalid_link_effect_is_rejected() {
    refused_at_line(
        5,
        "uplink.queue = { packet = 3 }",
        "scenarios/x.toml:5: path.lte.uplink.queue.packet: unknown key `packet`; did you mean `packets`? (expected one of `packets`, `holds_delay`, `bytes`, `time`, `codel`)",
    );
    refused_at_line(
        5,
        "uplink.queue = 3",
        "scenarios/x.toml:5: path.lte.uplink.queue: found integer `3`, expected \"unlimited\", or a table such as { packets = 1000 } or { bytes = \"64kB\" }",
    );
    refused_at_line(
        5,
        "uplink.queue = { packets = 0 }",
        "scenarios/x.toml:5: path.lte.uplink.queue.packets: found `0`, expected a limit above zero",
    );
    refused_at_line(
        5,
        r#"uplink.harq = "on""#,
        r#"scenarios/x.toml:5: path.lte.uplink.harq: found "on", expected a table or "off""#,
    );
    refused_at_line(
        5,
        r#"uplink.harq = { los = "1%" }"#,
        "scenarios/x.toml:5: path.lte.uplink.harq.los: unknown key `los`; did you mean `loss`? (expected one of `loss`, `round_trip`, `catch_up`)",
    );
    refused_at_line(
        5,
        r#"uplink.harq = { loss = "1" }"#,
        "scenarios/x.toml:5: path.lte.uplink.harq.loss: `1` has no unit; expected one of %, ppm, for example `0.17%`",
    );
    refused_at_line(
        5,
        r#"uplink.harq = { round_trip = "1ms" }"#,
        "scenarios/x.toml:5: path.lte.uplink.harq.loss: found nothing, expected a probability",
    );
    refused_at_line(
        5,
        "uplink.loss = { uniform = 0.01 }",
        r#"scenarios/x.toml:5: path.lte.uplink.loss.uniform: found floating point `0.01`, expected a probability with a unit, for example "0.17%""#,
    );
    refused_at_line(
        5,
        r#"uplink.loss = [{ uniform = "1%" }, { unifrom = "1%" }]"#,
        "scenarios/x.toml:5: path.lte.uplink.loss[1].unifrom: unknown key `unifrom`; did you mean `uniform`? (expected one of `uniform`, `bit_errors`, `gilbert_elliott`, `on_off`, `lutz`, `trace`, `format`, `column`, `unit`, `time`, `time_unit`, `every`, `repeat`, `start`, `together`, `resample`)",
    );
    refused_at_line(
        5,
        "uplink.loss = { bit_errors = nan }",
        "scenarios/x.toml:5: path.lte.uplink.loss.bit_errors: found `NaN`, expected errors per bit from 0 to 1",
    );
    refused_at_line(
        5,
        r#"handover = { interval = "20s", interruption = { mixture = "lte-arial" } }"#,
        "scenarios/x.toml:5: path.lte.handover.interruption.mixture: `lte-arial` is not a known mixture; expected lte-aerial",
    );
    refused_at_line(
        5,
        "drx = 2020-01-01",
        "scenarios/x.toml:5: path.lte.drx: found a date, expected a value with a unit or a table",
    );
}

#[test]
fn an_event_without_effect_is_rejected() {
    refused_at_end(
        "[[event]]\nat = \"1s\"",
        r#"scenarios/x.toml:14: event[0]: the event has no effect; expected for example `path.NAME.down = "20s"` or `path.NAME.uplink.rate = "5Mbit/s"`"#,
    );
    refused_at_end(
        "[[event]]\nat = \"10s\"\npath.leo.down = \"1s\"",
        "scenarios/x.toml:15: event[0].at: found 10s, expected an instant before the end of the run of 10s",
    );
    refused_at_end(
        "[[event]]\nat = \"1s\"\npath.loe.down = \"1s\"",
        "scenarios/x.toml:16: event[0].path.loe: unknown path `loe`; did you mean `leo`? (expected one of `lte`, `leo`)",
    );
    refused_at_end(
        "[[event]]\nat = \"1s\"\npath.leo.down = \"0s\"",
        "scenarios/x.toml:16: event[0].path.leo.down: found `0s`, expected a time above zero",
    );
    refused_at_end(
        "[[event]]\nat = \"1s\"\npath.leo.uplink = {}",
        r#"scenarios/x.toml:16: event[0].path.leo: the event has no effect; expected for example `path.NAME.down = "20s"` or `path.NAME.uplink.rate = "5Mbit/s"`"#,
    );
    refused_at_end(
        "[[event]]\nat = \"1s\"\npath.leo.uplink.rte = \"1Mbit/s\"",
        "scenarios/x.toml:16: event[0].path.leo.uplink.rte: unknown key `rte`; did you mean `rate`? (expected one of `rate`, `delay`, `loss`)",
    );
    refused_at_end(
        "[[event]]\nat = \"1s\"\npath.leo.rate = \"0Mbit/s\"",
        "scenarios/x.toml:16: event[0].path.leo.rate: found `0Mbit/s`, expected a rate above zero; an outage is written with `down`",
    );
    refused_at_end(
        "[[event]]\nat = \"1s\"\npath.leo.rate = \"1Mbit/s\"\npath.leo.uplink.rate = \"1Mbit/s\"",
        "scenarios/x.toml:17: event[0].path.leo.uplink.rate: the event sets the uplink's rate twice",
    );
}

#[test]
fn a_value_for_both_directions_is_named_as_written() {
    refused_at_line(
        5,
        "queue = { packets = 0 }",
        "scenarios/x.toml:5: path.lte.queue.packets: found `0`, expected a limit above zero",
    );
    refused_at_line(
        8,
        "rate = \"0Mbit/s\"",
        "scenarios/x.toml:8: path.leo.rate: found `0Mbit/s`, expected a rate above zero; an outage is written with `down`",
    );
    refused_override(
        "path.lte.loss",
        "{ uniform = 2 }",
        "override `path.lte.loss`: path.lte.loss.uniform: found integer `2`, expected a probability with a unit, for example \"0.17%\"",
    );
}

#[test]
fn a_queue_without_its_table_is_given_an_example() {
    refused_at_line(
        5,
        "queue = \"100kB\"",
        "scenarios/x.toml:5: path.lte.queue: found `100kB`, expected \"unlimited\", or a table such as { packets = 1000 } or { bytes = \"64kB\" }",
    );
}

#[test]
fn a_list_of_another_length_is_counted() {
    refused_at_line(
        5,
        "down = [[\"1s\"]]",
        "scenarios/x.toml:5: path.lte.down[0]: found a list of 1, expected a list of two",
    );
}

#[test]
fn a_table_in_place_of_a_list_is_shown_as_one() {
    refused_at_end(
        "[event]\nat = \"1s\"\npath.lte.down = \"1s\"",
        "scenarios/x.toml:14: event: found the table `[event]`, expected `[[event]]`, one of a list",
    );
}

#[test]
fn a_name_in_capitals_is_recognised() {
    refused_at_line(
        12,
        "transport.protocol = \"TCP\"",
        "scenarios/x.toml:12: flow.video.transport.protocol: unknown protocol `TCP`; did you mean `tcp`? (expected one of `udp`, `tcp`, `mptcp`, `parallel_tcp`, `dccp`, `mp-dccp`, `mp_dccp`)",
    );
}

#[test]
fn a_wrong_unit_in_traffic_is_located() {
    refused_at_line(
        11,
        "traffic = { kind = \"cbr\", rate = \"2Mb\", packet = \"1000B\" }",
        "scenarios/x.toml:11: flow.video.traffic.rate: `Mb` in `2Mb` is not a unit of rate; expected one of bit/s, kbit/s, Mbit/s, Gbit/s",
    );
}
