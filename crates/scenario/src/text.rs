//! Text of a scenario: positions of its keys, and application of overrides.

use std::ops::Range;
use std::path::Path as FilePath;

use serde::de::DeserializeOwned;
use toml_edit::{Document, Item, Key, Table, TableLike, Value, de::Deserializer};

use crate::ScenarioError;
use crate::key::{KeyPath, Step};
use crate::source_line::SourceLine;
use crate::wording;

/// Maximum number of keys in an override.
const MAX_OVERRIDE_KEYS: usize = 16;

/// Table that turns a scenario into a campaign.
const SWEEP: &str = "sweep";

/// Tables whose keys are names chosen by the user.
const NAMED: [&str; 4] = ["path", "node", "link", "flow"];

/// Lists of tables.
const LISTED: [&str; 3] = ["event", "route", "outages"];

/// Text of a scenario, as written and with overrides.
pub(crate) struct ScenarioText {
    file: String,
    /// Text of the file, in which errors are located.
    written: Document<String>,
    /// Text with overrides, without the campaign's `[sweep]`.
    effective: Document<String>,
    overrides: Vec<KeyPath>,
}

impl ScenarioText {
    /// Parses `text` and applies `overrides`.
    pub fn parse(
        text: &str,
        file: &FilePath,
        overrides: &[(String, String)],
    ) -> Result<Self, ScenarioError> {
        let mut scenario = Self::whole(text, file)?;
        scenario.remove_sweep();
        scenario.apply(overrides)?;
        Ok(scenario)
    }

    /// Parses `text` without overrides.
    pub fn whole(text: &str, file: &FilePath) -> Result<Self, ScenarioError> {
        let file = file.display().to_string();
        let written =
            Document::parse(text.to_string()).map_err(|error| ScenarioError::Invalid {
                file: file.clone(),
                line: error.span().map(|span| Box::new(SourceLine::at(text, &span))),
                key: String::new(),
                problem: format!("not TOML: {}", wording::plain(error.message(), None)),
            })?;
        Ok(Self { file, effective: written.clone(), written, overrides: Vec::new() })
    }

    /// Removes a campaign's `[sweep]`: scenarios that differ only in it are the same.
    fn remove_sweep(&mut self) {
        if !self.effective.contains_key(SWEEP) {
            return;
        }
        let mut edited = self.effective.clone().into_mut();
        edited.remove(SWEEP);
        if let Ok(without) = Document::parse(edited.to_string()) {
            self.effective = without;
        }
    }

    fn apply(&mut self, overrides: &[(String, String)]) -> Result<(), ScenarioError> {
        // With replaced values that the effective text does not have yet.
        let mut pending = None;
        for (number, (key, value)) in overrides.iter().enumerate() {
            let wrong = |problem: String| ScenarioError::Override { key: key.clone(), problem };
            let keys = Key::parse(key).map_err(|error| {
                wrong(format!("not a key: {}", wording::plain(error.message(), None)))
            })?;
            if keys.is_empty() || keys.len() > MAX_OVERRIDE_KEYS {
                return Err(wrong(format!(
                    "expected 1 to {MAX_OVERRIDE_KEYS} keys with dots between"
                )));
            }
            let mut value = value.parse().unwrap_or_else(|_| Value::from(value.as_str()));
            value.decor_mut().clear();
            let mut edited = pending.take().unwrap_or_else(|| self.effective.clone().into_mut());
            let place = place(edited.as_table(), &keys);
            let (old, depth) = find(edited.as_table(), &place);
            let is_replaced = depth == keys.len() && old.node.value().is_some();
            reject_new_name(edited.as_table(), &keys).map_err(wrong)?;
            if let Some(value) = add_named(edited.as_table_mut(), &keys, value) {
                set_in_table(edited.as_table_mut(), &keys, value).map_err(wrong)?;
            }
            self.overrides.push(place);
            // A key that is added gets its position in the text when that is parsed; a replaced value keeps its own.
            if is_replaced && number + 1 < overrides.len() {
                pending = Some(edited);
            } else {
                self.effective = Document::parse(edited.to_string()).map_err(|error| {
                    wrong(format!("does not fit the scenario: {}", error.message()))
                })?;
            }
        }
        Ok(())
    }

    /// Returns the effective text.
    pub fn effective(&self) -> &str {
        self.effective.raw()
    }

    /// Deserializes the effective text.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, ScenarioError> {
        self.read_with_hints(|_| None)
    }

    /// Deserializes the effective text; `hint` returns where an unknown key belongs.
    pub fn read_with_hints<T: DeserializeOwned>(
        &self,
        hint: impl Fn(&KeyPath) -> Option<String>,
    ) -> Result<T, ScenarioError> {
        let mut edited = self.effective.clone().into_mut();
        edited.iter_mut().for_each(|(_, item)| put_names_first(item));
        let reader = Deserializer::from(edited);
        serde_path_to_error::deserialize(reader).map_err(|error| {
            let outer = KeyPath::from(error.path());
            let message = error.inner().message();
            let inner = self.narrow(&outer, message);
            let unknown = message.starts_with("unknown field");
            let problem = match hint(&inner).filter(|_| unknown) {
                // A hint is more specific than the list of keys of this table.
                Some(hint) => format!("unknown key `{}`; {hint}", inner.last_key_or_empty()),
                None => match (inner.steps(), wording::plain(message, inner.last_key())) {
                    ([Step::Key(name)], problem) if problem == wording::TABLE_FOR_LIST => {
                        format!("found the table `[{name}]`, expected `[[{name}]]`, one of a list")
                    }
                    (_, problem) => problem,
                },
            };
            self.wrong(&inner, problem)
        })
    }

    /// Returns the path to the only value or key below `key` that `message` quotes, since some errors arise only
    /// after a whole table has been read.
    fn narrow(&self, key: &KeyPath, message: &str) -> KeyPath {
        let (place, depth) = find(self.effective.as_table(), key);
        let complete = depth == key.steps().len();
        let quoted = if complete { wording::quoted(message) } else { None };
        let Some(quoted) = quoted else { return key.clone() };
        let mut below = Vec::new();
        place.node.collect(key, &mut below);
        for by_value in [true, false] {
            let mut hits = below.iter().filter(|(way, value)| match value {
                Some(value) if by_value => value == quoted,
                _ => !by_value && way.last_key() == Some(quoted),
            });
            if let (Some((way, _)), None) = (hits.next(), hits.next()) {
                return way.clone();
            }
        }
        key.clone()
    }

    /// Returns whether the effective text has a value at `key`.
    pub fn has(&self, key: &KeyPath) -> bool {
        find(self.effective.as_table(), key).1 == key.steps().len()
    }

    /// Returns the key of one direction of a link as it is in the text, which may set both directions together.
    pub fn as_written(&self, key: &KeyPath) -> KeyPath {
        let both = key.without_direction();
        let depth = |key| find(self.effective.as_table(), key).1;
        let above = key.shared_steps(&both);
        if depth(&both) > above && depth(key) <= above + 1 { both } else { key.clone() }
    }

    /// Returns the error for `problem` at `key`: an error of the override that wrote the key or the table in
    /// which it is missing, or else an error of the file, at the line of the key or of that table.
    pub fn wrong(&self, key: &KeyPath, problem: String) -> ScenarioError {
        let (key, problem) = self.with_found(&self.as_written(key), problem);
        let key = &key;
        let (place, depth) = find(self.written.as_table(), key);
        let is_source = |origin: &&KeyPath| {
            let shared = origin.shared_steps(key);
            shared == origin.steps().len() || shared > depth
        };
        if let Some(origin) = self.overrides.iter().find(is_source) {
            let elsewhere = origin.shared_steps(key) < key.steps().len();
            let problem = if elsewhere { format!("{key}: {problem}") } else { problem };
            return ScenarioError::Override { key: origin.to_string(), problem };
        }
        let value = place.value.filter(|_| depth == key.steps().len() && is_of_value(&problem));
        let span = value.or(place.key);
        ScenarioError::Invalid {
            file: self.file.clone(),
            line: span.map(|span| Box::new(SourceLine::at(self.written.raw(), &span))),
            key: key.to_string(),
            problem,
        }
    }

    /// Returns a warning about the value at `key`, with its file, line and column.
    pub fn warning(&self, key: &KeyPath, words: &str) -> String {
        let (place, depth) = find(self.written.as_table(), key);
        let span = place.key.filter(|_| depth == key.steps().len());
        let position = span.map(|span| SourceLine::at(self.written.raw(), &span).position());
        let place = position.map(|position| format!("{}:{position}: ", self.file));
        format!("{}{key}: {words}", place.unwrap_or_default())
    }

    /// Completes a problem that names only the expected value by the value found. Tables with a single key are
    /// followed to their value.
    fn with_found(&self, key: &KeyPath, problem: String) -> (KeyPath, String) {
        if !problem.starts_with("expected") {
            return (key.clone(), problem);
        }
        let mut key = key.clone();
        loop {
            let (place, depth) = find(self.effective.as_table(), &key);
            if depth < key.steps().len() {
                return (key, format!("found nothing, {problem}"));
            }
            if let Some(text) = place.node.text() {
                return (key, format!("found `{text}`, {problem}"));
            }
            match place.node.table().map(|table| table.iter().collect::<Vec<_>>()).as_deref() {
                Some([(only, _)]) => key.push(Step::Key((*only).to_string())),
                _ => return (key, problem),
            }
        }
    }
}

/// Returns whether a problem concerns the value of a key instead of the key itself.
fn is_of_value(problem: &str) -> bool {
    !problem.starts_with("unknown key")
}

/// Moves the key `name` of each table to its front: of an algorithm, it says how the other keys are read.
fn put_names_first(item: &mut Item) {
    match item {
        Item::Table(table) => {
            table.sort_values_by(|one, _, other, _| (one != "name").cmp(&(other != "name")));
            table.iter_mut().for_each(|(_, item)| put_names_first(item));
        }
        Item::ArrayOfTables(tables) => {
            let items = tables.iter_mut().flat_map(Table::iter_mut);
            items.for_each(|(_, item)| put_names_first(item));
        }
        Item::Value(value) => put_names_first_in(value),
        Item::None => {}
    }
}

fn put_names_first_in(value: &mut Value) {
    match value {
        Value::InlineTable(table) => {
            table.sort_values_by(|one, _, other, _| (one != "name").cmp(&(other != "name")));
            table.iter_mut().for_each(|(_, value)| put_names_first_in(value));
        }
        Value::Array(values) => values.iter_mut().for_each(put_names_first_in),
        _ => {}
    }
}

/// A node of the document.
#[derive(Clone, Copy)]
enum Node<'a> {
    Table(&'a dyn TableLike),
    Item(&'a Item),
    Value(&'a Value),
}

/// A node and its position: its key, or that of the enclosing table; and its value, unless it is a table.
#[derive(Clone)]
struct Place<'a> {
    node: Node<'a>,
    key: Option<Range<usize>>,
    value: Option<Range<usize>>,
}

/// Returns the node at `key`, or the last existing one on the way there, and the number of steps taken.
fn find<'a>(document: &'a Table, key: &KeyPath) -> (Place<'a>, usize) {
    let mut place = Place { node: Node::Table(document), key: None, value: None };
    for (depth, step) in key.steps().iter().enumerate() {
        match place.node.step(step) {
            Some(next) => place = Place { key: next.key.or(place.key), ..next },
            None => return (place, depth),
        }
    }
    (place, key.steps().len())
}

/// Returns the path of an override's `keys`, in which a number is a position where the document has a list.
fn place(document: &Table, keys: &[Key]) -> KeyPath {
    let mut place = KeyPath::default();
    for key in keys {
        let index = key.get().parse().ok().filter(|index| {
            let entry = place.index(*index);
            find(document, &entry).1 == entry.steps().len()
        });
        place.push(match index {
            Some(index) => Step::Index(index),
            None => Step::Key(key.get().to_string()),
        });
    }
    place
}

impl<'a> Node<'a> {
    fn table(self) -> Option<&'a dyn TableLike> {
        match self {
            Self::Table(table) => Some(table),
            Self::Item(item) => item.as_table_like(),
            Self::Value(value) => value.as_inline_table().map(|table| table as &dyn TableLike),
        }
    }

    fn value(self) -> Option<&'a Value> {
        match self {
            Self::Table(_) => None,
            Self::Item(item) => item.as_value(),
            Self::Value(value) => Some(value),
        }
    }

    fn entries(self) -> Vec<Place<'a>> {
        if let Self::Item(Item::ArrayOfTables(tables)) = self {
            let place = |table: &'a Table| Place {
                node: Node::Table(table),
                key: table.span(),
                value: None,
            };
            return tables.iter().map(place).collect();
        }
        let place = |value: &'a Value| Place {
            node: Node::Value(value),
            key: value.span(),
            value: value.span(),
        };
        self.value().and_then(Value::as_array).into_iter().flatten().map(place).collect()
    }

    fn step(self, step: &Step) -> Option<Place<'a>> {
        match step {
            Step::Key(name) => {
                let (key, item) = self.table()?.get_key_value(name)?;
                let value = item.as_value().and_then(Value::span);
                Some(Place { node: Node::Item(item), key: key.span(), value })
            }
            Step::Index(index) => self.entries().into_iter().nth(*index),
        }
    }

    /// Collects all nodes below this one, with the text of values that are neither table nor list.
    fn collect(self, way: &KeyPath, into: &mut Vec<(KeyPath, Option<String>)>) {
        if let Some(table) = self.table() {
            for (name, item) in table.iter() {
                let way = way.key(name);
                into.push((way.clone(), Node::Item(item).text()));
                Node::Item(item).collect(&way, into);
            }
        }
        for (index, entry) in self.entries().into_iter().enumerate() {
            let way = way.index(index);
            into.push((way.clone(), entry.node.text()));
            entry.node.collect(&way, into);
        }
    }

    fn text(self) -> Option<String> {
        Some(match self.value()? {
            Value::String(text) => text.value().clone(),
            Value::Integer(number) => number.value().to_string(),
            Value::Float(number) => number.value().to_string(),
            Value::Boolean(value) => value.value().to_string(),
            _ => return None,
        })
    }
}

/// Adds a path, node, link or flow that is set as a whole and does not exist yet, after the existing ones.
/// Returns the value if it was not added.
fn add_named(scenario: &mut Table, keys: &[Key], value: Value) -> Option<Value> {
    let [kind, name] = keys else { return Some(value) };
    if !NAMED.contains(&kind.get()) {
        return Some(value);
    }
    let tables = scenario.get_mut(kind.get()).and_then(Item::as_table_mut);
    match (tables, value) {
        (Some(tables), Value::InlineTable(made)) if !tables.contains_key(name.get()) => {
            tables.insert(name.get(), Item::Table(made.into_table()));
            None
        }
        (_, value) => Some(value),
    }
}

/// Rejects a key below a path, node, link, flow or list entry that the scenario does not have: a misspelt name is
/// likelier than a new one. A table that is set as a whole may be new.
fn reject_new_name(scenario: &Table, keys: &[Key]) -> Result<(), String> {
    let [kind, name, _, ..] = keys else { return Ok(()) };
    let (kind, name) = (kind.get(), name.get());
    let below = scenario.get(kind);
    if NAMED.contains(&kind) {
        let tables = below.and_then(Item::as_table_like);
        if tables.is_some_and(|tables| tables.contains_key(name)) {
            return Ok(());
        }
        let known = tables.map(|tables| tables.iter().map(|(name, _)| name).collect::<Vec<_>>());
        let problem = wording::unknown(kind, name, &known.unwrap_or_default());
        return Err(format!("{problem}; a new one is set whole: `{kind}.{name}={{ … }}`"));
    }
    if LISTED.contains(&kind) && below.is_none() {
        return Err(format!("found no `[[{kind}]]` in the scenario, expected at least one"));
    }
    Ok(())
}

/// Sets the value at `keys`, and creates missing tables.
fn set_in_table(table: &mut dyn TableLike, keys: &[Key], value: Value) -> Result<(), String> {
    let Some((key, rest)) = keys.split_first() else { return Ok(()) };
    match (table.get_mut(key.get()), rest) {
        (Some(item), _) => set_in_item(item, key.get(), rest, value),
        (None, []) => {
            table.insert(key.get(), Item::Value(value));
            Ok(())
        }
        (None, rest) => {
            let mut made = Table::new();
            made.set_implicit(true);
            set_in_table(&mut made, rest, value)?;
            table.insert(key.get(), Item::Table(made));
            Ok(())
        }
    }
}

fn set_in_item(item: &mut Item, name: &str, keys: &[Key], value: Value) -> Result<(), String> {
    if keys.is_empty() {
        match item {
            Item::Value(old) => replace(old, value),
            other => *other = Item::Value(value),
        }
        return Ok(());
    }
    match item {
        Item::ArrayOfTables(tables) => {
            let (index, rest) = position(name, keys, tables.len())?;
            match tables.get_mut(index) {
                Some(table) if !rest.is_empty() => set_in_table(table, rest, value),
                _ => Err(format!("expected a key below entry {index} of `{name}`")),
            }
        }
        Item::Value(Value::Array(list)) => {
            let (index, rest) = position(name, keys, list.len())?;
            match list.get_mut(index) {
                Some(entry) if rest.is_empty() => {
                    replace(entry, value);
                    Ok(())
                }
                Some(Value::InlineTable(table)) => set_in_table(table, rest, value),
                _ => Err(format!("entry {index} of `{name}` is not a table")),
            }
        }
        other => match other.as_table_like_mut() {
            Some(table) => set_in_table(table, keys, value),
            None => Err(format!("`{name}` is not a table, so that it holds no keys")),
        },
    }
}

/// Replaces `old` by `value`, keeping surrounding whitespace and comments.
fn replace(old: &mut Value, mut value: Value) {
    *value.decor_mut() = old.decor().clone();
    *old = value;
}

/// Returns the index in a list named by the first of `keys`, and the remaining keys.
fn position<'k>(name: &str, keys: &'k [Key], length: usize) -> Result<(usize, &'k [Key]), String> {
    let wrong = |found: &str| {
        format!("found `{found}`, expected a position in the list `{name}`, below {length}")
    };
    let (first, rest) = keys.split_first().ok_or_else(|| wrong(""))?;
    let index = first.get().parse().ok().filter(|index| *index < length);
    Ok((index.ok_or_else(|| wrong(first.get()))?, rest))
}
