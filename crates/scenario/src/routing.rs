//! Ways through the network: static routes, then shortest paths, then a choice among equals.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::rc::Rc;

use skybraid_host::{Forwarding, Host, Route};
use skybraid_link::Link as RunningLink;
use skybraid_units::{Instant, Seed};

use crate::network::{Ecmp, Link, Metric, Node, Routing};

/// A packet lives for so many hops (RFC 791: time to live).
const MOST_HOPS: usize = 255;

/// For one node: the directed links by which a packet to it may leave each node.
type Next = Vec<Vec<usize>>;

/// What tables are told apart by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Target {
    node: usize,
    /// The destination behind that node, where static routes or the ban to pass it concern it.
    behind: Option<usize>,
}

/// The ways from one end of a subflow to the other.
struct Way {
    from: usize,
    to: usize,
    /// The link that must come first, and the link that must come last, each with where it begins.
    first: Option<(usize, usize)>,
    last: Option<(usize, usize)>,
    next: Rc<Next>,
}

impl Way {
    /// The directed links by which a packet may leave `node`.
    fn choices(&self, node: usize) -> &[usize] {
        for (begins, link) in [&self.first, &self.last].into_iter().flatten() {
            if *begins == node {
                return core::slice::from_ref(link);
            }
        }
        self.next.get(node).map(Vec::as_slice).unwrap_or_default()
    }
}

/// Finds routes.
pub(crate) struct Router<'a> {
    nodes: &'a [Node],
    links: &'a [Link],
    routing: &'a Routing,
    /// What each directed link adds to the length of a path.
    lengths: Vec<u64>,
    /// The directed links that leave each node.
    leaving: Vec<Vec<usize>>,
    known: BTreeMap<Target, Rc<Next>>,
}

/// Who wants to send: a subflow's two ends, the link by which the end that opens is attached, and what
/// sets it apart from others.
#[derive(Clone, Copy)]
pub(crate) struct Subflow<'a> {
    pub opener: usize,
    pub other: usize,
    /// A position among the links; by whatever leads there where it is `None`.
    pub interface: Option<usize>,
    pub connection: &'a str,
    pub number: usize,
}

impl<'a> Router<'a> {
    pub fn new(nodes: &'a [Node], links: &'a [Link], routing: &'a Routing) -> Self {
        let lengths = links.iter().flat_map(|link| match routing.by {
            Metric::Weight => [u64::from(link.weight); 2],
            Metric::Delay => [(&link.uplink, "uplink"), (&link.downlink, "downlink")].map(
                |(config, direction)| {
                    let mut running = RunningLink::new(config, &link.name, direction, Seed(0));
                    running.conditions(Instant::ZERO).delay.as_nanos().max(1) as u64
                },
            ),
        });
        let mut leaving = vec![Vec::new(); nodes.len()];
        for (number, link) in links.iter().enumerate() {
            for (end, directed) in link.ends.into_iter().zip([2 * number, 2 * number + 1]) {
                if let Some(own) = leaving.get_mut(end) {
                    own.push(directed);
                }
            }
        }
        Self { nodes, links, routing, lengths: lengths.collect(), leaving, known: BTreeMap::new() }
    }

    fn ends(&self, directed: usize) -> Option<[usize; 2]> {
        let [a, b] = self.links.get(directed / 2)?.ends;
        Some(if directed.is_multiple_of(2) { [a, b] } else { [b, a] })
    }

    fn name(&self, node: usize) -> &str {
        self.nodes.get(node).map_or("", |node| node.name.as_str())
    }

    /// The ways of a packet of `host`.
    fn way(&mut self, subflow: &Subflow<'_>, host: Host) -> Way {
        let (from, to) = match host {
            Host::Vehicle => (subflow.opener, subflow.other),
            Host::Ground => (subflow.other, subflow.opener),
        };
        let attached = subflow.interface.and_then(|link| {
            let [first, _] = self.ends(2 * link)?;
            Some(2 * link + usize::from(first != subflow.opener))
        });
        let first = attached.filter(|_| host == Host::Vehicle).map(|link| (from, link));
        let last = attached.filter(|_| host == Host::Ground);
        let last = last.and_then(|link| Some((self.ends(link)?[1], link ^ 1)));
        let fixed = self.routing.fixed.iter().any(|route| route.to.contains(&to));
        let passes = self.nodes.get(to).is_some_and(|node| node.forwards);
        let behind = (fixed || (passes && last.is_some())).then_some(to);
        let node = last.map_or(to, |(before, _)| before);
        Way { from, to, first, last, next: self.towards(Target { node, behind }) }
    }

    /// What a packet to `target` may do at each node.
    fn towards(&mut self, target: Target) -> Rc<Next> {
        if let Some(next) = self.known.get(&target) {
            return next.clone();
        }
        let mut next = self.shortest(target);
        let goal = target.behind.unwrap_or(target.node);
        for fixed in self.routing.fixed.iter().filter(|route| route.to.contains(&goal)) {
            for node in fixed.at.iter().filter(|node| **node != goal) {
                let own = |link: &&usize| self.ends(**link).is_some_and(|[from, _]| from == *node);
                let via: Vec<usize> = fixed.via.iter().filter(own).copied().collect();
                if let (Some(links), false) = (next.get_mut(*node), via.is_empty()) {
                    *links = via;
                }
            }
        }
        let next = Rc::new(next);
        self.known.insert(target, next.clone());
        next
    }

    /// Dijkstra's algorithm from the target outwards. Vehicles and ground stations begin and end paths
    /// but do not lie on them.
    fn shortest(&self, target: Target) -> Next {
        let count = self.nodes.len();
        let (mut next, mut distances) = (vec![Vec::new(); count], vec![u64::MAX; count]);
        let mut waiting = BinaryHeap::new();
        let start = target.node;
        if let Some(distance) = distances.get_mut(start) {
            *distance = 0;
            waiting.push(Reverse((0, start)));
        }
        while let Some(Reverse((distance, node))) = waiting.pop() {
            let passes = node == start || self.nodes.get(node).is_some_and(|node| node.forwards);
            if distances.get(node).is_none_or(|known| distance > *known) || !passes {
                continue;
            }
            for outwards in self.leaving.get(node).into_iter().flatten() {
                let link = outwards ^ 1;
                let Some([from, _]) = self.ends(link) else { continue };
                if Some(from) == target.behind || from == start {
                    continue;
                }
                let length = self.lengths.get(link).copied().unwrap_or(u64::MAX);
                let through = distance.saturating_add(length);
                let (Some(known), Some(links)) = (distances.get_mut(from), next.get_mut(from))
                else {
                    continue;
                };
                if through < *known {
                    *known = through;
                    links.clear();
                    waiting.push(Reverse((through, from)));
                }
                if through == *known {
                    links.push(link);
                }
            }
        }
        next.iter_mut().for_each(|links| links.sort_unstable());
        next
    }

    /// Both directions' routes of a subflow, and the forwarding tables that they need.
    pub fn routes(
        &mut self,
        subflow: &Subflow<'_>,
        seed: Seed,
        tables: &mut Vec<Forwarding>,
    ) -> [Route; 2] {
        [Host::Vehicle, Host::Ground].map(|host| {
            let way = self.way(subflow, host);
            let in_turn = match self.routing.ecmp {
                Ecmp::Packet => false,
                Ecmp::RoundRobin => true,
                Ecmp::Flow | Ecmp::Off => {
                    return Route::Fixed(self.walk(&way, subflow, host, seed).unwrap_or_default());
                }
            };
            if let Some(only) = self.only_way(&way) {
                return Route::Fixed(only);
            }
            let next = (0..self.nodes.len()).map(|node| match node {
                node if node == way.to => Vec::new(),
                node => way.choices(node).to_vec(),
            });
            let forwarding = Forwarding { next: next.collect(), in_turn };
            let known = tables.iter().position(|table| *table == forwarding);
            let table = known.unwrap_or_else(|| {
                tables.push(forwarding);
                tables.len() - 1
            });
            Route::Spread { from: way.from, table }
        })
    }

    /// The way where no node has a choice.
    fn only_way(&self, way: &Way) -> Option<Vec<usize>> {
        let (mut node, mut links) = (way.from, Vec::new());
        while node != way.to {
            let [link] = way.choices(node) else { return None };
            links.push(*link);
            node = self.ends(*link)?[1];
        }
        Some(links)
    }

    /// The way that a subflow's hash takes. `None` where there is none, or no end to it.
    fn walk(&self, way: &Way, subflow: &Subflow<'_>, host: Host, seed: Seed) -> Option<Vec<usize>> {
        let (connection, number) = (subflow.connection, subflow.number);
        let mut draws = seed.stream(&format!("ecmp.{connection}.{number}.{}", host.name()));
        let hash = draws.next_u64();
        let (mut node, mut links) = (way.from, Vec::new());
        while node != way.to {
            let choices = way.choices(node);
            let choice = match (self.routing.ecmp, choices.len()) {
                (_, 0) => return None,
                (Ecmp::Off, _) | (_, 1) => 0,
                (_, many) => (mix(hash, node as u64) % many as u64) as usize,
            };
            let link = *choices.get(choice)?;
            links.push(link);
            node = self.ends(link)?[1];
            if links.len() > MOST_HOPS {
                return None;
            }
        }
        Some(links)
    }

    /// Checks that every packet of a subflow arrives, whichever way it takes.
    ///
    /// # Errors
    /// Says where it ends or goes round.
    pub fn check(&mut self, subflow: &Subflow<'_>) -> Result<(), String> {
        for host in [Host::Vehicle, Host::Ground] {
            let way = self.way(subflow, host);
            let (mut visited, mut sound) = (Vec::new(), BTreeSet::new());
            self.check_from(&way, way.from, &mut visited, &mut sound).map_err(|problem| {
                let (from, to) = (self.name(way.from), self.name(way.to));
                format!("no route from `{from}` to `{to}`: {problem}")
            })?;
        }
        Ok(())
    }

    /// Depth first: every way on from `node` ends at the destination. `visited` nodes lead there, `sound`
    /// ones are known to.
    fn check_from(
        &self,
        way: &Way,
        node: usize,
        visited: &mut Vec<usize>,
        sound: &mut BTreeSet<usize>,
    ) -> Result<(), String> {
        if node == way.to || sound.contains(&node) {
            return Ok(());
        }
        if let Some(first) = visited.iter().position(|before| *before == node) {
            let round = visited.iter().skip(first).chain([&node]);
            let names: Vec<&str> = round.map(|node| self.name(*node)).collect();
            return Err(format!("packets go round: {}", names.join(" → ")));
        }
        if visited.len() >= MOST_HOPS {
            return Err(format!("it takes more than {MOST_HOPS} hops"));
        }
        visited.push(node);
        let links = way.choices(node);
        if links.is_empty() {
            return Err(format!("no way leads on from `{}`", self.name(node)));
        }
        for link in links {
            let Some([_, after]) = self.ends(*link) else { continue };
            self.check_from(way, after, visited, sound)?;
        }
        visited.pop();
        sound.insert(node);
        Ok(())
    }

    /// How many equally good ways a packet of `host` may take.
    pub fn ways(&mut self, subflow: &Subflow<'_>, host: Host) -> u64 {
        let way = self.way(subflow, host);
        self.count(&way, way.from, &mut BTreeMap::from([(way.to, 1)]))
    }

    fn count(&self, way: &Way, node: usize, counted: &mut BTreeMap<usize, u64>) -> u64 {
        if let Some(ways) = counted.get(&node) {
            return *ways;
        }
        // A node that is met again before its ways are counted lies on a loop.
        counted.insert(node, 0);
        let mut ways: u64 = 0;
        for link in way.choices(node) {
            if let Some([_, after]) = self.ends(*link) {
                ways = ways.saturating_add(self.count(way, after, counted));
            }
        }
        counted.insert(node, ways);
        ways
    }
}

/// Mixes a hash with a node's number, so that nodes choose independently of one another (SplitMix64,
/// Steele et al. 2014).
const fn mix(hash: u64, node: u64) -> u64 {
    let mut value = hash ^ node.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
