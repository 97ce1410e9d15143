//! Values that are deserialised only to see how a type refuses them.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, MapDeserializer, SeqDeserializer};
use serde::de::{Error, Expected, IntoDeserializer, Unexpected, Visitor};
use serde::{Deserializer, forward_to_deserialize_any};
use skybraid_units::Promised;

/// Marks the beginning and the parts of an encoded [`Refusal`].
const MARK: char = '\u{1f}';

/// Value of a probe.
#[derive(Clone, Debug)]
pub enum Probe {
    /// A boolean.
    Bool,
    /// An integer.
    Integer,
    /// A number that is no integer.
    Number,
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Probe>),
    /// A table.
    Table(Vec<(String, Probe)>),
}

impl<'de> IntoDeserializer<'de, Refusal> for Probe {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Probe {
    type Error = Refusal;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        match self {
            Self::Bool => visitor.visit_bool(true),
            Self::Integer => visitor.visit_i64(1),
            Self::Number => visitor.visit_f64(0.5),
            Self::Text(text) => visitor.visit_str(&text),
            Self::List(items) => visitor.visit_seq(SeqDeserializer::new(items.into_iter())),
            Self::Table(keys) => visitor.visit_map(MapDeserializer::new(keys.into_iter())),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        match self {
            Self::Text(text) => visitor.visit_enum(text.as_str().into_deserializer()),
            Self::Table(keys) => {
                let map = MapDeserializer::new(keys.into_iter());
                visitor.visit_enum(MapAccessDeserializer::new(map))
            }
            other => other.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// Reason why a type did not accept a probe.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// A key that the table does not have, with those that it has.
    Key(Vec<String>),
    /// A name that is not one of these.
    Name(Vec<String>),
    /// A key that must be there.
    Missing(String),
    /// A value of another kind: whether a table was found, and what was expected.
    Kind { table: bool, expected: String },
    /// A number without a unit, or with one of another quantity.
    Unit,
    /// A value that is out of range, or anything else.
    Value,
}

impl std::error::Error for Refusal {}

/// Some types pass the error of a part on as a text, so the text holds all of it.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut write = |kind: &str, parts: &[String]| {
            write!(f, "{MARK}{kind}")?;
            parts.iter().try_for_each(|part| write!(f, "{MARK}{part}"))
        };
        match self {
            Self::Key(keys) => write("key", keys),
            Self::Name(names) => write("name", names),
            Self::Missing(key) => write("missing", std::slice::from_ref(key)),
            Self::Kind { table: true, expected } => write("table", std::slice::from_ref(expected)),
            Self::Kind { table: false, expected } => write("kind", std::slice::from_ref(expected)),
            Self::Unit => write("unit", &[]),
            Self::Value => write("value", &[]),
        }
    }
}

impl Refusal {
    fn decode(text: &str) -> Self {
        // What serde's untagged enums say when a value has the form of no variant.
        if text.starts_with("data did not match any variant") {
            return Self::Kind { table: false, expected: String::new() };
        }
        if text.contains(" has no unit; ") || text.contains(" is not a unit of ") {
            return Self::Unit;
        }
        let mut parts = text.split(MARK).skip(1).map(str::to_string);
        let kind = parts.next().unwrap_or_default();
        let mut rest: Vec<String> = parts.collect();
        match kind.as_str() {
            "key" => Self::Key(rest),
            "name" => Self::Name(rest),
            "missing" => Self::Missing(rest.pop().promised("the missing key").unwrap_or_default()),
            "table" | "kind" => {
                let expected = rest.pop().unwrap_or_default();
                Self::Kind { table: kind == "table", expected }
            }
            "unit" => Self::Unit,
            _ => Self::Value,
        }
    }
}

impl Error for Refusal {
    fn custom<T: fmt::Display>(words: T) -> Self {
        Self::decode(&words.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::Kind { table: found == Unexpected::Map, expected: expected.to_string() }
    }

    fn invalid_value(_found: Unexpected<'_>, _expected: &dyn Expected) -> Self {
        Self::Value
    }

    fn invalid_length(_length: usize, _expected: &dyn Expected) -> Self {
        Self::Value
    }

    fn unknown_variant(_name: &str, names: &'static [&'static str]) -> Self {
        Self::Name(names.iter().map(ToString::to_string).collect())
    }

    fn unknown_field(_key: &str, keys: &'static [&'static str]) -> Self {
        Self::Key(keys.iter().map(ToString::to_string).collect())
    }

    fn missing_field(key: &'static str) -> Self {
        Self::Missing(key.to_string())
    }
}
