//! Key files, which only their owner may read.

use std::fs::{self, File, Metadata};
use std::io::Read;
use std::path::Path as FilePath;
use std::str::FromStr;

use skybraid_gateway::{PresharedKey, PrivateKey, SigningKey};
use zeroize::Zeroizing;

use crate::ScenarioError;
use crate::inputs::no_file;

/// Maximum number of bytes read from a key file, line end included.
const MAX_BYTES: u64 = 256;

/// Reads the private key in `file` for the user of this number. `key` is the key of a gateway's file that names
/// it, or empty.
///
/// # Errors
/// The file is missing, belongs to another user, may be read or changed by others, or holds no key. Errors never
/// contain the contents.
pub fn read(file: &FilePath, key: &str, user: u32) -> Result<PrivateKey, ScenarioError> {
    of_base64(file, key, user, "keygen")
}

/// Reads the pre-shared key of both ends.
///
/// # Errors
/// As [`read`].
pub(super) fn preshared(
    file: &FilePath,
    key: &str,
    user: u32,
) -> Result<PresharedKey, ScenarioError> {
    of_base64(file, key, user, "genpsk")
}

/// Reads a key in Base64 as written by `skybraid-node COMMAND`.
fn of_base64<T: FromStr>(
    file: &FilePath,
    key: &str,
    user: u32,
    command: &str,
) -> Result<T, ScenarioError> {
    let shown = file.display();
    let bytes =
        contents(file, key, user, &format!("; `skybraid-node {command} {shown}` makes one"))?;
    text_of(&bytes).parse().map_err(|_| {
        let found = text_of(&bytes).trim().chars().count();
        let problem = format!(
            "found {found} characters that are no key, expected 44 of Base64, as `skybraid-node {command}` \
             writes them",
        );
        unreadable(file, key, problem)
    })
}

/// Reads the key of signed MAVLink frames: 32 raw bytes, hexadecimal digits or Base64.
///
/// # Errors
/// As [`read`].
pub(super) fn signing(file: &FilePath, key: &str, user: u32) -> Result<SigningKey, ScenarioError> {
    let bytes = contents(file, key, user, ", expected the key of signed MAVLink frames")?;
    let parsed = text_of(&bytes).parse().ok();
    let raw = || <[u8; 32]>::try_from(bytes.as_slice()).ok().map(SigningKey);
    parsed.or_else(raw).ok_or_else(|| {
        let problem = format!(
            "found {} bytes that are no key, expected 64 hexadecimal digits, 44 characters of Base64 or \
             32 bytes as they are",
            bytes.len(),
        );
        unreadable(file, key, problem)
    })
}

fn text_of(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

fn unreadable(file: &FilePath, key: &str, problem: String) -> ScenarioError {
    ScenarioError::Unreadable { file: file.display().to_string(), key: key.to_string(), problem }
}

/// Rejects a file that others own, may read or may change.
#[cfg(unix)]
fn check_owner(about: &Metadata, user: u32, shown: &str) -> Result<(), String> {
    use std::os::unix::fs::MetadataExt as _;
    if about.uid() != 0 && about.uid() != user {
        return Err(format!(
            "belongs to user {}, expected root or user {user}, who asks for it; `chown` mends that",
            about.uid(),
        ));
    }
    let mode = about.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(format!(
            "others may read or change it (mode {mode:04o}), expected its owner alone; \
             `chmod 600 {shown}` mends that, and whoever read it meanwhile has the key"
        ));
    }
    Ok(())
}

/// Users and modes are those of Unix; elsewhere the folder's rights protect a key.
#[cfg(not(unix))]
fn check_owner(_about: &Metadata, _user: u32, _shown: &str) -> Result<(), String> {
    Ok(())
}

/// Returns the contents of a file that only its owner may read. `advice` completes the error if the file is
/// missing.
fn contents(
    file: &FilePath,
    key: &str,
    user: u32,
    advice: &str,
) -> Result<Zeroizing<Vec<u8>>, ScenarioError> {
    let shown = file.display();
    let unreadable = |problem: String| unreadable(file, key, problem);
    let failed = |error: std::io::Error| {
        unreadable(match error.kind() {
            std::io::ErrorKind::NotFound => format!("there is no such file{advice}"),
            _ => format!("cannot be read: {error}"),
        })
    };
    // A pipe may never end.
    let found = fs::metadata(file).map_err(failed)?;
    if !found.is_file() {
        return Err(unreadable(no_file(&found).to_string()));
    }
    let opened = File::open(file).map_err(failed)?;
    let about = opened.metadata().map_err(failed)?;
    check_owner(&about, user, &shown.to_string()).map_err(unreadable)?;
    // The capacity suffices, so that no reallocation leaves a copy of the key in memory.
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_BYTES as usize));
    opened.take(MAX_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}
