//! Composition of flows from the keys of `[flow.NAME]`.

use skybraid_host::Host;
use skybraid_traffic::video::rate::RateError;
use skybraid_traffic::{TrafficError, VideoConfig};
use skybraid_transport::{Class, PathSet, Protocol, TransportConfig};
use skybraid_units::invariant::Promised as _;
use skybraid_units::{Duration, Instant};

use crate::file::{
    FlowFile, LinkPerformanceFile, Named, OneOrMany, ProxyFile, RequireFile, RequirementFile,
};
use crate::key::{KeyPath, is_name};
use crate::network::{HOSTS, Link, Node, NodeKind, find_nodes, table};
use crate::text::ScenarioText;
use crate::wording::unknown;
use crate::{
    Flow, LinkPerformance, Requirement, ScenarioError, SplitAt, checks, connections, profiles,
};

/// Maximum number of copies of a message.
const MAX_COPIES: u8 = 8;
/// Maximum number of connections between two nodes.
const MAX_CONNECTIONS: u32 = 10_000;

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
        let wrong = |keys: &str, problem: String| Err(self.text.wrong(&key.below(keys), problem));
        if !is_name(group) {
            let problem =
                format!("found the name {group:?}, expected letters, digits, `-` and `_`");
            return wrong("", problem);
        }
        match read.traffic.check() {
            Ok(()) => {}
            Err(TrafficError::Zero { key }) => {
                return wrong(&format!("traffic.{key}"), "expected above zero".into());
            }
            Err(TrafficError::TooLarge { key }) => {
                return wrong(&format!("traffic.{key}"), "expected less than 4GB".into());
            }
            Err(TrafficError::RateControl(error)) => {
                let key = match error {
                    RateError::Range { key, .. } if key.starts_with("repair.") => {
                        format!("traffic.{key}")
                    }
                    RateError::Range { key, .. } => format!("traffic.rate_control.{key}"),
                    RateError::Bounds { .. } => "traffic.rate_control".to_string(),
                };
                return wrong(&key, error.to_string());
            }
            Err(TrafficError::Outside { key, found, min, max }) => {
                let problem = format!("found {found}, expected {min} to {max}");
                return wrong(&format!("traffic.{key}"), problem);
            }
        }
        if read.start >= self.duration {
            let (start, end) = (read.start, self.duration);
            let problem = format!("found {start}, expected before the end of the run of {end}");
            return wrong("start", problem);
        }
        let stop = read.stop.unwrap_or(self.duration);
        if stop <= read.start {
            let start = read.start;
            return wrong("stop", format!("found {stop}, expected later than `start` {start}"));
        }
        let protocol = read.transport.clone().unwrap_or_default().protocol;
        let protected = read.traffic.video().is_some_and(VideoConfig::is_protected);
        if read.with.is_none() && protected && protocol.is_reliable() {
            let name = protocol.name();
            let problem = format!(
                "found {name}, which loses nothing that `duplicate` or `repair` could make good; \
                 expected udp, dccp or mp_dccp"
            );
            return wrong("transport.protocol", problem);
        }
        let copies = read.copies.unwrap_or(1);
        let Some(copies) =
            u8::try_from(copies).ok().filter(|copies| (1..=MAX_COPIES).contains(copies))
        else {
            return wrong("copies", format!("found {copies}, expected 1 to {MAX_COPIES}"));
        };
        if read.transport.is_some() && read.with.is_some() {
            let problem = "a flow that rides `with` another takes that one's transport; found both";
            return wrong("transport", problem.to_string());
        }
        let connections = read.connections.unwrap_or(1);
        if !(1..=MAX_CONNECTIONS).contains(&connections) {
            let problem = format!("found {connections}, expected 1 to {MAX_CONNECTIONS}");
            return wrong("connections", problem);
        }
        let pairs = self.ends(&read, &key)?;
        let transport = read.transport.unwrap_or_default();
        if let Err((keys, problem)) = checks::transport(&transport) {
            return wrong(&format!("transport.{keys}"), problem);
        }
        if read.with.is_none() && checks::never_full(&read.traffic, transport.protocol) {
            let problem = "`bulk` writes as much as the transport takes, and udp takes without end; \
                           expected another kind of traffic, or a protocol with congestion control";
            return wrong("traffic.kind", problem.to_string());
        }
        let requirements = requirements(self.text, read.require, &key.key("require"))?;
        let of_video = requirements.iter().any(Requirement::is_of_video);
        if of_video && read.traffic.video().is_none() {
            let problem = "found a requirement of a video, expected `traffic.kind = \"video\"`";
            return wrong("require", problem.to_string());
        }
        let deadlines = requirements.iter().filter_map(|requirement| match requirement {
            Requirement::Share { deadline, .. } => *deadline,
            Requirement::LinkPerformance(performance) => Some(performance.expiration),
            _ => None,
        });
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
            if let Err((keys, problem)) = checks::use_of_paths(&transport, interfaces.len(), &names)
            {
                return wrong(&format!("transport.{keys}"), problem);
            }
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
                    stop: Instant::ZERO + stop.min(self.duration),
                    traffic: read.traffic.clone(),
                    transport: transport.clone(),
                    interfaces: interfaces.clone(),
                    proxies: proxies.clone(),
                    deadline,
                    requirements: requirements.clone(),
                    rides_with: None,
                    copies,
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

/// Returns the requirements in `require`.
fn requirements(
    text: &ScenarioText,
    read: OneOrMany<RequireFile>,
    key: &KeyPath,
) -> Result<Vec<Requirement>, ScenarioError> {
    let tables = match read {
        OneOrMany::One(table) => vec![(key.clone(), table)],
        OneOrMany::Many(tables) => {
            let keyed = |(index, table)| (key.index(index), table);
            tables.into_iter().enumerate().map(keyed).collect()
        }
    };
    let mut found = Vec::new();
    for (key, entry) in tables {
        let table = match entry {
            RequireFile::Table(table) => *table,
            RequireFile::Profile(name) => profiles::requirement_table(&name).ok_or_else(|| {
                let known: Vec<_> = profiles::names().collect();
                text.wrong(&key, unknown("requirement profile", &name, &known))
            })?,
        };
        let some = requirements_of(&table)
            .map_err(|(below, problem)| text.wrong(&key.below(below), problem))?;
        found.extend(some);
    }
    Ok(found)
}

/// Returns the requirements of a table of `require`, or a key and the problem with its value.
fn requirements_of(table: &RequirementFile) -> Result<Vec<Requirement>, (&'static str, String)> {
    let mut found = Vec::new();
    let above_zero = |key, positive: bool| {
        if positive { Ok(()) } else { Err((key, "expected above zero".to_string())) }
    };
    let alone = |key, other: &str| Err((key, format!("expected together with {other}")));
    match (table.deadline, table.share) {
        (Some(_), None) => return alone("deadline", "`share`, for example \"99.9%\""),
        (deadline, Some(share)) => {
            above_zero("deadline", deadline.is_none_or(Duration::is_positive))?;
            above_zero("share", share.ratio() > 0.0)?;
            found.push(Requirement::Share { deadline, share });
        }
        (None, None) => {}
    }
    match (table.delay, table.percentile) {
        (Some(_), None) => return alone("delay", "`percentile`, for example \"95%\""),
        (None, Some(_)) => return alone("percentile", "`delay`, for example \"100ms\""),
        (Some(delay), Some(percentile)) => {
            above_zero("delay", delay.is_positive())?;
            above_zero("percentile", percentile.ratio() > 0.0)?;
            found.push(Requirement::Delay { percentile, delay });
        }
        (None, None) => {}
    }
    if let Some(rate) = table.goodput {
        above_zero("goodput", rate.as_bps() > 0)?;
        found.push(Requirement::Goodput { rate });
    }
    found.extend(table.rlp.map(link_performance).transpose()?.map(Requirement::LinkPerformance));
    found.extend(requirements_of_video(table)?);
    if found.is_empty() {
        let expected = "expected `deadline` and `share`, `delay` and `percentile`, `goodput`, or `rlp`; of a \
                        video also `frames` and `within`, `frame_rate`, `worst_frame_rate`, `freezes`, or \
                        `ssim` and `ssim_share`";
        return Err(("", expected.to_string()));
    }
    Ok(found)
}

/// Returns the required link performance of a table `rlp`, or a key and the problem with its value.
fn link_performance(table: LinkPerformanceFile) -> Result<LinkPerformance, (&'static str, String)> {
    let LinkPerformanceFile { expiration, continuity, availability, integrity, .. } = table;
    let lost_after = table.lost_after.unwrap_or(expiration);
    let above_zero = [
        ("rlp.expiration", expiration.is_positive()),
        ("rlp.continuity", continuity.ratio() > 0.0),
        ("rlp.availability", availability.is_none_or(|share| share.ratio() > 0.0)),
        ("rlp.integrity", integrity.is_none_or(|share| share.ratio() > 0.0)),
        ("rlp.lost_after", lost_after.is_positive()),
    ];
    if let Some((key, _)) = above_zero.into_iter().find(|(_, positive)| !positive) {
        return Err((key, "expected above zero".to_string()));
    }
    if let Some(bits) = table.check_bits.filter(|bits| !(1..=512).contains(bits)) {
        return Err(("rlp.check_bits", format!("found {bits}, expected 1 to 512")));
    }
    let check_bits = table.check_bits;
    Ok(LinkPerformance { expiration, continuity, availability, integrity, lost_after, check_bits })
}

/// Returns the requirements on a video of a table of `require`.
fn requirements_of_video(
    table: &RequirementFile,
) -> Result<Vec<Requirement>, (&'static str, String)> {
    let mut found = Vec::new();
    let check = |key, is_valid: bool, expected: &str| {
        if is_valid { Ok(()) } else { Err((key, format!("expected {expected}"))) }
    };
    match (table.frames, table.within) {
        (Some(share), Some(within)) => {
            check("frames", share.ratio() > 0.0, "above zero")?;
            check("within", within.is_positive(), "above zero")?;
            found.push(Requirement::Frames { share, within });
        }
        (Some(_), None) => {
            return Err((
                "frames",
                "expected together with `within`, for example \"300ms\"".into(),
            ));
        }
        (None, Some(_)) => {
            return Err(("within", "expected together with `frames`, for example \"95%\"".into()));
        }
        (None, None) => {}
    }
    let rates = [
        ("frame_rate", table.frame_rate, false),
        ("worst_frame_rate", table.worst_frame_rate, true),
    ];
    for (key, least, worst) in rates {
        let Some(least) = least else { continue };
        check(key, least.is_finite() && least > 0.0, "frames a second, above zero")?;
        found.push(Requirement::FrameRate { least, worst });
    }
    if let Some(most) = table.freezes {
        check("freezes", most.is_finite() && most >= 0.0, "times a minute, zero or more")?;
        found.push(Requirement::Freezes { most });
    }
    match (table.ssim, table.ssim_share) {
        (Some(least), share) => {
            check("ssim", least > 0.0 && least <= 1.0, "above 0, at most 1")?;
            let Some(share) = share.filter(|share| share.ratio() > 0.0) else {
                let problem =
                    "expected together with `ssim_share`, for example \"95%\"".to_string();
                return Err(("ssim", problem));
            };
            found.push(Requirement::Ssim { share, least });
        }
        (None, Some(_)) => {
            return Err(("ssim_share", "expected together with `ssim`, for example 0.5".into()));
        }
        (None, None) => {}
    }
    Ok(found)
}
