//! CCID 5: BBR version 1 as a congestion control of DCCP.
//!
//! Source: MP-DCCP for Linux, `ccid5.c`; draft-romo-iccrg-ccid5. The window model is that of
//! [`bbr`], fed with the packets that acknowledgement vectors report.

use alloc::boxed::Box;

use super::{Congestion, PathBasics, bbr};
use crate::algorithm;
use crate::registry::Compat;

algorithm! {
    name: "ccid5",
    summary: "BBR version 1 over DCCP: gains, filters and probing of `bbr`, without its detection \
              of policers, which low rates and gaps of unreliable flows would trigger.",
    source: "draft-romo-iccrg-ccid5; MP-DCCP for Linux, ccid5.c",
    linux: "gains and rounding of Linux's BBR, see `bbr`",
    parameters: {
        compat: Compat = Compat::Paper, "paper or linux", "paper", "gains and rounding of the draft, or of Linux";
        radio: bool = false, "true or false", "false",
            "for radio links: compensate losses that do not depend on the rate, up to 60 %; do not shrink \
             the window after a loss; do not drain paths whose round trips are near their minimum";
    }
}

impl Config {
    /// Builds a new instance.
    pub fn build(&self, path: &PathBasics) -> Box<dyn Congestion> {
        let Self { compat, radio } = *self;
        bbr::Config { compat, radio, policer: false, ..bbr::Config::default() }.build(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skybraid_units::Bytes;

    // Source: the algorithm reference, §6.4: an initial window of ten packets.
    #[test]
    fn it_starts_with_ten_packets_and_paces_at_once() {
        let control = Config::default().build(&PathBasics::in_test(
            Bytes::new(1400),
            Bytes::new(14_000),
            Bytes::new(u64::MAX),
        ));
        assert_eq!(control.window(), Bytes::new(14_000));
        assert!(control.governs_recovery());
    }
}
