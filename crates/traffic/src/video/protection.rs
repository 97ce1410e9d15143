//! Redundancy of a video stream: duplicated packets and repair packets.

use skybraid_units::invariant::Promised as _;
use skybraid_units::{Probability, defaults};

use super::rate::{RateError, Report};
use super::repair::{Group, MeasuredLoss};

/// Maximum number of source packets in a group.
const MAX_SOURCES: u16 = 100;

/// Packets that are written twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Duplicate {
    /// No packet.
    #[default]
    None,
    /// Packets of key frames.
    Keys,
    /// All packets.
    All,
}

/// Code of the repair packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RepairKind {
    /// One repair packet per group, the exclusive or of its source packets (RFC 8627). It recovers one loss.
    Xor,
    /// Reed–Solomon code (RFC 5510): any number of repair packets recovers as many losses.
    ReedSolomon,
}

/// Configuration of the repair packets of each frame.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepairConfig {
    /// Code of the repair packets.
    pub kind: RepairKind,
    /// Repair packets per source packet, at least one in each group; 20 % by default. Excludes `fails`.
    #[serde(default)]
    pub share: Option<Probability>,
    /// Maximum share of groups that cannot be repaired at the measured loss. The number of repair packets
    /// follows the loss; Reed–Solomon only.
    #[serde(default)]
    pub fails: Option<Probability>,
    /// Maximum source packets of a group, 1 to 100. A frame is divided into groups of equal size.
    #[serde(default = "group")]
    pub group: u16,
}

defaults! { group: u16 = 40; }

impl RepairConfig {
    /// Checks the ranges of all keys.
    pub(crate) fn check(&self) -> Result<(), RateError> {
        let range = |key, sound, expected| {
            if sound { Ok(()) } else { Err(RateError::Range { key, expected }) }
        };
        let open = |share: Probability| share.ratio() > 0.0 && share.ratio() <= 1.0;
        range("repair.group", (1..=MAX_SOURCES).contains(&self.group), "1 to 100")?;
        range("repair.share", self.share.is_none_or(open), "above 0 %")?;
        let within = self.fails.is_none_or(|share| share.ratio() > 0.0 && share.ratio() < 1.0);
        range("repair.fails", within, "between 0 % and 100 %")?;
        range("repair.fails", self.fails.is_none() || self.share.is_none(), "without `share`")?;
        let measured = self.fails.is_none() || self.kind == RepairKind::ReedSolomon;
        range("repair.fails", measured, "with kind = \"reed_solomon\"")
    }
}

/// Forward error correction of a frame. Repair packets are numbered after the source packets, group by
/// group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protection {
    /// Number of groups, whose sizes differ by at most one.
    pub groups: u16,
    /// Number of repair packets per group.
    pub repairs: u16,
}

impl Protection {
    /// Returns the groups of a frame of `packets` packets before any has arrived.
    pub(super) fn new_groups(self, packets: u16) -> impl Iterator<Item = Group> {
        (0..self.groups).map(move |group| {
            let (first, end) = self.bounds(group, packets);
            Group::new((end - first).into(), self.repairs.into())
        })
    }

    /// Returns the first source packet of a group, and that of the group after it, in a frame of `packets`
    /// packets.
    pub fn bounds(self, group: u16, packets: u16) -> (u16, u16) {
        let at = |group: u16| {
            (u32::from(packets) * u32::from(group) / u32::from(self.groups.max(1))) as u16
        };
        (at(group), at(group + 1))
    }

    /// Returns the number of a repair packet within a frame of `packets` source packets.
    pub const fn repair_packet(self, packets: u16, group: u16, repair: u16) -> u16 {
        packets + group * self.repairs + repair
    }

    /// Returns the group of a source or repair packet and its position there, in a frame of `packets`
    /// source packets.
    pub fn locate(self, packet: u16, packets: u16) -> (u16, u16) {
        if let Some(repair) = packet.checked_sub(packets) {
            let repairs = self.repairs.max(1);
            let group = repair / repairs;
            let (first, end) = self.bounds(group, packets);
            return (group, end - first + repair % repairs);
        }
        let holds = |group: &u16| self.bounds(*group, packets).1 > packet;
        let group = (0..self.groups).find(holds).promised("a group of each packet").unwrap_or(0);
        (group, packet - self.bounds(group, packets).0)
    }

    /// Returns the number of repair packets of the frame.
    pub fn count(self) -> u16 {
        self.groups.saturating_mul(self.repairs)
    }
}

/// Chooses the number of repair packets of each frame, by configuration and measured loss.
#[derive(Clone, Debug)]
pub struct ProtectionPolicy {
    config: RepairConfig,
    loss: MeasuredLoss,
    reported: Option<u64>,
}

impl ProtectionPolicy {
    /// Creates a policy before the first report.
    pub const fn new(config: RepairConfig) -> Self {
        Self { config, loss: MeasuredLoss::new(), reported: None }
    }

    /// Returns the share of lost packets by the receiver's reports, weighted to the recent past.
    pub const fn loss(&self) -> f64 {
        self.loss.ratio()
    }

    /// Handles a receiver's report. Each packet is counted in the first report on it only.
    pub fn on_feedback(&mut self, report: &Report<'_>) {
        for arrival in report.arrivals {
            if self.reported.is_some_and(|reported| arrival.number <= reported) {
                continue;
            }
            self.reported = Some(arrival.number);
            let lost = if arrival.at.is_none() { 1.0 } else { 0.0 };
            self.loss.record(lost, 1);
        }
    }

    /// Returns the protection of a frame of `packets` source packets.
    pub fn protection(&self, packets: u16) -> Protection {
        let RepairConfig { kind, share, fails, group } = self.config;
        let share = share.map_or(0.2, Probability::ratio);
        let max_sources = match kind {
            // One repair packet per group: the share sets the size of the groups.
            RepairKind::Xor => group.min((libm::round(1.0 / share) as u16).max(1)),
            RepairKind::ReedSolomon => group,
        };
        let groups = packets.div_ceil(max_sources.max(1)).max(1);
        // Source and repair packets of a frame are numbered together, below 65,536.
        let max_repairs = (u16::MAX - packets) / groups;
        let sources = packets.div_ceil(groups);
        let repairs = match (kind, fails) {
            (RepairKind::Xor, _) => 1,
            (RepairKind::ReedSolomon, None) => libm::ceil(f64::from(sources) * share) as u16,
            (RepairKind::ReedSolomon, Some(fails)) => {
                self.loss.repairs(sources.into(), fails) as u16
            }
        };
        Protection { groups, repairs: repairs.min(max_repairs) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rate::Arrival;
    use super::*;
    use alloc::vec::Vec;
    use skybraid_units::Instant;

    fn probability(ratio: f64) -> Probability {
        Probability::new(ratio).unwrap()
    }

    fn policy(kind: RepairKind, share: Option<f64>, fails: Option<f64>) -> ProtectionPolicy {
        let (share, fails) = (share.map(probability), fails.map(probability));
        ProtectionPolicy::new(RepairConfig { kind, share, fails, group: 40 })
    }

    #[test]
    fn a_share_sets_the_size_of_groups_or_the_repair_packets() {
        let xor = policy(RepairKind::Xor, Some(0.25), None).protection(8);
        assert_eq!((xor.groups, xor.repairs), (2, 1));
        let solomon = policy(RepairKind::ReedSolomon, Some(0.25), None).protection(90);
        assert_eq!((solomon.groups, solomon.repairs, solomon.count()), (3, 8, 24));
        let bounds: Vec<_> = (0..3).map(|group| solomon.bounds(group, 91)).collect();
        assert_eq!(bounds, [(0, 30), (30, 60), (60, 91)]);
    }

    #[test]
    fn the_packets_of_a_huge_frame_can_all_be_numbered() {
        for (packets, group) in [(32_767, 1), (32_767, 3), (32_767, 100), (65_535, 40)] {
            for kind in [RepairKind::Xor, RepairKind::ReedSolomon] {
                let share = Some(probability(1.0));
                let config = RepairConfig { kind, share, fails: None, group };
                let protection = ProtectionPolicy::new(config).protection(packets);
                let all = u32::from(packets)
                    + u32::from(protection.groups) * u32::from(protection.repairs);
                assert!(all <= 65_535, "{packets} packets in groups of {group}: {all}");
                assert!(protection.repairs > 0 || packets > 32_767);
            }
        }
    }

    // Source: the binomial formula. At 10 % loss, more than 6 of 26 packets are lost with probability
    // 0.0119, more than 7 of 27 with 0.0039.
    #[test]
    fn the_amount_of_repair_follows_the_measured_loss() {
        let mut policy = policy(RepairKind::ReedSolomon, None, Some(0.01));
        let arrivals: Vec<_> = (0..20_000)
            .map(|number| Arrival { number, at: (number % 10 != 0).then_some(Instant::ZERO) })
            .collect();
        let report = Report { reported: Instant::ZERO, arrivals: &arrivals };
        policy.on_feedback(&report);
        assert!((policy.loss() - 0.1).abs() < 0.01, "{}", policy.loss());
        assert_eq!(policy.protection(20).repairs, 7);
        let before = policy.loss();
        policy.on_feedback(&report);
        assert!((policy.loss() - before).abs() < 1e-12, "reported twice, counted once");
    }
}
