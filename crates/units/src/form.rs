//! Deserialisation of values that may have several forms in a file.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer, StrDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Reads a text, parsed by `parse`.
///
/// # Errors
/// The value is no text, or `parse` fails.
pub fn text<'de, D: Deserializer<'de>, T, E: fmt::Display>(
    from: D,
    expected: &'static str,
    parse: fn(&str) -> Result<T, E>,
) -> Result<T, D::Error> {
    struct Text<T, E>(&'static str, fn(&str) -> Result<T, E>);

    impl<T, E: fmt::Display> Visitor<'_> for Text<T, E> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_str<Refused: Error>(self, text: &str) -> Result<T, Refused> {
            (self.1)(text).map_err(Refused::custom)
        }
    }

    from.deserialize_any(Text(expected, parse))
}

/// Reads a value that is either a text, parsed by `text`, or a table, resolved by `table`.
///
/// # Errors
/// The value is neither, or its parser fails.
pub fn text_or_table<'de, D, T, Table, E, F>(
    from: D,
    expected: &'static str,
    text: fn(&str) -> Result<T, E>,
    table: fn(Table) -> Result<T, F>,
) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    Table: Deserialize<'de>,
    E: fmt::Display,
    F: fmt::Display,
{
    struct TextOrTable<T, Table, E, F> {
        expected: &'static str,
        text: fn(&str) -> Result<T, E>,
        table: fn(Table) -> Result<T, F>,
    }

    impl<'de, T, Table, E, F> Visitor<'de> for TextOrTable<T, Table, E, F>
    where
        Table: Deserialize<'de>,
        E: fmt::Display,
        F: fmt::Display,
    {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.expected)
        }

        fn visit_str<Refused: Error>(self, text: &str) -> Result<T, Refused> {
            (self.text)(text).map_err(Refused::custom)
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            let table = Table::deserialize(MapAccessDeserializer::new(map))?;
            (self.table)(table).map_err(A::Error::custom)
        }
    }

    from.deserialize_any(TextOrTable { expected, text, table })
}

/// One item, or a list of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OneOrMany<T> {
    /// An item alone, not in a list.
    One(T),
    /// A list.
    Many(Vec<T>),
}

impl<T> Default for OneOrMany<T> {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl<T> From<OneOrMany<T>> for Vec<T> {
    fn from(items: OneOrMany<T>) -> Self {
        match items {
            OneOrMany::One(item) => [item].into(),
            OneOrMany::Many(items) => items,
        }
    }
}

/// Reads a list of items, each a text or a table, or an item alone.
///
/// # Errors
/// The value has none of these forms, or an item is not valid.
pub fn one_or_many<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
    expected: &'static str,
) -> Result<OneOrMany<T>, D::Error> {
    struct Either<T>(&'static str, PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
        type Value = OneOrMany<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<OneOrMany<T>, E> {
            T::deserialize(StrDeserializer::new(text)).map(OneOrMany::One)
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OneOrMany<T>, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map)).map(OneOrMany::One)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<OneOrMany<T>, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(items)).map(OneOrMany::Many)
        }
    }

    from.deserialize_any(Either(expected, PhantomData))
}

/// Reads a table whose keys are names, in the order of the file.
///
/// # Errors
/// The value is no table, or an entry is not valid.
pub fn entries<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
    expected: &'static str,
) -> Result<Vec<(String, T)>, D::Error> {
    struct Entries<T>(&'static str, PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
        type Value = Vec<(String, T)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut entries = Vec::new();
            while let Some(entry) = map.next_entry()? {
                entries.push(entry);
            }
            Ok(entries)
        }
    }

    from.deserialize_map(Entries(expected, PhantomData))
}

/// Returns the only key that is present, of these keys and whether each is.
///
/// # Errors
/// Several are present, or none.
pub fn only_one(keys: &[(&'static str, bool)]) -> Result<&'static str, String> {
    let mut present = keys.iter().filter(|(_, present)| *present).map(|(name, _)| *name);
    match (present.next(), present.next()) {
        (Some(name), None) => Ok(name),
        (Some(first), Some(second)) => Err(format!("`{first}` and `{second}` exclude one another")),
        (None, _) => {
            let names: Vec<&str> = keys.iter().map(|(name, _)| *name).collect();
            Err(format!("expected one of the keys `{}`", names.join("`, `")))
        }
    }
}
