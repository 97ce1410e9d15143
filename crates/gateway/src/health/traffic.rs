//! Datagrams of a path: totals, the data cap, loss and rates of the last second.

use skybraid_units::{Bytes, Duration, Instant};

/// Window over which loss and rates are measured.
const WINDOW: Duration = Duration::from_secs(1);

/// Counters of a path's datagrams.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traffic {
    cap: Option<Bytes>,
    /// The used-up data cap has been reported.
    reported_spent: bool,
    totals: Totals,
    numbers: Numbers,
    window: Window,
}

/// Totals of a path.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Bytes of sent IP packets.
    pub outgoing_bytes: u64,
    /// Bytes of received IP packets.
    pub incoming_bytes: u64,
    /// Sent datagrams.
    pub outgoing: u64,
    /// Received datagrams.
    pub incoming: u64,
}

/// Datagram numbers, to count losses.
#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    next: u64,
    seen: u64,
    next_before: u64,
    seen_before: u64,
}

/// Measurements of the last window.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    since: Instant,
    before: (u64, u64),
    /// Share of incoming datagrams lost.
    pub loss: f64,
    /// Sent bits per second.
    pub outgoing_bps: f64,
    /// Received bits per second.
    pub incoming_bps: f64,
}

impl Traffic {
    /// Counters of a path before its first datagram; `cap` limits its bytes in both directions.
    pub fn new(now: Instant, cap: Option<Bytes>) -> Self {
        let window = Window { since: now, ..Window::default() };
        Self { cap, window, ..Self::default() }
    }

    /// Records a datagram that leaves in an IP packet of `bytes`.
    pub const fn on_sent(&mut self, bytes: u64) {
        self.totals.outgoing += 1;
        self.totals.outgoing_bytes += bytes;
    }

    /// Records an authentic datagram in an IP packet of `bytes`, with its number if it is of the current session.
    pub fn on_received(&mut self, bytes: u64, number: Option<u64>) {
        self.totals.incoming += 1;
        self.totals.incoming_bytes += bytes;
        if let Some(number) = number {
            self.numbers.next = self.numbers.next.max(number + 1);
            self.numbers.seen += 1;
        }
    }

    /// Restarts datagram numbers after a key change.
    pub fn restart_numbers(&mut self) {
        self.numbers = Numbers::default();
    }

    /// Returns the totals.
    pub const fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Returns the bytes left of the data cap.
    pub fn data_left(&self) -> Option<u64> {
        let used = self.totals.outgoing_bytes + self.totals.incoming_bytes;
        self.cap.map(|cap| cap.get().saturating_sub(used))
    }

    /// Returns whether the data cap is used up.
    pub fn is_spent(&self) -> bool {
        self.data_left() == Some(0)
    }

    /// Returns true once, when the data cap is used up.
    pub fn take_spent(&mut self) -> bool {
        self.is_spent() && !core::mem::replace(&mut self.reported_spent, true)
    }

    /// Returns loss and rates of the last window.
    pub const fn window(&self) -> &Window {
        &self.window
    }

    /// Rolls the window once it has elapsed.
    pub fn measure(&mut self, now: Instant) {
        let length = now.since(self.window.since);
        if length < WINDOW {
            return;
        }
        let Numbers { next, seen, next_before, seen_before } = self.numbers;
        let expected = next.saturating_sub(next_before);
        if expected > 0 {
            let arrived = seen.saturating_sub(seen_before) as f64;
            self.window.loss = (1.0 - arrived / expected as f64).clamp(0.0, 1.0);
        }
        (self.numbers.next_before, self.numbers.seen_before) = (next, seen);
        let (outgoing, incoming) = (self.totals.outgoing_bytes, self.totals.incoming_bytes);
        let rate = |bytes: u64| 8.0 * bytes as f64 / length.as_secs_f64();
        self.window.outgoing_bps = rate(outgoing - self.window.before.0);
        self.window.incoming_bps = rate(incoming - self.window.before.1);
        self.window.before = (outgoing, incoming);
        self.window.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_percent_loss_is_measured_in_any_order_of_arrival() {
        let mut traffic = Traffic::new(Instant::ZERO, None);
        for number in (0..1_000).filter(|number| number % 10 != 3) {
            traffic.on_received(100, Some(number ^ 1));
        }
        traffic.measure(Instant::from_millis(1_000));
        assert!((traffic.window().loss - 0.1).abs() < 0.002, "{}", traffic.window().loss);
    }

    #[test]
    fn a_data_cap_counts_both_directions_and_is_reported_once() {
        let mut traffic = Traffic::new(Instant::ZERO, Some(Bytes::new(300)));
        traffic.on_sent(100);
        traffic.on_received(150, None);
        assert_eq!((traffic.data_left(), traffic.take_spent()), (Some(50), false));
        traffic.on_sent(100);
        assert_eq!((traffic.data_left(), traffic.take_spent()), (Some(0), true));
        assert!(traffic.is_spent() && !traffic.take_spent());
    }
}
