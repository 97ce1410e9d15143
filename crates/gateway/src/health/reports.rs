//! Reception reports of both ends for a path.

use skybraid_units::{Duration, Instant};

use super::probe::{Probe, Report};
use super::seen::ProbesSeen;
use crate::event::PathState;

/// Silence after which the numbers of probes may have gone round.
const MAX_SILENCE: Duration = Duration::from_secs(30);

/// Reports on one path.
#[derive(Clone, Copy, Debug, Default)]
pub struct PathReports {
    /// Received probes of the peer.
    seen: ProbesSeen,
    /// Arrival of the last of them.
    seen_at: Instant,
    /// Last report of the peer.
    last: Option<Report>,
    incoming_mtu: Option<(u32, bool)>,
}

impl PathReports {
    /// Records a probe of the peer on this path.
    pub fn on_probe(&mut self, now: Instant, probe: &Probe) {
        if now.since(core::mem::replace(&mut self.seen_at, now)) > MAX_SILENCE {
            self.seen = ProbesSeen::default();
        }
        self.seen.on_received(probe.number);
        self.incoming_mtu = Some((probe.mtu.into(), probe.mtu_error));
    }

    /// Records the peer's report on this path. Returns the one before it.
    pub const fn on_report(&mut self, report: &Report) -> Option<Report> {
        self.last.replace(*report)
    }

    /// Returns the received probes of the peer.
    pub const fn seen(&self) -> ProbesSeen {
        self.seen
    }

    /// Returns the state for what we send, which is the state at the peer.
    pub fn outgoing(&self) -> PathState {
        self.last.map_or(PathState::Unheard, |report| report.state)
    }

    /// Returns the last report of the peer.
    pub const fn last(&self) -> Option<Report> {
        self.last
    }

    /// Returns the largest IP packet that the peer sends, in bytes, and whether its packets of the base size are lost.
    pub const fn incoming_mtu(&self) -> Option<(u32, bool)> {
        self.incoming_mtu
    }

    /// Returns the share of sent datagrams that are lost.
    pub fn outgoing_loss(&self) -> f64 {
        self.last.map_or(0.0, |report| f64::from(report.loss) / 65_535.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_seen_after_a_silence_of_any_length() {
        for minutes in 1..60 {
            let mut reports = PathReports::default();
            for (second, number) in [(0, 0), (60 * minutes, 20 * 60 * minutes)] {
                let probe = Probe { number: number as u16, ..Probe::default() };
                reports.on_probe(Instant::ZERO + Duration::from_secs(second), &probe);
                assert_eq!(reports.seen().newest, probe.number, "{minutes} min");
            }
        }
    }

    #[test]
    fn a_report_gives_the_state_and_loss_of_what_is_sent() {
        let mut reports = PathReports::default();
        assert_eq!(reports.outgoing_loss().to_bits(), 0.0_f64.to_bits());
        let report = Report { state: PathState::Up, loss: 6_554, ..Report::default() };
        assert_eq!(reports.outgoing(), PathState::Unheard);
        assert_eq!(reports.on_report(&report), None);
        assert_eq!(reports.outgoing(), PathState::Up);
        assert!((reports.outgoing_loss() - 0.1).abs() < 1e-4);
        assert_eq!(reports.on_report(&Report::default()), Some(report));
        assert_eq!(reports.outgoing(), Report::default().state);
    }
}
