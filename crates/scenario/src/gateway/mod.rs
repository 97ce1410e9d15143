//! Reading and checking of a gateway's file.

mod address;
mod checks;
mod key_file;
mod local;
mod warnings;

use std::path::{Path as FilePath, PathBuf};

use skybraid_gateway::{GatewayConfig, PrivateKey, Secrets};

use crate::ScenarioError;
use crate::inputs::read_main_file;
use crate::text::ScenarioText;

pub use key_file::read as read_private_key;

/// A gateway's file that has been read and checked.
pub struct GatewayFile {
    /// Configuration; checked.
    pub config: GatewayConfig,
    /// Warnings about valid but probably unintended settings.
    pub warnings: Vec<String>,
    text: ScenarioText,
    file: PathBuf,
}

impl GatewayFile {
    /// Parses the `text` of the gateway's file `file`, which is not opened itself.
    ///
    /// # Errors
    /// Unknown keys, missing or wrong units, values that are out of range or contradict each other.
    pub fn parse(text: &str, file: &FilePath) -> Result<Self, ScenarioError> {
        let text = ScenarioText::whole(text, file)?;
        let config = text.read()?;
        checks::all(&config, &text)?;
        let warnings = warnings::all(&config);
        Ok(Self { config, warnings, text, file: file.to_path_buf() })
    }

    /// Reads the gateway's file at `file`; see [`parse`](Self::parse).
    ///
    /// # Errors
    /// The file cannot be read, or as for [`parse`](Self::parse).
    pub fn load(file: &FilePath) -> Result<Self, ScenarioError> {
        let text = read_main_file(file)?;
        Self::parse(&text, file)
    }

    /// Returns the path of a file that is named relative to this one.
    pub fn resolve(&self, name: &str) -> PathBuf {
        self.file.parent().unwrap_or(FilePath::new("")).join(name)
    }

    /// Reads the private key, for the user of this number.
    ///
    /// # Errors
    /// As for [`read_private_key`], or it is the key of a peer.
    pub fn private_key(&self, user: u32) -> Result<PrivateKey, ScenarioError> {
        let private = key_file::read(&self.resolve(&self.config.key), "key", user)?;
        let own = private.public();
        if let Some(place) = self.config.peer.0.iter().position(|peer| *peer == own) {
            let problem = "this is the public key of this end's own `key`, expected that of the other \
                           end: `skybraid-node pubkey FILE` there prints it";
            return Err(self.text.wrong(&checks::peer(&self.config, place), problem.to_string()));
        }
        Ok(private)
    }

    /// Reads all key files named by the configuration, for the user of this number.
    ///
    /// # Errors
    /// As for [`private_key`](Self::private_key), for each of them.
    pub fn secrets(&self, user: u32) -> Result<Secrets, ScenarioError> {
        let private = self.private_key(user)?;
        let signing = self.config.signing.as_ref();
        let signing = signing
            .map(|signing| key_file::signing(&self.resolve(&signing.key), "signing.key", user))
            .transpose()?;
        let psk = self.config.psk.as_ref();
        let psk =
            psk.map(|psk| key_file::preshared(&self.resolve(psk), "psk", user)).transpose()?;
        Ok(Secrets { private, psk, signing })
    }
}
