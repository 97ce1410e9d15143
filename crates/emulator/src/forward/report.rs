//! Results of a forwarder.

use skybraid_host::record::{LinkRow, LinkTotal, PacketRow};
use skybraid_link::Cause;
use skybraid_units::Duration;

use super::lateness::Lateness;

/// Lateness of a hundredth of the packets above which a result is doubtful: about the scheduling delay of a
/// radio link.
pub const DOUBTFUL_P99: Duration = Duration::from_millis(1);
/// Lateness of a thousandth of the packets above which a result is doubtful.
pub const DOUBTFUL_P999: Duration = Duration::from_millis(5);
/// Share of packets lost by the emulator above which a result is doubtful: a tenth of the smallest loss of
/// links in scenarios.
pub const DOUBTFUL_LOSS: f64 = 1e-5;

/// Accounting of the packets of one direction of a lane. `received` is the sum of `delivered`, `lost`,
/// `unshaped`, `in_flight`, `unsendable` and `oversized`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Frames read from the interface.
    pub received: u64,
    /// Packets sent at the other end.
    pub delivered: u64,
    /// Packets lost by the links, in the order of [`Cause::ALL`]. If the interface at the other end is down
    /// or gone, this counts as an outage.
    pub lost: [u64; Cause::ALL.len()],
    /// Frames that are not shaped: protocols other than IP, and neighbour discovery.
    pub unshaped: u64,
    /// Packets on the links when the run ended.
    pub in_flight: u64,
    /// Lost by the emulator: not accepted by the interface.
    pub unsendable: u64,
    /// Lost by the emulator: larger than the MTU, as with segmentation offload enabled at the sender.
    pub oversized: u64,
    /// Lost by the emulator, not included in `received`: dropped by the kernel because they were not read in
    /// time.
    pub unread: u64,
}

impl Account {
    /// Returns the number of packets lost by the emulator itself.
    pub const fn lost_by_emulator(&self) -> u64 {
        self.unsendable + self.oversized + self.unread
    }

    /// Returns true if every received frame is accounted for.
    pub fn adds_up(&self) -> bool {
        let lost: u64 = self.lost.iter().sum();
        let placed = self.delivered + lost + self.unshaped + self.in_flight;
        self.received == placed + self.unsendable + self.oversized
    }
}

/// Results of a forwarder.
#[derive(Debug, Default)]
pub struct Forwarded {
    /// Samples of the links every 100 ms, if requested.
    pub links: Vec<LinkRow>,
    /// Totals carried and lost per direction: lane number times 2, plus 1 for ground to vehicle.
    pub link_totals: Vec<LinkTotal>,
    /// Accounts of each direction, in the order of `link_totals`.
    pub accounts: Vec<Account>,
    /// Packets, if requested.
    pub packets: Vec<PacketRow>,
    /// Lost data packets of known flows, by flow and in the order of [`Cause::ALL`].
    pub lost_by_flow: Vec<[u64; Cause::ALL.len()]>,
    /// Lateness of sent packets.
    pub lateness: Lateness,
    /// Processor time used by the forwarder's thread.
    pub cpu: Duration,
    /// Frames missing in the captures because the disk was too slow.
    pub uncaptured: u64,
    /// Error that ended the captures early, if any.
    pub capture_error: Option<std::io::Error>,
}

impl Forwarded {
    /// Returns the number of packets lost by the emulator itself.
    pub fn lost_by_emulator(&self) -> u64 {
        self.accounts.iter().map(Account::lost_by_emulator).sum()
    }

    /// Returns a sentence stating why the machine was too slow for a trustworthy result; `None` if it was
    /// not. The thresholds are [`DOUBTFUL_P99`], [`DOUBTFUL_P999`] and [`DOUBTFUL_LOSS`].
    pub fn doubtful(&self) -> Option<String> {
        let lost = self.lost_by_emulator();
        let entered: u64 =
            self.accounts.iter().map(|account| account.received + account.unread).sum();
        let oversized: u64 = self.accounts.iter().map(|account| account.oversized).sum();
        if oversized > 0 {
            return Some(format!(
                "the emulator lost {oversized} packets that were larger than the MTU; segmentation \
                 offload must be off at the hosts' interfaces"
            ));
        }
        if lost as f64 > DOUBTFUL_LOSS * entered as f64 {
            return Some(format!(
                "the emulator itself lost {lost} of {entered} packets, which no link is to blame for; \
                 the machine was too slow for this traffic"
            ));
        }
        let late = [(0.99, "1 % of", DOUBTFUL_P99), (0.999, "0.1 % of", DOUBTFUL_P999)];
        late.iter().find_map(|(share, of, limit)| {
            let late = self.lateness.quantile(*share);
            (late > *limit).then(|| {
                format!(
                    "{of} the packets left more than {} late; the machine was too busy for this \
                     traffic",
                    three_figures(late)
                )
            })
        })
    }
}

/// Formats a lateness in ms or s with three significant digits.
fn three_figures(span: Duration) -> String {
    let (value, unit) = match span.as_millis_f64() {
        ms if ms < 999.5 => (ms, "ms"),
        ms => (ms / 1e3, "s"),
    };
    let decimals = [9.995, 99.95].iter().filter(|limit| value < **limit).count();
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_printed_with_three_figures() {
        let texts = [2_621_439, 12_345_678, 99_960_000, 123_456_789, 999_700_000, 83_886_079_000]
            .map(|ns| three_figures(Duration::from_nanos(ns)));
        assert_eq!(texts, ["2.62 ms", "12.3 ms", "100 ms", "123 ms", "1.00 s", "83.9 s"]);
    }

    #[test]
    fn a_result_is_doubtful_if_packets_were_late_or_lost() {
        let mut result = Forwarded::default();
        assert_eq!(result.doubtful(), None);
        for number in 0..10_000 {
            let late = if number < 90 { 2000 } else { 20 };
            result.lateness.add(Duration::from_micros(late));
        }
        result.accounts =
            vec![Account { received: 10_000, delivered: 10_000, ..Account::default() }];
        assert_eq!(result.doubtful(), None);
        for _ in 0..100 {
            result.lateness.add(Duration::from_micros(1500));
        }
        assert!(result.doubtful().unwrap().starts_with("1 % of the packets left more than"));
        result.accounts[0].unread = 1;
        assert!(result.doubtful().unwrap().contains("lost 1 of 10001 packets"));
        result.accounts[0].oversized = 3;
        assert!(result.doubtful().unwrap().contains("offload must be off"));
    }
}
