//! `skybraid-node keygen` and `pubkey`.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::unistd::geteuid;
use skybraid_gateway::PrivateKey;
use skybraid_scenario::read_private_key;

use crate::error::NodeError;

/// Makes a private key for the user alone. What is to be done with the public one.
pub fn keygen(file: &Path) -> Result<String, NodeError> {
    let shown = file.display().to_string();
    let failed = |error: std::io::Error| NodeError::File { file: shown.clone(), error };
    let mut bytes = [0; 32];
    let source = "/dev/urandom";
    File::open(source)
        .and_then(|mut random| random.read_exact(&mut bytes))
        .map_err(|error| NodeError::File { file: source.to_string(), error })?;
    let private = PrivateKey(bytes);
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    let mut made = made.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => NodeError::Asked(format!(
            "{shown}: is there already, and no key is written over; `skybraid-node pubkey {shown}` prints \
             its public key"
        )),
        _ => failed(error),
    })?;
    writeln!(made, "{}", private.to_text()).and_then(|()| made.sync_all()).map_err(failed)?;
    let public = private.public();
    Ok(format!(
        "{public}\n\n{shown} has the private key: it stays on this machine.\n\
         The file of the other end needs this line:\n\npeer = \"{public}\"\n"
    ))
}

/// The public key that belongs to the private key in `file`.
pub fn public(file: &Path) -> Result<String, NodeError> {
    Ok(read_private_key(file, "", geteuid().as_raw())?.public().to_string())
}
