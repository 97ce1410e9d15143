//! Probes: reports on all paths that each end sends many times a second on each path.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | version (3 bits), kind 4 (3 bits), 0 |
//! | 1 | bit 0: there is an echo; bit 1: it asks for an answer at once; bit 2: packets of 1,280 bytes do not get through |
//! | 1 | how many reports follow |
//! | 1 | the longest that a datagram waited for its receiver's program of late, in milliseconds, 255 for more |
//! | 2 | number of the probe on this path, modulo 2¹⁶ |
//! | 2 | largest IP packet that the sender sends on this path, in bytes |
//! | 4 | sent at: microseconds, modulo 2³² |
//! | 4 and 4 | echo: when the newest probe on this path had left, and for how many microseconds it had been here |
//! | 16 each | reports |
//! | any | zeros, where the probe tries how large a packet may be |
//!
//! A report describes a path as the sender of the probe receives on it: number, incoming state, loss (of 65
//! 535), smoothed transit time in microseconds (including the clock difference), jitter in tens of
//! microseconds, number of the newest probe that has arrived (2), and a bit for that probe and for each of
//! the 31 before it that has arrived (4, the newest lowest).

use alloc::vec::Vec;

use skybraid_transport::wire::datagram::VERSION;

use super::seen::ProbesSeen;
use crate::event::PathState;

/// The first byte of a probe.
pub const FIRST: u8 = VERSION << 5 | 4 << 2;
/// Maximum reports in a probe.
pub const MAX_REPORTS: usize = 32;
/// Maximum reports sent in a probe, so that it fits the smallest packet that every path carries; reports of
/// more paths take turns.
pub const MAX_SENT_REPORTS: usize = 24;
const HEAD: usize = 20;
const REPORT: usize = 16;

/// Probe of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probe {
    /// Number on the path, modulo 2¹⁶.
    pub number: u16,
    /// Largest IP packet that the sender sends on this path, in bytes.
    pub mtu: u16,
    /// Packets of the base size do not get through to the receiver on this path.
    pub mtu_error: bool,
    /// Send time by its sender's clock, in microseconds modulo 2³².
    pub sent_us: u32,
    /// Echo of the newest received probe on this path: its send time, and the hold time here.
    pub echo: Option<(u32, u32)>,
    /// Asks the receiver to reply at once.
    pub asks: bool,
    /// Longest recent wait of a datagram for the sender's program, in milliseconds; 255 for more.
    pub lag_ms: u8,
    /// Reports on paths, as the sender receives on them.
    pub reports: Vec<Report>,
}

/// Report on a path as a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Wire number of the path.
    pub path: u8,
    /// Path state.
    pub state: PathState,
    /// Share of datagrams lost, of 65 535.
    pub loss: u16,
    /// Smoothed transit time in microseconds: one-way delay plus clock difference.
    pub transit_us: i32,
    /// Jitter in units of 10 µs.
    pub jitter: u16,
    /// Received probes.
    pub seen: ProbesSeen,
}

const STATES: [PathState; 5] = [
    PathState::Unheard,
    PathState::Probation,
    PathState::Up,
    PathState::Suspected,
    PathState::Down,
];

impl Probe {
    /// Writes the probe to `out`, zero-padded to `size` bytes.
    pub fn write(&self, size: usize, out: &mut Vec<u8>) {
        out.clear();
        let reports = self.reports.get(..self.reports.len().min(MAX_REPORTS)).unwrap_or_default();
        out.extend([
            FIRST,
            u8::from(self.echo.is_some())
                | u8::from(self.asks) << 1
                | u8::from(self.mtu_error) << 2,
            reports.len() as u8,
            self.lag_ms,
        ]);
        out.extend(self.number.to_be_bytes());
        out.extend(self.mtu.to_be_bytes());
        let (echo, held) = self.echo.unwrap_or_default();
        for word in [self.sent_us, echo, held] {
            out.extend(word.to_be_bytes());
        }
        for report in reports {
            out.extend([report.path, report.state as u8]);
            out.extend(report.loss.to_be_bytes());
            out.extend(report.transit_us.to_be_bytes());
            out.extend(report.jitter.to_be_bytes());
            out.extend(report.seen.newest.to_be_bytes());
            out.extend(report.seen.arrived.to_be_bytes());
        }
        out.resize(out.len().max(size), 0);
    }

    /// Parses a probe; `None` if invalid.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_at_checked(HEAD)?;
        let &[FIRST, flags, count, lag_ms, n0, n1, m0, m1, ref words @ ..] = head else {
            return None;
        };
        if flags > 7 || usize::from(count) > MAX_REPORTS {
            return None;
        }
        let word = |at: usize| words.get(4 * at..4 * at + 4).map_or(0, be_u32);
        let reports = rest.get(..usize::from(count) * REPORT)?;
        let reports = reports.chunks_exact(REPORT).map(Report::read).collect::<Option<_>>()?;
        Some(Self {
            number: u16::from_be_bytes([n0, n1]),
            mtu: u16::from_be_bytes([m0, m1]),
            sent_us: word(0),
            echo: (flags & 1 == 1).then(|| (word(1), word(2))),
            asks: flags & 2 == 2,
            mtu_error: flags & 4 == 4,
            lag_ms,
            reports,
        })
    }
}

impl Report {
    fn read(bytes: &[u8]) -> Option<Self> {
        let &[path, state, l0, l1, a, b, c, d, j0, j1, n0, n1, s0, s1, s2, s3] = bytes else {
            return None;
        };
        Some(Self {
            path,
            state: *STATES.get(usize::from(state))?,
            loss: u16::from_be_bytes([l0, l1]),
            transit_us: i32::from_be_bytes([a, b, c, d]),
            jitter: u16::from_be_bytes([j0, j1]),
            seen: ProbesSeen {
                newest: u16::from_be_bytes([n0, n1]),
                arrived: u32::from_be_bytes([s0, s1, s2, s3]),
            },
        })
    }
}

fn be_u32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |word, octet| word << 8 | u32::from(*octet))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reports() -> impl Strategy<Value = Report> {
        (any::<(u8, u16, i32, u16, u16, u32)>(), 0..STATES.len()).prop_map(
            |((path, loss, transit_us, jitter, newest, arrived), state)| Report {
                path,
                state: STATES[state],
                loss,
                transit_us,
                jitter,
                seen: ProbesSeen { newest, arrived },
            },
        )
    }

    proptest! {
        #[test]
        fn a_probe_reads_back_whatever_its_padding(
            (number, mtu, mtu_error) in any::<(u16, u16, bool)>(), sent_us in any::<u32>(),
            echo in any::<Option<(u32, u32)>>(), asks in any::<bool>(), lag_ms in any::<u8>(),
            reports in proptest::collection::vec(reports(), 0..MAX_REPORTS), size in 0_usize..1500,
        ) {
            let probe = Probe { number, mtu, mtu_error, sent_us, echo, asks, lag_ms, reports };
            let mut out = Vec::new();
            probe.write(size, &mut out);
            prop_assert!(out.len() >= size);
            prop_assert_eq!(Probe::read(&out), Some(probe));
        }

        #[test]
        fn bytes_of_any_kind_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Probe::read(&bytes);
            let _ = Probe::read(&[&[FIRST, 1], bytes.as_slice()].concat());
        }
    }
}
