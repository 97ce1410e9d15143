//! Sources of events, and their numbers in the agenda.

use skybraid_host::{DirectedLink, FlowId, SideId};

/// A source of events other than the next arrival on a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Timer of a side of a connection.
    Side(SideId),
    /// Next write of an application.
    App(FlowId),
    /// Periodic samples.
    Sampler,
    /// Next change of an address.
    AddressChange,
}

/// Numbering of the sources: wires, by the numbers of their links, then sides, then applications, then the sampler,
/// then address changes. Sources that are due at the same instant run in this order.
#[derive(Clone, Copy, Debug)]
pub struct Sources {
    first_side: usize,
    first_app: usize,
    sampler: usize,
}

impl Sources {
    /// Creates the numbering for these numbers of sources.
    pub const fn new(wires: usize, sides: usize, apps: usize) -> Self {
        Self { first_side: wires, first_app: wires + sides, sampler: wires + sides + apps }
    }

    /// Number of sources.
    pub const fn count(self) -> usize {
        self.sampler + 2
    }

    /// Returns the number of a source in the agenda.
    #[inline]
    pub const fn index(self, source: Source) -> usize {
        match source {
            Source::Side(side) => self.first_side + side.index(),
            Source::App(app) => self.first_app + app.index(),
            Source::Sampler => self.sampler,
            Source::AddressChange => self.sampler + 1,
        }
    }

    /// Returns the wire with this number in the agenda, if it is that of one.
    #[inline]
    pub fn wire(self, index: usize) -> Option<DirectedLink> {
        (index < self.first_side).then(|| DirectedLink::from_index(index))
    }

    /// Returns the side with this number in the agenda, if it is that of one.
    #[inline]
    pub fn side(self, index: usize) -> Option<SideId> {
        let is_side = self.first_side <= index && index < self.first_app;
        is_side.then(|| SideId::from_index(index - self.first_side))
    }

    /// Returns the application with this number in the agenda, if it is that of one.
    #[inline]
    pub fn app(self, index: usize) -> Option<FlowId> {
        let is_app = self.first_app <= index && index < self.sampler;
        is_app.then(|| FlowId::from_index(index - self.first_app))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn every_number_belongs_to_one_source() {
        let sources = Sources::new(4, 2, 1);
        assert_eq!(sources.count(), 9);
        for index in 0..sources.count() {
            let found = [
                sources.wire(index).map(DirectedLink::index),
                sources.side(index).map(|side| sources.index(Source::Side(side))),
                sources.app(index).map(|app| sources.index(Source::App(app))),
                (index == 7).then(|| sources.index(Source::Sampler)),
                (index == 8).then(|| sources.index(Source::AddressChange)),
            ];
            let found: Vec<usize> = found.into_iter().flatten().collect();
            assert_eq!(found, [index]);
        }
    }
}
