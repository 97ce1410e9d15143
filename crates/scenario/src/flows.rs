//! Composition of flows from the keys of `[flow.NAME]`.

use std::sync::Arc;

use skybraid_host::Host;
use skybraid_transport::{Class, PathSet, Protocol, TransportConfig};
use skybraid_units::invariant::Promised as _;
use skybraid_units::{Duration, Instant};

use crate::checks::Problem;
use crate::file::{FlowFile, Named, ProxyFile};
use crate::key::KeyPath;
use crate::network::{HOSTS, Link, Node, NodeKind, find_nodes, table};
use crate::text::ScenarioText;
use crate::wording::unknown;
use crate::{Flow, Requirement, ScenarioError, SplitAt, checks, connections, requirements};

/// Reader of the flows of a scenario.
pub(crate) struct Flows<'a> {
    pub text: &'a ScenarioText,
    /// Length of the run.
    pub duration: Duration,
    pub nodes: &'a [Node],
    pub links: &'a [Link],
    /// Whether the scenario has paths between two hosts instead of a network.
    pub of_paths: bool,
}

/// The two nodes of a flow, which of them sends, and the suffix of the flow's name.
struct Ends {
    opener: usize,
    other: usize,
    from: Host,
    suffix: String,
}

impl Flows<'_> {
    /// Reads the flows, group by group.
    pub fn read(&self, read: Named<FlowFile>) -> Result<Vec<Flow>, ScenarioError> {
        let riders: Vec<_> =
            read.0.iter().map(|(name, flow)| (name.clone(), flow.with.clone())).collect();
        let mut flows = Vec::new();
        for (name, flow) in read.0 {
            self.group(&name, flow, &mut flows)?;
        }
        for (name, with) in riders {
            let Some(with) = with else { continue };
            connections::share_connection(&mut flows, &name, &with)
                .map_err(|problem| self.text.wrong(&table("flow", &name).key("with"), problem))?;
        }
        Ok(flows)
    }

    /// Adds the flows of a group.
    fn group(
        &self,
        group: &str,
        read: FlowFile,
        flows: &mut Vec<Flow>,
    ) -> Result<(), ScenarioError> {
        let key = table("flow", group);
        let wrong = |(keys, problem): Problem| self.text.wrong(&key.below(&keys), problem);
        checks::flow(group, &read, self.duration).map_err(wrong)?;
        let connections = read.connections.unwrap_or(1);
        let pairs = self.ends(&read, &key)?;
        let transport = Arc::new(read.transport.unwrap_or_default());
        let of_transport = |(keys, problem)| wrong((format!("transport.{keys}"), problem));
        checks::transport(&transport).map_err(of_transport)?;
        if read.with.is_none() {
            checks::bulk(&read.traffic, transport.protocol).map_err(wrong)?;
        }
        let requirements = requirements::read(self.text, read.require, &key.key("require"))?;
        checks::requirements(&requirements, &read.traffic).map_err(wrong)?;
        let deadlines = requirements.iter().filter_map(Requirement::deadline);
        let deadline = deadlines.min();
        let class = read.class.unwrap_or_else(|| {
            Class::ALL.into_iter().find(|class| class.name() == group).unwrap_or_default()
        });
        for (number, ends) in pairs.iter().enumerate() {
            let each = self.uses_each_interface(transport.protocol, ends.opener);
            let transport_key = key.key("transport");
            let interfaces = self.interfaces(&transport, ends.opener, each, &transport_key)?;
            let names = |interface: &Option<usize>| {
                self.links.get((*interface)?).promised("the link of an interface")
            };
            let names: Vec<&str> =
                interfaces.iter().filter_map(names).map(|link| link.name.as_str()).collect();
            checks::use_of_paths(&transport, interfaces.len(), &names).map_err(of_transport)?;
            let place = (number, pairs.len());
            let proxies = self.proxies(&read.proxies, &transport, place, &key.key("proxies"))?;
            for connection in 1..=connections {
                let several =
                    if connections > 1 { format!(".{connection}") } else { String::new() };
                flows.push(Flow {
                    name: format!("{group}{}{several}", ends.suffix),
                    group: group.to_string(),
                    nodes: [ends.opener, ends.other],
                    from: ends.from,
                    class,
                    start: Instant::ZERO + read.start,
                    stop: Instant::ZERO + read.stop.unwrap_or(self.duration).min(self.duration),
                    traffic: read.traffic.clone(),
                    transport: transport.clone(),
                    interfaces: interfaces.clone(),
                    proxies: proxies.clone(),
                    deadline,
                    requirements: requirements.clone(),
                    rides_with: None,
                    copies: read.copies.unwrap_or(1) as u8,
                });
            }
        }
        Ok(())
    }

    /// Returns the pairs of nodes between which the flows of a group run.
    fn ends(&self, read: &FlowFile, key: &KeyPath) -> Result<Vec<Ends>, ScenarioError> {
        let find = |name: &str, which: &str| {
            if self.of_paths && !HOSTS.contains(&name) {
                return Err(self.text.wrong(&key.key(which), unknown("host", name, &HOSTS)));
            }
            find_nodes(self.nodes, name)
                .map_err(|problem| self.text.wrong(&key.key(which), problem))
        };
        let from = find(&read.from, "from")?;
        let to = match &read.to {
            Some(to) => find(to, "to")?,
            None => {
                // Between two hosts there is only one other end.
                let others = (0..self.nodes.len()).filter(|node| !from.contains(node));
                let others: Vec<usize> = others.collect();
                if others.len() != 1 || from.len() != 1 {
                    let problem = "missing `to`, expected the name of a node or group".to_string();
                    return Err(self.text.wrong(key, problem));
                }
                others
            }
        };
        let pairs: Vec<(usize, usize)> = match (from.as_slice(), to.as_slice()) {
            (from, [to]) => from.iter().map(|from| (*from, *to)).collect(),
            ([from], to) => to.iter().map(|to| (*from, *to)).collect(),
            (from, to) if from.len() == to.len() => {
                from.iter().copied().zip(to.iter().copied()).collect()
            }
            (from, to) => {
                let problem = format!(
                    "found groups of {} and {} nodes, expected as many of both, or a single node",
                    from.len(),
                    to.len()
                );
                return Err(self.text.wrong(&key.key("to"), problem));
            }
        };
        let several = pairs.len() > 1;
        let vehicle = |node: usize| self.is_vehicle(node);
        let senders_vary = from.len() > 1;
        let receivers_vary = to.len() > 1;
        let ends = |(sender, receiver): (usize, usize)| {
            if sender == receiver {
                let problem = "found a flow from a node to itself".to_string();
                return Err(self.text.wrong(&key.key("to"), problem));
            }
            let (opener, other, from) = if vehicle(receiver) && !vehicle(sender) {
                (receiver, sender, Host::Ground)
            } else {
                (sender, receiver, Host::Vehicle)
            };
            // The suffix is the end that distinguishes the flow within its group.
            let named = match (senders_vary, receivers_vary) {
                (true, true) => opener,
                (true, false) => sender,
                (false, _) => receiver,
            };
            let name = self.node(named).map(|node| node.name.as_str()).unwrap_or_default();
            let suffix = if several { format!(".{name}") } else { String::new() };
            Ok(Ends { opener, other, from, suffix })
        };
        pairs.iter().copied().map(ends).collect()
    }

    fn node(&self, index: usize) -> Option<&Node> {
        self.nodes.get(index).promised("a node found by name")
    }

    fn is_vehicle(&self, node: usize) -> bool {
        self.node(node).is_some_and(|node| node.kind == NodeKind::Vehicle)
    }

    /// Returns the interface of each subflow that `opener` opens; with `each`, one at every link by default.
    fn interfaces(
        &self,
        transport: &TransportConfig,
        opener: usize,
        each: bool,
        key: &KeyPath,
    ) -> Result<Vec<Option<usize>>, ScenarioError> {
        let at_opener = |link: &(usize, &Link)| link.1.ends.contains(&opener);
        let own: Vec<(usize, &Link)> = self.links.iter().enumerate().filter(at_opener).collect();
        let mut chosen = Vec::new();
        if let Some(names) = &transport.paths {
            let key = key.key("paths");
            if names.is_empty() {
                let problem = "found an empty list, expected at least one path".to_string();
                return Err(self.text.wrong(&key, problem));
            }
            for (place, name) in names.iter().enumerate() {
                let key = key.index(place);
                let fits = |(_, link): &&(usize, &Link)| link.name == *name || link.group == *name;
                let found: Vec<usize> =
                    own.iter().filter(fits).map(|(number, _)| *number).collect();
                if found.is_empty() {
                    let mut known: Vec<&str> =
                        own.iter().map(|(_, link)| link.group.as_str()).collect();
                    known.dedup();
                    return Err(self.text.wrong(&key, unknown("path", name, &known)));
                }
                if found.iter().any(|link| chosen.contains(&Some(*link))) {
                    return Err(self.text.wrong(&key, format!("`{name}` is named twice")));
                }
                chosen.extend(found.into_iter().map(Some));
            }
        } else if transport.subflows.is_none() && each {
            chosen.extend(own.iter().map(|(number, _)| Some(*number)));
        }
        if chosen.is_empty() {
            chosen.push(None);
        }
        match transport.subflows {
            None => Ok(chosen),
            Some(count) if (1..=PathSet::CAPACITY as u32).contains(&count) => {
                Ok(chosen.iter().copied().cycle().take(count as usize).collect())
            }
            Some(count) => {
                let max = PathSet::CAPACITY;
                let problem = format!("found {count}, expected 1 to {max}");
                Err(self.text.wrong(&key.key("subflows"), problem))
            }
        }
    }

    /// Returns whether a connection has a subflow at each link of its opener. Multipath protocols do; UDP only at
    /// those of a vehicle.
    fn uses_each_interface(&self, protocol: Protocol, opener: usize) -> bool {
        match protocol {
            Protocol::Tcp | Protocol::Dccp => self.of_paths,
            Protocol::Udp => self.is_vehicle(opener),
            Protocol::Mptcp | Protocol::ParallelTcp | Protocol::MpDccp => true,
        }
    }

    /// Returns the proxies of flow number `place.0` of `place.1`.
    fn proxies(
        &self,
        read: &[ProxyFile],
        transport: &TransportConfig,
        place: (usize, usize),
        key: &KeyPath,
    ) -> Result<Vec<SplitAt>, ScenarioError> {
        let wrong = |key: &KeyPath, problem: String| Err(self.text.wrong(key, problem));
        if !read.is_empty() && !matches!(transport.protocol, Protocol::Tcp | Protocol::Mptcp) {
            let name = transport.protocol.name();
            return wrong(
                key,
                format!("found {name}, which no proxy splits; expected tcp or mptcp"),
            );
        }
        let mut transport = transport.clone();
        let mut proxies = Vec::new();
        for (index, proxy) in read.iter().enumerate() {
            let key = key.index(index);
            let found = find_nodes(self.nodes, &proxy.at)
                .map_err(|problem| self.text.wrong(&key.key("at"), problem))?;
            let node = match found.as_slice() {
                [single] => Some(single),
                group if group.len() == place.1 => group.get(place.0),
                _ => None,
            };
            let Some(node) = node.copied() else {
                let (found, flows) = (found.len(), place.1);
                let problem = format!(
                    "found a group of {found} nodes, expected one node, or as many as there are \
                     flows: {flows}"
                );
                return wrong(&key.key("at"), problem);
            };
            transport =
                proxy.transport.clone().unwrap_or(TransportConfig { paths: None, ..transport });
            let key = key.key("transport");
            if let Err((keys, problem)) = checks::transport(&transport) {
                return wrong(&key.below(&keys), problem);
            }
            if !matches!(transport.protocol, Protocol::Tcp | Protocol::Mptcp) {
                let name = transport.protocol.name();
                return wrong(&key.key("protocol"), format!("found {name}, expected tcp or mptcp"));
            }
            let interfaces = self.interfaces(&transport, node, false, &key)?;
            let transport = transport.clone();
            proxies.push(SplitAt { node, cache: proxy.cache, transport, interfaces });
        }
        Ok(proxies)
    }
}
