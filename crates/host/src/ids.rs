//! Numbers of directed links and of routes.

use skybraid_link::Direction;

use crate::setup::Host;

/// Number of a directed link: link `n` is `2 n` from its first node to its second (uplink), `2 n + 1` back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirectedLink(usize);

impl DirectedLink {
    /// Returns the given direction of link number `link`.
    pub const fn new(link: usize, direction: Direction) -> Self {
        match direction {
            Direction::Uplink => Self(2 * link),
            Direction::Downlink => Self(2 * link + 1),
        }
    }

    /// Returns the directed link of this number.
    pub const fn from_index(index: usize) -> Self {
        Self(index)
    }

    /// Number of the directed link, as in [`Route::Fixed`](crate::Route::Fixed).
    pub const fn index(self) -> usize {
        self.0
    }

    /// Number of the link, a position in [`Setup::links`](crate::Setup::links).
    pub const fn link(self) -> usize {
        self.0 / 2
    }

    /// Whether it leads from the link's first node to its second.
    pub const fn is_uplink(self) -> bool {
        self.0.is_multiple_of(2)
    }

    /// Returns the other direction of the same link.
    pub const fn reverse(self) -> Self {
        Self(self.0 ^ 1)
    }
}

/// Number of a route: one direction of a path of [`Setup::paths`](crate::Setup::paths).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteId(usize);

impl RouteId {
    /// Returns the route that segments sent by `from` take on path number `path`.
    pub const fn new(path: usize, from: Host) -> Self {
        match from {
            Host::Vehicle => Self(2 * path),
            Host::Ground => Self(2 * path + 1),
        }
    }

    /// Position of the route: the two routes of the first path (from the vehicle, from the ground), then those
    /// of the second.
    pub const fn index(self) -> usize {
        self.0
    }

    /// Number of the path.
    pub const fn path(self) -> usize {
        self.0 / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_of_a_link_belong_to_it() {
        let up = DirectedLink::new(3, Direction::Uplink);
        let down = DirectedLink::new(3, Direction::Downlink);
        assert_eq!((up.reverse(), down.reverse()), (down, up));
        assert_eq!((up.link(), down.link()), (3, 3));
        assert!(up.is_uplink() && !down.is_uplink());
        assert_eq!((up.index(), DirectedLink::from_index(7)), (6, down));
    }

    #[test]
    fn both_routes_of_a_path_belong_to_it() {
        let routes = [Host::Vehicle, Host::Ground].map(|host| RouteId::new(2, host));
        assert_eq!(routes.map(RouteId::index), [4, 5]);
        assert_eq!(routes.map(RouteId::path), [2, 2]);
    }
}
