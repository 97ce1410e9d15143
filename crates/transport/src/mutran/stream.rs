//! Detection of MAVLink frames in a byte stream.
//!
//! A frame is detected by its header. After the last frame, any plausible header begins the next
//! one; elsewhere, only the header of a known message ([`COMMON`](super::mavlink::COMMON)), so that
//! random bytes are rarely mistaken for one. The payload is skipped by its length. After a loss,
//! the stream is synchronised again with the next known message, of which an aircraft sends several
//! per second.

use skybraid_units::Promised;

use super::Classifier;
use super::mavlink::{Header, MAGIC_1, MAGIC_2, MAX_HEADER, NoHeader};
use crate::Class;

/// A frame in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Position of the first byte in the stream.
    pub start: u64,
    /// Position after the last byte, which may not have arrived yet.
    pub end: u64,
    /// Class of the frame.
    pub class: Class,
    /// Header of the frame.
    pub header: Header,
}

/// Frame detector for a byte stream in pieces of any size. All bytes outside frames are data.
#[derive(Clone, Debug)]
pub struct StreamClassifier {
    classifier: Classifier,
    /// Bytes processed so far.
    fed: u64,
    /// Bytes of the last frame that are still to come.
    left: usize,
    /// Last bytes, if they may begin a header.
    head: [u8; MAX_HEADER],
    held: usize,
    /// True if a frame ends just before `head`, or the stream begins there.
    in_step: bool,
}

impl StreamClassifier {
    /// Creates a classifier at the beginning of a stream.
    pub fn new(classifier: Classifier) -> Self {
        let head = [0; MAX_HEADER];
        Self { classifier, fed: 0, left: 0, head, held: 0, in_step: true }
    }

    /// Processes the next bytes of the stream. Each frame goes to `found` as soon as its header is
    /// complete.
    pub fn feed(&mut self, bytes: &[u8], found: &mut impl FnMut(Span)) {
        let mut rest = bytes;
        while let [byte, following @ ..] = rest {
            let skip = if self.left > 0 {
                self.left.min(rest.len())
            } else if self.held == 0 && !self.in_step {
                rest.iter().position(is_magic).unwrap_or(rest.len())
            } else {
                0
            };
            if skip > 0 {
                self.left = self.left.saturating_sub(skip);
                self.fed += skip as u64;
                rest = rest.get(skip..).unwrap_or_default();
                continue;
            }
            let slot = self.head.get_mut(self.held);
            if let Some(slot) = slot.promised("space for a header byte") {
                *slot = *byte;
                self.held += 1;
            }
            self.fed += 1;
            rest = following;
            self.detect_frames(found);
        }
    }

    /// Position up to which bytes are classified: at most 9 bytes before the last byte processed,
    /// or the end of a frame that has not fully arrived.
    pub fn decided(&self) -> u64 {
        self.fed - self.held as u64 + self.left as u64
    }

    /// Detects frames in the held bytes.
    fn detect_frames(&mut self, found: &mut impl FnMut(Span)) {
        while self.held > 0 {
            let header = match Header::parse(self.head.get(..self.held).unwrap_or_default()) {
                Err(NoHeader::Incomplete) => return,
                Ok(header) if self.in_step || self.classifier.is_sure(&header) => header,
                _ => {
                    self.in_step = false;
                    self.drop_to_next_magic();
                    continue;
                }
            };
            let start = self.fed - self.held as u64;
            let end = start + header.frame() as u64;
            found(Span { start, end, class: self.classifier.class_of(&header), header });
            // At most ten bytes are held in search of a header, or nine after a byte that began
            // none; the shortest frame has nine.
            self.left = header.frame().saturating_sub(self.held);
            self.held = 0;
            self.in_step = true;
        }
    }

    /// Drops the first held byte, and those after it that begin no frame either.
    fn drop_to_next_magic(&mut self) {
        let held = self.head.get(1..self.held).unwrap_or_default();
        let dropped = 1 + held.iter().position(is_magic).unwrap_or(held.len());
        self.head.rotate_left(dropped);
        self.held -= dropped;
    }
}

fn is_magic(byte: &u8) -> bool {
    matches!(*byte, MAGIC_1 | MAGIC_2)
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::super::mavlink::COMMON;
    use super::super::mavlink::frames::{attitude, command, version_1, version_2};
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;
    use skybraid_units::Seed;

    /// Returns random bytes. They are not independent of each other, but independent of the
    /// classifier.
    fn noise(name: &str, length: usize) -> Vec<u8> {
        let mut stream = Seed(1).stream(name);
        (0..length).map(|_| stream.below(256) as u8).collect()
    }

    fn spans<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Span> {
        let mut found = Vec::new();
        let mut stream = StreamClassifier::new(Classifier::default());
        pieces.into_iter().for_each(|piece| stream.feed(piece, &mut |span| found.push(span)));
        found
    }

    fn places(spans: &[Span]) -> Vec<(u64, u64, Class)> {
        spans.iter().map(|span| (span.start, span.end, span.class)).collect()
    }

    #[test]
    fn a_frame_is_reported_as_soon_as_its_header_is_complete() {
        let mut stream = StreamClassifier::new(Classifier::default());
        let frame = command(1);
        let mut found = Vec::new();
        stream.feed(&frame[..9], &mut |span| found.push(span));
        assert_eq!((found.len(), stream.decided()), (0, 0));
        stream.feed(&frame[9..10], &mut |span| found.push(span));
        assert_eq!(places(&found), [(0, 45, Class::Control)]);
        assert_eq!(stream.decided(), 45);
    }

    #[test]
    fn an_added_message_is_found_anywhere() {
        let classifier = Classifier::new(&Config { add: alloc::vec![42_000], ..Config::default() });
        let own = version_2(1, 42_000, &[1; 20], 0, false);
        let bytes = [noise("b", 50), own].concat();
        let mut found = Vec::new();
        StreamClassifier::new(classifier).feed(&bytes, &mut |span| found.push(span));
        assert_eq!(places(&found), [(50, 82, Class::Control)]);
    }

    #[test]
    fn unknown_messages_are_found_after_a_frame_but_not_in_noise() {
        let unknown = version_1(1, 200, &[5; 12], 0);
        let alone = [noise("c", 30), unknown.clone()].concat();
        assert_eq!(spans([alone.as_slice()]), []);
        let following = [noise("c", 30), attitude(1), unknown].concat();
        assert_eq!(
            places(&spans([following.as_slice()])),
            [(30, 83, Class::Data), (83, 103, Class::Data)]
        );
    }

    #[test]
    fn after_lost_bytes_the_stream_recovers_within_two_frames() {
        let frames: Vec<Vec<u8>> = (0..20).map(command).collect();
        let whole = frames.concat();
        // Ten bytes lost in the middle of the sixth frame.
        let bytes = [&whole[..5 * 45 + 20], &whole[5 * 45 + 30..]].concat();
        let found = spans([bytes.as_slice()]);
        assert!(found.len() >= 18, "{}", found.len());
        assert_eq!(found.last().unwrap().end, bytes.len() as u64);
    }

    // A frame is missed if noise just before it looks like a header: after a frame, one byte of 256
    // is enough for that.
    #[test]
    fn nearly_all_frames_among_random_bytes_are_found() {
        let bytes = noise("e", 1_500_000);
        let mut place = 0;
        let pieces: Vec<Vec<u8>> = (0..5_000)
            .map(|number| {
                let gap = number * 37 % 500;
                let noise = &bytes[place..place + gap];
                place += gap;
                [noise, &command(number as u8)].concat()
            })
            .collect();
        let found = spans(pieces.iter().map(Vec::as_slice));
        let mut end = 0;
        let missed = pieces.iter().filter(|piece| {
            end += piece.len() as u64;
            !found.iter().any(|span| span.end == end && span.header.message == 76)
        });
        let missed = missed.count();
        assert!(missed < 15, "{missed} of 5000");
    }

    // A header of MAVLink 1 needs the magic byte, two senders that are not zero and one of the
    // known pairs of length and message; one of MAVLink 2 needs fewer coincidences of length and
    // more of the message number. Bytes mistaken for a frame hide 27 bytes on average.
    #[test]
    fn random_bytes_are_mistaken_as_rarely_as_expected() {
        let bytes = noise("d", 16_000_000);
        let found = spans(bytes.chunks(1_000));
        let control = found.iter().filter(|span| span.class == Class::Control).count() as f64;
        let senders = (255.0_f64 / 256.0).powi(2);
        let rate = |control: bool| {
            let wanted = COMMON.iter().filter(|known| known.control || !control);
            let (old, all) = (wanted.clone().filter(|known| known.message < 256), wanted);
            let (old, all, byte) = (old.count() as f64, all.count() as f64, 1.0 / 256.0_f64);
            let first = byte * senders * old * byte * byte;
            let second = byte * senders * (255.0 / 256.0) * 2.0 * byte * all * byte.powi(3);
            (first + second) * bytes.len() as f64
        };
        let (all, of_control) = (rate(false), rate(true));
        assert!((found.len() as f64 - all).abs() < 4.0 * all.sqrt(), "{} of {all}", found.len());
        let within = 4.0 * of_control.sqrt();
        assert!((control - of_control).abs() < within, "{control} of {of_control}");
        // About 27 false control frames in 16 MB of random bytes. Of random datagrams of up to 263
        // bytes, whose length must match as well, fewer than one in 100 000 is mistaken.
        assert!(of_control < 27.0);
        let classifier = Classifier::default();
        let mistaken = (0..bytes.len() - 263)
            .step_by(16)
            .filter(|at| {
                let length = 1 + (at / 16) % 263;
                classifier.classify(&bytes[*at..at + length]) == Class::Control
            })
            .count();
        assert!(mistaken < 10, "{mistaken} of a million");
    }

    /// Frames of both versions with noise between some of them.
    fn streams() -> impl Strategy<Value = Vec<u8>> {
        let payload = proptest::collection::vec(any::<u8>(), 1..60);
        let frame = (any::<bool>(), 0_u32..400, payload, any::<bool>(), any::<u8>());
        let frame = frame.prop_map(|(old, message, payload, signed, sequence)| {
            if old {
                version_1(sequence, message as u8, &payload, 0)
            } else {
                version_2(sequence, message, &payload, 0, signed)
            }
        });
        // Noise in which magic bytes are common.
        let byte = prop_oneof![3 => any::<u8>(), 1 => Just(0xfd), 1 => Just(0xfe), 1 => 0..4_u8];
        let noise = proptest::collection::vec(byte, 0..80);
        let piece = prop_oneof![3 => frame, 2 => noise];
        proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn spans_do_not_depend_on_the_pieces_of_a_stream(
            bytes in streams(),
            cuts in proptest::collection::vec(1_usize..40, 1..20),
        ) {
            let whole = spans([bytes.as_slice()]);
            let mut rest = bytes.as_slice();
            let pieces = cuts.iter().cycle().map_while(|cut| {
                let (piece, following) = rest.split_at_checked(*cut).unwrap_or((rest, &[]));
                rest = following;
                (!piece.is_empty()).then_some(piece)
            });
            prop_assert_eq!(spans(pieces), whole);
        }

        #[test]
        fn spans_are_disjoint_and_as_long_as_their_headers_say(bytes in streams()) {
            let mut end = 0;
            for span in spans([bytes.as_slice()]) {
                prop_assert!(span.start >= end);
                prop_assert_eq!(span.end - span.start, span.header.frame() as u64);
                let from = bytes.get(span.start as usize..).unwrap();
                prop_assert_eq!(Header::parse(from), Ok(span.header));
                end = span.end;
            }
            Classifier::default().classify(&bytes);
        }

        #[test]
        fn a_frame_in_noise_without_magic_bytes_is_found(
            before in proptest::collection::vec(0_u8..0xfd, 0..200),
            after in proptest::collection::vec(0_u8..0xfd, 0..200),
            old in any::<bool>(),
        ) {
            let frame = if old { version_1(3, 77, &[1, 2, 3], 143) } else { command(3) };
            let bytes = [before.as_slice(), &frame, &after].concat();
            let (start, end) = (before.len() as u64, (before.len() + frame.len()) as u64);
            prop_assert_eq!(places(&spans([bytes.as_slice()])), [(start, end, Class::Control)]);
        }
    }
}
