//! What is known of each algorithm by name: the one list that scenarios, `skybraid list`, the
//! documentation and error messages read.

/// A parameter of an algorithm.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its key in a scenario.
    pub name: &'static str,
    /// Its unit, or what it counts.
    pub unit: &'static str,
    /// Its default, as it would be written.
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
pub type Wrong = (&'static str, alloc::string::String);

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

/// Declares a room of algorithms: the enum of their configurations, read from a bare name or from a
/// table with `name` and parameters; the list of what they are; and their construction.
///
/// Each algorithm's module has `Config` (serde, with defaults, and [`Check`]), `ABOUT` and
/// `Config::build(&self, …) -> Box<dyn Trait>`.
macro_rules! algorithms {
    ($(#[$doc:meta])* $config:ident, $what:literal,
     fn build($self:ident) $signature:tt -> $answer:ty => $call:tt,
     { $($variant:ident => $module:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub enum $config {
            $(
                #[doc = concat!("See [`", stringify!($module), "`].")]
                $variant($module::Config),
            )+
        }

        impl $config {
            /// What there is to choose from.
            pub const ALL: &'static [$crate::registry::About] = &[$($module::ABOUT),+];
            const NAMES: &'static [&'static str] = &[$($module::ABOUT.name),+];

            /// The name used in scenarios.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $module::ABOUT.name,)+
                }
            }

            /// The algorithm of that name with its defaults.
            pub fn by_name(name: &str) -> Option<Self> {
                $(
                    if name == $module::ABOUT.name {
                        return Some(Self::$variant(Default::default()));
                    }
                )+
                None
            }

            /// Checks the ranges of the parameters.
            ///
            /// # Errors
            /// The first parameter that is out of its range.
            pub fn check(&self) -> Result<(), $crate::registry::Wrong> {
                match self {
                    $(Self::$variant(config) => $crate::registry::Check::check(config),)+
                }
            }

            /// Sets `compat = "linux"` where there is such a choice.
            pub fn deploy(&mut self) {
                match self {
                    $(Self::$variant(config) => $crate::registry::Check::deploy(config),)+
                }
            }

            /// Makes a fresh instance.
            pub fn build $signature -> $answer {
                match $self {
                    $(Self::$variant(config) => config.build $call,)+
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
                        Err(A::Error::unknown_variant(&name, $config::NAMES))
                    }
                }
                from.deserialize_any(Either)
            }
        }
    };
}
pub(crate) use algorithms;
