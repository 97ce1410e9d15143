//! Registry of the traffic kinds, for `list` and the documentation.

/// Registry entry of a traffic kind or rate control.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Name in a scenario.
    pub name: &'static str,
    /// Summary in one line.
    pub summary: &'static str,
    /// Name, unit and default of each key.
    pub parameters: &'static [(&'static str, &'static str, &'static str)],
    /// Publication or reference that defines it.
    pub source: &'static str,
}

/// All traffic kinds.
pub const ALL: &[Kind] = &[
    Kind {
        name: "cbr",
        summary: "Messages of one size at a constant bit rate, as iPerf sends UDP.",
        parameters: &[("rate", "bit/s", "required"), ("packet", "B", "required")],
        source: "baltaci2023 §2.3",
    },
    Kind {
        name: "bulk",
        summary: "As much data as the transport accepts.",
        parameters: &[("packet", "B", "16KiB")],
        source: "pedrazzi2020 §1.3 (BulkSend)",
    },
    Kind {
        name: "on_off",
        summary: "Alternates between constant bit rate and silence.",
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
        summary: "One message of a given size.",
        parameters: &[("size", "B", "required")],
        source: "algorithm reference §9.3",
    },
    Kind {
        name: "ping",
        summary: "Small messages at a constant interval, each answered by a message of the same \
                  size.",
        parameters: &[("every", "time", "required"), ("packet", "B", "56B")],
        source: "chavali2022 CHV-E03",
    },
    Kind {
        name: "video",
        summary: "Frames of a camera as RTP packets, one message per packet; the receiver has a \
                  jitter buffer and a screen.",
        parameters: &[
            ("clip", "model, a built-in clip or a file", "model"),
            ("codec", "h264 or h265", "h264"),
            ("rate", "bit/s", "required"),
            ("fps", "1 to 240", "30"),
            ("jitter_buffer", "time", "150ms"),
            ("key_every", "time", "1s"),
            ("intra_refresh", "true or false", "false"),
            ("slices", "1 to 64", "1"),
            ("packet", "B", "1200B"),
            ("spread", "time", "0ms"),
            ("rate_control", "a table with `kind`", "{ kind = \"constant\" }"),
            ("start_rate", "bit/s", "(rate)"),
            ("min_rate", "bit/s", "(a tenth of rate)"),
            ("duplicate", "none, keys or all", "none"),
            ("repair", "a table with `kind`", "none"),
            ("drop_after", "time", "none"),
        ],
        source: "baltaci2023 §2.3; RFC 3550, RFC 6184, RFC 7798, RFC 4571",
    },
];
