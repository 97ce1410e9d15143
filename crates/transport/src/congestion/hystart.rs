//! HyStart: ends slow start when the round-trip time rises, before the queue overflows.
//!
//! Source: RFC 9406 (HyStart++); Ha and Rhee, Taming the elephants (2011), with the constants of
//! Linux `tcp_cubic.c`, generation 4.14 (classic HyStart).

use skybraid_units::{Duration, Instant};

use super::Acked;
use super::rounds::Rounds;

/// End of slow start other than a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HyStart {
    /// None.
    None,
    /// A rise of the round-trip time, or a train of acknowledgements half a round-trip time long.
    Classic,
    /// A rise of the round-trip time that persists for five rounds of slower growth (RFC 9406).
    Plus,
}

/// Bounds of the significant rise, which is an eighth of the round-trip time (`MIN_RTT_THRESH`,
/// `MAX_RTT_THRESH`, `MIN_RTT_DIVISOR`).
const RISE: [Duration; 2] = [Duration::from_millis(4), Duration::from_millis(16)];
const RISE_DIVISOR: i64 = 8;
/// Minimum samples of a round (`N_RTT_SAMPLE`).
const SAMPLES: u32 = 8;
/// Divisor of growth in conservative slow start (`CSS_GROWTH_DIVISOR`).
const CONSERVATIVE_DIVISOR: u64 = 4;
/// Rounds of conservative slow start (`CSS_ROUNDS`).
const CONSERVATIVE_ROUNDS: u32 = 5;
/// Maximum growth in segments per acknowledgement of a sender without pacing (`L`).
const MAX_PER_ACK: u64 = 8;
/// Minimum window of classic HyStart in segments.
const CLASSIC_MIN_WINDOW: u64 = 16;
/// Maximum gap between acknowledgements of a train.
const TRAIN_GAP: Duration = Duration::from_millis(2);

/// Significant rise of the minimum round-trip time above `min_rtt`.
fn rise(min_rtt: Duration) -> Duration {
    let [low, high] = RISE;
    (min_rtt / RISE_DIVISOR).min(high).max(low)
}

/// Slow start with one of the algorithms above.
#[derive(Debug)]
pub(super) enum SlowStart {
    Plain,
    Classic(Classic),
    Plus(Plus),
}

impl SlowStart {
    pub(super) fn new(kind: HyStart) -> Self {
        match kind {
            HyStart::None => Self::Plain,
            HyStart::Classic => Self::Classic(Classic::default()),
            HyStart::Plus => Self::Plus(Plus::default()),
        }
    }

    /// Processes an acknowledgement in slow start with a window of `segments`. Returns true once
    /// slow start must end, with the window as threshold.
    pub(super) fn ends_with(&mut self, acked: &Acked, segments: u64) -> bool {
        match self {
            Self::Plain => false,
            Self::Classic(classic) => classic.ends_with(acked, segments),
            Self::Plus(plus) => {
                let ends = plus.ends_with(acked);
                if ends {
                    *self = Self::Plain;
                }
                ends
            }
        }
    }

    /// Growth of the window in slow start for `bytes` acknowledged.
    pub(super) fn growth(&self, bytes: u64, segment: u64) -> u64 {
        match self {
            Self::Plus(plus) => {
                let divisor = if plus.conservative.is_some() { CONSERVATIVE_DIVISOR } else { 1 };
                bytes.min(MAX_PER_ACK * segment) / divisor
            }
            Self::Plain | Self::Classic(_) => bytes,
        }
    }

    /// Records a loss. HyStart++ applies to the first slow start only (RFC 9406 §4.3).
    pub(super) fn on_loss(&mut self) {
        if let Self::Plus(_) = self {
            *self = Self::Plain;
        }
    }

    /// Records a timeout: classic HyStart restarts.
    pub(super) fn on_timeout(&mut self) {
        self.on_loss();
        if let Self::Classic(classic) = self {
            *classic = Classic::default();
        }
    }
}

#[derive(Debug)]
pub(super) struct Classic {
    rounds: Rounds,
    /// Minimum round-trip time of all rounds, and of the first samples of this round.
    min_rtt: Duration,
    min_of_round: Duration,
    samples: u32,
    /// First acknowledgement of this round, and last acknowledgement of the train that began with
    /// it.
    train: [Instant; 2],
    found: bool,
}

impl Default for Classic {
    fn default() -> Self {
        Self {
            rounds: Rounds::default(),
            min_rtt: Duration::MAX,
            min_of_round: Duration::MAX,
            samples: 0,
            train: [Instant::ZERO; 2],
            found: false,
        }
    }
}

impl Classic {
    fn ends_with(&mut self, acked: &Acked, segments: u64) -> bool {
        if self.rounds.end_with(acked) {
            self.train = [acked.now; 2];
            self.samples = 0;
            self.min_of_round = Duration::MAX;
        }
        let Some(rtt) = acked.rtt else {
            return false;
        };
        self.min_rtt = self.min_rtt.min(rtt);
        if self.found || segments < CLASSIC_MIN_WINDOW {
            return false;
        }
        let [first, last] = self.train;
        if acked.now.since(last) <= TRAIN_GAP {
            self.train = [first, acked.now];
            self.found = acked.now.since(first) > self.min_rtt / 2;
        }
        if self.samples < SAMPLES {
            self.samples += 1;
            self.min_of_round = self.min_of_round.min(rtt);
        } else {
            self.found |= self.min_of_round > self.min_rtt + rise(self.min_rtt);
        }
        self.found
    }
}

#[derive(Debug)]
pub(super) struct Plus {
    rounds: Rounds,
    /// Minimum round-trip times of the last round and of this one.
    min_of_last: Duration,
    min_of_round: Duration,
    samples: u32,
    conservative: Option<Conservative>,
}

/// State of conservative slow start.
#[derive(Debug)]
struct Conservative {
    /// Minimum round-trip time of its first round; below it the rise was temporary.
    baseline: Duration,
    /// Completed rounds, the first one included.
    rounds: u32,
}

impl Default for Plus {
    fn default() -> Self {
        Self {
            rounds: Rounds::default(),
            min_of_last: Duration::MAX,
            min_of_round: Duration::MAX,
            samples: 0,
            conservative: None,
        }
    }
}

impl Plus {
    fn ends_with(&mut self, acked: &Acked) -> bool {
        if self.rounds.end_with(acked) {
            if let Some(conservative) = &mut self.conservative {
                conservative.rounds += 1;
                if conservative.rounds >= CONSERVATIVE_ROUNDS {
                    return true;
                }
            }
            self.min_of_last = self.min_of_round;
            self.min_of_round = Duration::MAX;
            self.samples = 0;
        }
        let Some(rtt) = acked.rtt else {
            return false;
        };
        self.min_of_round = self.min_of_round.min(rtt);
        self.samples += 1;
        if self.samples < SAMPLES {
            return false;
        }
        match &self.conservative {
            Some(conservative) if self.min_of_round < conservative.baseline => {
                self.conservative = None;
            }
            None if self.min_of_last != Duration::MAX
                && self.min_of_round >= self.min_of_last + rise(self.min_of_last) =>
            {
                self.conservative = Some(Conservative { baseline: self.min_of_round, rounds: 0 });
            }
            _ => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skybraid_units::Bytes;

    /// A sender in slow start with 20 segments of one byte in flight.
    struct Sender {
        slow_start: SlowStart,
        now: Instant,
        delivered: u64,
    }

    impl Sender {
        fn new(kind: HyStart) -> Self {
            Self { slow_start: SlowStart::new(kind), now: Instant::ZERO, delivered: 0 }
        }

        /// Runs a round of 20 acknowledgements, `gap` apart. Returns true if slow start ends in it.
        fn round(&mut self, rtt_ms: i64, gap: Duration) -> bool {
            (0..20).any(|_| {
                self.now += gap;
                self.delivered += 1;
                let acked = Acked {
                    now: self.now,
                    rtt: Some(Duration::from_millis(rtt_ms)),
                    delivered: Bytes::new(self.delivered),
                    in_flight_after: Bytes::new(19),
                    ..Acked::default()
                };
                self.slow_start.ends_with(&acked, 20)
            })
        }

        fn growth(&self) -> u64 {
            self.slow_start.growth(1000, 1000)
        }
    }

    const WIDE: Duration = Duration::from_millis(5);

    // Source: RFC 9406 §4.2; the vectors of the algorithm reference, §2.2.
    #[test]
    fn an_eighth_of_the_rtt_within_4_and_16_ms_is_a_rise() {
        for (least_ms, micros) in [(20, 4_000), (40, 5_000), (100, 12_500), (200, 16_000)] {
            assert_eq!(rise(Duration::from_millis(least_ms)), Duration::from_micros(micros));
        }
    }

    #[test]
    fn growth_is_a_quarter_after_a_rise_and_ends_after_five_rounds() {
        let mut sender = Sender::new(HyStart::Plus);
        assert!(!sender.round(100, WIDE) && !sender.round(112, WIDE));
        assert_eq!(sender.growth(), 1000);
        assert!(!sender.round(126, WIDE));
        assert_eq!(sender.growth(), 250);
        for _ in 0..4 {
            assert!(!sender.round(126, WIDE));
        }
        assert!(sender.round(126, WIDE));
        // A later slow start has a threshold and grows at full speed.
        assert_eq!(sender.growth(), 1000);
    }

    #[test]
    fn slow_start_resumes_after_a_temporary_rise() {
        let mut sender = Sender::new(HyStart::Plus);
        for (rtt_ms, growth) in [(100, 1000), (120, 250), (110, 1000)] {
            assert!(!sender.round(rtt_ms, WIDE));
            assert_eq!(sender.growth(), growth, "after a round of {rtt_ms} ms");
        }
    }

    #[test]
    fn an_acknowledgement_grows_the_window_by_at_most_8_segments() {
        let slow_start = SlowStart::new(HyStart::Plus);
        assert_eq!(slow_start.growth(20_000, 1000), 8000);
    }

    #[test]
    fn classic_hystart_ends_with_a_rise_above_the_minimum_rtt() {
        let mut sender = Sender::new(HyStart::Classic);
        assert!(!sender.round(100, WIDE));
        assert!(!sender.round(112, WIDE));
        assert!(sender.round(113, WIDE));
    }

    #[test]
    fn classic_hystart_ends_with_a_long_train() {
        let gap = Duration::from_millis(2);
        assert!(!Sender::new(HyStart::Classic).round(80, gap));
        assert!(Sender::new(HyStart::Classic).round(70, gap));
    }
}
