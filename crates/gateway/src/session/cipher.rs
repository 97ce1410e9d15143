//! ChaCha20-Poly1305 (RFC 8439) by the ring crate, in a third of the time of snow's own cipher. The ring
//! crate needs a C compiler for the target and is therefore used on x86-64 only.

use core::hint::black_box;

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, Tag, UnboundKey};
use snow::Error;
use snow::types::Cipher;

use super::envelope::TAG;

/// Cipher, with its key once set.
#[derive(Default)]
pub(super) struct RingCipher(Option<LessSafeKey>);

/// Returns the nonce of a number (The Noise Protocol Framework, revision 34, §12.3).
fn nonce(number: u64) -> Nonce {
    let [a, b, c, d, e, f, g, h] = number.to_le_bytes();
    Nonce::assume_unique_for_key([0, 0, 0, 0, a, b, c, d, e, f, g, h])
}

#[inline(never)]
fn make(key: &[u8; 32]) -> Option<LessSafeKey> {
    UnboundKey::new(&CHACHA20_POLY1305, key).ok().map(LessSafeKey::new)
}

impl RingCipher {
    fn seal(&self, number: u64, authtext: &[u8], text: &mut [u8]) -> Option<Tag> {
        let aad = Aad::from(authtext);
        self.0.as_ref()?.seal_in_place_separate_tag(nonce(number), aad, text).ok()
    }

    /// Opens `sealed` into `out`. Returns the length of the text; `None` if it is not authentic.
    fn open(&self, number: u64, authtext: &[u8], sealed: &[u8], out: &mut [u8]) -> Option<usize> {
        let (text, tag) = sealed.split_last_chunk::<TAG>()?;
        let out = out.get_mut(..text.len())?;
        out.copy_from_slice(text);
        let aad = Aad::from(authtext);
        let key = self.0.as_ref()?;
        let opened = key.open_in_place_separate_tag(nonce(number), aad, (*tag).into(), out, 0..);
        opened.ok().map(|text| text.len())
    }
}

impl Cipher for RingCipher {
    fn name(&self) -> &'static str {
        "ChaChaPoly"
    }

    fn set(&mut self, key: &[u8; 32]) {
        let mut made = make(key);
        core::mem::swap(&mut self.0, &mut made);
        // Leaves neither this key nor the previous one on the stack.
        made = make(&[0; 32]);
        black_box(&made);
    }

    /// Returns zero and clears `out` if no key has been set.
    fn encrypt(&self, number: u64, authtext: &[u8], plain: &[u8], out: &mut [u8]) -> usize {
        let Some((text, rest)) = out.split_at_mut_checked(plain.len()) else { return 0 };
        text.copy_from_slice(plain);
        match (self.seal(number, authtext, text), rest.first_chunk_mut::<TAG>()) {
            (Some(tag), Some(place)) => {
                place.iter_mut().zip(tag.as_ref()).for_each(|(place, byte)| *place = *byte);
                plain.len() + TAG
            }
            _ => {
                text.fill(0);
                0
            }
        }
    }

    fn decrypt(
        &self,
        number: u64,
        authtext: &[u8],
        sealed: &[u8],
        out: &mut [u8],
    ) -> Result<usize, Error> {
        self.open(number, authtext, sealed, out).ok_or(Error::Decrypt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use snow::params::CipherChoice;
    use snow::resolvers::{CryptoResolver, DefaultResolver};

    proptest! {
        #[test]
        fn it_seals_and_opens_what_snows_own_cipher_does(
            key in any::<[u8; 32]>(),
            number in any::<u64>(),
            authtext in proptest::collection::vec(any::<u8>(), 0..40),
            plain in proptest::collection::vec(any::<u8>(), 0..1_500),
            flip in any::<prop::sample::Index>(),
        ) {
            let mut own = DefaultResolver.resolve_cipher(&CipherChoice::ChaChaPoly).unwrap();
            let mut ring = RingCipher::default();
            own.set(&key);
            ring.set(&key);
            let [mut sealed, mut other] = [(); 2].map(|()| alloc::vec![0; plain.len() + TAG]);
            prop_assert_eq!(ring.encrypt(number, &authtext, &plain, &mut sealed), sealed.len());
            own.encrypt(number, &authtext, &plain, &mut other);
            prop_assert_eq!(&sealed, &other);
            let mut opened = alloc::vec![0; plain.len()];
            prop_assert_eq!(ring.decrypt(number, &authtext, &sealed, &mut opened), Ok(plain.len()));
            prop_assert_eq!(&opened, &plain);
            let at = flip.index(sealed.len());
            sealed[at] ^= 1;
            prop_assert!(ring.decrypt(number, &authtext, &sealed, &mut opened).is_err());
        }
    }
}
