//! Descriptions of algorithms by name: the single list behind scenarios, `skybraid list`, the
//! documentation and error messages.

#[doc(hidden)]
pub use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};
#[doc(hidden)]
pub use skybraid_units::expect;

/// Description of an algorithm's parameter.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Key in a scenario.
    pub name: &'static str,
    /// Unit of the value, or its form.
    pub unit: &'static str,
    /// Default as written in a scenario: words in parentheses if it depends on something else,
    /// `none` if the key is omitted, `required` if it must be given.
    pub default: &'static str,
    /// Effect of the parameter, in one phrase.
    pub summary: &'static str,
}

/// Reference behaviour where a paper or RFC and its deployed code differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compat {
    /// The paper or RFC.
    #[default]
    Paper,
    /// Linux, with integer arithmetic where it affects results.
    Linux,
}

/// Declares an algorithm: `ABOUT`, its description with the optional text `linux` for `compat = "linux"`, its
/// parameters as in [`parameters!`](crate::parameters), and `Config::build`, by the value that `scheduler` or
/// `congestion` gives for the parameters. Without both, the module has its own `Config::build`.
#[macro_export]
macro_rules! algorithm {
    (name: $name:literal, summary: $summary:literal, source: $source:literal $(, linux: $linux:expr)?
       $(, parameters: { $($parameters:tt)* })?
       $(, scheduler: |$config:ident| $scheduler:expr)?
       $(, congestion: |$control:ident, $path:ident| $congestion:expr)? $(,)?) => {
        /// Description of the algorithm.
        pub const ABOUT: $crate::registry::About = $crate::registry::About {
            name: $name,
            summary: $summary,
            source: $source,
            linux: [$($linux,)? ""][0],
            parameters: PARAMETERS,
        };

        $crate::parameters! { $($($parameters)*)? }

        $(impl Config {
            /// Builds a new instance.
            pub fn build(&self) -> $crate::registry::Box<dyn $crate::scheduler::Scheduler> {
                let $config = self;
                $crate::registry::Box::new($scheduler)
            }
        })?

        $(impl Config {
            /// Builds a new instance.
            pub fn build(
                &self,
                $path: &$crate::congestion::PathBasics,
            ) -> $crate::registry::Box<dyn $crate::congestion::Congestion> {
                let $control = self;
                $crate::registry::Box::new($congestion)
            }
        })?
    };
}

/// Declares the parameters of an algorithm: its `Config` with the default values and `Config::check` of their ranges,
/// and `PARAMETERS`, their descriptions. Each is a field, its type and default, then unit, default as written in a
/// scenario, effect and, if not all values are valid, what is expected and its condition. A condition uses all
/// parameters as references.
#[macro_export]
macro_rules! parameters {
    ($($(#[$more:meta])* $name:ident: $type:ty = $value:expr, $unit:literal, $default:literal, $summary:literal
       $(, $expected:literal if $holds:expr)?;)*) => {
        /// Parameters of the algorithm.
        #[derive(Clone, Debug, PartialEq, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Config {
            $(
                #[doc = concat!($summary, "; default: `", $default, "`.")]
                $(#[doc = concat!("Expected: ", $expected, ".")])?
                $(#[$more])*
                pub $name: $type,
            )*
        }

        impl Default for Config {
            fn default() -> Self {
                Self { $($name: $value),* }
            }
        }

        impl Config {
            /// Checks the ranges of the parameters.
            ///
            /// # Errors
            /// Returns the first parameter that is outside its range.
            #[allow(unused_variables, reason = "most parameters have no range")]
            pub fn check(&self) -> Result<(), $crate::registry::InvalidParameter> {
                let Self { $($name),* } = self;
                $($($crate::registry::expect($holds, stringify!($name), $expected)?;)?)*
                Ok(())
            }

            /// Sets `compat = "linux"` if the algorithm has that parameter.
            pub fn use_linux_behaviour(&mut self) {
                $($crate::use_linux_behaviour!(self.$name);)*
            }
        }

        const PARAMETERS: &[$crate::registry::Parameter] = &[$(
            $crate::registry::Parameter {
                name: stringify!($name),
                unit: $unit,
                default: $default,
                summary: $summary,
            },
        )*];
    };
}

/// Sets a field of a `Config` to Linux's behaviour if it is the parameter `compat`.
#[doc(hidden)]
#[macro_export]
macro_rules! use_linux_behaviour {
    ($config:ident.compat) => {
        $config.compat = $crate::registry::Compat::Linux
    };
    ($config:ident.$other:ident) => {};
}

/// A parameter outside its range: its key, and what was found and expected.
pub type InvalidParameter = (&'static str, String);

/// Description of an algorithm.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Name in a scenario.
    pub name: &'static str,
    /// One-paragraph description.
    pub summary: &'static str,
    /// Paper or RFC that defines the algorithm.
    pub source: &'static str,
    /// Differences under `compat = "linux"`; empty if there is no such parameter.
    pub linux: &'static str,
    /// Parameters of the algorithm.
    pub parameters: &'static [Parameter],
}

/// Prefix of the name of an algorithm that the driver provides: `python:NAME`.
pub const CUSTOM: &str = "python:";

/// True if `name` is that of an algorithm that the driver provides.
pub(crate) fn is_custom(name: &str) -> bool {
    name.strip_prefix(CUSTOM).is_some_and(|rest| !rest.is_empty())
}

/// Aliases of algorithms, each with the name in the registry. `default` is the scheduler of that name in the
/// out-of-tree MPTCP of Linux.
pub const ALIASES: [(&str, &str); 5] = [
    ("minrtt", "low_rtt"),
    ("min_rtt", "low_rtt"),
    ("default", "low_rtt"),
    ("rr", "round_robin"),
    ("roundrobin", "round_robin"),
];

/// Returns the registry's name of an algorithm that may be given by an alias.
pub(crate) fn canonical(name: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, known)| known)
}

/// Value of a parameter of a [`Custom`] algorithm.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A boolean.
    Bool(bool),
    /// An integer.
    Integer(i64),
    /// A floating-point number.
    Number(f64),
    /// A string.
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

/// An algorithm that the driver provides: its name and parameters from the scenario, and its
/// factory once the driver has set it.
///
/// Before a run, the driver sets the factory of each custom algorithm with
/// [`set_factory`](Self::set_factory) or refuses the scenario.
pub struct Custom<F: ?Sized> {
    name: String,
    parameters: Vec<(String, Value)>,
    factory: Option<Arc<F>>,
}

impl<F: ?Sized> Custom<F> {
    /// Creates a description without a factory.
    pub fn new(name: &str, parameters: Vec<(String, Value)>) -> Self {
        Self { name: name.into(), parameters, factory: None }
    }

    /// Name in scenarios, including [`CUSTOM`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Parameters, in the scenario's order.
    pub fn parameters(&self) -> &[(String, Value)] {
        &self.parameters
    }

    /// Factory that the driver has set.
    pub fn factory(&self) -> Option<&F> {
        self.factory.as_deref()
    }

    /// Sets the factory, which makes instances with [`parameters`](Self::parameters).
    pub fn set_factory(&mut self, factory: Arc<F>) {
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

/// Declares a family of algorithms: the enum of their configurations, parsed from a bare name or
/// from a table with `name` and parameters; the list of their descriptions; and their construction.
///
/// The module of each algorithm declares it by [`algorithm!`](crate::algorithm). A family with a line `custom` also accepts
/// algorithms that the driver provides ([`Custom`]), built by `dyn Factory`; `absent` replaces one
/// whose factory was never set.
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
                /// An algorithm that the driver provides.
                Custom($crate::registry::Custom<$factory>),
            )?
        }

        impl $config {
            /// Descriptions of all algorithms.
            pub const ALL: &'static [$crate::registry::About] = &[$($module::ABOUT),+];
            const NAMES: &'static [&'static str] = &[$($module::ABOUT.name),+];

            /// Name in scenarios.
            pub fn name(&self) -> &str {
                match self {
                    $(Self::$variant(_) => $module::ABOUT.name,)+
                    $(Self::Custom(custom) => $crate::registry::Custom::<$factory>::name(custom),)?
                }
            }

            $(
                /// Returns the custom algorithm, if this is one.
                pub fn custom(&self) -> Option<&$crate::registry::Custom<$factory>> {
                    match self {
                        Self::Custom(custom) => Some(custom),
                        _ => None,
                    }
                }

                /// Returns the custom algorithm mutably, for its factory to be set.
                pub fn custom_mut(&mut self) -> Option<&mut $crate::registry::Custom<$factory>> {
                    match self {
                        Self::Custom(custom) => Some(custom),
                        _ => None,
                    }
                }
            )?

            /// Returns the algorithm of that name with default parameters.
            pub fn by_name(name: &str) -> Option<Self> {
                let name = $crate::registry::canonical(name);
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
            /// Returns the first parameter that is outside its range.
            pub fn check(&self) -> Result<(), $crate::registry::InvalidParameter> {
                match self {
                    $(Self::$variant(config) => config.check(),)+
                    // The driver checks its own algorithms.
                    $(Self::Custom($crate::registry::Custom::<$factory> { .. }) => Ok(()),)?
                }
            }

            /// Sets `compat = "linux"` if the algorithm has that parameter.
            pub fn use_linux_behaviour(&mut self) {
                match self {
                    $(Self::$variant(config) => config.use_linux_behaviour(),)+
                    $(Self::Custom($crate::registry::Custom::<$factory> { .. }) => {})?
                }
            }

            /// Builds a new instance.
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
                        let given: alloc::string::String = map.next_value()?;
                        let name = $crate::registry::canonical(&given);
                        let rest = serde::de::value::MapAccessDeserializer::new(map);
                        $(
                            if name == $module::ABOUT.name {
                                return serde::Deserialize::deserialize(rest).map($config::$variant);
                            }
                        )+
                        $(
                            if $crate::registry::is_custom(name) {
                                let parameters =
                                    skybraid_units::form::entries(rest, "a table of parameters")?;
                                let custom =
                                    $crate::registry::Custom::<$factory>::new(name, parameters);
                                return Ok($config::Custom(custom));
                            }
                        )?
                        Err(A::Error::unknown_variant(name, $config::NAMES))
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
    use serde::de::value::{Error as Plain, MapDeserializer, StrDeserializer};
    use serde::de::{IntoDeserializer, value::StringDeserializer};

    fn named(name: &str) -> SchedulerConfig {
        let name: StrDeserializer<'_, Plain> = name.into_deserializer();
        SchedulerConfig::deserialize(name).unwrap()
    }

    #[test]
    fn an_alias_names_the_algorithm_of_the_registry() {
        for (alias, known) in ALIASES {
            assert_eq!(named(alias), named(known), "{alias}");
            assert_eq!(named(alias).name(), known);
            assert!(SchedulerConfig::ALL.iter().all(|about| about.name != alias), "{alias}");
        }
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
    fn a_custom_name_keeps_its_parameters_until_its_driver_sets_it() {
        let entries = [("name", "python:patient"), ("gain", "high")];
        let table = MapDeserializer::<_, Plain>::new(entries.into_iter());
        let mut config = SchedulerConfig::deserialize(table).unwrap();
        assert_eq!(config.name(), "python:patient");
        let custom = config.custom_mut().unwrap();
        assert_eq!(custom.parameters(), [("gain".into(), Value::Text("high".into()))]);
        assert!(custom.factory().is_none());
        custom.set_factory(Arc::new(Patient));
        assert_eq!(testing::chosen(&mut *config.build(), &testing::paths(&[20])), None);
    }

    #[test]
    fn custom_algorithms_are_equal_if_their_factory_is_the_same() {
        let (one, mut two) = (named("python:patient"), named("python:patient"));
        assert_eq!(one, two);
        two.custom_mut().unwrap().set_factory(Arc::new(Patient));
        assert_ne!(one, two);
        assert_eq!(two.clone(), two);
    }

    #[test]
    fn an_unprefixed_name_or_a_bare_prefix_is_unknown() {
        for name in ["patient", "python:", "python"] {
            let name: StringDeserializer<Plain> = String::from(name).into_deserializer();
            assert!(SchedulerConfig::deserialize(name).is_err());
        }
    }

    #[test]
    fn a_congestion_control_without_its_driver_is_reno() {
        let basics = PathBasics::in_test(
            skybraid_units::Bytes::new(1000),
            skybraid_units::Bytes::new(10_000),
            skybraid_units::Bytes::new(u64::MAX),
        );
        let custom = CongestionConfig::by_name("python:mine").unwrap().build(&basics);
        assert_eq!(custom.window(), reno::Config::default().build(&basics).window());
    }
}
