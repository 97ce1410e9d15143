//! Hello that each end sends at the start of a session: the names of its paths and channels, to detect
//! mismatched files and to agree on the aircraft's numbers on the wire, and the address of its TUN interface.
//!
//! Names are sent as text if they fit in a handshake, else as digests, which suffice to match names.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{AddrParseError, IpAddr};

use sha2::{Digest, Sha256};

use crate::session::MAX_HELLO;

const FIRST_LINE: &str = "skybraid gateway 2";
/// First line of the digest form, followed by the line of the TUN address, then the numbers of paths and of
/// channels, one byte each.
const DIGESTS: &[u8] = b"skybraid gateway 2 digests\n";
/// Bytes of a digest, truncated SHA-256. Two of a hundred names collide in one of 2 × 10⁸ files.
const DIGEST: usize = 5;
/// Maximum paths and channels of a gateway, whose names always fit.
const MAX_NAMES: usize = 62 + 127;
/// Maximum bytes of a TUN address line.
const MAX_TUN_LINE: usize = 40;
const _: () = assert!(DIGESTS.len() + MAX_TUN_LINE + 2 + MAX_NAMES * DIGEST <= MAX_HELLO);

/// Content of a hello: the paths and channels of an end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// Paths in the order of their numbers.
    pub paths: Vec<Name>,
    /// Channels in the order of their numbers.
    pub channels: Vec<Name>,
    /// Address of the TUN interface, if any.
    pub tun: Option<IpAddr>,
}

/// Name of a path or channel, or a digest of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// The whole.
    Text(String),
    /// Digest of the name.
    Digest([u8; DIGEST]),
}

impl From<&str> for Name {
    fn from(name: &str) -> Self {
        Self::Text(name.to_string())
    }
}

impl Name {
    /// Whether this is the name `text`.
    pub fn is(&self, text: &str) -> bool {
        match self {
            Self::Text(name) => name == text,
            Self::Digest(digest) => *digest == digest_of(text),
        }
    }

    fn digest(&self) -> [u8; DIGEST] {
        match self {
            Self::Text(name) => digest_of(name),
            Self::Digest(digest) => *digest,
        }
    }
}

fn digest_of(name: &str) -> [u8; DIGEST] {
    Sha256::digest(name.as_bytes()).first_chunk().copied().unwrap_or_default()
}

impl Hello {
    /// Encodes for the handshake: four lines of text, or digests if the text is too long.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.to_text().unwrap_or_else(|| {
            let counts = [self.paths.len() as u8, self.channels.len() as u8];
            let names = self.paths.iter().chain(&self.channels);
            let digests = names.flat_map(Name::digest);
            let mut bytes = [DIGESTS, self.tun_line().as_bytes(), b"\n", &counts].concat();
            bytes.extend(digests);
            bytes
        })
    }

    fn to_text(&self) -> Option<Vec<u8>> {
        let line = |names: &[Name]| {
            let texts = names.iter().map(|name| match name {
                Name::Text(text) => Some(text.as_str()),
                Name::Digest(_) => None,
            });
            texts.collect::<Option<Vec<&str>>>().map(|texts| texts.join("\t"))
        };
        let (paths, channels) = (line(&self.paths)?, line(&self.channels)?);
        let text = [FIRST_LINE, &self.tun_line(), &paths, &channels].join("\n").into_bytes();
        (text.len() <= MAX_HELLO).then_some(text)
    }

    /// Parses a hello; `None` if it has another version.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        if let Some(rest) = bytes.strip_prefix(DIGESTS) {
            return Self::read_digests(rest);
        }
        let text = core::str::from_utf8(bytes).ok()?;
        // Names are shown in terminals, and none of a file has such a character.
        if text.chars().any(|char| char.is_control() && !matches!(char, '\n' | '\t')) {
            return None;
        }
        let mut lines = text.split('\n');
        if lines.next() != Some(FIRST_LINE) {
            return None;
        }
        let tun = read_tun(lines.next()?).ok()?;
        let mut names = || {
            let line = lines.next()?;
            let names = line.split('\t').filter(|name| !name.is_empty());
            Some(names.map(Name::from).collect())
        };
        Some(Self { paths: names()?, channels: names()?, tun })
    }

    fn read_digests(bytes: &[u8]) -> Option<Self> {
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let (tun, rest) = bytes.split_at_checked(end)?;
        let tun = read_tun(core::str::from_utf8(tun).ok()?).ok()?;
        let ([_, paths, channels], digests) = rest.split_first_chunk::<3>()?;
        let (digests, rest) = digests.as_chunks::<DIGEST>();
        let count = usize::from(*paths) + usize::from(*channels);
        if digests.len() != count || !rest.is_empty() {
            return None;
        }
        let (paths, channels) = digests.split_at_checked(usize::from(*paths))?;
        let names = |digests: &[[u8; DIGEST]]| digests.iter().copied().map(Name::Digest).collect();
        Some(Self { paths: names(paths), channels: names(channels), tun })
    }

    fn tun_line(&self) -> String {
        self.tun.map(|address| address.to_string()).unwrap_or_default()
    }
}

/// Parses the address in a line, which may be empty.
fn read_tun(line: &str) -> Result<Option<IpAddr>, AddrParseError> {
    if line.is_empty() { Ok(None) } else { line.parse().map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(names: &[String]) -> Vec<Name> {
        names.iter().map(|name| Name::from(name.as_str())).collect()
    }

    #[test]
    fn a_name_that_would_control_a_terminal_is_refused() {
        for name in ["lte\u{1b}[2J", "lte\r", "lte\u{9b}2J", "lte\0"] {
            let names = alloc::vec![Name::from(name)];
            let hello = Hello { paths: names, channels: Vec::new(), tun: None };
            assert_eq!(Hello::read(&hello.to_bytes()), None, "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn a_hello_reads_back(
            paths in proptest::collection::vec("[a-z0-9-]{1,12}", 0..5),
            channels in proptest::collection::vec("[a-z]{1,12}", 0..5),
            tun in any::<Option<IpAddr>>(),
        ) {
            let hello = Hello { paths: names(&paths), channels: names(&channels), tun };
            prop_assert_eq!(Hello::read(&hello.to_bytes()), Some(hello));
        }

        #[test]
        fn any_number_of_names_of_any_length_fits_and_is_recognized(
            paths in proptest::collection::vec("[a-z0-9-]{1,32}", 0..=62),
            channels in proptest::collection::vec("[a-z]{1,32}", 0..=127),
            tun in any::<Option<IpAddr>>(),
        ) {
            let hello = Hello { paths: names(&paths), channels: names(&channels), tun };
            let bytes = hello.to_bytes();
            prop_assert!(bytes.len() <= MAX_HELLO);
            let read = Hello::read(&bytes).unwrap();
            let same = |read: &[Name], names: &[String]| {
                read.len() == names.len() && read.iter().zip(names).all(|(read, name)| read.is(name))
            };
            prop_assert!(same(&read.paths, &paths) && same(&read.channels, &channels));
            prop_assert!(!read.paths.iter().any(|name| name.is("another name")));
        }

        #[test]
        fn bytes_of_any_kind_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..99)) {
            let _ = Hello::read(&bytes);
            let _ = Hello::read(&[DIGESTS, bytes.as_slice()].concat());
        }
    }
}
