//! Splitting of bytes into MAVLink frames. A frame is recognised by its header; the receiver verifies the
//! checksum.

use skybraid_transport::mutran::mavlink::{MAGIC_1, MAGIC_2};
use skybraid_transport::mutran::{Classifier, Header, Span, StreamClassifier};

/// Splits a stream received in pieces into frames.
pub struct Framer {
    stream: StreamClassifier,
    /// Bytes from `base` on that have not been split yet.
    held: Vec<u8>,
    base: u64,
    spans: Vec<Span>,
    /// Bytes so far outside of frames.
    foreign: u64,
}

impl Framer {
    /// Creates a framer at the start of a stream.
    pub fn new() -> Self {
        let stream = StreamClassifier::new(Classifier::default());
        Self { stream, held: Vec::new(), base: 0, spans: Vec::new(), foreign: 0 }
    }

    /// Appends bytes and passes each complete frame to `each`. Returns the number of bytes found to be
    /// outside of frames.
    pub fn feed(&mut self, bytes: &[u8], each: &mut dyn FnMut(&[u8])) -> u64 {
        let before = self.foreign;
        self.held.extend_from_slice(bytes);
        let spans = &mut self.spans;
        self.stream.feed(bytes, &mut |span| spans.push(span));
        let fed = self.base + self.held.len() as u64;
        let mut done = self.base;
        let mut complete = 0;
        for span in &self.spans {
            self.foreign += span.start.saturating_sub(done);
            done = span.start;
            if span.end > fed {
                break;
            }
            let place = (span.start - self.base) as usize..(span.end - self.base) as usize;
            each(self.held.get(place).unwrap_or_default());
            done = span.end;
            complete += 1;
        }
        self.spans.drain(..complete);
        if self.spans.is_empty() {
            let decided = self.stream.decided();
            self.foreign += decided.saturating_sub(done);
            done = done.max(decided);
        }
        self.held.drain(..(done - self.base) as usize);
        self.base = done;
        self.foreign - before
    }
}

/// Splits a datagram, which holds whole frames. Returns the number of bytes outside of frames; a truncated
/// frame counts as such.
pub fn cut(datagram: &[u8], each: &mut dyn FnMut(&[u8])) -> u64 {
    let (mut rest, mut foreign) = (datagram, 0);
    let mut in_step = true;
    while !rest.is_empty() {
        let frame = match Header::parse(rest) {
            Ok(header) if in_step || header.is_known() => rest.split_at_checked(header.frame()),
            _ => None,
        };
        in_step = frame.is_some();
        if let Some((frame, behind)) = frame {
            each(frame);
            rest = behind;
        } else {
            let is_magic = |byte: &u8| matches!(*byte, MAGIC_1 | MAGIC_2);
            let next = rest.iter().skip(1).position(is_magic).map_or(rest.len(), |at| at + 1);
            foreign += next as u64;
            rest = rest.get(next..).unwrap_or_default();
        }
    }
    foreign
}

/// MAVLink 2 frames for tests.
#[cfg(test)]
pub mod samples {
    use crate::local::radio::frame;

    /// COMMAND_LONG (control): 45 bytes.
    pub fn command(sequence: u8) -> Vec<u8> {
        frame(sequence, (255, 190), 76, &[7; 33], 152)
    }

    /// ATTITUDE (telemetry): 40 bytes.
    pub fn attitude(sequence: u8) -> Vec<u8> {
        frame(sequence, (1, 1), 30, &[9; 28], 39)
    }
}

#[cfg(test)]
mod tests {
    use super::samples::{attitude, command};
    use super::*;
    use proptest::prelude::*;

    fn feed(pieces: &[&[u8]]) -> (Vec<Vec<u8>>, u64) {
        let (mut framer, mut found) = (Framer::new(), Vec::new());
        let foreign = pieces
            .iter()
            .map(|piece| framer.feed(piece, &mut |frame| found.push(frame.to_vec())))
            .sum();
        (found, foreign)
    }

    #[test]
    fn frames_come_out_whole_and_what_is_between_them_is_counted() {
        let text = b"boot: ok\n";
        let bytes = [text.as_slice(), &command(1), b"??", &attitude(2), &command(3)[..20]].concat();
        for step in [1, 7, 64, bytes.len()] {
            let pieces: Vec<&[u8]> = bytes.chunks(step).collect();
            let (found, foreign) = feed(&pieces);
            assert_eq!(found, [command(1), attitude(2)], "in steps of {step}");
            assert_eq!(foreign, 11);
        }
    }

    #[test]
    fn a_datagram_holds_several_frames_and_ends_in_no_half_one() {
        let bytes = [command(1), attitude(2), command(3)[..44].to_vec()].concat();
        let mut found = Vec::new();
        let foreign = cut(&bytes, &mut |frame| found.push(frame.to_vec()));
        assert_eq!((found, foreign), (vec![command(1), attitude(2)], 44));
        assert_eq!(cut(b"RTP?", &mut |_| panic!("no frame")), 4);
    }

    #[test]
    fn a_framer_holds_no_more_than_a_frame() {
        let mut framer = Framer::new();
        for _ in 0..1000 {
            framer.feed(&[0xfd; 300], &mut |_| {});
            framer.feed(&command(0)[..33], &mut |_| {});
            assert!(framer.held.len() <= 280, "{}", framer.held.len());
        }
    }

    proptest! {
        #[test]
        fn every_byte_is_in_a_frame_or_foreign_or_held(
            bytes in proptest::collection::vec(prop_oneof![any::<u8>(), Just(0xfd), Just(0xfe)], 0..2000),
            step in 1_usize..300,
        ) {
            let (mut framer, mut framed, mut foreign) = (Framer::new(), 0, 0);
            for piece in bytes.chunks(step) {
                foreign += framer.feed(piece, &mut |frame| framed += frame.len());
            }
            prop_assert_eq!(framed + foreign as usize + framer.held.len(), bytes.len());
            let mut framed = 0;
            let foreign = cut(&bytes, &mut |frame| framed += frame.len());
            prop_assert_eq!(framed + foreign as usize, bytes.len());
        }
    }
}
