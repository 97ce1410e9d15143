//! Keys and kinds of values of scenario and gateway files, found by asking the parser itself.
//!
//! A type says what it accepts when it refuses a value: serde names the keys of a table, the names of a choice and the
//! kind that was expected. So no second list of keys exists that could differ from the parser's.

mod probe;

use serde::Deserialize;
use skybraid_gateway::GatewayConfig;

use crate::file::ScenarioFile;
use probe::{Probe, Refusal};

/// A key and a name that no file has.
const UNKNOWN: &str = "\u{1}";
/// Prefix of algorithms that the driver provides.
const CUSTOM: &str = skybraid_transport::registry::CUSTOM;
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
    /// Any text: a quantity with its unit, a name, a file.
    Any,
    /// One of these names, or with `custom` that of an algorithm of the driver, `python:NAME`.
    Names {
        /// Names.
        names: Vec<String>,
        /// Whether algorithms of the driver are accepted.
        custom: bool,
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
    Explorer(|probe| ScenarioFile::deserialize(probe).map(drop)).shape(&mut Vec::new())
}

/// Returns the keys of a gateway's file.
pub fn gateway_schema() -> Shape {
    Explorer(|probe| GatewayConfig::deserialize(probe).map(drop)).shape(&mut Vec::new())
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

/// Asks the parser about the value at the end of some steps.
struct Explorer(fn(Probe) -> Result<(), Refusal>);

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
        (self.0)(whole)
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
        let list = self.accepts(steps, Probe::List(Vec::new())).then(|| {
            let element = self.inside(steps, Step::Element);
            Box::new(element)
        });
        let number = if self.accepts(steps, Probe::Number) {
            Some(NumberShape::Any)
        } else {
            self.accepts(steps, Probe::Integer).then_some(NumberShape::Integer)
        };
        Shape {
            expected,
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
                let custom = !matches!(custom, Err(Refusal::Name(_)));
                Some(TextShape::Names { names, custom })
            }
            _ => Some(TextShape::Any),
        }
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
            Err(Refusal::Kind { table: false, .. } | Refusal::Name(_)) => {
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
        assert_eq!((mtu.text.as_ref(), mtu.number), (Some(&TextShape::Any), None));
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
        let Some(TextShape::Names { names, custom: true }) = &scheduler.text else {
            panic!("{:?}", scheduler.text)
        };
        let known = skybraid_transport::scheduler::SchedulerConfig::ALL;
        assert!(known.iter().map(|about| about.name).eq(names.iter()));
        let Some(TableShape::Choice { tag, options, .. }) = &scheduler.table else { panic!() };
        assert_eq!((tag.as_str(), options.len()), ("name", known.len()));
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
        assert_eq!(side.text, Some(TextShape::Names { names, custom: false }));
        assert!(at(&schema, &["path", "lte", "interface"]).text.is_some());
    }
}
