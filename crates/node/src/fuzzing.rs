//! Entry point of the fuzz target `parsers`: every parser of this crate that reads external bytes.

use crate::http::{Answer, answer_to};
use crate::interfaces::Table;
use crate::local::{frames, offload};
use crate::network::frame::Unframer;

/// Number of parsers.
pub const PARSERS: u8 = 6;

/// Runs one of the parsers on `bytes`; a stream is passed in two pieces, split at `cut`.
pub fn parse(parser: u8, cut: u8, bytes: &[u8]) {
    let (first, second) = bytes.split_at(usize::from(cut).min(bytes.len()));
    match parser % PARSERS {
        0 => {
            let (mut framer, mut inside) = (frames::Framer::new(), 0);
            let outside: u64 = [first, second]
                .iter()
                .map(|piece| framer.feed(piece, &mut |frame| inside += frame.len()))
                .sum();
            assert!(inside as u64 + outside <= bytes.len() as u64);
        }
        1 => {
            let mut inside = 0;
            let outside = frames::cut(bytes, &mut |frame| inside += frame.len());
            assert_eq!(inside as u64 + outside, bytes.len() as u64);
        }
        2 => {
            let mut unframer = Unframer::default();
            for piece in [first, second] {
                if unframer.feed(piece, &mut |datagram| assert!(!datagram.is_empty())).is_err() {
                    break;
                }
            }
        }
        3 => {
            let (mut packet, mut scratch) = (bytes.to_vec(), Vec::new());
            let mut count = 0;
            let segments = offload::segment(&mut packet, &mut scratch, &mut |_| count += 1);
            assert_eq!(segments, count);
        }
        4 => drop(answer_to(bytes, &|_| true, &|path| Answer::new("text/plain", path))),
        _ => drop(Table::default().learn(bytes)),
    }
}
