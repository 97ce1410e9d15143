//! Path managers: the subflows that a connection opens.
//!
//! Source: Linux out-of-tree MPTCP, `mptcp_fullmesh.c` and `mptcp_ndiffports.c`.

use alloc::vec::Vec;

use crate::PathId;

/// Subflows that a connection opens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathManager {
    /// One subflow per path.
    #[default]
    FullMesh,
    /// This many subflows on the first path, identified by their ports (`ndiffports`).
    Ports(u8),
    /// One subflow on the first path, and one on each path that the server announces (ADD_ADDR).
    Announced,
}

/// Event after which a client joins further subflows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JoinAfter {
    /// The handshake of the first subflow.
    #[default]
    Handshake,
    /// The first DSS option from the server, in data or in an acknowledgement of data (RFC 8684 §3.1).
    Dss,
}

impl JoinAfter {
    /// Value in scenarios.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::Dss => "dss",
        }
    }
}

impl PathManager {
    /// Returns the path of each initial subflow over `paths` paths. The first one opens the
    /// connection.
    pub fn subflows(self, paths: usize) -> Vec<PathId> {
        match self {
            Self::Ports(ports) => (0..ports.max(1)).map(|_| PathId(0)).collect(),
            Self::FullMesh => (0..paths).map(|path| PathId(path as u8)).collect(),
            Self::Announced => (0..paths.min(1)).map(|path| PathId(path as u8)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_mesh_uses_every_path_and_ports_share_the_first() {
        assert_eq!(PathManager::FullMesh.subflows(3), [PathId(0), PathId(1), PathId(2)]);
        assert_eq!(PathManager::Ports(2).subflows(3), [PathId(0), PathId(0)]);
    }
}
