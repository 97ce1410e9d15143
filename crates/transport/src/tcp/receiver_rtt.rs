//! Round-trip time as a receiver of data measures it.
//!
//! Source: Linux `tcp_rcv_rtt_measure_ts` and `tcp_rcv_rtt_update`.

use skybraid_units::{Duration, Instant};

/// Round-trip time that a receiver of data measures by the timestamps it gets back.
#[derive(Debug, Default)]
pub struct ReceiverRtt {
    rtt: Option<Duration>,
    last_echo: Instant,
    longest: u32,
}

impl ReceiverRtt {
    /// Round-trip time, if measured. It falls at once and rises by an eighth of the difference.
    pub const fn get(&self) -> Option<Duration> {
        self.rtt
    }

    /// Records a data segment of `len` bytes that echoes the timestamp `echo`. Short segments, which may have waited
    /// for the application, do not count.
    pub fn on_segment(&mut self, now: Instant, len: u32, echo: Instant) {
        self.longest = self.longest.max(len);
        if len < self.longest || echo <= self.last_echo {
            return;
        }
        self.last_echo = echo;
        let sample = now.since(echo);
        self.rtt = Some(match self.rtt {
            Some(rtt) if sample > rtt => rtt + (sample - rtt) / 8,
            _ => sample,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Instant {
        Instant::from_millis(ms)
    }

    // Source: Linux `tcp_rcv_rtt_update`.
    #[test]
    fn a_receivers_round_trip_time_falls_at_once_and_rises_slowly() {
        let mut rtt = ReceiverRtt::default();
        rtt.on_segment(at(90), 1000, Instant::ZERO);
        assert_eq!(rtt.get(), None, "no timestamp yet");
        let measured = [(110, 10), (150, 60), (300, 130), (301, 130)].map(|(now, echo)| {
            rtt.on_segment(at(now), 1000, at(echo));
            rtt.get().map(|rtt| rtt.as_millis_f64())
        });
        assert_eq!(measured, [Some(100.0), Some(90.0), Some(100.0), Some(100.0)]);
        rtt.on_segment(at(320), 999, at(310));
        assert_eq!(rtt.get().map(|rtt| rtt.as_millis_f64()), Some(100.0));
    }
}
