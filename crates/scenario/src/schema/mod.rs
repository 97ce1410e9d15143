//! Keys and kinds of values of scenario and gateway files, found by asking the parser itself.
//!
//! A type says what it accepts when it refuses a value: serde names the keys of a table, the names of a choice and the
//! kind that was expected. So no second list of keys exists that could differ from the parser's.

mod probe;

use serde::Deserialize;
use skybraid_gateway::GatewayConfig;
use skybraid_link::presets;
use skybraid_orbit::CONSTELLATIONS;
use skybraid_transport::registry::ALIASES;
use skybraid_units::{
    Angle, Bytes, Decibels, Duration, Frequency, Length, Probability, RainRate, Rate, Speed,
};

use crate::file::ScenarioFile;
use crate::network::HOSTS;
use crate::{profiles, wording};
use probe::{Probe, Refusal};

/// A key and a name that no file has.
const UNKNOWN: &str = "\u{1}";
/// Prefix of algorithms that the driver provides.
const CUSTOM: &str = skybraid_transport::registry::CUSTOM;
/// Units of all quantities.
const UNITS: [&[(&str, f64)]; 10] = [
    Duration::UNITS,
    Rate::UNITS,
    Bytes::UNITS,
    Probability::UNITS,
    Length::UNITS,
    Speed::UNITS,
    Angle::UNITS,
    Decibels::UNITS,
    Frequency::UNITS,
    RainRate::UNITS,
];
/// Regular expression of the names of algorithms that the driver provides.
pub const CUSTOM_NAMES: &str = "^python:.+";
/// Maximum depth of tables and lists; deeper values may be anything.
const MAX_DEPTH: usize = 12;

/// Values that a key accepts. A value without any of the kinds may be anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Expectation in the words of the parser; empty if it has none.
    pub expected: String,
    /// Texts, if any are accepted.
    pub text: Option<TextShape>,
    /// Numbers, if any are accepted.
    pub number: Option<NumberShape>,
    /// Whether booleans are accepted.
    pub boolean: bool,
    /// Values of lists, if lists are accepted.
    pub list: Option<Box<Shape>>,
    /// Tables, if any are accepted.
    pub table: Option<TableShape>,
}

/// Texts that a key accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextShape {
    /// Any text: a name, a file.
    Any,
    /// A number with one of these units.
    Quantity {
        /// Units.
        units: Vec<&'static str>,
        /// Whether the number may be negative.
        signed: bool,
    },
    /// One of these names, or another text.
    Names {
        /// Names.
        names: Vec<String>,
        /// Regular expression of the other texts that are accepted, if any are.
        others: Option<&'static str>,
    },
}

/// Numbers that a key accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberShape {
    /// Integers only.
    Integer,
    /// All numbers.
    Any,
}

/// Keys of a table, each with its values.
pub type Keys = Vec<(String, Shape)>;

/// Tables that a key accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableShape {
    /// These keys and no others.
    Keys(Keys),
    /// Names that the file chooses, each with a value of this shape.
    Named(Box<Shape>),
    /// Keys that depend on the value of one of them.
    Choice {
        /// Key that chooses.
        tag: String,
        /// Values of that key, each with the other keys.
        options: Vec<(String, Keys)>,
        /// Whether algorithms of the driver are accepted, with keys of their own.
        custom: bool,
    },
    /// Any keys.
    Any,
}

/// Returns the keys of a scenario file.
pub fn scenario_schema() -> Shape {
    let parse = |probe| ScenarioFile::deserialize(probe).map(drop);
    Explorer { parse, names: registered }.shape(&mut Vec::new())
}

/// Returns the keys of a gateway's file.
pub fn gateway_schema() -> Shape {
    let parse = |probe| GatewayConfig::deserialize(probe).map(drop);
    Explorer { parse, names: |_| None }.shape(&mut Vec::new())
}

/// Step from a value to a part of it.
#[derive(Clone, Debug)]
enum Step {
    Key(String),
    Element,
    /// A key of a table whose `tag` has this value.
    Chosen {
        tag: String,
        value: String,
        key: String,
    },
}

/// Returns the names that a text may be where the parser reads any text and looks it up later.
fn registered(steps: &[Step]) -> Option<TextShape> {
    let mut keys = steps.iter().rev().filter_map(|step| match step {
        Step::Key(key) | Step::Chosen { key, .. } => Some(key.as_str()),
        Step::Element => None,
    });
    let units = |units: &[(&'static str, f64)]| units.iter().map(|(name, _)| *name).collect();
    let any = Some(".");
    let (names, others): (Vec<&str>, _) = match keys.next()? {
        "preset" => (presets::ALL.iter().map(|preset| preset.name).collect(), Some(r"\.toml$")),
        "require" => (profiles::names().collect(), None),
        "constellation" => (CONSTELLATIONS.iter().map(|named| named.name).collect(), None),
        // Nodes, where the file has them.
        "from" | "to" if keys.any(|key| key == "flow") => (HOSTS.to_vec(), any),
        // Measuring tools have spellings of their own.
        "time_unit" => (units(Duration::UNITS), any),
        "unit" => match keys.next()? {
            "rate" => (units(Rate::UNITS), any),
            "delay" => (units(Duration::UNITS), any),
            _ => return None,
        },
        _ => return None,
    };
    Some(TextShape::Names { names: names.into_iter().map(str::to_string).collect(), others })
}

/// Asks the parser about the value at the end of some steps.
struct Explorer {
    parse: fn(Probe) -> Result<(), Refusal>,
    /// Names that the parser does not know.
    names: fn(&[Step]) -> Option<TextShape>,
}

impl Explorer {
    fn ask(&self, steps: &[Step], probe: Probe) -> Result<(), Refusal> {
        let whole = steps.iter().rev().fold(probe, |inner, step| match step {
            Step::Key(key) => Probe::Table(vec![(key.clone(), inner)]),
            Step::Element => Probe::List(vec![inner]),
            Step::Chosen { tag, value, key } => {
                let tag = (tag.clone(), Probe::Text(value.clone()));
                Probe::Table(vec![tag, (key.clone(), inner)])
            }
        });
        (self.parse)(whole)
    }

    /// Whether the kind of a value is accepted. A part is refused before the whole is found incomplete.
    fn accepts(&self, steps: &[Step], probe: Probe) -> bool {
        !matches!(self.ask(steps, probe), Err(Refusal::Kind { .. }))
    }

    fn shape(&self, steps: &mut Vec<Step>) -> Shape {
        if steps.len() > MAX_DEPTH {
            return Shape::default();
        }
        let refused = [Probe::Bool, Probe::List(Vec::new()), Probe::Integer]
            .into_iter()
            .find_map(|probe| self.ask(steps, probe).err());
        let expected = match refused {
            Some(Refusal::Kind { expected, .. }) => expected,
            _ => String::new(),
        };
        // Serde also reads the values of a table's keys from a list, in the order of its source text.
        let is_table = expected.starts_with("struct ") || expected.starts_with("internally tagged");
        let is_list = !is_table && self.accepts(steps, Probe::List(Vec::new()));
        let list = is_list.then(|| {
            let is_tuple = expected.starts_with("a tuple");
            let element =
                if is_tuple { Shape::default() } else { self.inside(steps, Step::Element) };
            Box::new(element)
        });
        let number = if self.accepts(steps, Probe::Number) {
            Some(NumberShape::Any)
        } else {
            self.accepts(steps, Probe::Integer).then_some(NumberShape::Integer)
        };
        Shape {
            expected: words(&expected),
            text: self.text(steps),
            number,
            boolean: self.accepts(steps, Probe::Bool),
            list,
            table: self.table(steps),
        }
    }

    fn inside(&self, steps: &mut Vec<Step>, step: Step) -> Shape {
        steps.push(step);
        let shape = self.shape(steps);
        steps.pop();
        shape
    }

    fn text(&self, steps: &[Step]) -> Option<TextShape> {
        match self.ask(steps, Probe::Text(UNKNOWN.to_string())) {
            Err(Refusal::Kind { .. }) => None,
            Err(Refusal::Name(names)) => {
                let custom = self.ask(steps, Probe::Text(format!("{CUSTOM}a")));
                let others = (!matches!(custom, Err(Refusal::Name(_)))).then_some(CUSTOM_NAMES);
                let names = with_aliases(names, |alias| self.ask(steps, Probe::Text(alias)));
                Some(TextShape::Names { names, others })
            }
            _ => {
                let known = self.quantity(steps).or_else(|| (self.names)(steps));
                Some(known.unwrap_or(TextShape::Any))
            }
        }
    }

    /// Returns the quantity that a text must be, if it must be one.
    fn quantity(&self, steps: &[Step]) -> Option<TextShape> {
        let ask = |text: String| self.ask(steps, Probe::Text(text));
        if !matches!(ask("1".to_string()), Err(Refusal::Unit)) {
            return None;
        }
        let mut units: Vec<&str> = Vec::new();
        for quantity in UNITS {
            let names = quantity.iter().map(|(name, _)| *name);
            let is_read = names
                .clone()
                .next()
                .is_some_and(|unit| !matches!(ask(format!("1{unit}")), Err(Refusal::Unit)));
            if is_read {
                units.extend(names);
            }
        }
        let is_signed = |unit: &&str| !matches!(ask(format!("-1{unit}")), Err(Refusal::Value));
        let signed = units.first().is_some_and(is_signed);
        Some(TextShape::Quantity { units, signed })
    }

    fn table(&self, steps: &mut Vec<Step>) -> Option<TableShape> {
        let unknown = vec![(UNKNOWN.to_string(), Probe::Bool)];
        match self.ask(steps, Probe::Table(unknown)) {
            Err(Refusal::Key(keys)) => {
                let shaped = keys.into_iter().map(|key| {
                    let shape = self.inside(steps, Step::Key(key.clone()));
                    (key, shape)
                });
                Some(TableShape::Keys(shaped.collect()))
            }
            Err(Refusal::Kind { table: true, .. }) => None,
            Err(Refusal::Kind { table: false, expected }) if expected.is_empty() => None,
            Err(Refusal::Name(names)) => {
                let shaped = names.into_iter().map(|key| {
                    let shape = self.inside(steps, Step::Key(key.clone()));
                    (key, shape)
                });
                // A name without values is a text only.
                let keys: Keys = shaped.filter(|(_, shape)| shape.accepts_something()).collect();
                (!keys.is_empty()).then_some(TableShape::Keys(keys))
            }
            Err(Refusal::Kind { table: false, .. }) => {
                let shape = self.inside(steps, Step::Key("name".to_string()));
                Some(TableShape::Named(Box::new(shape)))
            }
            Err(Refusal::Missing(tag)) => Some(self.choice(steps, tag)),
            _ => Some(TableShape::Any),
        }
    }

    /// Returns the table whose keys depend on `tag`, or one of any keys if they do not.
    fn choice(&self, steps: &mut Vec<Step>, tag: String) -> TableShape {
        let chosen = |value: &str| vec![(tag.clone(), Probe::Text(value.to_string()))];
        let Err(Refusal::Name(names)) = self.ask(steps, Probe::Table(chosen(UNKNOWN))) else {
            return TableShape::Any;
        };
        let names = with_aliases(names, |alias| self.ask(steps, Probe::Table(chosen(&alias))));
        let custom = self.ask(steps, Probe::Table(chosen(&format!("{CUSTOM}a"))));
        let options = names.into_iter().map(|name| {
            let mut with_unknown = chosen(&name);
            with_unknown.push((UNKNOWN.to_string(), Probe::Bool));
            let Err(Refusal::Key(keys)) = self.ask(steps, Probe::Table(with_unknown)) else {
                return (name, Vec::new());
            };
            let keys = keys.into_iter().filter(|key| *key != tag).map(|key| {
                let step = Step::Chosen { tag: tag.clone(), value: name.clone(), key: key.clone() };
                let shape = self.inside(steps, step);
                (key, shape)
            });
            let keys = keys.collect();
            (name, keys)
        });
        let options = options.collect();
        TableShape::Choice { tag, options, custom: !matches!(custom, Err(Refusal::Name(_))) }
    }
}

impl Shape {
    fn accepts_something(&self) -> bool {
        let of_parts = self.text.is_some() || self.list.is_some() || self.table.is_some();
        of_parts || self.number.is_some() || self.boolean
    }
}

/// Returns `names` and those aliases of algorithms that `ask` does not refuse as names.
fn with_aliases(
    mut names: Vec<String>,
    ask: impl Fn(String) -> Result<(), Refusal>,
) -> Vec<String> {
    let aliases = ALIASES.iter().map(|(alias, _)| alias.to_string());
    let accepted: Vec<String> = aliases
        .filter(|alias| {
            !names.contains(alias) && !matches!(ask(alias.clone()), Err(Refusal::Name(_)))
        })
        .collect();
    names.extend(accepted);
    names
}

/// Returns an expectation in words; empty if it says no more than the kind of the value.
fn words(expected: &str) -> String {
    match wording::toml_word(expected) {
        "a string" | "a boolean" | "a number" | "a list" | "a table" | "variant identifier" => {
            String::new()
        }
        text => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at<'a>(shape: &'a Shape, keys: &[&str]) -> &'a Shape {
        keys.iter().fold(shape, |shape, key| match shape.table.as_ref().unwrap() {
            TableShape::Keys(known) => &known.iter().find(|(name, _)| name == key).unwrap().1,
            TableShape::Named(each) => each,
            TableShape::Choice { .. } | TableShape::Any => panic!("{key}"),
        })
    }

    #[test]
    fn the_schema_of_a_scenario_has_the_keys_of_the_parser() {
        let schema = scenario_schema();
        let mtu = at(&schema, &["path", "lte", "mtu"]);
        assert_eq!(mtu.number, None);
        let Some(TextShape::Quantity { units, signed: false }) = &mtu.text else { panic!() };
        assert_eq!(units[0], "B");
        assert!(mtu.table.is_none() && mtu.list.is_none() && !mtu.boolean);
        let backup = at(&schema, &["link", "a", "backup"]);
        assert!(backup.boolean && backup.text.is_none());
        let queue = at(&schema, &["path", "lte", "uplink", "queue"]);
        assert!(matches!(queue.table, Some(TableShape::Keys(_))), "{queue:?}");
        assert_eq!(at(&schema, &["seed"]).number, Some(NumberShape::Integer));
    }

    #[test]
    fn the_schema_names_the_algorithms_of_the_registry() {
        let schema = scenario_schema();
        let scheduler = at(&schema, &["flow", "control", "transport", "scheduler"]);
        let Some(TextShape::Names { names, others: Some(CUSTOM_NAMES) }) = &scheduler.text else {
            panic!("{:?}", scheduler.text)
        };
        let known = skybraid_transport::scheduler::SchedulerConfig::ALL;
        let aliases = ALIASES.iter().map(|(alias, _)| *alias);
        assert!(known.iter().map(|about| about.name).chain(aliases).eq(names.iter()));
        let Some(TableShape::Choice { tag, options, .. }) = &scheduler.table else { panic!() };
        assert_eq!((tag.as_str(), options.len()), ("name", known.len() + ALIASES.len()));
        for ((_, keys), about) in options.iter().zip(known) {
            let parameters = about.parameters.iter().map(|parameter| parameter.name);
            assert!(
                parameters.into_iter().all(|name| keys.iter().any(|(key, _)| key == name)),
                "{}",
                about.name
            );
        }
    }

    #[test]
    fn the_schema_names_what_the_parser_looks_up_later() {
        let schema = scenario_schema();
        let names_of = |keys: &[&str]| match &at(&schema, keys).text {
            Some(TextShape::Names { names, others }) => (names.clone(), *others),
            other => panic!("{keys:?}: {other:?}"),
        };
        for keys in [["path", "lte", "preset"], ["link", "a", "preset"]] {
            let (names, others) = names_of(&keys);
            assert!(presets::ALL.iter().map(|preset| preset.name).eq(names.iter()));
            assert_eq!(others, Some(r"\.toml$"));
        }
        let (profiles, others) = names_of(&["flow", "control", "require"]);
        assert!(profiles.contains(&"3gpp-c2-radio".to_string()) && others.is_none());
        let list = at(&schema, &["flow", "control", "require"]).list.as_deref().unwrap();
        assert_eq!(list.text, at(&schema, &["flow", "control", "require"]).text);
        let (constellations, others) = names_of(&["path", "leo", "orbit", "constellation"]);
        assert!(constellations.contains(&"starlink".to_string()) && others.is_none());
        assert_eq!(names_of(&["flow", "control", "from"]).0, HOSTS);
        let delay = ["path", "lte", "uplink", "delay", "unit"];
        assert!(names_of(&delay).0.contains(&"ms".to_string()));
        assert_eq!(at(&schema, &["link", "a", "from"]).text, Some(TextShape::Any));
    }

    #[test]
    fn a_quantity_has_the_units_that_the_parser_reads() {
        let schema = scenario_schema();
        let delay =
            at(&schema, &["event"]).list.as_deref().map(|event| at(event, &["at"])).unwrap();
        let units = Duration::UNITS.iter().map(|(unit, _)| *unit).collect();
        assert_eq!(delay.text, Some(TextShape::Quantity { units, signed: false }));
        let mask = at(&schema, &["path", "leo", "orbit", "mask"]);
        assert!(matches!(&mask.text, Some(TextShape::Quantity { signed: true, .. })));
    }

    #[test]
    fn a_table_is_no_list_and_a_name_no_table() {
        let schema = scenario_schema();
        assert!(schema.list.is_none());
        assert!(at(&schema, &["path", "lte", "uplink", "queue", "codel"]).list.is_none());
        assert!(at(&schema, &["path", "lte", "uplink", "loss"]).list.is_some());
        assert!(at(&schema, &["node", "uav", "kind"]).table.is_none());
    }

    #[test]
    fn each_kind_of_traffic_has_keys_of_its_own() {
        let schema = scenario_schema();
        let traffic = at(&schema, &["flow", "video", "traffic"]);
        let Some(TableShape::Choice { tag, options, .. }) = &traffic.table else { panic!() };
        assert_eq!(tag, "kind");
        let has = |kind: &str, key: &str| {
            let keys = &options.iter().find(|(name, _)| name == kind).unwrap().1;
            keys.iter().any(|(name, _)| name == key)
        };
        assert!(has("video", "codec") && !has("cbr", "codec") && has("cbr", "packet"));
    }

    #[test]
    fn the_schema_of_a_gateway_has_the_keys_of_the_parser() {
        let schema = gateway_schema();
        let side = at(&schema, &["side"]);
        let names = vec!["aircraft".to_string(), "ground".to_string()];
        assert_eq!(side.text, Some(TextShape::Names { names, others: None }));
        assert!(at(&schema, &["path", "lte", "interface"]).text.is_some());
    }
}
