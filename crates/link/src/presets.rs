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

/// All presets.
pub const ALL: &[Preset] = &[
    Preset {
        name: "lte-aerial",
        title: "LTE in flight below 120 m over a dense city",
        text: include_str!("presets/lte-aerial.toml"),
    },
    Preset {
        name: "lte-ground",
        title: "LTE near the ground, without handovers",
        text: include_str!("presets/lte-ground.toml"),
    },
    Preset {
        name: "starlink",
        title: "Starlink with its 15 s reconfiguration",
        text: include_str!("presets/starlink.toml"),
    },
    Preset {
        name: "leo",
        title: "Low Earth orbit satellite at a steady 19 Mbit/s",
        text: include_str!("presets/leo.toml"),
    },
    Preset {
        name: "meo",
        title: "Medium Earth orbit satellite",
        text: include_str!("presets/meo.toml"),
    },
    Preset {
        name: "geo",
        title: "Geostationary satellite",
        text: include_str!("presets/geo.toml"),
    },
    Preset {
        name: "geo-dvb",
        title: "Geostationary satellite with DVB access and capacity on request",
        text: include_str!("presets/geo-dvb.toml"),
    },
    Preset {
        name: "testbed-article-satellite",
        title: "Satellite emulator of Baltaci et al. 2023, frames of 1 ms",
        text: include_str!("presets/testbed-article-satellite.toml"),
    },
    Preset {
        name: "testbed-article-lte",
        title: "LTE emulator of Baltaci et al. 2023, its queue holds the delay",
        text: include_str!("presets/testbed-article-lte.toml"),
    },
    Preset {
        name: "testbed-thesis-satellite",
        title: "Satellite emulator of Chavali 2022, frames of 26 ms and 10 ms",
        text: include_str!("presets/testbed-thesis-satellite.toml"),
    },
    Preset {
        name: "testbed-thesis-lte",
        title: "LTE emulator of Chavali 2022, constant rates and delays",
        text: include_str!("presets/testbed-thesis-lte.toml"),
    },
    Preset {
        name: "wifi",
        title: "Wireless LAN near the ground station",
        text: include_str!("presets/wifi.toml"),
    },
    Preset {
        name: "ethernet",
        title: "Wired gigabit access",
        text: include_str!("presets/ethernet.toml"),
    },
];

/// Returns the preset with this name.
pub fn find(name: &str) -> Option<&'static Preset> {
    ALL.iter().find(|preset| preset.name == name)
}
