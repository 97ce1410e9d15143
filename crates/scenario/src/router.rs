//! Routes through the network: static routes, else shortest paths, with a choice among equal ones.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::rc::Rc;

use skybraid_host::{DirectedLink, Forwarding, Host, Route};
use skybraid_link::{Direction, Link as RunningLink};
use skybraid_units::invariant::Promised as _;
use skybraid_units::{Instant, Seed};

use crate::network::{Ecmp, Link, Metric, Node, Routing};

/// Maximum number of hops of a packet (time to live of RFC 791).
const MAX_HOPS: usize = 255;

/// Directed links by which a packet to one destination may leave each node.
type Next = Vec<Vec<DirectedLink>>;

/// Key of a table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Target {
    node: usize,
    /// Destination after that node, if static routes or the ban on passing through the destination concern it.
    behind: Option<usize>,
}

/// Paths from one end of a subflow to the other.
struct Paths {
    from: usize,
    to: usize,
    /// First and last link if they are given, each with the node at which it starts.
    first: Option<(usize, DirectedLink)>,
    last: Option<(usize, DirectedLink)>,
    next: Rc<Next>,
}

impl Paths {
    /// Returns the directed links by which a packet may leave `node`.
    fn choices(&self, node: usize) -> &[DirectedLink] {
        for (start, link) in [&self.first, &self.last].into_iter().flatten() {
            if *start == node {
                return core::slice::from_ref(link);
            }
        }
        let next = self.next.get(node).promised("a node of the network");
        next.map(Vec::as_slice).unwrap_or_default()
    }
}

/// Router of a network.
pub(crate) struct Router<'a> {
    nodes: &'a [Node],
    links: &'a [Link],
    routing: &'a Routing,
    /// Length of each directed link.
    lengths: Vec<u64>,
    /// Directed links that leave each node.
    leaving: Vec<Vec<DirectedLink>>,
    known: BTreeMap<Target, Rc<Next>>,
}

/// A subflow: its two ends, the link at its opening end, and what distinguishes it from others.
#[derive(Clone, Copy)]
pub(crate) struct Subflow<'a> {
    pub opener: usize,
    pub other: usize,
    /// Index of the first link; `None` leaves the choice to routing.
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
            for (end, directed) in link.ends.into_iter().zip(DirectedLink::both(number)) {
                if let Some(own) = leaving.get_mut(end).promised("an end of the link") {
                    own.push(directed);
                }
            }
        }
        Self { nodes, links, routing, lengths: lengths.collect(), leaving, known: BTreeMap::new() }
    }

    /// Returns the nodes at which a packet enters and leaves the link.
    fn ends(&self, link: DirectedLink) -> Option<[usize; 2]> {
        let ends = self.links.get(link.link()).promised("a link of the network")?.ends;
        Some(link.orient(ends))
    }

    fn node(&self, index: usize) -> Option<&Node> {
        self.nodes.get(index).promised("a node of the network")
    }

    fn name(&self, node: usize) -> &str {
        self.node(node).map_or("", |node| node.name.as_str())
    }

    /// Returns the paths of a packet from `host`.
    fn paths_from(&mut self, subflow: &Subflow<'_>, host: Host) -> Paths {
        let (from, to) = match host {
            Host::Vehicle => (subflow.opener, subflow.other),
            Host::Ground => (subflow.other, subflow.opener),
        };
        let attached = subflow.interface.and_then(|link| {
            let uplink = DirectedLink::new(link, Direction::Uplink);
            let [first, _] = self.ends(uplink)?;
            Some(if first == subflow.opener { uplink } else { uplink.reverse() })
        });
        let first = attached.filter(|_| host == Host::Vehicle).map(|link| (from, link));
        let last = attached.filter(|_| host == Host::Ground);
        let last = last.and_then(|link| Some((self.ends(link)?[1], link.reverse())));
        let fixed = self.routing.fixed.iter().any(|route| route.to.contains(&to));
        let passes = self.node(to).is_some_and(|node| node.forwards);
        let behind = (fixed || (passes && last.is_some())).then_some(to);
        let node = last.map_or(to, |(before, _)| before);
        Paths { from, to, first, last, next: self.towards(Target { node, behind }) }
    }

    /// Returns the links by which a packet to `target` may leave each node.
    fn towards(&mut self, target: Target) -> Rc<Next> {
        if let Some(next) = self.known.get(&target) {
            return next.clone();
        }
        let mut next = self.shortest(target);
        let goal = target.behind.unwrap_or(target.node);
        for fixed in self.routing.fixed.iter().filter(|route| route.to.contains(&goal)) {
            for node in fixed.at.iter().filter(|node| **node != goal) {
                let own =
                    |link: &&DirectedLink| self.ends(**link).is_some_and(|[from, _]| from == *node);
                let via: Vec<DirectedLink> = fixed.via.iter().filter(own).copied().collect();
                let links = next.get_mut(*node).promised("a node of the static route");
                if let (Some(links), false) = (links, via.is_empty()) {
                    *links = via;
                }
            }
        }
        let next = Rc::new(next);
        self.known.insert(target, next.clone());
        next
    }

    /// Runs Dijkstra's algorithm from the target outwards. Vehicles and ground stations start and end paths
    /// but do not forward.
    fn shortest(&self, target: Target) -> Next {
        let count = self.nodes.len();
        let (mut next, mut distances) = (vec![Vec::new(); count], vec![u64::MAX; count]);
        let mut waiting = BinaryHeap::new();
        let start = target.node;
        if let Some(distance) = distances.get_mut(start).promised("the target node") {
            *distance = 0;
            waiting.push(Reverse((0, start)));
        }
        while let Some(Reverse((distance, node))) = waiting.pop() {
            let passes = node == start || self.node(node).is_some_and(|node| node.forwards);
            if distances.get(node).is_none_or(|known| distance > *known) || !passes {
                continue;
            }
            for outwards in self.leaving.get(node).into_iter().flatten() {
                let link = outwards.reverse();
                let Some([from, _]) = self.ends(link) else { continue };
                if Some(from) == target.behind || from == start {
                    continue;
                }
                let length =
                    self.lengths.get(link.index()).copied().promised("the length of a link");
                let length = length.unwrap_or(u64::MAX);
                let through = distance.saturating_add(length);
                let known = distances.get_mut(from).promised("the distance of a node");
                let (Some(known), Some(links)) = (known, next.get_mut(from)) else { continue };
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

    /// Returns the routes of a subflow in both directions, and adds the forwarding tables they need.
    pub fn routes(
        &mut self,
        subflow: &Subflow<'_>,
        seed: Seed,
        tables: &mut Vec<Forwarding>,
    ) -> [Route; 2] {
        [Host::Vehicle, Host::Ground].map(|host| {
            let paths = self.paths_from(subflow, host);
            let in_turn = match self.routing.ecmp {
                Ecmp::Packet => false,
                Ecmp::RoundRobin => true,
                Ecmp::Flow | Ecmp::Off => {
                    let links = self.walk(&paths, subflow, host, seed).unwrap_or_default();
                    return Route::Fixed(links);
                }
            };
            if let Some(only) = self.only_path(&paths) {
                return Route::Fixed(only);
            }
            let next = (0..self.nodes.len()).map(|node| match node {
                node if node == paths.to => Vec::new(),
                node => paths.choices(node).to_vec(),
            });
            let forwarding = Forwarding { next: next.collect(), in_turn };
            let known = tables.iter().position(|table| *table == forwarding);
            let table = known.unwrap_or_else(|| {
                tables.push(forwarding);
                tables.len() - 1
            });
            Route::Spread { from: paths.from, table }
        })
    }

    /// Returns the path if no node has a choice.
    fn only_path(&self, paths: &Paths) -> Option<Vec<DirectedLink>> {
        let (mut node, mut links) = (paths.from, Vec::new());
        while node != paths.to {
            let [link] = paths.choices(node) else { return None };
            links.push(*link);
            node = self.ends(*link)?[1];
        }
        Some(links)
    }

    /// Returns the path chosen by the subflow's hash; `None` if there is none, or it is too long.
    fn walk(
        &self,
        paths: &Paths,
        subflow: &Subflow<'_>,
        host: Host,
        seed: Seed,
    ) -> Option<Vec<DirectedLink>> {
        let (connection, number) = (subflow.connection, subflow.number);
        let mut draws = seed.stream(&format!("ecmp.{connection}.{number}.{}", host.name()));
        let hash = draws.next_u64();
        let (mut node, mut links) = (paths.from, Vec::new());
        while node != paths.to {
            let choices = paths.choices(node);
            let choice = match (self.routing.ecmp, choices.len()) {
                (_, 0) => return None,
                (Ecmp::Off, _) | (_, 1) => 0,
                (_, many) => (mix(hash, node as u64) % many as u64) as usize,
            };
            let link = *choices.get(choice)?;
            links.push(link);
            node = self.ends(link)?[1];
            if links.len() > MAX_HOPS {
                return None;
            }
        }
        Some(links)
    }

    /// Checks that each packet of a subflow reaches its destination, whichever path it takes.
    ///
    /// # Errors
    /// A packet ends elsewhere or enters a loop.
    pub fn check(&mut self, subflow: &Subflow<'_>) -> Result<(), String> {
        for host in [Host::Vehicle, Host::Ground] {
            let paths = self.paths_from(subflow, host);
            let (mut visited, mut sound) = (Vec::new(), BTreeSet::new());
            self.check_from(&paths, paths.from, &mut visited, &mut sound).map_err(|problem| {
                let (from, to) = (self.name(paths.from), self.name(paths.to));
                format!("no route from `{from}` to `{to}`: {problem}")
            })?;
        }
        Ok(())
    }

    /// Checks depth first that each path from `node` ends at the destination. `visited` nodes lead to `node`;
    /// `sound` nodes are known to lead to the destination.
    fn check_from(
        &self,
        paths: &Paths,
        node: usize,
        visited: &mut Vec<usize>,
        sound: &mut BTreeSet<usize>,
    ) -> Result<(), String> {
        if node == paths.to || sound.contains(&node) {
            return Ok(());
        }
        if let Some(first) = visited.iter().position(|before| *before == node) {
            let round = visited.iter().skip(first).chain([&node]);
            let names: Vec<&str> = round.map(|node| self.name(*node)).collect();
            return Err(format!("packets go round: {}", names.join(" → ")));
        }
        if visited.len() >= MAX_HOPS {
            return Err(format!("it takes more than {MAX_HOPS} hops"));
        }
        visited.push(node);
        let links = paths.choices(node);
        if links.is_empty() {
            return Err(format!("no way leads on from `{}`", self.name(node)));
        }
        for link in links {
            let Some([_, after]) = self.ends(*link) else { continue };
            self.check_from(paths, after, visited, sound)?;
        }
        visited.pop();
        sound.insert(node);
        Ok(())
    }

    /// Returns the number of paths that a packet from `host` may take.
    pub fn path_count(&mut self, subflow: &Subflow<'_>, host: Host) -> u64 {
        let paths = self.paths_from(subflow, host);
        self.count_from(&paths, paths.from, &mut BTreeMap::from([(paths.to, 1)]))
    }

    fn count_from(&self, paths: &Paths, node: usize, counted: &mut BTreeMap<usize, u64>) -> u64 {
        if let Some(count) = counted.get(&node) {
            return *count;
        }
        // A node that is visited again before its paths are counted is on a loop.
        counted.insert(node, 0);
        let mut count: u64 = 0;
        for link in paths.choices(node) {
            if let Some([_, after]) = self.ends(*link) {
                count = count.saturating_add(self.count_from(paths, after, counted));
            }
        }
        counted.insert(node, count);
        count
    }
}

/// Mixes a hash with a node's number, so that nodes choose independently (SplitMix64, Steele et al. 2014).
const fn mix(hash: u64, node: u64) -> u64 {
    let mut value = hash ^ node.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
