//! The Ack Ratio: how many data packets an acknowledgement stands for.
//!
//! Source: RFC 4341 §6.1.2 (congestion control of acknowledgements); Linux `ccid2.c`, which adjusts
//! the ratio to the sequence window instead.

use crate::registry::Compat;

/// Packets within the peer's sequence window (RFC 4340 §7.5.2), at its default.
const SEQUENCE_WINDOW: u32 = 100;
/// So that the loss of an acknowledgement leaves no packet untold: a vector covers 256.
const MOST: u32 = 128;

/// The sender's side of the Ack Ratio feature.
#[derive(Debug)]
pub struct AckRatio {
    compat: Compat,
    ratio: u32,
    /// RFC 4341: 2 for a window of four packets or more.
    least: u32,
    /// Windows without a lost acknowledgement.
    clean: u32,
    /// An acknowledgement of this window was lost.
    lost: bool,
    /// The window ends with this packet.
    window_end: u64,
}

impl AckRatio {
    /// Begins at `initial`, which is also the least for a window of four packets or more.
    pub fn new(initial: u32, compat: Compat) -> Self {
        let initial = initial.clamp(1, MOST);
        Self { compat, ratio: initial, least: initial, clean: 0, lost: false, window_end: 0 }
    }

    /// The ratio.
    pub const fn get(&self) -> u32 {
        self.ratio
    }

    /// At least one acknowledgement was lost.
    pub fn on_ack_lost(&mut self) {
        self.lost = true;
    }

    /// Packets up to `newest` were acknowledged, the last `count` of them now; `next` is sent next.
    /// `window` is the congestion window in packets.
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

    /// A window of data was acknowledged (RFC 4341 §6.1.2).
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
        let most = window.div_ceil(2).clamp(2, MOST);
        let least = if window >= 4 { self.least } else { 1 };
        self.ratio = self.ratio.clamp(least.min(most), most);
    }

    fn follow_sequence_window(&mut self, window: u32) {
        let acks = window / self.ratio;
        if 5 * acks >= SEQUENCE_WINDOW {
            self.ratio *= 2;
        } else if 5 * acks < SEQUENCE_WINDOW / 2 {
            self.ratio = (self.ratio / 2).max(1);
        }
        self.ratio = self.ratio.min(window.div_ceil(2)).clamp(1, MOST);
    }

    /// The congestion window was reduced to `window` packets, by a timeout or otherwise.
    pub fn on_reduction(&mut self, window: u32, timeout: bool) {
        match self.compat {
            Compat::Paper => self.bound(window),
            Compat::Linux if timeout => self.ratio = 1,
            Compat::Linux if self.ratio > window => self.ratio = (window / 2).max(1),
            Compat::Linux => {}
        }
    }
}

/// After how many windows without a lost acknowledgement the ratio shrinks by one.
fn windows_until_decrease(window: u32, ratio: u32) -> u32 {
    window.div_ceil((ratio * ratio - ratio).max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Acknowledges `windows` windows of `window` packets.
    fn windows(ratio: &mut AckRatio, windows: u32, window: u32) {
        for _ in 0..windows {
            let newest = ratio.window_end;
            ratio.on_ack(newest, window, newest + u64::from(window), window);
        }
    }

    // Source: the vectors of the algorithm reference, §6.2.
    #[test]
    fn the_ratio_shrinks_after_one_two_or_six_windows() {
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
    fn a_lost_acknowledgement_doubles_the_ratio_up_to_half_the_window() {
        let mut ratio = AckRatio::new(2, Compat::Paper);
        for expected in [4, 5, 5] {
            ratio.on_ack_lost();
            windows(&mut ratio, 1, 10);
            assert_eq!(ratio.get(), expected);
        }
    }

    #[test]
    fn two_is_the_least_for_a_window_of_four_and_always_allowed() {
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
    fn linux_keeps_the_acknowledgements_within_the_sequence_window() {
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
