//! Loss of frames and bursts, drawn by their number, so that all packets of a frame share its fate.

use skybraid_units::{Probability, Seed, Stream};

/// Bytes of an IPv4 and a UDP header.
const IP_UDP: u64 = 28;

/// MTU of the network between the processes of an emulator.
const MTU: u64 = 1500;

/// Bytes of a UDP datagram's IP payload in each fragment but the last.
const FRAGMENT: u64 = 1480;

/// Returns the number of IP packets that carry a UDP datagram of this many bytes.
pub(crate) fn ip_packets(datagram: u64) -> u64 {
    if datagram + IP_UDP <= MTU { 1 } else { (datagram + 8).div_ceil(FRAGMENT) }
}

/// Loss process of one direction.
#[derive(Clone, Debug)]
pub(crate) struct FrameLoss {
    probability: Probability,
    key: u64,
}

impl FrameLoss {
    /// Maximum number of parts per frame.
    const PARTS: u64 = 8;

    /// Creates the process; one draw.
    pub fn new(probability: Probability, mut stream: Stream) -> Self {
        Self { probability, key: stream.next_u64() }
    }

    /// Whether any of the first `parts` parts of a frame is lost.
    pub fn is_lost(&self, frame: u64, parts: u64) -> bool {
        self.probability > Probability::ZERO
            && (0..parts.min(Self::PARTS)).any(|part| {
                let number = frame.wrapping_mul(Self::PARTS).wrapping_add(part);
                Seed(self.key.wrapping_add(number)).stream("frame").chance(self.probability)
            })
    }

    /// Loss probability of a packet in this many parts.
    pub fn of_parts(&self, parts: u64) -> f64 {
        -libm::expm1(parts as f64 * libm::log1p(-self.probability.ratio()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_above_1472_bytes_is_two_ip_packets() {
        for (datagram, packets) in [(0, 1), (1472, 1), (1473, 2), (2006, 2), (2952, 2), (2953, 3)] {
            assert_eq!(ip_packets(datagram), packets, "{datagram}");
        }
    }

    #[test]
    fn frames_are_lost_independently_by_their_number() {
        let loss = FrameLoss::new(Probability::saturating(0.1), Seed(1).stream("x"));
        let lost =
            |from: u64, parts| (from..from + 100_000).filter(|n| loss.is_lost(*n, parts)).count();
        // Five standard deviations of a binomial count are 475 and 620.
        assert!(lost(0, 1).abs_diff(10_000) < 475, "{}", lost(0, 1));
        assert!(lost(0, 2).abs_diff(19_000) < 620, "{}", lost(0, 2));
        assert_eq!(lost(5, 2), lost(5, 2));
        let pairs = (0..100_000).filter(|n| loss.is_lost(*n, 1) && loss.is_lost(n + 1, 1)).count();
        assert!(pairs.abs_diff(1000) < 160, "{pairs}");
        assert!((loss.of_parts(2) - 0.19).abs() < 1e-12);
    }
}
