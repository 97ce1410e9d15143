//! A gateway's file: read, checked, and in plain words where it is wrong.

mod address;
mod checks;
mod key_file;
mod local;
mod warnings;

use std::path::{Path as FilePath, PathBuf};

use skybraid_gateway::{GatewayConfig, PrivateKey};

use crate::ScenarioError;
use crate::inputs::{MAX_SCENARIO, read_text};
use crate::key::KeyPath;
use crate::text::ScenarioText;

pub use key_file::read as read_private_key;

/// A gateway's file that has been read and checked.
pub struct GatewayFile {
    /// What it says; checked.
    pub config: GatewayConfig,
    /// What is allowed but probably not meant, in words.
    pub warnings: Vec<String>,
    text: ScenarioText,
    file: PathBuf,
}

impl GatewayFile {
    /// Reads the gateway `text` of the file `file`, which itself is not opened.
    ///
    /// # Errors
    /// Unknown keys, missing or wrong units, values out of range or at odds with one another.
    pub fn parse(text: &str, file: &FilePath) -> Result<Self, ScenarioError> {
        let text = ScenarioText::whole(text, file)?;
        let config = text.read()?;
        checks::all(&config, &text)?;
        let warnings = warnings::all(&config);
        Ok(Self { config, warnings, text, file: file.to_path_buf() })
    }

    /// Reads the gateway file at `file`; see [`parse`](Self::parse).
    ///
    /// # Errors
    /// The file cannot be read, or as for [`parse`](Self::parse).
    pub fn load(file: &FilePath) -> Result<Self, ScenarioError> {
        let text = read_text(file, MAX_SCENARIO, file.display().to_string(), String::new())?;
        Self::parse(&text, file)
    }

    /// The place of a file that this one names.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.file.parent().unwrap_or(FilePath::new("")).join(name)
    }

    /// Reads the private key, for the user of this number.
    ///
    /// # Errors
    /// As [`read_private_key`], or it is the peer's.
    pub fn private_key(&self, user: u32) -> Result<PrivateKey, ScenarioError> {
        let private = key_file::read(&self.beside(&self.config.key), "key", user)?;
        if private.public() == self.config.peer {
            let problem = "this is the public key of this end's own `key`, expected that of the other \
                           end: `skybraid-node pubkey FILE` there prints it";
            return Err(self.text.wrong(&KeyPath::dotted("peer"), problem.to_string()));
        }
        Ok(private)
    }
}
