//! Handshake `Noise_IK_25519_ChaChaPoly_BLAKE2s` (The Noise Protocol Framework, revision 34, §7.5), or
//! `IKpsk2` (§9.4) with a pre-shared key, by the snow crate, with external randomness. Keys that it holds are
//! wiped on drop.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::hint::black_box;

use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, Error, HandshakeState, StatelessTransportState};
use zeroize::Zeroizing;

use super::envelope::MAX_HELLO;
use crate::key::PresharedKey;
use crate::{PrivateKey, PublicKey};

/// Full pattern names: without and with a pre-shared key.
const PATTERN: &str = "Noise_IK_25519_ChaChaPoly_BLAKE2s";
const PATTERN_PSK: &str = "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s";
/// Position of the pre-shared key: at the end of the second message.
const PSK_PLACE: u8 = 2;
/// Placeholder of the pre-shared key where none is needed.
const NO_PSK: [u8; 32] = [0; 32];
/// Prologue, so that no handshake of another protocol or version fits.
pub(super) const PROLOGUE: &[u8] = b"skybraid gateway 2";
/// Buffer size for any handshake message.
const MAX_MESSAGE: usize = MAX_HELLO + 128;

/// Secret bytes of one handshake, the source of its ephemeral key.
pub(super) type Secret = Zeroizing<[u8; 32]>;

/// snow's own primitives, except for a faster cipher if available and randomness drawn beforehand.
struct Drawn(Secret);

impl CryptoResolver for Drawn {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Once(Some(self.0.clone()))))
    }
    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        let dh = DefaultResolver.resolve_dh(choice)?;
        Some(Box::new(WipedDh(dh)))
    }
    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }
    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        #[cfg(target_arch = "x86_64")]
        let cipher: Box<dyn Cipher> = match choice {
            CipherChoice::ChaChaPoly => Box::new(super::cipher::RingCipher::default()),
            _ => DefaultResolver.resolve_cipher(choice)?,
        };
        #[cfg(not(target_arch = "x86_64"))]
        let cipher = DefaultResolver.resolve_cipher(choice)?;
        Some(Box::new(WipedCipher(cipher)))
    }
}

/// Cipher whose key is wiped on drop.
struct WipedCipher(Box<dyn Cipher>);

impl Drop for WipedCipher {
    fn drop(&mut self) {
        self.0.set(&[0; 32]);
        // Forces the write although the key is never read again.
        black_box(&self.0);
    }
}

impl Cipher for WipedCipher {
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn set(&mut self, key: &[u8; 32]) {
        self.0.set(key);
    }
    fn encrypt(&self, nonce: u64, authtext: &[u8], plaintext: &[u8], out: &mut [u8]) -> usize {
        self.0.encrypt(nonce, authtext, plaintext, out)
    }
    fn decrypt(
        &self,
        nonce: u64,
        authtext: &[u8],
        ciphertext: &[u8],
        out: &mut [u8],
    ) -> Result<usize, Error> {
        self.0.decrypt(nonce, authtext, ciphertext, out)
    }
}

/// Private key held by snow, wiped on drop.
struct WipedDh(Box<dyn Dh>);

impl Drop for WipedDh {
    fn drop(&mut self) {
        self.0.set(&[0; 32]);
        black_box(&self.0);
    }
}

impl Dh for WipedDh {
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn pub_len(&self) -> usize {
        self.0.pub_len()
    }
    fn priv_len(&self) -> usize {
        self.0.priv_len()
    }
    fn set(&mut self, privkey: &[u8]) {
        self.0.set(privkey);
    }
    fn generate(&mut self, random: &mut dyn Random) -> Result<(), Error> {
        self.0.generate(random)
    }
    fn pubkey(&self) -> &[u8] {
        self.0.pubkey()
    }
    fn privkey(&self) -> &[u8] {
        self.0.privkey()
    }
    fn dh(&self, pubkey: &[u8], out: &mut [u8]) -> Result<(), Error> {
        self.0.dh(pubkey, out)
    }
}

/// Returns the secret only once: a second key of the same bytes would reveal both.
struct Once(Option<Secret>);

impl Random for Once {
    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Error> {
        let out: &mut [u8; 32] = out.try_into().map_err(|_| Error::Rng)?;
        *out = *self.0.take().ok_or(Error::Rng)?;
        Ok(())
    }
}

fn builder<'a>(
    prologue: &'a [u8],
    private: &'a PrivateKey,
    with_psk: bool,
    secret: Secret,
) -> Result<Builder<'a>, Error> {
    let params: NoiseParams = if with_psk { PATTERN_PSK } else { PATTERN }.parse()?;
    let builder = Builder::with_resolver(params, Box::new(Drawn(secret)))
        .prologue(prologue)?
        .local_private_key(&private.0)?;
    // A state that awaits its response does not hold the key.
    if with_psk { builder.psk(PSK_PLACE, &NO_PSK) } else { Ok(builder) }
}

/// Runs `work`, the second message of a handshake, with the pre-shared key.
fn with_psk<T>(
    noise: &mut HandshakeState,
    psk: Option<&PresharedKey>,
    work: impl FnOnce(&mut HandshakeState) -> Result<T, Error>,
) -> Result<T, Error> {
    let Some(psk) = psk else { return work(noise) };
    noise.set_psk(usize::from(PSK_PLACE), &psk.0)?;
    let done = work(noise);
    noise.set_psk(usize::from(PSK_PLACE), &NO_PSK)?;
    black_box(noise);
    done
}

/// Returns the first message, and the state that reads the response.
pub(super) fn ask(
    prologue: &[u8],
    private: &PrivateKey,
    peer: &PublicKey,
    with_psk: bool,
    secret: Secret,
    payload: &[u8],
) -> Result<(HandshakeState, Vec<u8>), Error> {
    let builder = builder(prologue, private, with_psk, secret)?.remote_public_key(&peer.0)?;
    let mut noise = builder.build_initiator()?;
    let message = write(&mut noise, payload)?;
    Ok((noise, message))
}

/// Reads the first message. Returns the responding state, the initiator and the payload.
pub(super) fn read_init(
    prologue: &[u8],
    private: &PrivateKey,
    with_psk: bool,
    secret: Secret,
    message: &[u8],
) -> Result<(HandshakeState, Option<PublicKey>, Vec<u8>), Error> {
    let mut noise = builder(prologue, private, with_psk, secret)?.build_responder()?;
    let payload = read(&mut noise, message)?;
    let peer = noise.get_remote_static().and_then(|key| key.try_into().ok()).map(PublicKey);
    Ok((noise, peer, payload))
}

/// Writes the second message of a handshake.
pub(super) fn respond(
    noise: &mut HandshakeState,
    psk: Option<&PresharedKey>,
    payload: &[u8],
) -> Result<Vec<u8>, Error> {
    with_psk(noise, psk, |noise| write(noise, payload))
}

/// Reads the second message of a handshake. A refused message leaves the state unchanged.
pub(super) fn read_response(
    noise: &mut HandshakeState,
    psk: Option<&PresharedKey>,
    message: &[u8],
) -> Result<Vec<u8>, Error> {
    with_psk(noise, psk, |noise| read(noise, message))
}

/// Writes the next message of a handshake.
fn write(noise: &mut HandshakeState, payload: &[u8]) -> Result<Vec<u8>, Error> {
    let mut message = vec![0; MAX_MESSAGE];
    let length = noise.write_message(payload, &mut message)?;
    message.truncate(length);
    Ok(message)
}

/// Reads the next message of a handshake. A refused message leaves the state unchanged.
fn read(noise: &mut HandshakeState, message: &[u8]) -> Result<Vec<u8>, Error> {
    let mut payload = vec![0; MAX_MESSAGE];
    let length = noise.read_message(message, &mut payload)?;
    payload.truncate(length);
    Ok(payload)
}

/// Returns the keys of a completed handshake.
pub(super) fn keys(noise: HandshakeState) -> Result<StatelessTransportState, Error> {
    noise.into_stateless_transport_mode()
}

/// Returns snow's BLAKE2s.
pub(super) fn hash() -> Option<Box<dyn Hash>> {
    DefaultResolver.resolve_hash(&HashChoice::Blake2s)
}

/// Returns the public key of a private one, and the secret shared with the peer.
pub(super) fn diffie_hellman(
    private: &PrivateKey,
    peer: &PublicKey,
) -> Option<(PublicKey, Secret)> {
    let mut dh = WipedDh(DefaultResolver.resolve_dh(&DHChoice::Curve25519)?);
    dh.set(&private.0);
    let public = PublicKey(dh.pubkey().try_into().ok()?);
    let mut shared = Secret::default();
    dh.dh(&peer.0, &mut *shared).ok()?;
    Some((public, shared))
}

/// Returns the public key of a private one. `None` would mean a build without X25519 and never happens.
pub fn public_key(private: &PrivateKey) -> Option<PublicKey> {
    diffie_hellman(private, &PublicKey([0; 32])).map(|(public, _)| public)
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

    /// Test vector of another implementation: the two handshake messages, and the first message in each
    /// direction after them.
    struct Vector {
        psk: Option<&'static str>,
        handshake: [&'static str; 2],
        after: [&'static str; 2],
    }

    // Source: the vectors of the Haskell implementation cacophony (vectors/cacophony.txt), which snow runs
    // as tests/vectors/cacophony.txt: Noise_IK_25519_ChaChaPoly_BLAKE2s and Noise_IKpsk2_….
    #[test]
    fn a_handshake_is_that_of_other_implementations() {
        check(&Vector {
            psk: None,
            handshake: [
                "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c79440b03ddc7aac5123d\
                 06a1b23b71670e32e76c28239a7ca4ac8f784de7e44c1adbfc6e83fef7352a58d9d56157400c0a73\
                 7b1d171ce368229c7b752ac25b8faf4eca690f6d896f543be02c996ab2b86b76",
                "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843d9b5a8927f0ac965\
                 5ef76833bc7e5561f42e691ac8404efd6fbd6308b6a27c",
            ],
            after: [
                "2c256ed08fcd08c2980f954ee4beaccb61c9581340f5dd2fd1cf3b",
                "d6033f70eee20945c7c9dba304e397ee3b284ff5e00fd9efb095d3",
            ],
        });
        check(&Vector {
            psk: Some("54686973206973206d7920417573747269616e20706572737065637469766521"),
            handshake: [
                "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944001e21de9f98ddd8\
                 e2ad57527207feb56253c9c94a9e496782ecfcb2a75fbcaf1b52948cc48daefe660c62119ab50009\
                 80c84831215f2441eba616548e832985464cf17e51ee93109008399a21f7e13f",
                "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843cb765f2caef0751b\
                 8f007572dab0322217755c0632f365717edbf34d33e87a",
            ],
            after: [
                "8153ca9833bc3c1b91a7e66e5f4d4f5b59bf9e64c2f20d15f0bba7",
                "07af0c9c86e1b4e80f36b04ff7688d51141af3debd0332f0a705ef",
            ],
        });
    }

    fn check(vector: &Vector) {
        let psk = vector.psk.map(|psk| PresharedKey(key(psk)));
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
        ]
        .map(Secret::new);

        let payload = bytes("4c756477696720766f6e204d69736573");
        let (mut asking, first) = {
            let [secret, _] = secrets.clone();
            ask(&prologue, &initiator, &public, psk.is_some(), secret, &payload).unwrap()
        };
        assert_eq!(first, bytes(vector.handshake[0]));
        let (mut answering, who, heard) = {
            let [_, secret] = secrets;
            read_init(&prologue, &responder, psk.is_some(), secret, &first).unwrap()
        };
        assert_eq!(heard, payload);
        assert_eq!(who, public_key(&initiator));
        assert_eq!(public_key(&responder), Some(public));

        let payload = bytes("4d757272617920526f746862617264");
        let second = respond(&mut answering, psk.as_ref(), &payload).unwrap();
        assert_eq!(second, bytes(vector.handshake[1]));
        if psk.is_some() {
            let wrong = PresharedKey([1; 32]);
            assert!(read_response(&mut asking, Some(&wrong), &second).is_err());
        }
        assert_eq!(read_response(&mut asking, psk.as_ref(), &second).unwrap(), payload);

        // The vectors continue with number 0 in each direction.
        let mut sealed = [0; 27];
        let text = bytes("462e20412e20486179656b");
        keys(asking).unwrap().write_message(0, &text, &mut sealed).unwrap();
        assert_eq!(sealed[..], bytes(vector.after[0]));
        let text = bytes("4361726c204d656e676572");
        keys(answering).unwrap().write_message(0, &text, &mut sealed).unwrap();
        assert_eq!(sealed[..], bytes(vector.after[1]));
    }

    #[test]
    fn a_secret_makes_one_key() {
        let mut once = Once(Some(Secret::new([7; 32])));
        let mut out = [0; 32];
        assert!(once.try_fill_bytes(&mut out).is_ok());
        assert_eq!(out, [7; 32]);
        assert_eq!(once.try_fill_bytes(&mut out), Err(Error::Rng));
    }
}
