//! Rows of undelivered messages whose block has been dropped.

use alloc::collections::VecDeque;

use skybraid_units::Instant;

use super::MessageRow;

/// Rows of undelivered messages, apart from their blocks, so that a lost message does not keep the rows after it. In
/// order of message numbers.
#[derive(Debug, Default)]
pub struct Stragglers(VecDeque<Straggler>);

#[derive(Debug)]
struct Straggler {
    id: u32,
    /// Time of writing of the newest message in its block.
    newest: Instant,
    row: MessageRow,
}

impl Stragglers {
    /// Adds the row of a message after those of all messages before.
    pub fn push(&mut self, id: u32, newest: Instant, row: MessageRow) {
        self.0.push_back(Straggler { id, newest, row });
    }

    /// Returns the row of message `id`, if it is kept.
    #[cold]
    #[inline(never)]
    pub fn get_mut(&mut self, id: u32) -> Option<&mut MessageRow> {
        let place = self.0.binary_search_by_key(&id, |straggler| straggler.id).ok()?;
        self.0.get_mut(place).map(|straggler| &mut straggler.row)
    }

    /// Takes the first row if all of its block was written before `time`.
    pub fn take_before(&mut self, time: Instant) -> Option<(u32, MessageRow)> {
        self.0.front().filter(|first| first.newest < time)?;
        self.0.pop_front().map(|first| (first.id, first.row))
    }

    /// Returns the rows with the numbers of their messages.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &MessageRow)> {
        self.0.iter().map(|straggler| (straggler.id, &straggler.row))
    }
}
