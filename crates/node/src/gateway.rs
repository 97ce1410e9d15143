//! `skybraid-node gateway`.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use nix::unistd::geteuid;
use skybraid_runtime::gateway::{Shared, Watchers, hold_signals, run as carry};
use skybraid_scenario::GatewayFile;

use crate::error::NodeError;

/// Carries traffic until it is told to end.
pub fn run(file: &Path) -> Result<ExitCode, NodeError> {
    hold_signals()?;
    let read = GatewayFile::load(file)?;
    let private = read.private_key(geteuid().as_raw())?;
    for warning in &read.warnings {
        let _ = writeln!(io::stderr(), "skybraid-node: {}: {warning}", file.display());
    }
    let log = read.config.log.as_ref().map(|log| read.beside(&log.file));
    let shared = Arc::new(Shared::default());
    let (events, watchers) = Watchers::start(&read.config, log, shared.clone())?;
    let carried = carry(&read.config, private, shared, events);
    watchers.finish();
    carried?;
    Ok(ExitCode::SUCCESS)
}
