//! Framing of datagrams in a stream: two bytes of length, in network byte order, before each.

/// Size of the length field in bytes.
const LENGTH: usize = 2;

/// Error: a stream cannot be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotFramed;

/// Extracts datagrams from a stream received in pieces.
#[derive(Default)]
pub struct Unframer {
    held: Vec<u8>,
}

impl Unframer {
    /// Appends bytes and passes on each complete datagram.
    ///
    /// # Errors
    /// An empty datagram: the peer does not use this framing.
    pub fn feed(&mut self, bytes: &[u8], each: &mut dyn FnMut(&[u8])) -> Result<(), NotFramed> {
        self.held.extend_from_slice(bytes);
        let mut rest = self.held.as_slice();
        while let Some((length, behind)) = rest.split_first_chunk::<LENGTH>() {
            let length = usize::from(u16::from_be_bytes(*length));
            if length == 0 {
                return Err(NotFramed);
            }
            let Some((datagram, behind)) = behind.split_at_checked(length) else { break };
            each(datagram);
            rest = behind;
        }
        let left = rest.len();
        self.held.drain(..self.held.len() - left);
        Ok(())
    }
}

/// Writes a datagram with its length to `out`, replacing the contents; returns false if it is too long.
pub fn frame(datagram: &[u8], out: &mut Vec<u8>) -> bool {
    out.clear();
    let Some(length) = u16::try_from(datagram.len()).ok().filter(|length| *length > 0) else {
        return false;
    };
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(datagram);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_datagram_without_octets_is_none() {
        let mut out = Vec::new();
        assert!(!frame(&[], &mut out) && !frame(&[0; 65_536], &mut out));
        assert_eq!(Unframer::default().feed(&[0, 0], &mut |_| {}), Err(NotFramed));
    }

    proptest! {
        #[test]
        fn datagrams_come_out_as_they_went_in_however_the_stream_is_cut(
            datagrams in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..400), 0..12),
            step in 1_usize..500,
        ) {
            let (mut stream, mut framed) = (Vec::new(), Vec::new());
            for datagram in &datagrams {
                prop_assert!(frame(datagram, &mut framed));
                stream.extend(&framed);
            }
            let (mut unframer, mut found) = (Unframer::default(), Vec::new());
            for piece in stream.chunks(step) {
                let fed = unframer.feed(piece, &mut |datagram| found.push(datagram.to_vec()));
                prop_assert_eq!(fed, Ok(()));
            }
            prop_assert_eq!(found, datagrams);
        }
    }
}
