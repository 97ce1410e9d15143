//! Numbers of what a run consists of, and lookups by them.

use skybraid_link::Direction;
use skybraid_units::Promised;

use crate::setup::Host;

/// A thing that a run keeps in a list and finds by its number.
pub trait Numbered: Sized {
    /// Type of the number.
    type Id: Into<usize>;
    /// Expectation of a lookup, for the report of a broken invariant.
    const EXPECTED: &'static str;

    /// Returns the element number `id` of `all`, which must exist.
    #[inline]
    #[track_caller]
    fn find(all: &[Self], id: Self::Id) -> Option<&Self> {
        all.get(id.into()).promised(Self::EXPECTED)
    }

    /// Returns the element number `id` of `all`, which must exist.
    #[inline]
    #[track_caller]
    fn find_mut(all: &mut [Self], id: Self::Id) -> Option<&mut Self> {
        all.get_mut(id.into()).promised(Self::EXPECTED)
    }
}

/// Declares a number with its conversions from and to a position.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($inner);

        impl $name {
            /// Returns the number of the element at position `index`.
            #[inline]
            pub const fn from_index(index: usize) -> Self {
                Self(index as $inner)
            }

            /// Position of the element.
            #[inline]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl From<$name> for usize {
            #[inline]
            fn from(id: $name) -> Self {
                id.index()
            }
        }
    };
}

number! {
    /// Number of a flow and of its application: a position in [`Setup::flows`](crate::Setup::flows).
    FlowId(u16)
}
number! {
    /// Number of a record of messages: a position in [`Outcome::flows`](crate::Outcome::flows).
    RecordId(u16)
}
number! {
    /// Number of a side of a connection. The two sides of a connection are neighbours, the initiator first.
    SideId(u32)
}
number! {
    /// Number of a proxy.
    RelayId(u32)
}

impl SideId {
    /// Returns the other side of the same connection.
    #[inline]
    pub const fn other(self) -> Self {
        Self(self.0 ^ 1)
    }

    /// Whether it is the side that opens the connection.
    pub const fn is_initiator(self) -> bool {
        self.0.is_multiple_of(2)
    }
}

/// Number of a directed link: link `n` is `2 n` from its first node to its second (uplink), `2 n + 1` back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirectedLink(u32);

impl From<DirectedLink> for usize {
    #[inline]
    fn from(link: DirectedLink) -> Self {
        link.index()
    }
}

impl DirectedLink {
    /// Returns the given direction of link number `link`.
    pub const fn new(link: usize, direction: Direction) -> Self {
        match direction {
            Direction::Uplink => Self(2 * link as u32),
            Direction::Downlink => Self(2 * link as u32 + 1),
        }
    }

    /// Returns both directions of link number `link`.
    pub const fn both(link: usize) -> [Self; 2] {
        [Self::new(link, Direction::Uplink), Self::new(link, Direction::Downlink)]
    }

    /// Returns the directed link of this number.
    #[inline]
    pub const fn from_index(index: usize) -> Self {
        Self(index as u32)
    }

    /// Number of the directed link.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Number of the link, a position in [`Setup::links`](crate::Setup::links).
    pub const fn link(self) -> usize {
        self.0 as usize / 2
    }

    /// Direction in which packets cross the link.
    pub const fn direction(self) -> Direction {
        if self.0.is_multiple_of(2) { Direction::Uplink } else { Direction::Downlink }
    }

    /// Returns the other direction of the same link.
    #[inline]
    pub const fn reverse(self) -> Self {
        Self(self.0 ^ 1)
    }

    /// Returns the nodes at which a packet enters and leaves, from the `ends` of the link.
    pub const fn orient(self, ends: [usize; 2]) -> [usize; 2] {
        let [first, second] = ends;
        match self.direction() {
            Direction::Uplink => [first, second],
            Direction::Downlink => [second, first],
        }
    }
}

/// Number of a route: one direction of a path of [`Setup::paths`](crate::Setup::paths).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteId(u32);

impl From<RouteId> for usize {
    #[inline]
    fn from(route: RouteId) -> Self {
        route.index()
    }
}

impl RouteId {
    /// Returns the route that segments sent by `from` take on path number `path`.
    #[inline]
    pub const fn new(path: usize, from: Host) -> Self {
        match from {
            Host::Vehicle => Self(2 * path as u32),
            Host::Ground => Self(2 * path as u32 + 1),
        }
    }

    /// Position of the route: the two routes of the first path (from the vehicle, from the ground), then those
    /// of the second.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Number of the path.
    pub const fn path(self) -> usize {
        self.0 as usize / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_of_a_link_belong_to_it() {
        let [up, down] = DirectedLink::both(3);
        assert_eq!((up.reverse(), down.reverse()), (down, up));
        assert_eq!((up.link(), down.link()), (3, 3));
        assert_eq!(
            [up, down].map(DirectedLink::direction),
            [Direction::Uplink, Direction::Downlink]
        );
        assert_eq!([up, down].map(|link| link.orient([8, 9])), [[8, 9], [9, 8]]);
        assert_eq!((up.index(), DirectedLink::from_index(7)), (6, down));
    }

    #[test]
    fn the_two_sides_of_a_connection_are_each_others_other() {
        let [initiator, responder] = [6, 7].map(SideId::from_index);
        assert_eq!((initiator.other(), responder.other()), (responder, initiator));
        assert!(initiator.is_initiator() && !responder.is_initiator());
    }

    #[test]
    fn both_routes_of_a_path_belong_to_it() {
        let routes = [Host::Vehicle, Host::Ground].map(|host| RouteId::new(2, host));
        assert_eq!(routes.map(RouteId::index), [4, 5]);
        assert_eq!(routes.map(RouteId::path), [2, 2]);
    }
}
