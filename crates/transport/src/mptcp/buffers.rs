//! Buffers of a connection that grow with what it carries, as Linux tunes them.
//!
//! Source: Linux `tcp_rcv_space_adjust` (dynamic right-sizing: Fisk and Feng 2001) and `tcp_sndbuf_expand`; of several
//! subflows the longest round-trip time counts, as in `mptcp_rcv_space_adjust`, and the sum of their send buffers, as
//! in out-of-tree MPTCP (`mptcp_update_sndbuf`). Linux counts the memory that packets take; here all sizes are payload.

use skybraid_units::{Duration, Instant};

use crate::tcp::acks::FIRST_WINDOW;

/// Sizes of a connection's buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Buffers {
    /// As configured.
    #[default]
    Fixed,
    /// Tuned, with the configured sizes as upper bounds.
    Auto,
}

impl Buffers {
    /// Value in scenarios.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Auto => "auto",
        }
    }
}

/// Segments for which both sides have room at first (`TCP_INIT_CWND`).
const FIRST_SEGMENTS: u64 = 10;
/// Send buffer before a subflow is established: the default of `tcp_wmem`.
const FIRST_SEND_BUFFER: u64 = 16_384;

/// Tuning of the receive buffer: twice what was read in the last round trip, and more while that grows.
#[derive(Debug)]
pub struct ReceiveTuning {
    segment: u64,
    max: u64,
    buffer: u64,
    /// Bytes read in the best round trip so far (`rcvq_space.space`).
    best: u64,
    /// Start of the current round trip, and the data sequence number then.
    since: Option<Instant>,
    from: u64,
}

impl ReceiveTuning {
    /// Creates the tuning of a buffer of at most `max` bytes for segments of `segment` bytes.
    pub fn new(max: u64, segment: u32) -> Self {
        let segment = u64::from(segment);
        let buffer = FIRST_WINDOW.max(segment).min(max);
        Self {
            segment,
            max,
            buffer,
            best: buffer.min(FIRST_SEGMENTS * segment),
            since: None,
            from: 0,
        }
    }

    /// Size of the buffer in bytes.
    #[inline]
    pub const fn buffer(&self) -> u64 {
        self.buffer
    }

    /// Records that the application has read all data before `next`; `rtt` is the receiver's round-trip time.
    pub fn on_read(&mut self, now: Instant, next: u64, rtt: Option<Duration>) {
        let since = *self.since.get_or_insert(now);
        if rtt.is_none_or(|rtt| now.since(since) < rtt) {
            return;
        }
        let read = next - self.from;
        if read > self.best {
            let window = u128::from(2 * read + 16 * self.segment);
            let growth = window * u128::from(read - self.best) / u128::from(self.best.max(1));
            let wanted = u64::try_from(window + 2 * growth).unwrap_or(u64::MAX);
            self.buffer = self.buffer.max(wanted.min(self.max));
            self.best = read;
        }
        self.since = Some(now);
        self.from = next;
    }
}

/// Send buffer of a connection.
#[derive(Debug)]
pub struct SendTuning {
    max: u64,
    buffer: u64,
    tuned: bool,
}

impl SendTuning {
    /// Creates a buffer of `max` bytes, or one that grows up to it.
    pub fn new(buffers: Buffers, max: u64) -> Self {
        let tuned = buffers == Buffers::Auto;
        Self { max, buffer: if tuned { FIRST_SEND_BUFFER.min(max) } else { max }, tuned }
    }

    /// Size of the buffer in bytes.
    #[inline]
    pub const fn buffer(&self) -> u64 {
        self.buffer
    }

    /// True if the buffer grows.
    #[inline]
    pub const fn is_tuned(&self) -> bool {
        self.tuned
    }

    /// Grows the buffer to twice the sum of `windows` (in bytes, of the established subflows), each at least ten
    /// segments of `segment` bytes.
    pub fn on_windows(&mut self, segment: u32, windows: impl Iterator<Item = u64>) {
        let first = FIRST_SEGMENTS * u64::from(segment);
        let wanted: u64 = windows.map(|window| 2 * window.max(first)).sum();
        self.buffer = self.buffer.max(wanted.min(self.max));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Instant {
        Instant::from_millis(ms)
    }

    const RTT: Option<Duration> = Some(Duration::from_millis(100));

    /// Reads `bytes` in each round trip of 100 ms. Returns the buffer after each.
    fn read(tuning: &mut ReceiveTuning, rounds: &[u64]) -> alloc::vec::Vec<u64> {
        let (mut next, mut now) = (0, at(0));
        tuning.on_read(now, 0, RTT);
        let after = rounds.iter().map(|bytes| {
            next += bytes;
            now += Duration::from_millis(100);
            tuning.on_read(now, next, RTT);
            tuning.buffer()
        });
        after.collect()
    }

    // Source: Linux `tcp_rcv_space_adjust`, by hand: 40 segments after 10 give (80 + 16)·(1 + 2·3) = 672.
    #[test]
    fn the_receive_buffer_grows_with_what_is_read_per_round_trip() {
        let mut tuning = ReceiveTuning::new(6_000_000, 1000);
        let grown = read(&mut tuning, &[10_000, 40_000, 40_000, 20_000, 44_000]);
        // The last: (88 + 16)·(1 + 2·4/40) = 124.8 segments, less than before.
        assert_eq!(grown, [65_536, 672_000, 672_000, 672_000, 672_000]);
        assert_eq!(read(&mut ReceiveTuning::new(100_000, 1000), &[40_000]), [100_000]);
    }

    // A window that doubles in each round trip, as in slow start, never meets the buffer.
    #[test]
    fn the_receive_buffer_stays_ahead_of_slow_start() {
        let mut tuning = ReceiveTuning::new(1 << 40, 1000);
        let rounds: alloc::vec::Vec<u64> = (0..12).map(|round| 10_000 << round).collect();
        let grown = read(&mut tuning, &rounds);
        assert!(
            rounds.iter().skip(3).zip(grown.iter().skip(2)).all(|(next, buffer)| buffer > next)
        );
    }

    // Source: Linux `tcp_sndbuf_expand`: twice the window, of ten segments at least.
    #[test]
    fn the_send_buffer_is_twice_the_sum_of_the_windows() {
        let mut tuning = SendTuning::new(Buffers::Auto, 1_000_000);
        assert_eq!(tuning.buffer(), 16_384);
        let grown = [[4_000, 30_000], [4_000, 4_000], [900_000, 900_000]].map(|windows| {
            tuning.on_windows(1000, windows.into_iter());
            tuning.buffer()
        });
        assert_eq!(grown, [80_000, 80_000, 1_000_000]);
        assert_eq!(SendTuning::new(Buffers::Fixed, 7).buffer(), 7);
    }
}
