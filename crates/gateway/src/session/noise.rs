//! The handshake `Noise_IK_25519_ChaChaPoly_BLAKE2s` (The Noise Protocol Framework, revision 34, §7.5) by
//! the crate snow, with randomness from outside.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, Error, HandshakeState, StatelessTransportState};

use super::envelope::LARGEST_HELLO;
use crate::{PrivateKey, PublicKey};

/// The pattern by its full name.
const PATTERN: &str = "Noise_IK_25519_ChaChaPoly_BLAKE2s";
/// What both ends hash in first, so that nothing of another protocol or version fits.
pub(super) const PROLOGUE: &[u8] = b"skybraid gateway 1";
/// More than any message of a handshake has.
const ROOM: usize = LARGEST_HELLO + 128;

/// The secret bytes of one handshake: its ephemeral key is made of them.
pub(super) type Secret = [u8; 32];

/// snow's own primitives, and randomness that was drawn beforehand.
struct Drawn(Secret);

impl CryptoResolver for Drawn {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Once(Some(self.0))))
    }
    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }
    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }
    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

/// Gives the secret away once: a second key of the same bytes would betray both.
struct Once(Option<Secret>);

impl Random for Once {
    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Error> {
        let out: &mut Secret = out.try_into().map_err(|_| Error::Rng)?;
        *out = self.0.take().ok_or(Error::Rng)?;
        Ok(())
    }
}

fn builder<'a>(
    prologue: &'a [u8],
    private: &'a PrivateKey,
    secret: Secret,
) -> Result<Builder<'a>, Error> {
    let params: NoiseParams = PATTERN.parse()?;
    Builder::with_resolver(params, Box::new(Drawn(secret)))
        .prologue(prologue)?
        .local_private_key(&private.0)
}

/// The first message, and the state that reads the answer.
pub(super) fn ask(
    prologue: &[u8],
    private: &PrivateKey,
    peer: &PublicKey,
    secret: Secret,
    payload: &[u8],
) -> Result<(HandshakeState, Vec<u8>), Error> {
    let builder = builder(prologue, private, secret)?.remote_public_key(&peer.0)?;
    let mut noise = builder.build_initiator()?;
    let message = write(&mut noise, payload)?;
    Ok((noise, message))
}

/// Reads the first message: the state that answers, who asks, and the payload.
pub(super) fn hear(
    prologue: &[u8],
    private: &PrivateKey,
    secret: Secret,
    message: &[u8],
) -> Result<(HandshakeState, Option<PublicKey>, Vec<u8>), Error> {
    let mut noise = builder(prologue, private, secret)?.build_responder()?;
    let payload = read(&mut noise, message)?;
    let peer = noise.get_remote_static().and_then(|key| key.try_into().ok()).map(PublicKey);
    Ok((noise, peer, payload))
}

/// Writes the next message of a handshake.
pub(super) fn write(noise: &mut HandshakeState, payload: &[u8]) -> Result<Vec<u8>, Error> {
    let mut message = vec![0; ROOM];
    let length = noise.write_message(payload, &mut message)?;
    message.truncate(length);
    Ok(message)
}

/// Reads the next message of a handshake. One that is refused leaves the state as it was.
pub(super) fn read(noise: &mut HandshakeState, message: &[u8]) -> Result<Vec<u8>, Error> {
    let mut payload = vec![0; ROOM];
    let length = noise.read_message(message, &mut payload)?;
    payload.truncate(length);
    Ok(payload)
}

/// The keys of a handshake that is over.
pub(super) fn keys(noise: HandshakeState) -> Result<StatelessTransportState, Error> {
    noise.into_stateless_transport_mode()
}

/// BLAKE2s of snow.
pub(super) fn hash() -> Option<Box<dyn Hash>> {
    DefaultResolver.resolve_hash(&HashChoice::Blake2s)
}

/// The public key of a private one, and what it has in common with the peer's.
pub(super) fn agree(private: &PrivateKey, peer: &PublicKey) -> Option<(PublicKey, [u8; 32])> {
    let mut dh = DefaultResolver.resolve_dh(&DHChoice::Curve25519)?;
    dh.set(&private.0);
    let public = PublicKey(dh.pubkey().try_into().ok()?);
    let mut shared = [0; 32];
    dh.dh(&peer.0, &mut shared).ok()?;
    Some((public, shared))
}

/// The public key of a private one. `None` never happens: it would mean a build without X25519.
pub fn public_key(private: &PrivateKey) -> Option<PublicKey> {
    agree(private, &PublicKey([0; 32])).map(|(public, _)| public)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect()
    }

    fn key(hex: &str) -> [u8; 32] {
        bytes(hex).try_into().unwrap()
    }

    // Source: the vectors of the Haskell implementation cacophony (vectors/cacophony.txt), which snow runs
    // as tests/vectors/cacophony.txt: Noise_IK_25519_ChaChaPoly_BLAKE2s.
    #[test]
    fn a_handshake_is_that_of_other_implementations() {
        let prologue = bytes("4a6f686e2047616c74");
        let initiator =
            PrivateKey(key("e61ef9919cde45dd5f82166404bd08e38bceb5dfdfded0a34c8df7ed542214d1"));
        let responder =
            PrivateKey(key("4a3acbfdb163dec651dfa3194dece676d437029c62a408b4c5ea9114246e4893"));
        let public =
            PublicKey(key("31e0303fd6418d2f8c0e78b91f22e8caed0fbe48656dcf4767e4834f701b8f62"));
        let secrets = [
            key("893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a"),
            key("bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b"),
        ];

        let payload = bytes("4c756477696720766f6e204d69736573");
        let (mut asking, first) =
            ask(&prologue, &initiator, &public, secrets[0], &payload).unwrap();
        assert_eq!(
            first,
            bytes(concat!(
                "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c79440b03ddc7aac5123d",
                "06a1b23b71670e32e76c28239a7ca4ac8f784de7e44c1adbfc6e83fef7352a58d9d56157400c0a73",
                "7b1d171ce368229c7b752ac25b8faf4eca690f6d896f543be02c996ab2b86b76"
            ))
        );
        let (mut answering, who, heard) = hear(&prologue, &responder, secrets[1], &first).unwrap();
        assert_eq!(heard, payload);
        assert_eq!(who, public_key(&initiator));
        assert_eq!(public_key(&responder), Some(public));

        let payload = bytes("4d757272617920526f746862617264");
        let second = write(&mut answering, &payload).unwrap();
        assert_eq!(
            second,
            bytes(concat!(
                "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843d9b5a8927f0ac965",
                "5ef76833bc7e5561f42e691ac8404efd6fbd6308b6a27c"
            ))
        );
        assert_eq!(read(&mut asking, &second).unwrap(), payload);

        // The vectors go on with number 0 in each direction.
        let mut sealed = [0; 27];
        let text = bytes("462e20412e20486179656b");
        keys(asking).unwrap().write_message(0, &text, &mut sealed).unwrap();
        assert_eq!(sealed[..], bytes("2c256ed08fcd08c2980f954ee4beaccb61c9581340f5dd2fd1cf3b"));
        let text = bytes("4361726c204d656e676572");
        keys(answering).unwrap().write_message(0, &text, &mut sealed).unwrap();
        assert_eq!(sealed[..], bytes("d6033f70eee20945c7c9dba304e397ee3b284ff5e00fd9efb095d3"));
    }

    #[test]
    fn a_secret_makes_one_key() {
        let mut once = Once(Some([7; 32]));
        let mut out = [0; 32];
        assert!(once.try_fill_bytes(&mut out).is_ok());
        assert_eq!(out, [7; 32]);
        assert_eq!(once.try_fill_bytes(&mut out), Err(Error::Rng));
    }
}
