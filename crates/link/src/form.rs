//! Deserialisation of values that may be a text or a table.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Reads a value that is either a text, parsed by `text`, or a table, resolved by `table`.
pub(crate) fn text_or_table<'de, D, T, Table>(
    from: D,
    expected: &'static str,
    text: fn(&str) -> Result<T, String>,
    table: fn(Table) -> Result<T, String>,
) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    Table: Deserialize<'de>,
{
    from.deserialize_any(TextOrTable { expected, text, table, form: PhantomData })
}

struct TextOrTable<T, Table> {
    expected: &'static str,
    text: fn(&str) -> Result<T, String>,
    table: fn(Table) -> Result<T, String>,
    form: PhantomData<Table>,
}

impl<'de, T, Table: Deserialize<'de>> Visitor<'de> for TextOrTable<T, Table> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.text)(text).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        let table = Table::deserialize(MapAccessDeserializer::new(map))?;
        (self.table)(table).map_err(A::Error::custom)
    }
}

/// Returns the only key that is present.
pub(crate) fn only_one(keys: &[(&'static str, bool)]) -> Result<&'static str, String> {
    let mut present = keys.iter().filter(|(_, present)| *present).map(|(name, _)| *name);
    match (present.next(), present.next()) {
        (Some(name), None) => Ok(name),
        (Some(first), Some(second)) => Err(format!("`{first}` and `{second}` exclude one another")),
        (None, _) => {
            let mut listed = String::new();
            for (name, _) in keys {
                if !listed.is_empty() {
                    listed.push_str(", ");
                }
                listed.push('`');
                listed.push_str(name);
                listed.push('`');
            }
            Err(format!("expected one of the keys {listed}"))
        }
    }
}
