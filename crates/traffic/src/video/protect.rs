//! What a camera sends beside its packets, so that frames outlive losses.

use skybraid_units::Probability;

use super::rate::{RateError, Report};
use super::repair::{Code, MeasuredLoss};

/// A frame's packets are repaired in groups of at most so many.
const MOST_SOURCES: u16 = 100;

/// Which packets are written twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Duplicate {
    /// None.
    #[default]
    None,
    /// Those of key frames.
    Keys,
    /// All.
    All,
}

/// How repair packets are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RepairKind {
    /// One packet, the exclusive or of its group (RFC 8627), repairs one loss.
    Xor,
    /// As many packets as were sent beside the sources repair as many losses (RFC 5510).
    ReedSolomon,
}

/// Repair packets of each frame.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepairConfig {
    /// How they are made.
    pub kind: RepairKind,
    /// Their number beside that of the source packets, at least one for each group; 20 % unless this or
    /// `fails` is said.
    #[serde(default)]
    pub share: Option<Probability>,
    /// With Reed–Solomon: so many that this share of the groups cannot be repaired, by the loss that is
    /// measured.
    #[serde(default)]
    pub fails: Option<Probability>,
    /// Source packets of a group at most, 1 to 100; a frame's packets are cut into equal groups.
    #[serde(default = "group")]
    pub group: u16,
}

const fn group() -> u16 {
    40
}

impl RepairConfig {
    /// Checks the ranges.
    pub(crate) fn check(&self) -> Result<(), RateError> {
        let range = |key, sound, expected| {
            if sound { Ok(()) } else { Err(RateError::Range { key, expected }) }
        };
        let open = |share: Probability| share.ratio() > 0.0 && share.ratio() <= 1.0;
        range("repair.group", (1..=MOST_SOURCES).contains(&self.group), "1 to 100")?;
        range("repair.share", self.share.is_none_or(open), "above 0 %")?;
        let within = self.fails.is_none_or(|it| it.ratio() > 0.0 && it.ratio() < 1.0);
        range("repair.fails", within, "between 0 % and 100 %")?;
        range("repair.fails", self.fails.is_none() || self.share.is_none(), "without `share`")?;
        let measured = self.fails.is_none() || self.kind == RepairKind::ReedSolomon;
        range("repair.fails", measured, "with kind = \"reed_solomon\"")
    }
}

/// How the packets of a frame are repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protection {
    /// Groups of the frame's packets, each of as many as the others or one less.
    pub groups: u16,
    /// Repair packets of each group.
    pub repairs: u16,
    /// How they are made.
    pub kind: RepairKind,
}

impl Protection {
    /// The code of a group.
    pub fn code(self) -> Code {
        match self.kind {
            RepairKind::Xor => Code::Xor,
            RepairKind::ReedSolomon => Code::ReedSolomon { repairs: self.repairs.into() },
        }
    }

    /// The first source packet of a group of a frame of so many packets, and of that behind it.
    pub fn bounds(self, group: u16, packets: u16) -> (u16, u16) {
        let at = |group: u16| {
            (u32::from(packets) * u32::from(group) / u32::from(self.groups.max(1))) as u16
        };
        (at(group), at(group + 1))
    }

    /// Repair packets of the frame.
    pub fn count(self) -> u16 {
        self.groups.saturating_mul(self.repairs)
    }
}

/// Decides how much repair each frame gets.
#[derive(Clone, Debug)]
pub struct Protector {
    config: RepairConfig,
    loss: MeasuredLoss,
    reported: Option<u64>,
}

impl Protector {
    /// Before the first report.
    pub const fn new(config: RepairConfig) -> Self {
        Self { config, loss: MeasuredLoss::new(), reported: None }
    }

    /// The share of packets that is lost, as the reports have it, lately above all.
    pub const fn loss(&self) -> f64 {
        self.loss.ratio()
    }

    /// A report has come back. Packets that it speaks of again do not count again.
    pub fn feedback(&mut self, report: &Report<'_>) {
        for arrival in report.arrivals {
            if self.reported.is_some_and(|reported| arrival.number <= reported) {
                continue;
            }
            self.reported = Some(arrival.number);
            let lost = if arrival.at.is_none() { 1.0 } else { 0.0 };
            self.loss.heed(lost, 1);
        }
    }

    /// How a frame of so many packets is repaired.
    pub fn protection(&self, packets: u16) -> Protection {
        let RepairConfig { kind, share, fails, group } = self.config;
        let share = share.map_or(0.2, Probability::ratio);
        let most = match kind {
            // One repair packet a group: the share says how large groups are.
            RepairKind::Xor => group.min((libm::round(1.0 / share) as u16).max(1)),
            RepairKind::ReedSolomon => group,
        };
        let groups = packets.div_ceil(most.max(1)).max(1);
        let sources = packets.div_ceil(groups);
        let repairs = match (kind, fails) {
            (RepairKind::Xor, _) => 1,
            (RepairKind::ReedSolomon, None) => libm::ceil(f64::from(sources) * share) as u16,
            (RepairKind::ReedSolomon, Some(fails)) => {
                self.loss.repairs(sources.into(), fails) as u16
            }
        };
        Protection { groups, repairs, kind }
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

    fn protector(kind: RepairKind, share: Option<f64>, fails: Option<f64>) -> Protector {
        let (share, fails) = (share.map(probability), fails.map(probability));
        Protector::new(RepairConfig { kind, share, fails, group: 40 })
    }

    #[test]
    fn a_share_is_kept_by_the_size_of_groups_or_by_the_number_of_repair_packets() {
        let xor = protector(RepairKind::Xor, Some(0.25), None).protection(8);
        assert_eq!((xor.groups, xor.repairs), (2, 1));
        let solomon = protector(RepairKind::ReedSolomon, Some(0.25), None).protection(90);
        assert_eq!((solomon.groups, solomon.repairs, solomon.count()), (3, 8, 24));
        let bounds: Vec<_> = (0..3).map(|group| solomon.bounds(group, 91)).collect();
        assert_eq!(bounds, [(0, 30), (30, 60), (60, 91)]);
    }

    // Source: the binomial formula. At 10 % loss, more than 6 of 26 packets are lost with probability
    // 0.0119, more than 7 of 27 with 0.0039.
    #[test]
    fn repair_follows_the_loss_that_is_measured() {
        let mut protector = protector(RepairKind::ReedSolomon, None, Some(0.01));
        let arrivals: Vec<_> = (0..20_000)
            .map(|number| Arrival { number, at: (number % 10 != 0).then_some(Instant::ZERO) })
            .collect();
        let report = Report { reported: Instant::ZERO, arrivals: &arrivals };
        protector.feedback(&report);
        assert!((protector.loss() - 0.1).abs() < 0.01, "{}", protector.loss());
        assert_eq!(protector.protection(20).repairs, 7);
        let before = protector.loss();
        protector.feedback(&report);
        assert!((protector.loss() - before).abs() < 1e-12, "told once, counted once");
    }
}
