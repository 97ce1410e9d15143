//! Where a packet goes next.

use alloc::vec::Vec;

use skybraid_host::{Forwarding, Route, Setup};
use skybraid_units::Stream;

/// What is left of a packet's way after the link that it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead(u32);

impl Ahead {
    /// The link ends where the packet wants to go.
    pub const NOTHING: Self = Self(u32::MAX);
    /// Marks the number of a forwarding table; otherwise it is a place in a list of hops.
    const TABLE: u32 = 1 << 31;
}

/// The ways of all paths.
#[derive(Debug)]
pub struct Routes {
    starts: Vec<Start>,
    /// The links of fixed routes, each with what is ahead after it.
    hops: Vec<(u32, Ahead)>,
    tables: Vec<Table>,
    /// The node at the end of each directed link.
    far_ends: Vec<usize>,
    draws: Stream,
}

#[derive(Clone, Copy, Debug)]
enum Start {
    Hop(u32),
    Table { from: usize, table: u32 },
}

#[derive(Debug)]
struct Table {
    forwarding: Forwarding,
    /// How many packets each node has sent on.
    turns: Vec<usize>,
}

impl Routes {
    /// Those of `setup`.
    pub fn new(setup: &Setup) -> Self {
        let mut hops = Vec::new();
        let mut starts = Vec::new();
        for path in &setup.paths {
            for route in [&path.uplink, &path.downlink] {
                starts.push(match route {
                    Route::Fixed(links) => {
                        let first = hops.len() as u32;
                        for (place, link) in links.iter().enumerate() {
                            let last = place + 1 == links.len();
                            let ahead =
                                if last { Ahead::NOTHING } else { Ahead(hops.len() as u32 + 1) };
                            hops.push((*link as u32, ahead));
                        }
                        Start::Hop(first)
                    }
                    Route::Spread { from, table } => {
                        Start::Table { from: *from, table: *table as u32 }
                    }
                });
            }
        }
        let table = |forwarding: &Forwarding| Table {
            forwarding: forwarding.clone(),
            turns: alloc::vec![0; forwarding.next.len()],
        };
        Self {
            starts,
            hops,
            tables: setup.forwarding.iter().map(table).collect(),
            far_ends: setup.links.iter().flat_map(|link| [link.ends[1], link.ends[0]]).collect(),
            draws: setup.seed.stream("routing"),
        }
    }

    /// The first link of a route, and what is ahead after it.
    #[inline]
    pub fn first(&mut self, route: usize) -> Option<(usize, Ahead)> {
        match *self.starts.get(route)? {
            Start::Hop(place) => self.hop(place),
            Start::Table { from, table } => self.choose(from, table),
        }
    }

    /// The next link of a packet that has come to the end of `link`, and what is ahead after it.
    pub fn next(&mut self, link: usize, ahead: Ahead) -> Option<(usize, Ahead)> {
        if ahead == Ahead::NOTHING {
            None
        } else if ahead.0 & Ahead::TABLE == 0 {
            self.hop(ahead.0)
        } else {
            let node = *self.far_ends.get(link)?;
            self.choose(node, ahead.0 & !Ahead::TABLE)
        }
    }

    #[inline]
    fn hop(&self, place: u32) -> Option<(usize, Ahead)> {
        self.hops.get(place as usize).map(|(link, ahead)| (*link as usize, *ahead))
    }

    fn choose(&mut self, node: usize, number: u32) -> Option<(usize, Ahead)> {
        let table = self.tables.get_mut(number as usize)?;
        let links = table.forwarding.next.get(node)?;
        let choice = match links.len() {
            0 => return None,
            1 => 0,
            many if table.forwarding.in_turn => {
                let turn = table.turns.get_mut(node)?;
                *turn += 1;
                (*turn - 1) % many
            }
            many => self.draws.below(many as u64) as usize,
        };
        let link = *links.get(choice)?;
        Some((link, Ahead(number | Ahead::TABLE)))
    }
}
