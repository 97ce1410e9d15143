//! Signatures of MAVLink 2 frames.
//!
//! A signed frame ends in 13 bytes: the link (1), a timestamp in units of 10 µs since 2015 (6, little
//! endian), and the first 6 bytes of SHA-256 over the secret key, the frame up to its checksum, the link
//! and the timestamp. Source: MAVLink developer guide, "Message Signing".

use core::str::FromStr;

use sha2::{Digest, Sha256};
use skybraid_transport::mutran::mavlink::Header;

use crate::key::{from_base64, secret};

/// Bytes at the end of a signed frame.
const TRAILER: usize = 13;
/// Bytes of the trailer that are the signature proper.
const SIGNATURE: usize = 6;

/// Error: the text is no signing key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected 32 bytes: 64 hexadecimal digits or 44 characters of Base64")]
pub struct NoSigningKey;

secret! {
    /// Secret signing key that the autopilot and its ground stations share, never printed and wiped on drop.
    SigningKey
}

impl FromStr for SigningKey {
    type Err = NoSigningKey;
    fn from_str(text: &str) -> Result<Self, NoSigningKey> {
        let text = text.trim();
        if text.len() != 64 || !text.is_ascii() {
            return from_base64(text).map(Self).map_err(|_| NoSigningKey);
        }
        let mut key = Self([0; 32]);
        for (byte, digits) in key.0.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            for digit in digits {
                let four = char::from(*digit).to_digit(16).ok_or(NoSigningKey)?;
                *byte = *byte << 4 | four as u8;
            }
        }
        Ok(key)
    }
}

/// Result of checking a frame's signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signature {
    /// No signature.
    Absent,
    /// No key to verify the signature: the timestamp may be forged.
    Unverified,
    /// Made with the key.
    Verified(Stamp),
    /// Not made with the key, or the frame was changed.
    Wrong,
}

/// Position of a signed frame in the order of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The number of the sender's link.
    pub link: u8,
    /// Units of 10 µs since 1 January 2015, 48 bits.
    pub timestamp: u64,
}

impl Signature {
    /// Checks the whole frame `frame` that begins with `header`.
    pub fn of(key: Option<&SigningKey>, header: &Header, frame: &[u8]) -> Self {
        match key {
            _ if !header.signed => Self::Absent,
            None => Self::Unverified,
            Some(key) => verified(key, frame).map_or(Self::Wrong, Self::Verified),
        }
    }

    /// Returns the position in the sender's order, if it is verified.
    pub const fn stamp(self) -> Option<Stamp> {
        if let Self::Verified(stamp) = self { Some(stamp) } else { None }
    }
}

fn verified(key: &SigningKey, frame: &[u8]) -> Option<Stamp> {
    let (covered, signature) = frame.split_last_chunk::<SIGNATURE>()?;
    let (_, trailer) = covered.split_last_chunk::<{ TRAILER - SIGNATURE }>()?;
    let whole = Sha256::new().chain_update(key.0).chain_update(covered).finalize();
    // Constant-time comparison.
    let differing = whole.iter().zip(signature).fold(0, |bits, (a, b)| bits | (a ^ b));
    let [link, a, b, c, d, e, f] = *trailer;
    let timestamp = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
    (differing == 0).then_some(Stamp { link, timestamp })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// COMMAND_LONG of 255/190, signed with the bytes 0 to 31.
    const FRAME: &str = "fd21010007ffbe4c00000102030405060708090a0b0c0d0e0f101112131415161718191a1b\
                         1c1d1e1f2021f96b03a605040302012ecf61192b58";

    fn frame() -> Vec<u8> {
        let digits = FRAME.as_bytes().chunks(2);
        digits
            .map(|two| u8::from_str_radix(core::str::from_utf8(two).unwrap(), 16).unwrap())
            .collect()
    }

    fn key() -> SigningKey {
        SigningKey(core::array::from_fn(|at| at as u8))
    }

    fn check(key: &SigningKey, frame: &[u8]) -> Signature {
        Signature::of(Some(key), &Header::parse(frame).unwrap(), frame)
    }

    // Source: Python's hashlib by the formula of the MAVLink developer guide; the same program verifies
    // the signed heartbeat of the tests of rust-mavlink.
    #[test]
    fn a_signature_of_another_program_is_verified() {
        let stamp = Stamp { link: 3, timestamp: 0x0102_0304_05a6 };
        assert_eq!(check(&key(), &frame()), Signature::Verified(stamp));
        let unknown = Signature::of(None, &Header::parse(&frame()).unwrap(), &frame());
        assert_eq!(unknown, Signature::Unverified);
    }

    #[test]
    fn a_changed_frame_or_another_key_is_found_out() {
        let whole = frame();
        assert_eq!(check(&SigningKey([7; 32]), &whole), Signature::Wrong);
        // Header bytes that determine the signature's position do not help a forger either.
        for bit in 8 * 4..8 * whole.len() {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(header) = Header::parse(&flipped) {
                let found = Signature::of(Some(&key()), &header, &flipped);
                assert_eq!(found, Signature::Wrong, "bit {bit}");
            }
        }
    }

    #[test]
    fn a_key_is_read_from_hexadecimal_digits_or_base64() {
        let hex = "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F\n";
        assert_eq!(hex.parse(), Ok(key()));
        assert_eq!("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=".parse(), Ok(key()));
        for text in ["", "secret", &"g".repeat(64), &"0".repeat(63), &"é".repeat(32)] {
            assert_eq!(text.parse::<SigningKey>(), Err(NoSigningKey), "{text}");
        }
    }
}
