//! Counters of packet outcomes, and samples of the links.

use skybraid_host::record::{LinkRow, LinkTotal, PacketKind, PacketRow, Record};
use skybraid_link::{Cause, Conditions};
use skybraid_units::invariant::Promised;
use skybraid_units::{Bytes, Instant, Rate};

use super::UNKNOWN_FLOW;
use super::frame::ETHERNET;
use super::report::Account;
use super::stage::Waiting;

/// Rows allocated at once, so that a long table never moves while packets wait.
const BLOCK: usize = 1 << 14;
/// Samples in the last second, for [`Way::recent_rate`].
const RECENT: usize = 10;

/// Counters of one direction of a lane.
#[derive(Default)]
struct Way {
    account: Account,
    bytes: u64,
    /// Counters at the last sample.
    sampled: (Account, u64),
    /// Bytes delivered in each of the last samples.
    recent: [u64; RECENT],
}

/// Packets carried and lost by the links.
pub(super) struct LinkCounters {
    record: Record,
    ways: Vec<Way>,
    samples: Vec<LinkRow>,
    packets: Vec<Vec<PacketRow>>,
    lost_by_flow: Vec<[u64; Cause::ALL.len()]>,
}

impl LinkCounters {
    /// Creates empty counters for `ways` directions.
    pub fn new(record: Record, ways: usize) -> Self {
        Self {
            record,
            ways: (0..ways).map(|_| Way::default()).collect(),
            samples: Vec::with_capacity(BLOCK),
            packets: Vec::new(),
            lost_by_flow: Vec::new(),
        }
    }

    /// Returns the account of a direction for updating.
    pub fn account(&mut self, way: usize) -> Option<&mut Account> {
        self.ways.get_mut(way).promised("a direction of a link").map(|way| &mut way.account)
    }

    /// Counts a packet delivered at the other end.
    #[inline]
    pub fn delivered(&mut self, way: usize, packet: &Waiting) {
        if let Some(way) = self.ways.get_mut(way).promised("a direction of a link") {
            way.account.delivered += 1;
            way.bytes += u64::from(packet.length) - ETHERNET as u64;
        }
        if self.record.packets {
            self.row(way, packet, packet.due, None);
        }
    }

    /// Counts a packet lost by a link at `at`.
    pub fn lost(&mut self, way: usize, packet: &Waiting, at: Instant, cause: Cause) {
        let count = |lost: &mut [u64; Cause::ALL.len()]| {
            if let Some(count) = lost.get_mut(cause as usize) {
                *count += 1;
            }
        };
        if let Some(way) = self.ways.get_mut(way).promised("a direction of a link") {
            count(&mut way.account.lost);
        }
        if let Some((flow, PacketKind::Data)) = packet.flow {
            if self.lost_by_flow.len() <= usize::from(flow) {
                self.lost_by_flow.resize(usize::from(flow) + 1, Default::default());
            }
            if let Some(lost) = self.lost_by_flow.get_mut(usize::from(flow)) {
                count(lost);
            }
        }
        if self.record.packets {
            self.row(way, packet, at, Some(cause));
        }
    }

    fn row(&mut self, way: usize, packet: &Waiting, left: Instant, cause: Option<Cause>) {
        let (flow, kind) = packet.flow.unwrap_or((UNKNOWN_FLOW, PacketKind::Data));
        if self.packets.last().is_none_or(|block| block.len() == BLOCK) {
            self.packets.push(Vec::with_capacity(BLOCK));
        }
        if let Some(block) = self.packets.last_mut() {
            block.push(PacketRow {
                entered: packet.entered,
                left,
                link: way as u16,
                flow,
                bytes: packet.length - ETHERNET as u32,
                kind,
                cause,
            });
        }
    }

    /// Samples a direction: its state, and the changes since the last sample.
    pub fn sample(&mut self, way: usize, at: Instant, state: Conditions, queue: Bytes) {
        let Some(counts) = self.ways.get_mut(way).promised("a direction of a link") else { return };
        let (account, bytes) = (counts.account, counts.bytes);
        let (before, bytes_before) = std::mem::replace(&mut counts.sampled, (account, bytes));
        counts.recent.rotate_left(1);
        if let Some(last) = counts.recent.last_mut() {
            *last = bytes - bytes_before;
        }
        if self.record.links {
            self.samples.push(LinkRow {
                at,
                link: way as u16,
                rate_bps: state.rate.as_bps(),
                delay: state.delay,
                loss: state.loss.ratio(),
                up: state.up,
                queue_bytes: queue.get(),
                delivered: (account.delivered - before.delivered) as u32,
                delivered_bytes: bytes - bytes_before,
                lost: std::array::from_fn(|cause| {
                    let count = |account: &Account| account.lost.get(cause).copied();
                    (count(&account).unwrap_or(0) - count(&before).unwrap_or(0)) as u32
                }),
            });
        }
    }

    /// Returns the rate at which IP packets arrived in the last second of samples.
    pub fn recent_rate(&self, way: usize) -> Rate {
        let bytes = self
            .ways
            .get(way)
            .promised("a direction of a link")
            .map_or(0, |way| way.recent.iter().sum());
        Rate::from_bps(bytes * 8)
    }

    /// Returns the account of a direction.
    pub fn account_of(&self, way: usize) -> Account {
        self.ways
            .get(way)
            .promised("a direction of a link")
            .map(|way| way.account)
            .unwrap_or_default()
    }

    /// Returns the number of packets lost by the emulator itself.
    pub fn lost_by_emulator(&self) -> u64 {
        self.ways.iter().map(|way| way.account.lost_by_emulator()).sum()
    }

    /// Moves the counters into the report.
    pub fn close(self, report: &mut super::Forwarded) {
        let total = |way: &Way| LinkTotal {
            delivered: way.account.delivered,
            delivered_bytes: way.bytes,
            lost: way.account.lost,
        };
        report.links = self.samples;
        report.link_totals = self.ways.iter().map(total).collect();
        report.accounts = self.ways.iter().map(|way| way.account).collect();
        report.packets = self.packets.concat();
        report.lost_by_flow = self.lost_by_flow;
    }
}
