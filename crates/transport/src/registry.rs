//! What is known of each algorithm by name: the one list that scenarios, `skybraid list`, the
//! documentation and error messages read.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A parameter of an algorithm.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its key in a scenario.
    pub name: &'static str,
    /// Its unit, or what it counts.
    pub unit: &'static str,
    /// Its default, as it would be written; in parentheses and words where it depends on something else,
    /// `none` where it is left out, `required` where it must be given.
    pub default: &'static str,
    /// What it does.
    pub summary: &'static str,
}

/// Which text an algorithm follows where its paper or RFC and its deployed code differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compat {
    /// The paper or RFC.
    #[default]
    Paper,
    /// Linux, with its integer arithmetic where results depend on it.
    Linux,
}

/// A parameter out of its range: its key, and what was found and expected.
pub type Wrong = (&'static str, String);

/// A configuration whose parameters have ranges.
pub trait Check {
    /// Checks the ranges.
    ///
    /// # Errors
    /// The first parameter that is out of its range.
    fn check(&self) -> Result<(), Wrong> {
        Ok(())
    }

    /// Sets `compat = "linux"` where there is such a choice.
    fn deploy(&mut self) {}
}

/// An algorithm.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Its name in a scenario.
    pub name: &'static str,
    /// One paragraph.
    pub summary: &'static str,
    /// The paper or RFC.
    pub source: &'static str,
    /// What `compat = "linux"` does differently; empty where there is no such choice.
    pub linux: &'static str,
    /// What can be set.
    pub parameters: &'static [Parameter],
}

/// The start of the name of an algorithm that the driver brings along: `python:NAME`.
pub const CUSTOM: &str = "python:";

/// Whether `name` is that of an algorithm that the driver brings along.
pub(crate) fn is_custom(name: &str) -> bool {
    name.strip_prefix(CUSTOM).is_some_and(|rest| !rest.is_empty())
}

/// What a scenario sets a parameter of a [`Custom`] algorithm to.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// True or false.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Any;
        impl Visitor<'_> for Any {
            type Value = Value;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, a text, true or false")
            }
            fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
                Ok(Value::Bool(value))
            }
            fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
                Ok(Value::Integer(value))
            }
            fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
                Ok(Value::Number(value))
            }
            fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
                Ok(Value::Text(value.into()))
            }
        }
        from.deserialize_any(Any)
    }
}

/// The parameters of a [`Custom`] algorithm, in the order of the scenario.
pub(crate) struct Parameters(pub Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Parameters {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Parameters;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table of parameters")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parameters, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Parameters(entries))
            }
        }
        from.deserialize_map(Entries)
    }
}

/// An algorithm that the driver brings along: what the scenario says of it, and what makes it once
/// the driver has said so.
///
/// A driver gives each one its factory before it starts ([`bring`](Self::bring)), or refuses the
/// scenario.
pub struct Custom<F: ?Sized> {
    name: String,
    parameters: Vec<(String, Value)>,
    factory: Option<Arc<F>>,
}

impl<F: ?Sized> Custom<F> {
    /// The algorithm `name` with these parameters, which nobody has brought along yet.
    pub fn new(name: &str, parameters: Vec<(String, Value)>) -> Self {
        Self { name: name.into(), parameters, factory: None }
    }

    /// The name used in scenarios, [`CUSTOM`] included.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The parameters, in the order of the scenario.
    pub fn parameters(&self) -> &[(String, Value)] {
        &self.parameters
    }

    /// What makes it, once it has been brought along.
    pub fn factory(&self) -> Option<&F> {
        self.factory.as_deref()
    }

    /// The driver brings it along: `factory` makes instances with [`parameters`](Self::parameters).
    pub fn bring(&mut self, factory: Arc<F>) {
        self.factory = Some(factory);
    }
}

impl<F: ?Sized> Clone for Custom<F> {
    fn clone(&self) -> Self {
        let Self { name, parameters, factory } = self;
        Self { name: name.clone(), parameters: parameters.clone(), factory: factory.clone() }
    }
}

impl<F: ?Sized> PartialEq for Custom<F> {
    fn eq(&self, other: &Self) -> bool {
        let same = match (&self.factory, &other.factory) {
            (Some(one), Some(two)) => Arc::ptr_eq(one, two),
            (None, None) => true,
            _ => false,
        };
        same && self.name == other.name && self.parameters == other.parameters
    }
}

impl<F: ?Sized> fmt::Debug for Custom<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Custom")
            .field("name", &self.name)
            .field("parameters", &self.parameters)
            .field("brought", &self.factory.is_some())
            .finish()
    }
}

/// Declares a room of algorithms: the enum of their configurations, read from a bare name or from a
/// table with `name` and parameters; the list of what they are; and their construction.
///
/// Each algorithm's module has `Config` (serde, with defaults, and [`Check`]), `ABOUT` and
/// `Config::build(&self, …) -> Box<dyn Trait>`. A room with a line `custom` also takes algorithms that
/// the driver brings along ([`Custom`]), made by `dyn Factory`; `absent` stands in for one that it has
/// not brought.
macro_rules! algorithms {
    ($(#[$doc:meta])* $config:ident, $what:literal,
     fn build($self:ident) $signature:tt -> $answer:ty => $call:tt,
     $(custom $factory:ty, absent $absent:expr,)?
     { $($variant:ident => $module:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub enum $config {
            $(
                #[doc = concat!("See [`", stringify!($module), "`].")]
                $variant($module::Config),
            )+
            $(
                /// Brought along by the driver.
                Custom($crate::registry::Custom<$factory>),
            )?
        }

        impl $config {
            /// What there is to choose from.
            pub const ALL: &'static [$crate::registry::About] = &[$($module::ABOUT),+];
            const NAMES: &'static [&'static str] = &[$($module::ABOUT.name),+];

            /// The name used in scenarios.
            pub fn name(&self) -> &str {
                match self {
                    $(Self::$variant(_) => $module::ABOUT.name,)+
                    $(Self::Custom(custom) => $crate::registry::Custom::<$factory>::name(custom),)?
                }
            }

            $(
                /// The algorithm that the driver has to bring along, if it is one.
                pub fn custom(&self) -> Option<&$crate::registry::Custom<$factory>> {
                    match self {
                        Self::Custom(custom) => Some(custom),
                        _ => None,
                    }
                }

                /// The same, to be given its factory.
                pub fn custom_mut(&mut self) -> Option<&mut $crate::registry::Custom<$factory>> {
                    match self {
                        Self::Custom(custom) => Some(custom),
                        _ => None,
                    }
                }
            )?

            /// The algorithm of that name with its defaults.
            pub fn by_name(name: &str) -> Option<Self> {
                $(
                    if name == $module::ABOUT.name {
                        return Some(Self::$variant(Default::default()));
                    }
                )+
                $(
                    if $crate::registry::is_custom(name) {
                        let custom = $crate::registry::Custom::<$factory>::new(name, alloc::vec::Vec::new());
                        return Some(Self::Custom(custom));
                    }
                )?
                None
            }

            /// Checks the ranges of the parameters.
            ///
            /// # Errors
            /// The first parameter that is out of its range.
            pub fn check(&self) -> Result<(), $crate::registry::Wrong> {
                match self {
                    $(Self::$variant(config) => $crate::registry::Check::check(config),)+
                    // Its own driver checks it.
                    $(Self::Custom($crate::registry::Custom::<$factory> { .. }) => Ok(()),)?
                }
            }

            /// Sets `compat = "linux"` where there is such a choice.
            pub fn deploy(&mut self) {
                match self {
                    $(Self::$variant(config) => $crate::registry::Check::deploy(config),)+
                    $(Self::Custom($crate::registry::Custom::<$factory> { .. }) => {})?
                }
            }

            /// Makes a fresh instance.
            pub fn build $signature -> $answer {
                match $self {
                    $(Self::$variant(config) => config.build $call,)+
                    $(Self::Custom(custom) => {
                        let factory: Option<&$factory> = custom.factory();
                        match factory {
                            Some(factory) => factory.build $call,
                            None => $absent.build $call,
                        }
                    })?
                }
            }
        }

        impl<'de> serde::Deserialize<'de> for $config {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                use serde::de::{Error, MapAccess, Visitor};

                struct Either;
                impl<'de> Visitor<'de> for Either {
                    type Value = $config;
                    fn expecting(
                        &self,
                        f: &mut core::fmt::Formatter<'_>,
                    ) -> core::fmt::Result {
                        f.write_str(concat!("the name of a ", $what, ", or a table whose first key is `name`"))
                    }
                    fn visit_str<E: Error>(self, name: &str) -> Result<$config, E> {
                        $config::by_name(name)
                            .ok_or_else(|| E::unknown_variant(name, $config::NAMES))
                    }
                    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<$config, A::Error> {
                        match map.next_key::<alloc::string::String>()? {
                            Some(key) if key == "name" => {}
                            _ => return Err(A::Error::missing_field("name")),
                        }
                        let name: alloc::string::String = map.next_value()?;
                        let rest = serde::de::value::MapAccessDeserializer::new(map);
                        $(
                            if name == $module::ABOUT.name {
                                return serde::Deserialize::deserialize(rest).map($config::$variant);
                            }
                        )+
                        $(
                            if $crate::registry::is_custom(&name) {
                                let $crate::registry::Parameters(parameters) =
                                    serde::Deserialize::deserialize(rest)?;
                                let custom =
                                    $crate::registry::Custom::<$factory>::new(&name, parameters);
                                return Ok($config::Custom(custom));
                            }
                        )?
                        Err(A::Error::unknown_variant(&name, $config::NAMES))
                    }
                }
                from.deserialize_any(Either)
            }
        }
    };
}
pub(crate) use algorithms;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::{CongestionConfig, PathBasics, reno};
    use crate::scheduler::{self, Choice, Scheduler, SchedulerConfig, testing};
    use alloc::boxed::Box;
    use serde::de::value::{Error as Plain, MapDeserializer, StrDeserializer};
    use serde::de::{IntoDeserializer, value::StringDeserializer};

    fn named(name: &str) -> SchedulerConfig {
        let name: StrDeserializer<'_, Plain> = name.into_deserializer();
        SchedulerConfig::deserialize(name).unwrap()
    }

    #[derive(Debug)]
    struct Patient;

    impl scheduler::Factory for Patient {
        fn build(&self) -> Box<dyn Scheduler> {
            Box::new(Self)
        }
    }

    impl Scheduler for Patient {
        fn choose(
            &mut self,
            _: skybraid_units::Instant,
            _: &scheduler::Unit,
            _: &[crate::PathView],
        ) -> Choice {
            Choice::wait(scheduler::Reason::Own)
        }
    }

    #[test]
    fn a_name_behind_the_prefix_waits_for_its_driver_with_its_parameters() {
        let entries = [("name", "python:patient"), ("gain", "high")];
        let table = MapDeserializer::<_, Plain>::new(entries.into_iter());
        let mut config = SchedulerConfig::deserialize(table).unwrap();
        assert_eq!(config.name(), "python:patient");
        let custom = config.custom_mut().unwrap();
        assert_eq!(custom.parameters(), [("gain".into(), Value::Text("high".into()))]);
        assert!(custom.factory().is_none());
        custom.bring(Arc::new(Patient));
        assert_eq!(testing::chosen(&mut *config.build(), &testing::paths(&[20])), None);
    }

    #[test]
    fn equal_are_those_of_one_factory() {
        let (one, mut two) = (named("python:patient"), named("python:patient"));
        assert_eq!(one, two);
        two.custom_mut().unwrap().bring(Arc::new(Patient));
        assert_ne!(one, two);
        assert_eq!(two.clone(), two);
    }

    #[test]
    fn a_name_without_the_prefix_or_with_nothing_behind_it_is_unknown() {
        for name in ["patient", "python:", "python"] {
            let name: StringDeserializer<Plain> = String::from(name).into_deserializer();
            assert!(SchedulerConfig::deserialize(name).is_err());
        }
    }

    #[test]
    fn without_its_driver_a_congestion_control_is_the_plainest() {
        let basics = PathBasics {
            segment: skybraid_units::Bytes::new(1000),
            initial_window: skybraid_units::Bytes::new(10_000),
            initial_threshold: skybraid_units::Bytes::new(u64::MAX),
            sack: true,
            seed: skybraid_units::Seed::default(),
        };
        let custom = CongestionConfig::by_name("python:mine").unwrap().build(&basics);
        assert_eq!(custom.window(), reno::Config::default().build(&basics).window());
    }
}
