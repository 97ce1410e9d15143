//! File access of a gateway (Landlock): it reads the system's settings, reads and writes devices, and writes
//! to its log folder.

use std::fs;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus,
};
use skybraid_gateway::GatewayConfig;

/// Readable folders: names and name servers, interfaces and limits, libraries of a resolver.
const READ: [&str; 7] = ["/etc", "/run", "/proc", "/sys", "/usr", "/lib", "/lib64"];
/// Folders of devices, those that come later too.
const DEVICES: &str = "/dev";

/// Returns the folder of a log file.
pub(super) fn folder(log: &Path) -> PathBuf {
    match log.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

/// Restricts this thread and its future children. Returns how far the kernel enforces it.
pub(super) fn restrict(config: &GatewayConfig, log: Option<&Path>) -> Result<&'static str, String> {
    let message = |error: landlock::RulesetError| error.to_string();
    let all = AccessFs::from_all(ABI::V5);
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let device = read | AccessFs::WriteFile | AccessFs::IoctlDev;
    let write = read
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeDir
        | AccessFs::RemoveFile;
    let mut rules: Vec<(PathBuf, BitFlags<AccessFs>)> =
        READ.iter().map(|folder| (folder.into(), read)).collect();
    rules.push((DEVICES.into(), device));
    for serial in config.mavlink.iter().filter_map(|end| end.serial.as_deref()) {
        // A device elsewhere, such as a link to a pseudo-terminal.
        let real = fs::canonicalize(serial).unwrap_or_else(|_| serial.into());
        if !real.starts_with(DEVICES) {
            rules.push((folder(&real), device));
        }
    }
    if let Some(log) = log {
        let folder = folder(log);
        // The log reports why a folder cannot be created.
        fs::create_dir_all(&folder).ok();
        let there = folder.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("."));
        rules.push((there.to_path_buf(), write));
    }
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)
        .and_then(Ruleset::create)
        .map_err(message)?;
    for (path, access) in rules {
        // Missing paths need no rule.
        let Ok(descriptor) = PathFd::new(&path) else { continue };
        ruleset = ruleset.add_rule(PathBeneath::new(descriptor, access)).map_err(message)?;
    }
    let status = ruleset.restrict_self().map_err(message)?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => "full",
        RulesetStatus::PartiallyEnforced => "partial",
        RulesetStatus::NotEnforced => "none",
    })
}
