//! Envelope of every datagram on a network, specified in `docs/protocol.md`.

use alloc::vec::Vec;

use skybraid_transport::{PathId, PathSet};

/// Bytes that sealing adds to a message.
pub const OVERHEAD: usize = HEAD + TAG;
/// Maximum length of a hello in the handshake, in bytes.
pub const MAX_HELLO: usize = 1024;

/// Bytes before the ciphertext.
pub(super) const HEAD: usize = 10;
/// Bytes of the tag of ChaCha20-Poly1305.
pub(super) const TAG: usize = 16;
/// Number that is never used; a path has 48-bit numbers under one key.
pub(super) const LAST_NUMBER: u64 = (1 << 48) - 1;

/// Version 1 in the three top bits, the kind in the next three.
const SEALED: u8 = 1 << 5 | 4 << 2;
const HANDSHAKE: u8 = 1 << 5 | 5 << 2;
const COOKIE: u8 = 1 << 5 | 6 << 2;
const UNKNOWN: u8 = 1 << 5 | 7 << 2;
/// Message of a handshake.
const INIT: u8 = 0;
const RESPONSE: u8 = 1;

/// Maximum overhead of Noise around a payload: two public keys and two tags.
const NOISE_INIT: usize = 32 + 32 + TAG + TAG;
const NOISE_RESPONSE: usize = 32 + TAG;
/// Bytes of both payloads before the hello.
const PREFIX: usize = 12;
/// Minimum length of an init's zero-padded hello, in bytes: no response exceeds three times its init (RFC
/// 9000 §8.1).
pub(super) const MIN_INIT_HELLO: usize = 256;
const _: () = assert!(
    2 + 16 + NOISE_RESPONSE + PREFIX + MAX_HELLO + 32
        <= 3 * (2 + NOISE_INIT + PREFIX + MIN_INIT_HELLO + 32)
);

/// A keyed hash, or a cookie.
pub(super) type Mac = [u8; 16];

/// Parsed envelope of a datagram.
#[derive(Debug)]
pub(super) enum Envelope<'a> {
    /// Message under the receiver's session `session`.
    Sealed { session: u16, path: PathId, number: u64, sealed: &'a [u8] },
    /// First message of a handshake. `mac` covers `covered`.
    Init { noise: &'a [u8], covered: &'a [u8], mac: &'a Mac, cookie: &'a Mac },
    /// Second message, in response to the init with the keyed hash `echo`. `mac` covers `covered`. The cookie
    /// is for the address that the response went to.
    Response { echo: &'a Mac, noise: &'a [u8], covered: &'a [u8], mac: &'a Mac, cookie: &'a Mac },
    /// Request to resend the init with the keyed hash `echo` and this cookie.
    Cookie { echo: &'a Mac, cookie: &'a Mac },
    /// Reply to a datagram of an unknown session, with its head.
    Unknown { session: u16 },
}

impl<'a> Envelope<'a> {
    /// Parses an envelope; `None` if the format is wrong.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        match bytes {
            [SEALED, ..] => {
                let (session, path, number) = read_head(bytes)?;
                let sealed = bytes.get(HEAD..).filter(|sealed| sealed.len() >= TAG)?;
                Some(Self::Sealed { session, path, number, sealed })
            }
            [HANDSHAKE, INIT, ..] => {
                let (rest, cookie) = bytes.split_last_chunk()?;
                let (covered, mac) = rest.split_last_chunk()?;
                let noise = covered.get(2..)?;
                let max = NOISE_INIT + PREFIX + MAX_HELLO;
                let min = NOISE_INIT + PREFIX + MIN_INIT_HELLO;
                let fits = (min..=max).contains(&noise.len());
                fits.then_some(Self::Init { noise, covered, mac, cookie })
            }
            [HANDSHAKE, RESPONSE, rest @ ..] => {
                let (rest, cookie) = rest.split_last_chunk()?;
                let (rest, mac) = rest.split_last_chunk()?;
                let (echo, noise) = rest.split_first_chunk()?;
                let covered = bytes.get(..bytes.len() - mac.len() - cookie.len())?;
                let max = NOISE_RESPONSE + PREFIX + MAX_HELLO;
                let fits = (NOISE_RESPONSE + PREFIX..=max).contains(&noise.len());
                fits.then_some(Self::Response { echo, noise, covered, mac, cookie })
            }
            [COOKIE, rest @ ..] => {
                let (echo, rest) = rest.split_first_chunk()?;
                let cookie = rest.try_into().ok()?;
                Some(Self::Cookie { echo, cookie })
            }
            [UNKNOWN, head @ ..] if head.len() == HEAD => {
                read_head(head).map(|(session, ..)| Self::Unknown { session })
            }
            _ => None,
        }
    }
}

/// Returns the path that a sealed datagram claims; only opening proves it.
pub fn path_of(bytes: &[u8]) -> Option<PathId> {
    read_head(bytes).map(|(_, path, _)| path)
}

fn read_head(bytes: &[u8]) -> Option<(u16, PathId, u64)> {
    let [SEALED, s, t, path, a, b, c, d, e, f, ..] = *bytes else { return None };
    if usize::from(path) >= PathSet::CAPACITY {
        return None;
    }
    let number = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
    Some((u16::from_be_bytes([s, t]), PathId(path), number))
}

/// Builds the head of a sealed datagram.
pub(super) const fn head(session: u16, path: PathId, number: u64) -> [u8; HEAD] {
    let [s, t] = session.to_be_bytes();
    let [_, _, a, b, c, d, e, f] = number.to_be_bytes();
    [SEALED, s, t, path.0, a, b, c, d, e, f]
}

/// Builds an init without keyed hash and cookie; `noise` is the content.
pub(super) fn init(noise: &[u8]) -> Vec<u8> {
    [&[HANDSHAKE, INIT], noise].concat()
}

/// Builds a response without keyed hash.
pub(super) fn response(echo: &Mac, noise: &[u8]) -> Vec<u8> {
    [&[HANDSHAKE, RESPONSE], &echo[..], noise].concat()
}

/// Builds a cookie reply to the init with this keyed hash.
pub(super) fn cookie(echo: &Mac, cookie: &Mac) -> Vec<u8> {
    [&[COOKIE], &echo[..], cookie].concat()
}

/// Reply to a datagram of an unknown session.
pub(super) fn unknown(session: u16, path: PathId, number: u64) -> Vec<u8> {
    [&[UNKNOWN], &head(session, path, number)[..]].concat()
}
