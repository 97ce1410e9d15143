//! Routes of packets: fixed lists of links, and forwarding tables.

use alloc::vec::Vec;

use skybraid_host::{DirectedLink, Forwarding, Route, RouteId, Setup};
use skybraid_units::{Promised, Stream};

/// Rest of a packet's route after its current link: the next hop of a fixed route, or a forwarding table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead(u32);

impl Ahead {
    /// No further hop: the link leads to the destination.
    pub const NOTHING: Self = Self(u32::MAX);
    /// Flag of the number of a forwarding table; without it, the value is a position in the list of hops.
    const TABLE: u32 = 1 << 31;
}

/// Routes of all paths.
#[derive(Debug)]
pub struct Routes {
    /// First hops, by [`RouteId`].
    starts: Vec<Start>,
    /// Links of the fixed routes, each with the rest of its route.
    hops: Vec<(DirectedLink, Ahead)>,
    tables: Vec<Table>,
    /// Node at the end of each directed link.
    far_ends: Vec<usize>,
    draws: Stream,
}

#[derive(Clone, Copy, Debug)]
enum Start {
    Hop(DirectedLink, Ahead),
    Table { from: usize, table: u32 },
    Nowhere,
}

#[derive(Debug)]
struct Table {
    forwarding: Forwarding,
    /// Number of packets that each node has forwarded.
    turns: Vec<usize>,
}

impl Routes {
    /// Returns the routes of `setup`.
    pub fn new(setup: &Setup) -> Self {
        let mut hops = Vec::new();
        let routes = setup.paths.iter().flat_map(|path| [&path.uplink, &path.downlink]);
        let starts = routes.map(|route| match route {
            Route::Fixed(links) => append(&mut hops, links),
            Route::Spread { from, table } => Start::Table { from: *from, table: *table as u32 },
        });
        let starts = starts.collect();
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

    /// Returns the first link of a route, with the rest of the route.
    #[inline]
    pub fn first(&mut self, route: RouteId) -> Option<(DirectedLink, Ahead)> {
        match *self.starts.get(route.index()).promised("a route of this number")? {
            Start::Hop(link, ahead) => Some((link, ahead)),
            Start::Table { from, table } => self.choose(from, table),
            Start::Nowhere => None,
        }
    }

    /// Returns the next link of a packet at the end of `link`, with the rest of its route; `None` at the destination.
    pub fn next(&mut self, link: DirectedLink, ahead: Ahead) -> Option<(DirectedLink, Ahead)> {
        if ahead == Ahead::NOTHING {
            None
        } else if ahead.0 & Ahead::TABLE == 0 {
            self.hop(ahead.0)
        } else {
            let node = *self.far_ends.get(link.index()).promised("a link of this number")?;
            self.choose(node, ahead.0 & !Ahead::TABLE)
        }
    }

    #[inline]
    fn hop(&self, place: u32) -> Option<(DirectedLink, Ahead)> {
        self.hops.get(place as usize).promised("a hop of a fixed route").copied()
    }

    /// Returns the link on which `node` forwards the next packet by table `number`; `None` at the destination.
    fn choose(&mut self, node: usize, number: u32) -> Option<(DirectedLink, Ahead)> {
        let table = self.tables.get_mut(number as usize).promised("a forwarding table")?;
        let links = table.forwarding.next.get(node).promised("the node's links")?;
        let choice = match links.len() {
            0 => return None,
            1 => 0,
            many if table.forwarding.in_turn => {
                let turn = table.turns.get_mut(node).promised("the node's turn")?;
                *turn += 1;
                (*turn - 1) % many
            }
            many => self.draws.below(many as u64) as usize,
        };
        let link = *links.get(choice).promised("the chosen link")?;
        Some((link, Ahead(number | Ahead::TABLE)))
    }
}

/// Appends a fixed route to the hops of all, and returns its start.
fn append(hops: &mut Vec<(DirectedLink, Ahead)>, links: &[DirectedLink]) -> Start {
    let first = hops.len();
    let ahead = (first as u32 + 1..).map(Ahead);
    hops.extend(links.iter().copied().zip(ahead));
    if let (Some((_, last)), false) = (hops.last_mut(), links.is_empty()) {
        *last = Ahead::NOTHING;
    }
    let first = hops.get(first).copied().promised("a link of a fixed route");
    first.map_or(Start::Nowhere, |(link, ahead)| Start::Hop(link, ahead))
}
