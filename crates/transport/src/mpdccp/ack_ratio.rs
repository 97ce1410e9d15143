//! Ack Ratio: the number of data packets per acknowledgement.
//!
//! Source: RFC 4341 §6.1.2 (congestion control of acknowledgements); Linux `ccid2.c`, which adjusts
//! the ratio to the sequence window instead.

use crate::registry::Compat;

/// Default size of the peer's sequence window in packets (RFC 4340 §7.5.2).
const SEQUENCE_WINDOW: u32 = 100;
/// Maximum ratio: a vector covers 256 packets, so that after the loss of one acknowledgement the
/// next one still reports every packet.
const MAX_RATIO: u32 = 128;

/// Sender side of the Ack Ratio feature.
#[derive(Debug)]
pub struct AckRatio {
    compat: Compat,
    ratio: u32,
    /// Ratio that the peer has confirmed.
    confirmed: u32,
    /// Minimum for a window of four packets or more (RFC 4341: 2).
    min: u32,
    /// Consecutive windows without a lost acknowledgement.
    clean: u32,
    /// True if an acknowledgement of this window was lost.
    lost: bool,
    /// Number of the packet that ends the window.
    window_end: u64,
}

impl AckRatio {
    /// Creates the feature with the ratio `initial`, which is also the minimum for a window of four
    /// packets or more.
    pub fn new(initial: u32, compat: Compat) -> Self {
        let ratio = initial.clamp(1, MAX_RATIO);
        Self { compat, ratio, confirmed: initial, min: ratio, clean: 0, lost: false, window_end: 0 }
    }

    /// Current ratio.
    pub const fn get(&self) -> u32 {
        self.ratio
    }

    /// True if the peer has confirmed the current ratio.
    pub const fn is_confirmed(&self) -> bool {
        self.ratio == self.confirmed
    }

    /// Records that the peer has confirmed `ratio`.
    pub fn on_confirmed(&mut self, ratio: u8) {
        self.confirmed = u32::from(ratio);
    }

    /// Records the loss of at least one acknowledgement.
    pub fn on_ack_lost(&mut self) {
        self.lost = true;
    }

    /// Processes an acknowledgement of packets up to `newest`, the last `count` of them for the
    /// first time. `next` is the next packet to send and `window` the congestion window in packets.
    pub fn on_ack(&mut self, newest: u64, count: u32, next: u64, window: u32) {
        match self.compat {
            Compat::Paper => {
                if newest < self.window_end {
                    return;
                }
                self.window_end = next;
                self.end_window(window);
                self.bound(window);
            }
            Compat::Linux => (0..count).for_each(|_| self.follow_sequence_window(window)),
        }
    }

    /// Handles the end of a window of data (RFC 4341 §6.1.2).
    fn end_window(&mut self, window: u32) {
        if core::mem::take(&mut self.lost) {
            self.ratio *= 2;
            self.clean = 0;
            return;
        }
        self.clean += 1;
        if self.ratio > 1 && self.clean >= windows_until_decrease(window, self.ratio) {
            self.ratio -= 1;
            self.clean = 0;
        }
    }

    fn bound(&mut self, window: u32) {
        let max = window.div_ceil(2).clamp(2, MAX_RATIO);
        let min = if window >= 4 { self.min } else { 1 };
        self.ratio = self.ratio.clamp(min.min(max), max);
    }

    fn follow_sequence_window(&mut self, window: u32) {
        let acks = window / self.ratio;
        if 5 * acks >= SEQUENCE_WINDOW {
            self.ratio *= 2;
        } else if 5 * acks < SEQUENCE_WINDOW / 2 {
            self.ratio = (self.ratio / 2).max(1);
        }
        self.ratio = self.ratio.min(window.div_ceil(2)).clamp(1, MAX_RATIO);
    }

    /// Handles a reduction of the congestion window to `window` packets, by a timeout or otherwise.
    pub fn on_reduction(&mut self, window: u32, timeout: bool) {
        match self.compat {
            Compat::Paper => self.bound(window),
            Compat::Linux if timeout => self.ratio = 1,
            Compat::Linux if self.ratio > window => self.ratio = (window / 2).max(1),
            Compat::Linux => {}
        }
    }
}

/// Number of windows without a lost acknowledgement after which the ratio decreases by one.
fn windows_until_decrease(window: u32, ratio: u32) -> u32 {
    window.div_ceil((ratio * ratio - ratio).max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Acknowledges `windows` windows of `window` packets each.
    fn windows(ratio: &mut AckRatio, windows: u32, window: u32) {
        for _ in 0..windows {
            let newest = ratio.window_end;
            ratio.on_ack(newest, window, newest + u64::from(window), window);
        }
    }

    // Source: the vectors of the algorithm reference, §6.2.
    #[test]
    fn the_ratio_decreases_after_windows_without_a_lost_ack() {
        let counts = [4, 3, 2].map(|ratio| windows_until_decrease(12, ratio));
        assert_eq!(counts, [1, 2, 6]);
        let mut ratio = AckRatio { ratio: 4, ..AckRatio::new(2, Compat::Paper) };
        windows(&mut ratio, 1, 12);
        assert_eq!(ratio.get(), 3);
        windows(&mut ratio, 1, 12);
        assert_eq!(ratio.get(), 3);
        windows(&mut ratio, 1, 12);
        assert_eq!(ratio.get(), 2);
    }

    // Source: the vectors of the algorithm reference, §6.2, and the limits of RFC 4341 §6.1.2.
    #[test]
    fn a_lost_ack_doubles_the_ratio_up_to_half_the_window() {
        let mut ratio = AckRatio::new(2, Compat::Paper);
        for expected in [4, 5, 5] {
            ratio.on_ack_lost();
            windows(&mut ratio, 1, 10);
            assert_eq!(ratio.get(), expected);
        }
    }

    #[test]
    fn the_minimum_of_two_holds_from_a_window_of_four_on() {
        let mut ratio = AckRatio::new(2, Compat::Paper);
        windows(&mut ratio, 100, 12);
        assert_eq!(ratio.get(), 2);
        ratio.on_reduction(1, true);
        assert_eq!(ratio.get(), 2);
        windows(&mut ratio, 100, 3);
        assert_eq!(ratio.get(), 1);
        windows(&mut ratio, 1, 4);
        assert_eq!(ratio.get(), 2);
    }

    // Source: the vectors of the algorithm reference, §6.2 (Linux).
    #[test]
    fn linux_keeps_acknowledgements_within_the_sequence_window() {
        let mut ratio = AckRatio::new(2, Compat::Linux);
        for (window, expected) in [(40, 4), (40, 4), (36, 2)] {
            ratio.on_ack(0, 1, 0, window);
            assert_eq!(ratio.get(), expected, "window {window}");
        }
        ratio.on_ack_lost();
        ratio.on_ack(0, 1, 0, 36);
        assert_eq!(ratio.get(), 2, "the loss of an acknowledgement changes nothing");
        ratio.on_reduction(1, true);
        assert_eq!(ratio.get(), 1);
    }
}
