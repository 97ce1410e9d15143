//! Composition of a scenario from the keys of its file.

use std::collections::BTreeMap;
use std::path::Path as FilePath;
use std::sync::Arc;

use skybraid_host::record::Record;
use skybraid_link::{ChangeConfig, Direction, PathConfig};
use skybraid_orbit::OrbitConfig;
use skybraid_track::Track;
use skybraid_transport::PathInfo;
use skybraid_units::invariant::Promised as _;
use skybraid_units::{Duration, Instant, Seed};

use crate::along;
use crate::cells::{self, CellsFile, Place};
use crate::correlation::{Correlation, CorrelationFile};
use crate::coverage::PathCoverage;
use crate::file::{
    EventFile, FlowEvent, LinkFile, Named, NodeFile, PathEvent, RouteFile, RoutingFile,
    ScenarioFile, TestbedFile, TraceStart,
};
use crate::flows::Flows;
use crate::inputs::{Inputs, join_clocks};
use crate::key::{KeyPath, is_name};
use crate::key_hints;
use crate::network::{self, FRAGMENT_SIZE, HOSTS, Node, Wiring, table, two_hosts};
use crate::orbit::{self, Orbit};
use crate::preset::with_preset;
use crate::setup::segments;
use crate::shared_outages::{OutageGroup, OutagesFile};
use crate::text::ScenarioText;
use crate::wording::unknown;
use crate::{Link, Routing, Scenario, ScenarioError, Surroundings, Testbed, checks, connections};

/// Parses and composes a scenario; see [`Scenario::parse_with_files`] and [`Scenario::parse_variant`], which gives the
/// `earlier` one.
pub(crate) fn compose(
    text: &str,
    file: &FilePath,
    given: &BTreeMap<String, String>,
    overrides: &[(String, String)],
    earlier: Option<&Scenario>,
) -> Result<Scenario, ScenarioError> {
    let text = ScenarioText::parse(text, file, overrides)?;
    let read: ScenarioFile = text.read_with_hints(key_hints::hint)?;
    if !read.duration.is_positive() {
        let problem = "expected a time above zero".to_string();
        return Err(text.wrong(&KeyPath::dotted("duration"), problem));
    }
    let folder = file.parent().unwrap_or(FilePath::new(""));
    let mut composer = Composer {
        inputs: Inputs::new(&text, folder, Some(read.duration))
            .with_given(given)
            .with_earlier(earlier)
            .with_start(read.traces.map(TraceStart::start)),
        text: &text,
        duration: read.duration,
        of_paths: read.link.0.is_empty(),
        nodes: Vec::new(),
        tracks: Vec::new(),
        links: Vec::new(),
    };
    if composer.of_paths {
        composer.paths(read.path, read.node)?;
    } else {
        composer.network(read.path, read.node, read.link)?;
    }
    let flow_events = composer.events(read.event)?;
    let routing = composer.routing(read.routing, &read.route)?;
    let outages = composer.outages(&read.outages)?;
    join_clocks(composer.links.iter_mut().map(|link| &mut link.config));
    let links = composer.finish_links()?;
    let correlations = composer.correlations(&read.correlation, &links)?;
    let flow_reader = Flows {
        text: &text,
        duration: read.duration,
        nodes: &composer.nodes,
        links: &links,
        of_paths: composer.of_paths,
    };
    let flows = flow_reader.read(read.flow)?;
    let mut address_changes = Vec::new();
    for EventOfFlow { at, flow, change, key } in flow_events {
        let changes = connections::address_changes(at, &flow, &change, &flows, &links)
            .map_err(|(below, problem)| text.wrong(&key.below(below), problem))?;
        address_changes.extend(changes);
    }
    address_changes.sort_by_key(|change| change.at);
    let testbed = composer.testbed(read.testbed)?;
    let name = read.name.unwrap_or_else(|| {
        file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
    });
    let mut scenario = Scenario {
        name,
        duration: read.duration,
        seed: Seed(read.seed),
        warnings: Vec::new(),
        testbed,
        file: file.display().to_string(),
        inputs: composer.inputs.inputs,
        traces: composer.inputs.loaded,
        unplaced_traces: composer.inputs.unplaced,
        nodes: composer.nodes,
        tracks: composer.tracks,
        links,
        outages,
        correlations,
        routing,
        flows,
        address_changes,
        toml: text.effective().to_string(),
    };
    check_routes(&scenario, &text)?;
    let setup = scenario.plain_setup(scenario.seed, Record::default());
    setup.check().map_err(|large| text.wrong(&KeyPath::dotted(large.of), large.to_string()))?;
    scenario.warnings = checks::warnings(&scenario.nodes, &scenario.links, &scenario.flows, &setup);
    scenario.warnings.extend(checks::unused_tracks(&scenario, &text));
    scenario.warnings.extend(checks::late_outages(&scenario, &text));
    scenario.warnings.extend(checks::unused_paths(&scenario.links, &setup, &text));
    Ok(scenario)
}

/// Checks that each packet of each flow reaches its destination.
fn check_routes(scenario: &Scenario, text: &ScenarioText) -> Result<(), ScenarioError> {
    let mut router = scenario.router();
    for flow in &scenario.flows {
        for segment in segments(flow) {
            for subflow in segment.subflows(flow) {
                router
                    .check(&subflow)
                    .map_err(|problem| text.wrong(&table("flow", &flow.group), problem))?;
            }
        }
    }
    Ok(())
}

/// Reads a single path: the keys of a path's table as TOML, with its preset filled in and its traces loaded from
/// `folder`. [`PathConfig::link`] then returns either direction, or an error for a missing key.
///
/// # Errors
/// As for [`Scenario::parse`]; keys are those of the text, whose file is called `path` in errors.
pub fn load_path(text: &str, folder: &FilePath) -> Result<PathConfig, ScenarioError> {
    let text = ScenarioText::parse(text, FilePath::new("path"), &[])?;
    let top = KeyPath::default();
    let read: LinkFile = text.read()?;
    let of_scenarios = [
        ("along", read.along.is_some()),
        ("cells", read.cells.is_some()),
        ("coverage", read.coverage.is_some()),
        ("orbit", read.orbit.is_some()),
    ];
    if let Some((own, _)) = of_scenarios.into_iter().find(|(_, given)| *given) {
        let problem = "expected in a scenario only, which knows where the nodes are".to_string();
        return Err(text.wrong(&top.key(own), problem));
    }
    let mut inputs = Inputs::new(&text, folder, None);
    let mut config = with_preset(&mut inputs, &text, read.into_path(), &top)?;
    inputs.load_path(&mut config, &top)?;
    join_clocks(std::iter::once(&mut config));
    Ok(config)
}

/// Underlying network of a link: cells, coverage or satellites.
struct Underlay {
    /// Whether the scenario itself asks for factors along the route.
    along: bool,
    cells: Option<CellsFile>,
    coverage: Option<PathCoverage>,
    orbit: Option<OrbitConfig>,
}

/// Event of a flow, as read.
struct EventOfFlow {
    at: Duration,
    flow: String,
    change: FlowEvent,
    key: KeyPath,
}

struct Composer<'a> {
    text: &'a ScenarioText,
    inputs: Inputs<'a>,
    duration: Duration,
    /// Whether the scenario has paths between two hosts instead of a network.
    of_paths: bool,
    nodes: Vec<Node>,
    /// Track of each node.
    tracks: Vec<Option<Track>>,
    links: Vec<Wiring>,
}

impl Composer<'_> {
    /// Reads paths between a vehicle and a ground station.
    fn paths(
        &mut self,
        read: Named<LinkFile>,
        nodes: Named<NodeFile>,
    ) -> Result<(), ScenarioError> {
        if let Some((name, _)) = nodes.0.iter().find(|(name, _)| !HOSTS.contains(&name.as_str())) {
            let problem = "found a node but no link, expected at least one table `[link.NAME]`";
            return Err(self.text.wrong(&table("node", name), problem.to_string()));
        }
        if read.0.is_empty() {
            let problem = "found no path, expected at least one table `[path.NAME]`".to_string();
            return Err(self.text.wrong(&KeyPath::dotted("path"), problem));
        }
        self.nodes = two_hosts();
        self.tracks = vec![None; self.nodes.len()];
        for (name, node) in nodes.0 {
            let track = self.track(node, &table("node", &name))?;
            let own =
                self.nodes.iter().zip(&mut self.tracks).filter(|(node, _)| node.group == name);
            own.for_each(|(_, place)| place.clone_from(&track));
        }
        for (name, mut path) in read.0 {
            let key = table("path", &name);
            self.check_name(&name, &key)?;
            let of_links = [
                ("from", path.from.is_some()),
                ("to", path.to.is_some()),
                ("weight", path.weight.is_some()),
            ];
            if let Some((below, _)) = of_links.into_iter().find(|(_, given)| *given) {
                let problem =
                    "a path joins vehicle and ground; expected this key in `[link.NAME]` only";
                return Err(self.text.wrong(&key.key(below), problem.to_string()));
            }
            let underlay = self.underlay(&mut path, &key)?;
            let config = self.config(path.into_path(), &key)?;
            let (group, ends) = (name.clone(), [0, 1]);
            let wiring = Wiring { name, group, ends, weight: 1, config, cells: None, orbit: None };
            self.links.push(wiring);
            self.attach(&underlay, 1, &key)?;
        }
        Ok(())
    }

    /// Reads the nodes and links of a network.
    fn network(
        &mut self,
        paths: Named<LinkFile>,
        nodes: Named<NodeFile>,
        links: Named<LinkFile>,
    ) -> Result<(), ScenarioError> {
        if let Some((name, _)) = paths.0.first() {
            let problem = "found paths and links, expected either; a network has links only";
            return Err(self.text.wrong(&table("path", name), problem.to_string()));
        }
        for (name, node) in nodes.0 {
            let key = table("node", &name);
            self.check_name(&name, &key)?;
            let members = network::members(&name, &node)
                .map_err(|(below, problem)| self.text.wrong(&key.key(below), problem))?;
            let taken = |node: &&Node| self.nodes.iter().any(|known| known.name == node.name);
            if let Some(twin) = members.iter().find(taken) {
                let problem = format!("found two nodes called `{}`", twin.name);
                return Err(self.text.wrong(&key, problem));
            }
            let track = self.track(node, &key)?;
            self.tracks.extend(members.iter().map(|_| track.clone()));
            self.nodes.extend(members);
        }
        for (name, mut link) in links.0 {
            let key = table("link", &name);
            self.check_name(&name, &key)?;
            let (from, to, weight) = (link.from.take(), link.to.take(), link.weight);
            let underlay = self.underlay(&mut link, &key)?;
            let config = self.config(link.into_path(), &key)?;
            let wirings = network::wirings(&name, [&from, &to], weight, &config, &self.nodes)
                .map_err(|(below, problem)| self.text.wrong(&key.key(below), problem))?;
            let count = wirings.len();
            self.links.extend(wirings);
            self.attach(&underlay, count, &key)?;
        }
        Ok(())
    }

    /// Returns the track of the nodes of a group.
    fn track(&mut self, read: NodeFile, key: &KeyPath) -> Result<Option<Track>, ScenarioError> {
        let place = Place { position: read.position, track: read.track };
        place.track(&mut self.inputs, self.text, key)
    }

    /// Takes the underlay of a link, and checks that the link does not set what the underlay determines.
    fn underlay(&mut self, link: &mut LinkFile, key: &KeyPath) -> Result<Underlay, ScenarioError> {
        let coverage = link.coverage.take();
        let coverage = coverage.map(|own| own.read(link, &mut self.inputs, self.text, key));
        let mut underlay = Underlay {
            along: link.along.is_some(),
            cells: link.cells.take(),
            coverage: coverage.transpose()?,
            orbit: link.orbit.take(),
        };
        let directions = [&link.uplink, &link.downlink];
        let delay =
            link.delay.is_some() || directions.iter().any(|direction| direction.delay.is_some());
        let orbit = underlay.orbit.is_some();
        let exclude = [
            (orbit && underlay.cells.is_some(), "cells", "orbit", "says who serves"),
            (orbit && underlay.coverage.is_some(), "coverage", "orbit", "says who serves"),
            (
                underlay.cells.is_some() && link.handover.is_some(),
                "handover",
                "cells",
                "say when to hand over",
            ),
            (orbit && delay, "delay", "orbit", "gives it over time"),
            (orbit && link.handover.is_some(), "handover", "orbit", "says when to hand over"),
            (orbit && link.reconfiguration.is_some(), "reconfiguration", "orbit", "says when"),
        ];
        if let Some((_, own, other, says)) = exclude.into_iter().find(|(both, ..)| *both) {
            let problem = format!("found `{other}` too, which {says}; expected either");
            return Err(self.text.wrong(&key.key(own), problem));
        }
        if let Some(config) = &mut underlay.orbit {
            orbit::prepare(config, &mut self.inputs, self.text, &key.key("orbit"))?;
        }
        Ok(underlay)
    }

    /// Attaches the underlay to the last `count` links.
    fn attach(
        &mut self,
        underlay: &Underlay,
        count: usize,
        key: &KeyPath,
    ) -> Result<(), ScenarioError> {
        let (text, length) = (self.text, self.duration);
        let mut known: Vec<Arc<Orbit>> = Vec::new();
        for link in self.links.iter_mut().rev().take(count) {
            let [terminal, other] = cells::ends(link.ends, &self.nodes, &self.tracks);
            if let Some(cells) = &underlay.cells {
                let built = cells.build(&mut link.config, terminal, other);
                let built = built.map_err(|(below, problem)| {
                    text.wrong(&key.key("cells").below(below), problem)
                })?;
                link.cells = Some(built);
            }
            if let Some(coverage) = &underlay.coverage {
                let applied = coverage.apply(&mut link.config, terminal, length);
                applied.map_err(|problem| text.wrong(&key.key("coverage"), problem))?;
            }
            if underlay.along {
                let applied = along::apply(&mut link.config, terminal, length);
                applied.map_err(|(below, problem)| text.wrong(&key.below(&below), problem))?;
            }
            if let Some(config) = &underlay.orbit {
                let built = orbit::shared(config, terminal, other, length, &mut known);
                let built = built.map_err(|(below, problem)| {
                    text.wrong(&key.key("orbit").below(below), problem)
                })?;
                link.orbit = Some(built);
            }
        }
        Ok(())
    }

    fn outages(&self, read: &[OutagesFile]) -> Result<Vec<OutageGroup>, ScenarioError> {
        let group = |(index, outages): (usize, &OutagesFile)| {
            let key = KeyPath::dotted("outages").index(index);
            outages
                .group(self.of_paths, |name| self.known_links(name))
                .map_err(|(below, problem)| self.text.wrong(&key.below(below), problem))
        };
        read.iter().enumerate().map(group).collect()
    }

    fn correlations(
        &self,
        read: &[CorrelationFile],
        links: &[Link],
    ) -> Result<Vec<Correlation>, ScenarioError> {
        let group = |(index, correlation): (usize, &CorrelationFile)| {
            let key = KeyPath::dotted("correlation").index(index);
            correlation
                .group(self.of_paths, |name| self.known_links(name), links)
                .map_err(|(below, problem)| self.text.wrong(&key.below(below), problem))
        };
        read.iter().enumerate().map(group).collect()
    }

    /// Returns the links called `name`, or an error that lists the known names.
    fn known_links(&self, name: &str) -> Result<Vec<usize>, String> {
        match self.find_links(name) {
            found if found.is_empty() => Err(self.unknown_link(name)),
            found => Ok(found),
        }
    }

    /// Returns the links called `name`: those of a group, or a single link.
    fn find_links(&self, name: &str) -> Vec<usize> {
        let named = |link: &Wiring| link.name == name || link.group == name;
        let all = self.links.iter().enumerate().filter(|(_, link)| named(link));
        all.map(|(index, _)| index).collect()
    }

    /// Returns the keys of a path or link, completed by its preset, with its traces loaded.
    fn config(&mut self, own: PathConfig, key: &KeyPath) -> Result<PathConfig, ScenarioError> {
        let mut config = with_preset(&mut self.inputs, self.text, own, key)?;
        self.inputs.load_path(&mut config, key)?;
        Ok(config)
    }

    fn routing(&self, read: RoutingFile, routes: &[RouteFile]) -> Result<Routing, ScenarioError> {
        let fixed = routes.iter().enumerate().map(|(index, route)| {
            network::static_route(route, &self.nodes, &self.links).map_err(|(below, problem)| {
                self.text.wrong(&KeyPath::dotted("route").index(index).key(below), problem)
            })
        });
        let RoutingFile { by, ecmp, fragment_size } = read;
        if fragment_size.is_some_and(|size| !FRAGMENT_SIZE.contains(&size.get())) {
            let (min, max) = (FRAGMENT_SIZE.start(), FRAGMENT_SIZE.end());
            let key = KeyPath::dotted("routing").key("fragment_size");
            return Err(self.text.wrong(&key, format!("expected {min}B to {max}B")));
        }
        Ok(Routing { by, ecmp, fragment_size, fixed: fixed.collect::<Result<_, _>>()? })
    }

    fn check_name(&self, name: &str, key: &KeyPath) -> Result<(), ScenarioError> {
        if is_name(name) {
            return Ok(());
        }
        let problem = format!("found the name {name:?}, expected letters, digits, `-` and `_`");
        Err(self.text.wrong(key, problem))
    }

    /// Applies the events of paths and links. Returns those of flows, which are not read yet.
    fn events(&mut self, read: Vec<EventFile>) -> Result<Vec<EventOfFlow>, ScenarioError> {
        let mut of_flows = Vec::new();
        for (index, mut event) in read.into_iter().enumerate() {
            let key = KeyPath::dotted("event").index(index);
            let changes = std::mem::take(&mut event.flow).0;
            let at = event.at;
            self.event(event, changes.is_empty(), &key)?;
            of_flows.extend(changes.into_iter().map(|(flow, change)| {
                let key = key.key("flow").key(&flow);
                EventOfFlow { at, flow, change, key }
            }));
        }
        Ok(of_flows)
    }

    fn event(
        &mut self,
        read: EventFile,
        must_change_a_path: bool,
        key: &KeyPath,
    ) -> Result<(), ScenarioError> {
        if read.at >= self.duration {
            let problem = format!(
                "found {}, expected an instant before the end of the run of {}",
                read.at, self.duration
            );
            return Err(self.text.wrong(&key.key("at"), problem));
        }
        let without_effect = |key: &KeyPath| {
            let problem = "the event has no effect; expected for example `path.NAME.down = \"20s\"` \
                           or `path.NAME.uplink.rate = \"5Mbit/s\"`";
            self.text.wrong(key, problem.to_string())
        };
        if read.path.0.is_empty() && read.link.0.is_empty() && must_change_a_path {
            return Err(without_effect(key));
        }
        let of_paths = read.path.0.into_iter().map(|(name, event)| ("path", name, event));
        let of_links = read.link.0.into_iter().map(|(name, event)| ("link", name, event));
        for (kind, name, event) in of_paths.chain(of_links) {
            let key = key.key(kind).key(&name);
            if (kind == "path") != self.of_paths {
                let other = if self.of_paths { "path" } else { "link" };
                let problem = format!("found `{kind}`, expected `{other}`, as in the scenario");
                return Err(self.text.wrong(&key, problem));
            }
            let found = self.find_links(&name);
            if found.is_empty() {
                return Err(self.text.wrong(&key, self.unknown_link(&name)));
            }
            for index in found {
                if !self.link_event(read.at, event.clone(), index, &key)? {
                    return Err(without_effect(&key));
                }
            }
        }
        Ok(())
    }

    /// Applies an event to a path or link. Returns whether it has any effect.
    fn link_event(
        &mut self,
        at: Duration,
        event: PathEvent,
        index: usize,
        key: &KeyPath,
    ) -> Result<bool, ScenarioError> {
        let text = self.text;
        let link = self.links.get_mut(index).promised("a link found by name");
        let Some(Wiring { config: path, .. }) = link else { return Ok(false) };
        let mut effective = false;
        if let Some(length) = event.down {
            if !length.is_positive() {
                let problem = "expected a time above zero".to_string();
                return Err(text.wrong(&key.key("down"), problem));
            }
            path.down.get_or_insert_default().push((at, length));
            effective = true;
        }
        let both =
            crate::file::DirectionEvent { rate: event.rate, delay: event.delay, loss: event.loss };
        let directions = Direction::ALL.map(|direction| (direction, key.clone(), both.clone()));
        let single = [(Direction::Uplink, event.uplink), (Direction::Downlink, event.downlink)];
        let single = single.map(|(direction, event)| (direction, key.key(direction.name()), event));
        let mut changed: Vec<(Direction, &'static str)> = Vec::new();
        for (direction, key, event) in directions.into_iter().chain(single) {
            for (what, mut change) in event.changes() {
                let key = key.key(what);
                if changed.contains(&(direction, what)) {
                    let problem = format!("the event sets the {direction}'s {what} twice");
                    return Err(text.wrong(&key, problem));
                }
                changed.push((direction, what));
                self.inputs.load_change(&mut change, &key)?;
                check_change(&change).map_err(|problem| text.wrong(&key, problem))?;
                path.direction_mut(direction).changes.push((Instant::ZERO + at, change));
                effective = true;
            }
        }
        Ok(effective)
    }

    fn unknown_link(&self, name: &str) -> String {
        let mut known: Vec<&str> = self.links.iter().map(|link| link.group.as_str()).collect();
        known.dedup();
        let what = if self.of_paths { "path" } else { "link" };
        unknown(what, name, &known)
    }

    fn testbed(&self, read: TestbedFile) -> Result<Testbed, ScenarioError> {
        let top = KeyPath::dotted("testbed");
        let mut paths = vec![Surroundings::default(); self.links.len()];
        for (name, around) in read.path.0 {
            let key = top.key("path").key(&name);
            let index = self.links.iter().position(|link| link.name == name);
            match index.and_then(|index| paths.get_mut(index)) {
                Some(place) => *place = around,
                None => return Err(self.text.wrong(&key, self.unknown_link(&name))),
            }
        }
        Ok(Testbed { server: read.server, paths })
    }

    fn finish_links(&self) -> Result<Vec<Link>, ScenarioError> {
        let kind = if self.of_paths { "path" } else { "link" };
        let finish = |wiring: &Wiring| {
            let Wiring { name, group, ends, weight, config, cells, orbit } = wiring;
            let key = table(kind, group);
            let link = |direction| {
                config
                    .link(direction)
                    .map_err(|error| self.text.wrong(&key.below(&error.key), error.problem))
            };
            let (mut uplink, mut downlink) = (link(Direction::Uplink)?, link(Direction::Downlink)?);
            if let Some(orbit) = orbit {
                orbit.apply(&mut uplink);
                orbit.apply(&mut downlink);
            }
            let mut population = config
                .population()
                .map_err(|error| self.text.wrong(&key.below(&error.key), error.problem))?;
            let flights = population.iter_mut().flat_map(|family| &mut family.flights).flatten();
            for link in flights {
                if let Some(orbit) = orbit {
                    orbit.apply(link);
                }
            }
            let priority = config.priority.unwrap_or(3);
            if priority > 15 {
                let problem = format!("found {priority}, expected 0 to 15");
                return Err(self.text.wrong(&key.key("priority"), problem));
            }
            let info = PathInfo {
                mtu: uplink.mtu,
                cost: config.cost.unwrap_or(1),
                backup: config.backup.unwrap_or(false),
                priority,
            };
            Ok(Link {
                name: name.clone(),
                group: group.clone(),
                ends: *ends,
                weight: *weight,
                config: config.clone(),
                uplink,
                downlink,
                population,
                info,
                cells: cells.clone(),
                orbit: orbit.clone(),
            })
        };
        self.links.iter().map(finish).collect()
    }
}

fn check_change(change: &ChangeConfig) -> Result<(), String> {
    match change {
        ChangeConfig::Rate(rate) => rate.resolve().map(drop),
        ChangeConfig::Delay(delay) => delay.resolve().map(drop),
        ChangeConfig::Loss(losses) => losses.0.iter().try_for_each(|loss| loss.resolve().map(drop)),
    }
}
