//! Sources of events, and their numbers in the agenda.

use skybraid_host::{DirectedLink, FlowId, SideId};

/// A source of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Next arrival on a wire.
    Wire(DirectedLink),
    /// Timer of a side of a connection.
    Side(SideId),
    /// Next write of an application.
    App(FlowId),
    /// Periodic samples.
    Sampler,
    /// Next change of an address.
    AddressChange,
}

/// Numbering of the sources: wires, then sides, then applications, then the sampler, then address changes. Sources
/// that are due at the same instant run in this order.
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
            Source::Wire(wire) => wire.index(),
            Source::Side(side) => self.first_side + side.index(),
            Source::App(app) => self.first_app + app.index(),
            Source::Sampler => self.sampler,
            Source::AddressChange => self.sampler + 1,
        }
    }

    /// Returns the source with this number.
    #[inline(always)]
    pub const fn source(self, index: usize) -> Source {
        if index < self.first_side {
            Source::Wire(DirectedLink::from_index(index))
        } else if index < self.first_app {
            Source::Side(SideId::from_index(index - self.first_side))
        } else if index < self.sampler {
            Source::App(FlowId::from_index(index - self.first_app))
        } else if index == self.sampler {
            Source::Sampler
        } else {
            Source::AddressChange
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_belongs_to_one_source() {
        let sources = Sources::new(4, 2, 1);
        assert_eq!(sources.count(), 9);
        for index in 0..sources.count() {
            assert_eq!(sources.index(sources.source(index)), index);
        }
        assert_eq!(sources.source(3), Source::Wire(DirectedLink::from_index(3)));
        assert_eq!(sources.source(5), Source::Side(SideId::from_index(1)));
        assert_eq!(sources.source(6), Source::App(FlowId::from_index(0)));
        assert_eq!(
            (sources.source(7), sources.source(8)),
            (Source::Sampler, Source::AddressChange)
        );
    }
}
