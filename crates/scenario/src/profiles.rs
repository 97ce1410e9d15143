//! Requirement profiles: named requirements, each number with its source and how sure it is.
//!
//! A profile is a file in `requirements/`. `require = "3gpp-c2-sticks"` stands for its table `[require]`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::file::RequirementFile;

/// Names of the profiles with their files.
const FILES: [(&str, &str); 5] = [
    ("3gpp-c2-sticks", include_str!("../requirements/3gpp-c2-sticks.toml")),
    ("3gpp-c2-waypoints", include_str!("../requirements/3gpp-c2-waypoints.toml")),
    ("3gpp-c2-radio", include_str!("../requirements/3gpp-c2-radio.toml")),
    ("3gpp-video-beyond-sight", include_str!("../requirements/3gpp-video-beyond-sight.toml")),
    ("baltaci2023-control", include_str!("../requirements/baltaci2023-control.toml")),
];

/// Requirement profile, as `skybraid list requirements` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequirementProfile {
    /// Name, for `require`.
    pub name: &'static str,
    /// Requirement in one sentence.
    pub summary: String,
    /// Numbers, in the order of their keys.
    pub numbers: Vec<ProfileNumber>,
}

/// Number of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileNumber {
    /// Key of `require`.
    pub key: String,
    /// Value, as a scenario writes it.
    pub value: String,
    /// Document that states it.
    pub source: String,
    /// Confidence in the number.
    pub sure: String,
}

/// File of a profile.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileFile {
    summary: String,
    require: BTreeMap<String, String>,
    numbers: BTreeMap<String, NumberFile>,
}

/// `[numbers.KEY]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NumberFile {
    source: String,
    sure: String,
}

/// Returns all profiles. A number without a source is not part of one.
pub fn requirement_profiles() -> Vec<RequirementProfile> {
    FILES.iter().filter_map(|(name, text)| profile(name, text)).collect()
}

/// Returns the names of all profiles.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// Returns the table that a profile stands for, or `None` if there is no such profile.
pub(crate) fn requirement_table(name: &str) -> Option<RequirementFile> {
    #[derive(Deserialize)]
    struct Table {
        require: RequirementFile,
    }
    let (_, text) = FILES.iter().find(|(known, _)| *known == name)?;
    toml_edit::de::from_str::<Table>(text).ok().map(|table| table.require)
}

fn profile(name: &'static str, text: &str) -> Option<RequirementProfile> {
    let mut file: ProfileFile = toml_edit::de::from_str(text).ok()?;
    let numbers = file.require.into_iter().filter_map(|(key, value)| {
        let NumberFile { source, sure } = file.numbers.remove(&key)?;
        Some(ProfileNumber { key, value, source, sure })
    });
    Some(RequirementProfile { name, summary: file.summary, numbers: numbers.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_a_profile_has_its_source() {
        let profiles = requirement_profiles();
        assert_eq!(profiles.len(), FILES.len());
        for (profile, (_, text)) in profiles.iter().zip(FILES) {
            let file: ProfileFile = toml_edit::de::from_str(text).expect(profile.name);
            assert_eq!(profile.numbers.len(), file.require.len(), "{}", profile.name);
            let keys = |map: Vec<&String>| map.into_iter().cloned().collect::<Vec<_>>();
            assert_eq!(keys(file.require.keys().collect()), keys(file.numbers.keys().collect()));
            for number in &profile.numbers {
                assert!(!number.source.is_empty() && !number.sure.is_empty(), "{}", profile.name);
            }
            assert!(requirement_table(profile.name).is_some(), "{}", profile.name);
        }
    }
}
