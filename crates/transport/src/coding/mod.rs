//! Sliding-window random linear code over datagrams: repair packets that replace any of those that
//! they cover.
//!
//! Source: RFC 8681 (coefficients of §3.6 at the highest density, field of §3.7.1). A repair packet
//! covers consecutive datagrams; any n packets that are independent recover n missing ones. What is
//! coded is a [head](head_of) of 12 bytes, which the simulator codes in earnest, and the payload
//! after it, which only a gateway has.

use alloc::collections::VecDeque;

use skybraid_units::field::add_product;

use crate::segment::{Datagram, REPAIR_HEAD, Repair};
use tiny_mt::TinyMt32;

mod decoder;
mod tiny_mt;

pub use decoder::{Decoder, Recovered};

/// Maximum datagrams that a repair packet covers.
pub const MAX_COVERED: u64 = 255;
/// Datagrams that both ends remember.
const REMEMBERED: usize = 1024;

/// Returns the coefficients of the datagrams that a repair packet covers; none is zero.
pub fn coefficients(key: u16) -> impl Iterator<Item = u8> {
    let mut generator = TinyMt32::new(key.into());
    core::iter::repeat_with(move || generator.next_u32() as u8).filter(|byte| *byte != 0)
}

/// Returns the head of a datagram: message, length, fragment and number of fragments.
pub fn head_of(datagram: &Datagram) -> [u8; REPAIR_HEAD] {
    let [a, b, c, d] = datagram.message.to_be_bytes();
    let [e, f, g, h] = datagram.len.to_be_bytes();
    let [i, j] = datagram.fragment.to_be_bytes();
    let [k, l] = datagram.fragments.to_be_bytes();
    [a, b, c, d, e, f, g, h, i, j, k, l]
}

/// Returns the datagram of a head; `None` if there can be none.
pub fn datagram_of(sequence: u64, head: [u8; REPAIR_HEAD]) -> Option<Datagram> {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = head;
    let (message, len) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
    let (fragment, fragments) = (u16::from_be_bytes([i, j]), u16::from_be_bytes([k, l]));
    let valid = fragment < fragments && len <= u32::from(u16::MAX);
    valid.then_some(Datagram { sequence, message, len, fragment, fragments })
}

/// Sender's memory of the newest datagrams.
#[derive(Clone, Debug, Default)]
pub struct Encoder {
    sent: VecDeque<Datagram>,
    key: u16,
}

impl Encoder {
    /// Records a datagram. Sequence numbers are consecutive.
    pub fn on_sent(&mut self, datagram: Datagram) {
        if self.sent.len() == REMEMBERED {
            self.sent.pop_front();
        }
        self.sent.push_back(datagram);
    }

    /// Returns a datagram that is remembered.
    pub fn sent(&self, sequence: u64) -> Option<&Datagram> {
        let oldest = self.sent.front()?.sequence;
        self.sent.get(usize::try_from(sequence.checked_sub(oldest)?).ok()?)
    }

    /// Returns the next repair packet of the datagrams from `first` to `last`, or of the newest [`MAX_COVERED`]
    /// of them if there are more; `None` if one is forgotten.
    pub fn repair(&mut self, first: u64, last: u64) -> Option<Repair> {
        let count = (last.checked_sub(first)? + 1).min(MAX_COVERED);
        let first = last + 1 - count;
        self.key = self.key.wrapping_add(1);
        let (mut head, mut len) = ([0; REPAIR_HEAD], 0);
        for (sequence, coefficient) in (first..=last).zip(coefficients(self.key)) {
            let datagram = self.sent(sequence)?;
            add_product(&mut head, &head_of(datagram), coefficient);
            len = len.max(datagram.len);
        }
        Some(Repair { first, count: count as u8, key: self.key, head, len })
    }
}
