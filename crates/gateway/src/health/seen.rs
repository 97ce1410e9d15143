//! Received probe numbers on a path, as carried in reports.

/// Probes received on a path, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbesSeen {
    /// Newest number; meaningless before the first probe.
    pub newest: u16,
    /// Bitmap of the newest and the 31 probes before it; 0 before the first.
    pub arrived: u32,
}

impl ProbesSeen {
    /// Records a probe's number.
    pub fn on_received(&mut self, number: u16) {
        let ahead = number.wrapping_sub(self.newest);
        if self.arrived == 0 {
            *self = Self { newest: number, arrived: 1 };
        } else if ahead < 1 << 15 {
            self.newest = number;
            self.arrived = self.arrived.checked_shl(ahead.into()).unwrap_or(0) | 1;
        } else {
            self.arrived |= 1_u32.checked_shl(ahead.wrapping_neg().into()).unwrap_or(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_have_arrived_are_remembered_in_any_order() {
        let mut seen = ProbesSeen::default();
        for number in [65_534, 1, 65_535, 3] {
            seen.on_received(number);
        }
        assert_eq!(seen, ProbesSeen { newest: 3, arrived: 0b11_0101 });
        seen.on_received(100);
        assert_eq!(seen, ProbesSeen { newest: 100, arrived: 1 });
        seen.on_received(50);
        assert_eq!(seen, ProbesSeen { newest: 100, arrived: 1 });
    }
}
