//! Files of private keys, which nobody else may read.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path as FilePath;

use skybraid_gateway::PrivateKey;

use crate::ScenarioError;

/// More than any key file has, line end included.
const LONGEST: u64 = 256;

/// Reads the private key in `file`, which `key` of a gateway's file names (empty for none), for the user of
/// this number.
///
/// # Errors
/// There is no such file, it is somebody else's, others may read or change it, or it holds no key. What
/// it holds is never part of an error.
pub fn read(file: &FilePath, key: &str, user: u32) -> Result<PrivateKey, ScenarioError> {
    let shown = file.display().to_string();
    let unreadable = |problem: String| ScenarioError::Unreadable {
        file: shown.clone(),
        key: key.to_string(),
        problem,
    };
    let failed = |error: std::io::Error| {
        unreadable(match error.kind() {
            std::io::ErrorKind::NotFound => {
                format!("there is no such file; `skybraid-node keygen {shown}` makes one")
            }
            _ => format!("cannot be read: {error}"),
        })
    };
    // A pipe might never end.
    if !fs::metadata(file).map_err(failed)?.is_file() {
        return Err(unreadable("found something else, expected a file".to_string()));
    }
    let opened = File::open(file).map_err(failed)?;
    let about = opened.metadata().map_err(failed)?;
    if about.uid() != 0 && about.uid() != user {
        return Err(unreadable(format!(
            "belongs to user {}, expected root or user {user}, who asks for it; `chown` mends that",
            about.uid(),
        )));
    }
    let mode = about.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(unreadable(format!(
            "others may read or change it (mode {mode:04o}), expected its owner alone; \
             `chmod 600 {shown}` mends that, and whoever read it meanwhile has the key"
        )));
    }
    let mut text = String::new();
    opened.take(LONGEST).read_to_string(&mut text).map_err(failed)?;
    text.parse().map_err(|_| {
        unreadable(format!(
            "found {} characters that are no key, expected 44 of Base64, as `skybraid-node keygen` \
             writes them",
            text.trim().chars().count(),
        ))
    })
}
