//! Presets of paths: TOML files with the keys of a path's table and the source of every number.

/// Preset of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// Name in the `preset` key of a path.
    pub name: &'static str,
    /// Description in one line.
    pub title: &'static str,
    /// Keys of a path's table, as TOML.
    pub text: &'static str,
}

macro_rules! presets {
    ($($name:literal: $file:literal, $title:literal;)*) => {
        /// All presets: families of measured flights, links of published testbeds, and others; then earlier names.
        pub const ALL: &[Preset] = &[$(Preset {
            name: $name,
            title: $title,
            text: include_str!(concat!("presets/", $file, ".toml")),
        }),*];
    };
}

presets! {
    "lte-drone-urban": "lte-drone-urban", "LTE of a drone over a city; a family of measured flights";
    "lte-drone-rural": "lte-drone-rural", "LTE of a drone over the country; a family of measured flights";
    "lte-car": "lte-car", "LTE and 5G of a car between cities; a family of measured drives";
    "5g-road": "5g-road", "5G of a car on the road; a family of measured drives";
    "starlink-car": "starlink-car", "Starlink on a car; a family of measured drives";
    "starlink-ship": "starlink-ship", "Starlink on a ship near the coast; a family of measured hours";
    "testbed-lte-aerial": "testbed-lte-aerial", "Constants of a testbed: LTE below 120 m over a dense city";
    "testbed-lte-ground": "testbed-lte-ground", "Constants of a testbed: LTE near the ground, no handovers";
    "testbed-starlink": "testbed-starlink", "Constants of a testbed: Starlink with its 15 s reconfiguration";
    "testbed-leo": "testbed-leo", "Constants of a testbed: low Earth orbit at a steady 19 Mbit/s";
    "testbed-article-satellite": "testbed-article-satellite", "Satellite emulator of Baltaci et al. 2023, frames of 1 ms";
    "testbed-article-lte": "testbed-article-lte", "LTE emulator of Baltaci et al. 2023, its queue holds the delay";
    "testbed-thesis-satellite": "testbed-thesis-satellite", "Satellite emulator of Chavali 2022, frames of 26 ms and 10 ms";
    "testbed-thesis-lte": "testbed-thesis-lte", "LTE emulator of Chavali 2022, constant rates and delays";
    "geo-dvb": "geo-dvb", "Geostationary satellite with DVB access and capacity on request";
    "meo": "meo", "Medium Earth orbit satellite";
    "geo": "geo", "Geostationary satellite";
    "wifi": "wifi", "Wireless LAN near the ground station";
    "ethernet": "ethernet", "Wired gigabit access";
    "lte-aerial": "testbed-lte-aerial", "Earlier name of testbed-lte-aerial";
    "lte-ground": "testbed-lte-ground", "Earlier name of testbed-lte-ground";
    "starlink": "testbed-starlink", "Earlier name of testbed-starlink";
    "leo": "testbed-leo", "Earlier name of testbed-leo";
}

/// Returns the preset with this name.
pub fn find(name: &str) -> Option<&'static Preset> {
    ALL.iter().find(|preset| preset.name == name)
}
