//! `skybraid-node gateway`.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use nix::unistd::geteuid;
use skybraid_node::{Shared, Watchers, hold_signals, lock_down, run as run_gateway};
use skybraid_scenario::GatewayFile;

use super::error::NodeError;

/// Runs a gateway until a signal requests its shutdown.
pub fn run(file: &Path, keep_privileges: bool) -> Result<ExitCode, NodeError> {
    hold_signals()?;
    let read = GatewayFile::load(file)?;
    let secrets = read.secrets(geteuid().as_raw())?;
    for warning in &read.warnings {
        let _ = writeln!(io::stderr(), "skybraid-node: {}: {warning}", file.display());
    }
    let log = read.config.log.as_ref().map(|log| read.resolve(&log.file));
    let shared = Arc::new(Shared::default());
    if !keep_privileges {
        // Threads inherit the lockdown, so that it must come before their start.
        shared.set_lockdown(lock_down(&read.config, log.as_deref()));
    }
    let (events, watchers) = Watchers::start(&read.config, log, shared.clone())?;
    let result = run_gateway(&read.config, secrets, shared, events);
    watchers.finish();
    result?;
    Ok(ExitCode::SUCCESS)
}
