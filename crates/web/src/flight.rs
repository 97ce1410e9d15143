//! A run of a scenario, and its table of messages.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde::Deserialize;
use skybraid_host::Setup;
use skybraid_host::record::{MessageRow, Outcome, Record};
use skybraid_scenario::{Flow, Scenario, ScenarioError};
use skybraid_sim::Observer;
use skybraid_transport::Class;
use skybraid_units::{Duration, Instant, Seed};

/// Request of the page.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Text of the scenario.
    pub scenario: String,
    /// Root seed; that of the scenario by default.
    pub seed: Option<u64>,
    /// Texts of the files that the scenario names.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
}

/// A run that has ended.
pub struct Flight {
    pub scenario: Scenario,
    pub setup: Setup,
    pub outcome: Outcome,
    /// Flow of the scenario that each record is of, or whose answers it is of.
    pub origins: Vec<usize>,
    /// Whether the table's heading has been returned.
    begun: bool,
}

/// Heading of the table.
const HEADING: &str = "flow,id,class,bytes,sent_ns,delivered_ns,copies_sent,copies_arrived,path,held_us,within_deadline\n";

struct Watch<'a>(&'a mut dyn FnMut(Instant));

impl Observer for Watch<'_> {
    fn progress(&mut self, now: Instant) -> bool {
        (self.0)(now);
        true
    }
}

impl Flight {
    /// Reads and runs a scenario. `report` gets the time that has been simulated.
    ///
    /// # Errors
    /// The scenario is wrong, or names what only the installed program has.
    pub fn new(request: &Request, report: &mut dyn FnMut(Instant)) -> Result<Self, String> {
        let file = Path::new("scenario.toml");
        let scenario = Scenario::parse_with_files(&request.scenario, file, &request.files, &[]);
        let scenario = scenario.map_err(|error| problem(error, &request.files))?;
        scenario.needs_flows().map_err(|error| error.to_string())?;
        scenario.needs_clips().map_err(|error| error.to_string())?;
        if let Some((flow, name)) = scenario.flows.iter().find_map(own_algorithm) {
            return Err(format!(
                "flow.{flow}.transport: found `{name}`, expected an algorithm of Skybraid; your own run with \
                 `skybraid run --plugin`"
            ));
        }
        let record = Record { messages: true, links: true, ..Record::default() };
        let setup = scenario.setup(request.seed.map_or(scenario.seed, Seed), record);
        let outcome = skybraid_sim::run(&setup, &mut Watch(report));
        let outcome = outcome.map_err(|stopped| format!("stopped at {:?}", stopped.at))?;
        let origins = (0..setup.flows.len()).chain(outcome.answers.iter().copied()).collect();
        Ok(Self { scenario, setup, outcome, origins, begun: false })
    }

    /// End of the run.
    pub fn end(&self) -> Instant {
        Instant::ZERO + self.setup.duration
    }

    /// Returns the suffix of the names of a record's flow and group.
    pub fn suffix(&self, record: usize) -> &'static str {
        if record < self.setup.flows.len() { "" } else { ".answer" }
    }

    /// Returns the name of path `own` of a record's flow.
    pub fn path(&self, record: usize, own: usize) -> Option<&str> {
        let flow = self.setup.flows.get(*self.origins.get(record)?)?;
        Some(&self.setup.paths.get(*flow.paths.get(own)?)?.name)
    }

    /// Takes the next rows of the table `messages` out of the run, as CSV; `None` after the last.
    pub fn next_rows(&mut self) -> Option<String> {
        let taken = self.outcome.flows.iter_mut().enumerate().find_map(|(record, rows)| {
            let first = rows.first_id();
            Some((record, first, rows.take_block()?))
        });
        let (record, first, rows) = taken?;
        let mut text = if self.begun { String::new() } else { HEADING.to_string() };
        self.begun = true;
        for (id, row) in (first..).zip(&rows) {
            // Writing to a text cannot fail.
            let _ = self.write_row(&mut text, record, id, row);
        }
        Some(text)
    }

    fn write_row(
        &self,
        text: &mut String,
        record: usize,
        id: u32,
        row: &MessageRow,
    ) -> std::fmt::Result {
        let Some(flow) = self.origins.get(record).and_then(|flow| self.setup.flows.get(*flow))
        else {
            return Ok(());
        };
        let class = Class::ALL.get(flow.class as usize).map_or("", |class| class.name());
        let sent = row.sent();
        write!(
            text,
            "{}{},{id},{class},{},{},",
            flow.name,
            self.suffix(record),
            row.bytes,
            sent.as_nanos()
        )?;
        if let Some(at) = row.delivered() {
            write!(text, "{}", at.as_nanos())?;
        }
        let path = self.path(record, usize::from(row.path)).unwrap_or_default();
        let within = flow.deadline.and_then(|limit| within(row, limit, self.end()));
        let within = within.map_or(String::new(), |within| within.to_string());
        writeln!(
            text,
            ",{},{},{path},{},{within}",
            row.copies_sent, row.copies_arrived, row.held_us
        )
    }
}

/// Returns whether a message met a deadline; `None` if the deadline falls after the run.
pub fn within(row: &MessageRow, limit: Duration, end: Instant) -> Option<bool> {
    match row.delivered() {
        Some(at) => Some(at - row.sent() <= limit),
        None => (row.sent() + limit <= end).then_some(false),
    }
}

/// Returns flow and name of an algorithm that the user must supply.
fn own_algorithm(flow: &Flow) -> Option<(&str, &str)> {
    let scheduler = flow.transport.scheduler.custom().map(|custom| custom.name());
    let name = scheduler.or_else(|| flow.transport.congestion.custom().map(|custom| custom.name()));
    Some((&flow.group, name?))
}

/// Returns an error in the words of a page, which has no files but its own.
fn problem(error: ScenarioError, files: &BTreeMap<String, String>) -> String {
    match error {
        ScenarioError::Unreadable { file, key, .. } => {
            let known: Vec<&str> = files.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_string() } else { known.join(", ") };
            format!(
                "{key}: found `{file}`, expected a file of this page ({known}); open your own below the text"
            )
        }
        other => other.to_string(),
    }
}
