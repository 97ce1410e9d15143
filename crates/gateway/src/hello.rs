//! What each end tells the other when a session begins: the names of its paths and channels, so that
//! files that do not match are found out, and numbers on the wire are the aircraft's.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

const FIRST_LINE: &str = "skybraid gateway 1";

/// What an end is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// Its paths in the order of their numbers.
    pub paths: Vec<String>,
    /// Its channels in the order of their numbers.
    pub channels: Vec<String>,
}

impl Hello {
    /// As bytes for the handshake: three lines of text.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (paths, channels) = (self.paths.join("\t"), self.channels.join("\t"));
        [FIRST_LINE, &paths, &channels].join("\n").into_bytes()
    }

    /// Reads them; `None` where they are of another version.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut lines = core::str::from_utf8(bytes).ok()?.split('\n');
        if lines.next() != Some(FIRST_LINE) {
            return None;
        }
        let mut names = || {
            let line = lines.next()?;
            let names = line.split('\t').filter(|name| !name.is_empty());
            Some(names.map(ToString::to_string).collect())
        };
        Some(Self { paths: names()?, channels: names()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_hello_reads_back(
            paths in proptest::collection::vec("[a-z0-9-]{1,12}", 0..5),
            channels in proptest::collection::vec("[a-z]{1,12}", 0..5),
        ) {
            let hello = Hello { paths, channels };
            prop_assert_eq!(Hello::read(&hello.to_bytes()), Some(hello));
        }

        #[test]
        fn bytes_of_any_kind_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..99)) {
            let _ = Hello::read(&bytes);
        }
    }
}
