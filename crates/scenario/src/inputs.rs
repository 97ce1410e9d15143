//! Input files of a scenario, each read and hashed once and shared by the keys that name it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path as FilePath, PathBuf};

use sha2::{Digest, Sha256};
use skybraid_link::{
    AccessConfig, ChangeConfig, DelayConfig, LossConfig, Losses, PathConfig, RateConfig, Start,
    TraceError, TraceSource,
};
use skybraid_units::Duration;
use skybraid_units::invariant::Promised as _;

use crate::key::KeyPath;
use crate::source_line::SourceLine;
use crate::text::ScenarioText;
use crate::wording;
use crate::{Scenario, ScenarioError};

/// Maximum size of a scenario's or gateway's file.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// A file that a scenario has read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// File name in the scenario, relative to the scenario's own file.
    pub file: String,
    /// SHA-256 of the file in hexadecimal.
    pub sha256: String,
}

/// Reader of the input files of a scenario.
pub(crate) struct Inputs<'a> {
    text: &'a ScenarioText,
    /// Folder of relative names.
    folder: PathBuf,
    /// Texts in place of files, by name.
    given: Option<&'a BTreeMap<String, String>>,
    /// Length of the run, if any.
    run: Option<Duration>,
    /// Start of the run within traces that have no start of their own.
    start: Option<Start>,
    /// Scenario of the same file, whose traces are shared.
    earlier: Option<&'a Scenario>,
    read: BTreeMap<String, String>,
    /// Traces loaded so far, each once.
    pub loaded: Vec<TraceSource>,
    /// Files read so far.
    pub inputs: Vec<Input>,
    /// Clocks of the traces without a start of the run, each once.
    pub unplaced: Vec<String>,
}

impl<'a> Inputs<'a> {
    /// Creates a reader of files in `folder`. Traces must cover `run` or repeat.
    pub fn new(text: &'a ScenarioText, folder: &FilePath, run: Option<Duration>) -> Self {
        Self {
            text,
            folder: folder.to_path_buf(),
            given: None,
            run,
            start: None,
            earlier: None,
            read: BTreeMap::new(),
            loaded: Vec::new(),
            inputs: Vec::new(),
            unplaced: Vec::new(),
        }
    }

    /// Sets the start of the run within traces that have no start of their own.
    pub fn with_start(self, start: Option<Start>) -> Self {
        Self { start, ..self }
    }

    /// Sets texts that take the place of files, by their names in the scenario.
    pub fn with_given(self, given: &'a BTreeMap<String, String>) -> Self {
        Self { given: Some(given), ..self }
    }

    /// Sets a scenario of the same file, whose traces are not read again.
    pub fn with_earlier(self, earlier: Option<&'a Scenario>) -> Self {
        Self { earlier, ..self }
    }

    /// Loads all files of a path, whose key is `key`.
    pub fn load_path(&mut self, path: &mut PathConfig, key: &KeyPath) -> Result<(), ScenarioError> {
        for (flight, direction, own) in path.directions_mut() {
            let key = match flight {
                Some(number) => key.key("flight").index(number).key(direction.name()),
                None => key.key(direction.name()),
            };
            if let Some(rate) = &mut own.rate {
                self.load_rate(rate, &key.key("rate"))?;
            }
            if let Some(delay) = &mut own.delay {
                self.load_delay(delay, &key.key("delay"))?;
            }
            if let Some(losses) = &mut own.loss {
                self.load_losses(losses, &key.key("loss"))?;
            }
            for (name, source) in own.access.iter_mut().flat_map(AccessConfig::traces_mut) {
                self.load(source, &key.key("access").key(name))?;
            }
        }
        Ok(())
    }

    /// Loads all files of a change to the value of `key`.
    pub fn load_change(
        &mut self,
        change: &mut ChangeConfig,
        key: &KeyPath,
    ) -> Result<(), ScenarioError> {
        match change {
            ChangeConfig::Rate(rate) => self.load_rate(rate, key),
            ChangeConfig::Delay(delay) => self.load_delay(delay, key),
            ChangeConfig::Loss(losses) => self.load_losses(losses, key),
        }
    }

    fn load_rate(&mut self, rate: &mut RateConfig, key: &KeyPath) -> Result<(), ScenarioError> {
        match rate {
            RateConfig::Trace(source) => self.load(source, key),
            RateConfig::Constant(_) | RateConfig::Steps(_) | RateConfig::Process(..) => Ok(()),
        }
    }

    fn load_delay(&mut self, delay: &mut DelayConfig, key: &KeyPath) -> Result<(), ScenarioError> {
        match delay {
            DelayConfig::Trace(source) => self.load(source, key),
            DelayConfig::Distribution(_) | DelayConfig::Steps(_) | DelayConfig::Process(..) => {
                Ok(())
            }
        }
    }

    fn load_losses(&mut self, losses: &mut Losses, key: &KeyPath) -> Result<(), ScenarioError> {
        let single = losses.0.len() == 1;
        for (index, loss) in losses.0.iter_mut().enumerate() {
            if let LossConfig::Trace(source) = loss {
                let key = if single { key.clone() } else { key.index(index) };
                self.load(source, &key)?;
            }
        }
        Ok(())
    }

    fn load(&mut self, source: &mut TraceSource, key: &KeyPath) -> Result<(), ScenarioError> {
        if source.file.sampling.start.is_none() && source.file.sampling.resample.is_none() {
            source.file.sampling.start = self.start;
            let clock = source.file.clock();
            if self.start.is_none() && !self.unplaced.contains(&clock) {
                self.unplaced.push(clock);
            }
        }
        if !self.loaded.iter().any(|loaded| source.share(loaded)) {
            if !self.share_earlier(source) {
                let name = source.file.trace.clone();
                let text = self.text(&name, key)?;
                source.load(text).map_err(|error| self.trace_error(error, &name, key))?;
            }
            self.loaded.push(source.clone());
        }
        self.check_length(source, key)
    }

    /// Shares the data of `source` if the earlier scenario has loaded it. Returns whether it has.
    fn share_earlier(&mut self, source: &mut TraceSource) -> bool {
        let Some(earlier) = self.earlier else { return false };
        let shared = earlier.traces.iter().any(|loaded| source.share(loaded));
        if shared && self.inputs.iter().all(|input| input.file != source.file.trace) {
            let input = earlier.inputs.iter().find(|input| input.file == source.file.trace);
            self.inputs.extend(input.cloned());
        }
        shared
    }

    /// Returns the text of the file `name`, named by `key`. Each file is read once.
    pub fn text(&mut self, name: &str, key: &KeyPath) -> Result<&str, ScenarioError> {
        if !self.read.contains_key(name) {
            let key = self.text.as_written(key).to_string();
            let text = match self.given.and_then(|given| given.get(name)) {
                Some(given) => given.clone(),
                None => {
                    let file = self.folder.join(name);
                    let shown = file.display().to_string();
                    read_text(&file, MAX_INPUT_BYTES, shown, key.clone())?
                }
            };
            let sha256 = hexadecimal(&Sha256::digest(text.as_bytes()));
            match self.inputs.iter().find(|input| input.file == name) {
                None => self.inputs.push(Input { file: name.to_string(), sha256 }),
                Some(input) if input.sha256 == sha256 => {}
                Some(_) => {
                    let problem = "has changed since it was first read".to_string();
                    let file = self.folder.join(name).display().to_string();
                    return Err(ScenarioError::Unreadable { file, key, problem });
                }
            }
            self.read.insert(name.to_string(), text);
        }
        Ok(self.read_text_of(name))
    }

    /// Returns the text of a file that has been read.
    fn read_text_of(&self, name: &str) -> &str {
        self.read
            .get(name)
            .map(String::as_str)
            .promised("the text of a read file")
            .unwrap_or_default()
    }

    /// Returns the error of a problem in the file `name`, named by `key`, on a line of that file.
    pub fn wrong_file(
        &self,
        name: &str,
        line: Option<usize>,
        problem: String,
        key: &KeyPath,
    ) -> ScenarioError {
        let file = self.folder.join(name).display().to_string();
        let text = self.read_text_of(name);
        let found = wording::quoted(&problem).filter(|_| problem.starts_with("found `"));
        let line = line.map(|number| Box::new(SourceLine::numbered(text, number, found)));
        ScenarioError::Trace { file, line, key: self.text.as_written(key).to_string(), problem }
    }

    fn trace_error(&self, error: TraceError, name: &str, key: &KeyPath) -> ScenarioError {
        let (line, problem) = match error {
            // The file may be valid; the options next to its name are not.
            TraceError::Option { key: option, found, expected } => {
                let found = if found == "nothing" { found } else { format!("`{found}`") };
                let problem = format!("found {found}, expected {expected} (to read `{name}`)");
                return self.text.wrong(&key.key(option), problem);
            }
            TraceError::Line { line, found, expected } => {
                (Some(line), format!("found `{found}`, expected {expected}"))
            }
            TraceError::Empty { .. } | TraceError::Sample { .. } => (None, error.to_string()),
        };
        self.wrong_file(name, line, problem, key)
    }

    fn check_length(&self, source: &TraceSource, key: &KeyPath) -> Result<(), ScenarioError> {
        let Some(length) = source.length() else { return Ok(()) };
        let sampling = &source.file.sampling;
        sampling.check(length).map_err(|(below, found, expected)| {
            self.text.wrong(&key.key(below), format!("found `{found}`, expected {expected}"))
        })?;
        let Some(run) = self.run.filter(|_| !source.holds_opportunities()) else { return Ok(()) };
        let start = match sampling.start {
            Some(Start::At(start)) => start,
            Some(Start::Random) | None => Duration::ZERO,
        };
        let remaining = length - start;
        if remaining >= run || source.file.repeat == Some(true) || sampling.resample.is_some() {
            return Ok(());
        }
        let name = &source.file.trace;
        let from =
            if start == Duration::ZERO { String::new() } else { format!(" from {start} on") };
        let problem = format!(
            "the trace `{name}` lasts {remaining}{from}, shorter than the run of {run}; expected a longer \
             trace, or `repeat = true` to start it over"
        );
        Err(self.text.wrong(key, problem))
    }
}

/// Returns the text of a scenario's or gateway's file.
pub(crate) fn read_main_file(file: &FilePath) -> Result<String, ScenarioError> {
    read_text(file, MAX_FILE_BYTES, file.display().to_string(), String::new())
}

/// Lets traces measured on one clock repeat together, after the length of the shortest of them.
pub(crate) fn join_clocks<'a>(paths: impl Iterator<Item = &'a mut PathConfig>) {
    let mut traces: Vec<&mut TraceSource> = paths.flat_map(PathConfig::traces_mut).collect();
    let mut lengths: BTreeMap<String, Duration> = BTreeMap::new();
    for trace in &traces {
        let Some(length) = trace.length() else { continue };
        lengths
            .entry(trace.file.clock())
            .and_modify(|min| *min = length.min(*min))
            .or_insert(length);
    }
    for trace in &mut traces {
        if let Some(length) = lengths.get(&trace.file.clock()) {
            trace.set_length(*length);
        }
    }
}

/// Maximum size of a trace, a track or a file of orbital elements, in bytes.
const MAX_INPUT_BYTES: u64 = 1_000_000_000;

/// Returns the text of a file of at most `max` bytes. `shown` and `key` name the file in errors.
pub(crate) fn read_text(
    file: &FilePath,
    max: u64,
    shown: String,
    key: String,
) -> Result<String, ScenarioError> {
    let unreadable = |problem: String| ScenarioError::Unreadable {
        file: shown.clone(),
        key: key.clone(),
        problem,
    };
    let failed = |error: std::io::Error| {
        unreadable(match error.kind() {
            std::io::ErrorKind::NotFound => "there is no such file".to_string(),
            _ => format!("cannot be read: {error}"),
        })
    };
    // A pipe or device may never end.
    let size = fs::metadata(file).map_err(failed)?;
    if !size.is_file() {
        return Err(unreadable(no_file(&size).to_string()));
    }
    let mut bytes = Vec::new();
    // The reported size may be too small: some kernel files never end.
    if size.len() <= max {
        let open = fs::File::open(file).map_err(failed)?;
        open.take(max + 1).read_to_end(&mut bytes).map_err(failed)?;
    }
    if size.len().max(bytes.len() as u64) > max {
        let problem = format!("found more than {} MB, expected at most so much", max / 1_000_000);
        return Err(unreadable(problem));
    }
    if bytes.starts_with(b"PAR1") {
        let problem = "found Parquet, expected text; convert it with `skybraid trace convert`";
        return Err(unreadable(problem.to_string()));
    }
    String::from_utf8(bytes).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        unreadable(format!("found bytes that are not UTF-8 at offset {place}, expected text"))
    })
}

/// Returns the problem of what is not a file.
pub(crate) fn no_file(found: &fs::Metadata) -> &'static str {
    if found.is_dir() {
        "found a folder, expected a file"
    } else {
        "found a device or pipe, expected a file"
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
