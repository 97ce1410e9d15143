//! From the keys of a file to a scenario: presets, events, names of paths.

use std::path::Path as FilePath;

use serde::Deserialize;
use skybraid_link::{ChangeConfig, Direction, PathConfig, presets};
use skybraid_traffic::TrafficError;
use skybraid_transport::{Class, PathInfo, TransportConfig};
use skybraid_units::{Duration, Instant, Seed};

use crate::file::{
    EventFile, FlowFile, Named, OneOrMany, PathEvent, RequirementFile, ScenarioFile, TestbedFile,
};
use crate::inputs::Inputs;
use crate::key::{KeyPath, is_name};
use crate::text::ScenarioText;
use crate::wording::unknown;
use crate::{Flow, Path, Requirement, Scenario, ScenarioError, Surroundings, Testbed};
use crate::{checks, connections};

/// An application writes a message at most this many times.
const MOST_COPIES: u8 = 8;

/// See [`Scenario::parse`].
pub(crate) fn scenario(
    text: &str,
    file: &FilePath,
    overrides: &[(String, String)],
) -> Result<Scenario, ScenarioError> {
    let text = ScenarioText::parse(text, file, overrides)?;
    let read: ScenarioFile = text.read()?;
    if !read.duration.is_positive() {
        let problem = "expected a time above zero".to_string();
        return Err(text.wrong(&KeyPath::dotted("duration"), problem));
    }
    let folder = file.parent().unwrap_or(FilePath::new(""));
    let mut composer = Composer {
        inputs: Inputs::new(&text, folder, Some(read.duration)),
        text: &text,
        duration: read.duration,
        paths: Vec::new(),
    };
    composer.paths(read.path)?;
    let mut flow_events = Vec::new();
    for (index, mut event) in read.event.into_iter().enumerate() {
        let key = KeyPath::dotted("event").index(index);
        let of_flows = std::mem::take(&mut event.flow);
        let at = event.at;
        composer.event(event, of_flows.0.is_empty(), &key)?;
        flow_events.extend(of_flows.0.into_iter().map(|(name, it)| (at, name, it, key.clone())));
    }
    let paths = composer.finish_paths()?;
    let flows = composer.flows(read.flow, &paths)?;
    let mut address_changes = Vec::new();
    for (at, name, event, key) in flow_events {
        let key = key.key("flow").key(&name);
        let changes = connections::address_changes(at, &name, &event, &flows, &paths)
            .map_err(|(below, problem)| text.wrong(&key.below(below), problem))?;
        address_changes.extend(changes);
    }
    address_changes.sort_by_key(|change| change.at);
    let testbed = composer.testbed(read.testbed)?;
    let inputs = composer.inputs.inputs;
    let name = read.name.unwrap_or_else(|| {
        file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
    });
    Ok(Scenario {
        name,
        duration: read.duration,
        seed: Seed(read.seed),
        warnings: checks::warnings(&paths, &flows),
        testbed,
        file: file.display().to_string(),
        paths,
        flows,
        address_changes,
        inputs,
        toml: text.effective().to_string(),
    })
}

/// Reads a single path: the keys of a path's table as TOML, with its preset filled in and its traces
/// loaded from `folder`. [`PathConfig::link`] then gives either direction, or says what that one lacks.
///
/// # Errors
/// As for [`Scenario::parse`]; keys are those of the text, which errors call `path`.
pub fn load_path(text: &str, folder: &FilePath) -> Result<PathConfig, ScenarioError> {
    let text = ScenarioText::parse(text, FilePath::new("path"), &[])?;
    let top = KeyPath::default();
    let mut config = with_preset(&text, text.read()?, &top)?;
    Inputs::new(&text, folder, None).load_path(&mut config, &top)?;
    Ok(config)
}

/// `config` with what it leaves out filled in from the preset that it names.
fn with_preset(
    text: &ScenarioText,
    config: PathConfig,
    key: &KeyPath,
) -> Result<PathConfig, ScenarioError> {
    let Some(name) = &config.preset else { return Ok(config) };
    let key = key.key("preset");
    let Some(preset) = presets::find(name) else {
        let known: Vec<&str> = presets::ALL.iter().map(|preset| preset.name).collect();
        return Err(text.wrong(&key, unknown("preset", name, &known)));
    };
    let base = preset
        .text
        .parse()
        .and_then(|reader: toml_edit::de::Deserializer| PathConfig::deserialize(reader))
        .map_err(|error| text.wrong(&key, format!("the preset is broken: {}", error.message())))?;
    Ok(config.over(&base))
}

struct Composer<'a> {
    text: &'a ScenarioText,
    inputs: Inputs<'a>,
    duration: Duration,
    paths: Vec<(String, PathConfig)>,
}

impl Composer<'_> {
    fn paths(&mut self, read: Named<PathConfig>) -> Result<(), ScenarioError> {
        if read.0.is_empty() {
            let problem = "found no path, expected at least one table `[path.NAME]`".to_string();
            return Err(self.text.wrong(&KeyPath::dotted("path"), problem));
        }
        for (name, config) in read.0 {
            let key = KeyPath::dotted("path").key(&name);
            self.check_name(&name, &key)?;
            let mut config = with_preset(self.text, config, &key)?;
            self.inputs.load_path(&mut config, &key)?;
            self.paths.push((name, config));
        }
        Ok(())
    }

    fn check_name(&self, name: &str, key: &KeyPath) -> Result<(), ScenarioError> {
        if is_name(name) {
            return Ok(());
        }
        let problem = format!("found the name {name:?}, expected letters, digits, `-` and `_`");
        Err(self.text.wrong(key, problem))
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
        if read.path.0.is_empty() && must_change_a_path {
            return Err(without_effect(key));
        }
        for (name, event) in read.path.0 {
            let key = key.key("path").key(&name);
            let Some(index) = self.paths.iter().position(|(known, _)| *known == name) else {
                return Err(self.unknown_path(&name, &key));
            };
            if !self.path_event(read.at, event, index, &key)? {
                return Err(without_effect(&key));
            }
        }
        Ok(())
    }

    /// Applies what an event does to one path. Answers whether it does anything.
    fn path_event(
        &mut self,
        at: Duration,
        event: PathEvent,
        index: usize,
        key: &KeyPath,
    ) -> Result<bool, ScenarioError> {
        let text = self.text;
        let Some((_, path)) = self.paths.get_mut(index) else { return Ok(false) };
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
        let single = single.map(|(direction, it)| (direction, key.key(direction.name()), it));
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

    fn unknown_path(&self, name: &str, key: &KeyPath) -> ScenarioError {
        let known: Vec<&str> = self.paths.iter().map(|(name, _)| name.as_str()).collect();
        self.text.wrong(key, unknown("path", name, &known))
    }

    fn testbed(&self, read: TestbedFile) -> Result<Testbed, ScenarioError> {
        let top = KeyPath::dotted("testbed");
        let mut paths = vec![Surroundings::default(); self.paths.len()];
        for (name, around) in read.path.0 {
            let key = top.key("path").key(&name);
            let index = self.paths.iter().position(|(known, _)| *known == name);
            match index.and_then(|index| paths.get_mut(index)) {
                Some(place) => *place = around,
                None => return Err(self.unknown_path(&name, &key)),
            }
        }
        Ok(Testbed { server: read.server, paths })
    }

    fn finish_paths(&self) -> Result<Vec<Path>, ScenarioError> {
        let finish = |(name, config): &(String, PathConfig)| {
            let key = KeyPath::dotted("path").key(name);
            let link = |direction| {
                config
                    .link(direction)
                    .map_err(|error| self.text.wrong(&key.below(&error.key), error.problem))
            };
            let (uplink, downlink) = (link(Direction::Uplink)?, link(Direction::Downlink)?);
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
            Ok(Path { name: name.clone(), config: config.clone(), uplink, downlink, info })
        };
        self.paths.iter().map(finish).collect()
    }

    fn flows(&self, read: Named<FlowFile>, paths: &[Path]) -> Result<Vec<Flow>, ScenarioError> {
        let riders: Vec<_> =
            read.0.iter().map(|(name, it)| (name.clone(), it.with.clone())).collect();
        let flow = |(name, flow)| self.flow(name, flow, paths);
        let mut flows = read.0.into_iter().map(flow).collect::<Result<Vec<Flow>, _>>()?;
        for (index, (name, with)) in riders.into_iter().enumerate() {
            let Some(with) = with else { continue };
            connections::ride(&mut flows, index, &with).map_err(|problem| {
                self.text.wrong(&KeyPath::dotted("flow").key(&name).key("with"), problem)
            })?;
        }
        Ok(flows)
    }

    fn flow(&self, name: String, read: FlowFile, paths: &[Path]) -> Result<Flow, ScenarioError> {
        let key = KeyPath::dotted("flow").key(&name);
        let wrong = |keys: &str, problem: String| Err(self.text.wrong(&key.below(keys), problem));
        self.check_name(&name, &key)?;
        match read.traffic.check() {
            Ok(()) => {}
            Err(TrafficError::Zero { key }) => {
                return wrong(&format!("traffic.{key}"), "expected above zero".into());
            }
            Err(TrafficError::TooLarge { key }) => {
                return wrong(&format!("traffic.{key}"), "expected less than 4GB".into());
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
        let copies = read.copies.unwrap_or(1);
        let Some(copies) = u8::try_from(copies).ok().filter(|it| (1..=MOST_COPIES).contains(it))
        else {
            return wrong("copies", format!("found {copies}, expected 1 to {MOST_COPIES}"));
        };
        if read.transport.is_some() && read.with.is_some() {
            let problem = "a flow that rides `with` another takes that one's transport; found both";
            return wrong("transport", problem.to_string());
        }
        let transport = read.transport.unwrap_or_default();
        if let Err((keys, problem)) = checks::transport(&transport) {
            return wrong(&format!("transport.{keys}"), problem);
        }
        let used = self.paths_of(&transport, &key.key("transport"))?;
        if let Err((keys, problem)) = checks::use_of_paths(&transport, &used, paths) {
            return wrong(&format!("transport.{keys}"), problem);
        }
        let requirements = self.requirements(read.require, &key.key("require"))?;
        let deadlines = requirements.iter().filter_map(|requirement| match requirement {
            Requirement::Share { deadline, .. } => *deadline,
            _ => None,
        });
        let deadline = deadlines.min();
        let class = read.class.unwrap_or_else(|| {
            Class::ALL.into_iter().find(|class| class.name() == name).unwrap_or_default()
        });
        Ok(Flow {
            name,
            from: read.from,
            class,
            start: Instant::ZERO + read.start,
            stop: Instant::ZERO + stop.min(self.duration),
            traffic: read.traffic,
            transport,
            paths: used,
            deadline,
            requirements,
            rides_with: None,
            copies,
        })
    }

    /// The positions of the paths that a transport names; all paths where it names none.
    fn paths_of(
        &self,
        transport: &TransportConfig,
        key: &KeyPath,
    ) -> Result<Vec<usize>, ScenarioError> {
        let key = key.key("paths");
        let Some(names) = &transport.paths else { return Ok((0..self.paths.len()).collect()) };
        if names.is_empty() {
            let problem = "found an empty list, expected at least one path".to_string();
            return Err(self.text.wrong(&key, problem));
        }
        let mut used = Vec::new();
        for (place, name) in names.iter().enumerate() {
            let key = key.index(place);
            let Some(index) = self.paths.iter().position(|(known, _)| known == name) else {
                return Err(self.unknown_path(name, &key));
            };
            if used.contains(&index) {
                return Err(self.text.wrong(&key, format!("`{name}` is named twice")));
            }
            used.push(index);
        }
        Ok(used)
    }

    fn requirements(
        &self,
        read: OneOrMany<RequirementFile>,
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
        for (key, table) in tables {
            let some = requirements_of(&table)
                .map_err(|(below, problem)| self.text.wrong(&key.below(below), problem))?;
            found.extend(some);
        }
        Ok(found)
    }
}

fn check_change(change: &ChangeConfig) -> Result<(), String> {
    match change {
        ChangeConfig::Rate(rate) => rate.resolve().map(drop),
        ChangeConfig::Delay(delay) => delay.resolve().map(drop),
        ChangeConfig::Loss(losses) => losses.0.iter().try_for_each(|it| it.resolve().map(drop)),
    }
}

/// What a table of `require` asks for; or the key at fault and what is wrong with it.
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
    if found.is_empty() {
        let expected = "expected `deadline` and `share`, `delay` and `percentile`, or `goodput`";
        return Err(("", expected.to_string()));
    }
    Ok(found)
}
