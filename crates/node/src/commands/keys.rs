//! `skybraid-node keygen` and `pubkey`.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::unistd::geteuid;
use skybraid_gateway::PrivateKey;
use skybraid_scenario::read_private_key;

use super::error::NodeError;

/// Creates a private key file that only the user may read. Returns the public key and instructions.
pub fn keygen(file: &Path) -> Result<String, NodeError> {
    let shown = file.display().to_string();
    let hint = format!("; `skybraid-node pubkey {shown}` prints its public key");
    let private = create(file, &hint)?;
    let public = private.public();
    Ok(format!(
        "{public}\n\n{shown} has the private key: it stays on this machine.\n\
         The file of the other end needs this line:\n\npeer = \"{public}\"\n"
    ))
}

/// Creates a pre-shared key file that only the user may read. Returns instructions.
pub fn genpsk(file: &Path) -> Result<String, NodeError> {
    create(file, "")?;
    let shown = file.display();
    Ok(format!(
        "{shown} has the shared key: copy it to the other end by a way that nobody listens to. Both files \
         need this line:\n\npsk = \"{shown}\"\n"
    ))
}

/// Writes 32 random bytes to a new file. `hint` completes the error if the file exists.
fn create(file: &Path, hint: &str) -> Result<PrivateKey, NodeError> {
    let shown = file.display().to_string();
    let failed = |error: std::io::Error| NodeError::File { file: shown.clone(), error };
    let mut key = PrivateKey([0; 32]);
    let source = "/dev/urandom";
    File::open(source)
        .and_then(|mut random| random.read_exact(&mut key.0))
        .map_err(|error| NodeError::File { file: source.to_string(), error })?;
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    let mut made = made.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            let text = format!("{shown}: exists, and a key is never overwritten{hint}");
            NodeError::Request(text)
        }
        _ => failed(error),
    })?;
    writeln!(made, "{}", key.to_text().as_str()).and_then(|()| made.sync_all()).map_err(failed)?;
    Ok(key)
}

/// Returns the public key of the private key in `file`.
pub fn public(file: &Path) -> Result<String, NodeError> {
    Ok(read_private_key(file, "", geteuid().as_raw())?.public().to_string())
}
