//! Ready-made paths. Each is a TOML file that holds the keys of a path's table, with the source of
//! every number beside it.

/// A ready-made path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// The name by which a path asks for it.
    pub name: &'static str,
    /// What it stands for, in a line.
    pub title: &'static str,
    /// The keys of a path's table, as TOML.
    pub text: &'static str,
}

/// Every preset.
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

/// The preset called `name`.
pub fn find(name: &str) -> Option<&'static Preset> {
    ALL.iter().find(|preset| preset.name == name)
}
