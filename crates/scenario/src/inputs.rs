//! Trace files: read once, hashed, and shared by all that name them.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path as FilePath, PathBuf};

use sha2::{Digest, Sha256};
use skybraid_link::{
    ChangeConfig, DelayConfig, Direction, LossConfig, Losses, PathConfig, RateConfig, Start,
    TraceError, TraceSource,
};
use skybraid_units::Duration;

use crate::ScenarioError;
use crate::key::KeyPath;
use crate::source_line::SourceLine;
use crate::text::ScenarioText;
use crate::wording;

/// Maximum size of a scenario's or gateway's file.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// A trace file that a scenario read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The file as the scenario names it, relative to the scenario's own.
    pub file: String,
    /// SHA-256 of its bytes in hexadecimal.
    pub sha256: String,
}

/// Reads trace files for one scenario.
pub(crate) struct Inputs<'a> {
    text: &'a ScenarioText,
    /// Where relative names begin.
    folder: PathBuf,
    /// How long the run is, where there is one.
    run: Option<Duration>,
    /// Where a run begins in a trace that does not say so itself.
    start: Option<Start>,
    read: BTreeMap<String, String>,
    loaded: Vec<TraceSource>,
    /// What has been read so far.
    pub inputs: Vec<Input>,
    /// Clocks of the traces for which nothing says where a run begins, each once.
    pub unplaced: Vec<String>,
}

impl<'a> Inputs<'a> {
    /// Files are looked for in `folder`. Traces must last for `run` or repeat.
    pub fn new(text: &'a ScenarioText, folder: &FilePath, run: Option<Duration>) -> Self {
        Self {
            text,
            folder: folder.to_path_buf(),
            run,
            start: None,
            read: BTreeMap::new(),
            loaded: Vec::new(),
            inputs: Vec::new(),
            unplaced: Vec::new(),
        }
    }

    /// Runs begin at `start` in traces that do not say so themselves.
    pub fn with_start(self, start: Option<Start>) -> Self {
        Self { start, ..self }
    }

    /// Loads every file that a path names. `key` is the path's.
    pub fn load_path(&mut self, path: &mut PathConfig, key: &KeyPath) -> Result<(), ScenarioError> {
        for direction in Direction::ALL {
            let own = path.direction_mut(direction);
            let key = key.key(direction.name());
            if let Some(rate) = &mut own.rate {
                self.load_rate(rate, &key.key("rate"))?;
            }
            if let Some(delay) = &mut own.delay {
                self.load_delay(delay, &key.key("delay"))?;
            }
            if let Some(losses) = &mut own.loss {
                self.load_losses(losses, &key.key("loss"))?;
            }
        }
        Ok(())
    }

    /// Loads the files that a change names. `key` is the changed thing's.
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
            RateConfig::Constant(_) | RateConfig::Steps(_) => Ok(()),
        }
    }

    fn load_delay(&mut self, delay: &mut DelayConfig, key: &KeyPath) -> Result<(), ScenarioError> {
        match delay {
            DelayConfig::Trace(source) => self.load(source, key),
            DelayConfig::Distribution(_) | DelayConfig::Steps(_) => Ok(()),
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
        let known = self.loaded.iter().any(|loaded| source.share(loaded));
        if !known {
            let name = source.file.trace.clone();
            let text = self.text(&name, key)?;
            source.load(text).map_err(|error| self.trace_error(error, &name, key))?;
            self.loaded.push(source.clone());
        }
        self.check_length(source, key)
    }

    /// The text of the file `name`, which `key` names; each file is read once.
    pub fn text(&mut self, name: &str, key: &KeyPath) -> Result<&str, ScenarioError> {
        if !self.read.contains_key(name) {
            let file = self.folder.join(name);
            let text = read_text(&file, MAX_INPUT, file.display().to_string(), key.to_string())?;
            let sha256 = hexadecimal(&Sha256::digest(text.as_bytes()));
            self.inputs.push(Input { file: name.to_string(), sha256 });
            self.read.insert(name.to_string(), text);
        }
        Ok(self.read.get(name).map(String::as_str).unwrap_or_default())
    }

    /// What is wrong with the file `name`, which `key` names, on a line of it.
    pub fn wrong_file(
        &self,
        name: &str,
        line: Option<usize>,
        problem: String,
        key: &KeyPath,
    ) -> ScenarioError {
        let file = self.folder.join(name).display().to_string();
        let text = self.read.get(name).map(String::as_str).unwrap_or_default();
        let found = wording::quoted(&problem).filter(|_| problem.starts_with("found `"));
        let line = line.map(|number| Box::new(SourceLine::numbered(text, number, found)));
        ScenarioError::Trace { file, line, key: key.to_string(), problem }
    }

    fn trace_error(&self, error: TraceError, name: &str, key: &KeyPath) -> ScenarioError {
        let (line, problem) = match error {
            // The file may be sound; what stands beside its name is not.
            TraceError::Option { key: option, found, expected } => {
                let problem = format!("found `{found}`, expected {expected} (to read `{name}`)");
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
        let left = length - start;
        if left >= run || source.file.repeat == Some(true) || sampling.resample.is_some() {
            return Ok(());
        }
        let name = &source.file.trace;
        let from =
            if start == Duration::ZERO { String::new() } else { format!(" from {start} on") };
        let problem = format!(
            "the trace `{name}` lasts {left}{from}, shorter than the run of {run}; expected a longer \
             trace, or `repeat = true` to start it over"
        );
        Err(self.text.wrong(key, problem))
    }
}

/// The text of a scenario's or gateway's file.
pub(crate) fn read_main_file(file: &FilePath) -> Result<String, ScenarioError> {
    read_text(file, MAX_FILE_BYTES, file.display().to_string(), String::new())
}

/// Lets the traces of a scenario that were measured on one clock start over together: after the length of
/// the shortest of them.
pub(crate) fn join_clocks<'a>(paths: impl Iterator<Item = &'a mut PathConfig>) {
    let mut traces: Vec<&mut TraceSource> = paths.flat_map(PathConfig::traces_mut).collect();
    let mut lengths: BTreeMap<String, Duration> = BTreeMap::new();
    for trace in &traces {
        let Some(length) = trace.length() else { continue };
        lengths.entry(trace.file.clock()).and_modify(|it| *it = length.min(*it)).or_insert(length);
    }
    for trace in &mut traces {
        if let Some(length) = lengths.get(&trace.file.clock()) {
            trace.set_length(*length);
        }
    }
}

/// Bytes that a trace, a track or a file of orbital elements may have.
const MAX_INPUT: u64 = 1_000_000_000;

/// The text of a file of at most `max` bytes. `shown` and `key` name it in errors.
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
    let failed = |error: std::io::Error| unreadable(format!("cannot be read: {error}"));
    // A pipe or device might never end.
    let size = fs::metadata(file).map_err(failed)?;
    if !size.is_file() {
        return Err(unreadable("found something else, expected a file".to_string()));
    }
    let mut bytes = Vec::new();
    // The size on the disk may not be all: some files of the kernel's never end.
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

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
