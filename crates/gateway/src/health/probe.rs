//! Signs of life: what each end tells the other of the paths, many times a second on each.
//!
//! | octets | field |
//! |---|---|
//! | 1 | version (3 bits), kind 4 (3 bits), 0 |
//! | 1 | bit 0: there is an echo; bit 1: it asks for an answer at once |
//! | 1 | how many reports follow |
//! | 4 | sent at: microseconds, modulo 2³² |
//! | 4 and 4 | echo: when the newest probe on this path had left, and for how many microseconds it had been here |
//! | 17 each | reports |
//! | any | zeros, where the probe tries how large a packet may be |
//!
//! A report says how a path stands from the peer's point of view: its number, the state of what arrives on
//! it, loss (of 65 535), smoothed and least transit time in microseconds (with the difference of the clocks
//! in it), jitter in tens of microseconds, and the largest IP packet that has arrived.

use alloc::vec::Vec;

use skybraid_transport::wire::datagram::VERSION;

use crate::event::PathState;

/// The first octet of a probe.
pub const FIRST: u8 = VERSION << 5 | 4 << 2;
/// Most paths that a probe reports on.
pub const MOST_REPORTS: usize = 32;
const HEAD: usize = 15;
const REPORT: usize = 17;

/// A sign of life.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probe {
    /// When it left, by its sender's clock, in microseconds modulo 2³².
    pub sent_us: u32,
    /// The newest probe of the peer on this path: when it had left, and how long it had been here.
    pub echo: Option<(u32, u32)>,
    /// The receiver should answer at once.
    pub asks: bool,
    /// How paths stand, as the sender receives on them.
    pub reports: Vec<Report>,
}

/// How a path stands for what arrives on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of the path on the wire.
    pub path: u8,
    /// Its state.
    pub state: PathState,
    /// Share of datagrams lost, of 65 535.
    pub loss: u16,
    /// Smoothed transit time in microseconds: the one-way delay and the difference of the clocks.
    pub transit_us: i32,
    /// Least transit time of the last seconds.
    pub least_us: i32,
    /// Jitter in units of 10 µs.
    pub jitter: u16,
    /// Largest IP packet that has arrived, in bytes.
    pub largest: u16,
}

const STATES: [PathState; 5] = [
    PathState::Unheard,
    PathState::Probation,
    PathState::Up,
    PathState::Suspected,
    PathState::Down,
];

impl Probe {
    /// Writes it to `out`, with zeros up to `size` octets.
    pub fn write(&self, size: usize, out: &mut Vec<u8>) {
        out.clear();
        let reports = self.reports.get(..self.reports.len().min(MOST_REPORTS)).unwrap_or_default();
        out.extend([
            FIRST,
            u8::from(self.echo.is_some()) | u8::from(self.asks) << 1,
            reports.len() as u8,
        ]);
        let (echo, held) = self.echo.unwrap_or_default();
        for word in [self.sent_us, echo, held] {
            out.extend(word.to_be_bytes());
        }
        for report in reports {
            out.extend([report.path, report.state as u8]);
            out.extend(report.loss.to_be_bytes());
            out.extend(report.transit_us.to_be_bytes());
            out.extend(report.least_us.to_be_bytes());
            out.extend(report.jitter.to_be_bytes());
            out.extend(report.largest.to_be_bytes());
            out.push(0);
        }
        out.resize(out.len().max(size), 0);
    }

    /// Reads it; `None` where it is none.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_at_checked(HEAD)?;
        let &[FIRST, flags, count, ref words @ ..] = head else { return None };
        if flags > 3 || usize::from(count) > MOST_REPORTS {
            return None;
        }
        let word = |at: usize| words.get(4 * at..4 * at + 4).map_or(0, be_u32);
        let reports = rest.get(..usize::from(count) * REPORT)?;
        let reports = reports.chunks_exact(REPORT).map(Report::read).collect::<Option<_>>()?;
        Some(Self {
            sent_us: word(0),
            echo: (flags & 1 == 1).then(|| (word(1), word(2))),
            asks: flags & 2 == 2,
            reports,
        })
    }
}

impl Report {
    fn read(bytes: &[u8]) -> Option<Self> {
        let &[path, state, l0, l1, a, b, c, d, e, f, g, h, j0, j1, m0, m1, 0] = bytes else {
            return None;
        };
        Some(Self {
            path,
            state: *STATES.get(usize::from(state))?,
            loss: u16::from_be_bytes([l0, l1]),
            transit_us: i32::from_be_bytes([a, b, c, d]),
            least_us: i32::from_be_bytes([e, f, g, h]),
            jitter: u16::from_be_bytes([j0, j1]),
            largest: u16::from_be_bytes([m0, m1]),
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
        (any::<(u8, u16, i32, i32, u16, u16)>(), 0..STATES.len()).prop_map(
            |((path, loss, transit_us, least_us, jitter, largest), state)| Report {
                path,
                state: STATES[state],
                loss,
                transit_us,
                least_us,
                jitter,
                largest,
            },
        )
    }

    proptest! {
        #[test]
        fn a_probe_reads_back_whatever_its_padding(
            sent_us in any::<u32>(), echo in any::<Option<(u32, u32)>>(), asks in any::<bool>(),
            reports in proptest::collection::vec(reports(), 0..MOST_REPORTS), size in 0_usize..1500,
        ) {
            let probe = Probe { sent_us, echo, asks, reports };
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
