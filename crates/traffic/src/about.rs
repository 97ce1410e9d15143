//! What kinds of traffic there are, for `list` and the documentation.

/// A kind of traffic.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its name in a scenario.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// Its keys: name, unit, default.
    pub parameters: &'static [(&'static str, &'static str, &'static str)],
    /// Where it comes from.
    pub source: &'static str,
}

/// Every kind.
pub const ALL: &[Kind] = &[
    Kind {
        name: "cbr",
        summary: "Messages of one size at a constant bit rate, as iPerf sends UDP.",
        parameters: &[("rate", "bit/s", "required"), ("packet", "B", "required")],
        source: "baltaci2023 §2.3",
    },
    Kind {
        name: "bulk",
        summary: "As much as the transport takes.",
        parameters: &[("packet", "B", "16KiB")],
        source: "pedrazzi2020 §1.3 (BulkSend)",
    },
    Kind {
        name: "on_off",
        summary: "Constant bit rate for a while, then silence, in turn.",
        parameters: &[
            ("rate", "bit/s", "required"),
            ("packet", "B", "required"),
            ("on", "time", "required"),
            ("off", "time", "required"),
        ],
        source: "pedrazzi2020 §1.3",
    },
    Kind {
        name: "file",
        summary: "A number of bytes, once, as one message.",
        parameters: &[("size", "B", "required")],
        source: "algorithm reference §9.3",
    },
    Kind {
        name: "ping",
        summary: "Small messages at a steady interval, each answered by one of the same size.",
        parameters: &[("every", "time", "required"), ("packet", "B", "56B")],
        source: "chavali2022 CHV-E03",
    },
];
