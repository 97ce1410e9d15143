//! Static keys (X25519), as files and configurations write them: 32 bytes in Base64.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use curve25519_dalek::MontgomeryPoint;
use zeroize::Zeroizing;

use crate::SigningKey;

/// Error: the text is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a key: 44 characters of Base64")]
pub struct NoKey;

/// Public key, given as text under `peer` in the peer's file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey(pub [u8; 32]);

/// Declares a secret of 32 bytes that is never printed and wiped on drop.
macro_rules! secret {
    ($(#[$about:meta])* $name:ident) => {
        $(#[$about])*
        #[derive(Clone, PartialEq, Eq)]
        pub struct $name(pub [u8; 32]);

        impl Drop for $name {
            fn drop(&mut self) {
                zeroize::Zeroize::zeroize(&mut self.0);
            }
        }

        impl zeroize::ZeroizeOnDrop for $name {}

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(concat!(stringify!($name), "(…)"))
            }
        }
    };
}
pub(crate) use secret;

secret! {
    /// Private key, never printed and wiped on drop.
    PrivateKey
}

secret! {
    /// Key that both ends share in addition to their own (Noise IKpsk2), never printed and wiped on drop.
    PresharedKey
}

impl FromStr for PresharedKey {
    type Err = NoKey;
    fn from_str(text: &str) -> Result<Self, NoKey> {
        from_base64(text).map(Self)
    }
}

/// Secrets of an end, read from the files that its configuration names.
#[derive(Clone, Debug)]
pub struct Secrets {
    /// The private key of this end.
    pub private: PrivateKey,
    /// Pre-shared key, if configured.
    pub psk: Option<PresharedKey>,
    /// Signing key of MAVLink frames, if configured.
    pub signing: Option<SigningKey>,
}

impl From<PrivateKey> for Secrets {
    fn from(private: PrivateKey) -> Self {
        Self { private, psk: None, signing: None }
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_base64(&self.0))
    }
}

impl PrivateKey {
    /// Returns the public key (RFC 7748 §5: X25519 of the base point).
    pub fn public(&self) -> PublicKey {
        PublicKey(MontgomeryPoint::mul_base_clamped(self.0).to_bytes())
    }

    /// Returns the text of a key file.
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(to_base64(&self.0))
    }
}

impl FromStr for PublicKey {
    type Err = NoKey;
    fn from_str(text: &str) -> Result<Self, NoKey> {
        from_base64(text).map(Self)
    }
}

impl FromStr for PrivateKey {
    type Err = NoKey;
    fn from_str(text: &str) -> Result<Self, NoKey> {
        from_base64(text).map(Self)
    }
}

impl<'de> serde::Deserialize<'de> for PublicKey {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        skybraid_units::form::text(deserializer, "a public key", str::parse)
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// RFC 4648 §4.
fn to_base64(bytes: &[u8; 32]) -> String {
    let mut text = String::with_capacity(44);
    for three in bytes.chunks(3) {
        let octet = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = octet(0) << 16 | octet(1) << 8 | octet(2);
        for place in 0..4 {
            let six = (bits >> (18 - 6 * place) & 63) as usize;
            let letter = ALPHABET.get(six).copied().unwrap_or(b'=');
            text.push(if place <= three.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

pub(crate) fn from_base64(text: &str) -> Result<[u8; 32], NoKey> {
    let text = text.trim().as_bytes();
    let [letters @ .., b'='] = text else { return Err(NoKey) };
    if letters.len() != 43 {
        return Err(NoKey);
    }
    let mut bytes = [0; 32];
    let (mut bits, mut held, mut filled) = (0_u32, 0, 0);
    for letter in letters {
        let six = ALPHABET.iter().position(|known| known == letter).ok_or(NoKey)?;
        bits = bits << 6 | six as u32;
        held += 6;
        if held >= 8 {
            held -= 8;
            *bytes.get_mut(filled).ok_or(NoKey)? = (bits >> held) as u8;
            filled += 1;
        }
    }
    // Unused bits of the last character must be zero, so that a key has one text.
    if bits & ((1 << held) - 1) == 0 { Ok(bytes) } else { Err(NoKey) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    // Source: RFC 4648 §10 for the alphabet; the bytes 0 to 31 by coreutils' base64.
    #[test]
    fn a_key_is_written_as_base64_and_read_back() {
        let key = PublicKey(core::array::from_fn(|at| at as u8));
        let text = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
        assert_eq!(key.to_string(), text);
        assert_eq!(text.parse(), Ok(key));
    }

    // Source: RFC 7748 §6.1, Alice's keys.
    #[test]
    fn the_public_key_is_that_of_the_rfc() {
        let private: PrivateKey = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=".parse().unwrap();
        let public = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";
        assert_eq!(private.public().to_string(), public);
    }

    #[test]
    fn text_that_is_no_key_is_refused() {
        for text in ["", "AAEC", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9=", &"A".repeat(44)] {
            assert_eq!(text.parse::<PublicKey>(), Err(NoKey), "{text}");
        }
    }

    #[test]
    fn a_private_key_does_not_show_in_debug_output() {
        assert_eq!(alloc::format!("{:?}", PrivateKey([7; 32])), "PrivateKey(…)");
    }
}
