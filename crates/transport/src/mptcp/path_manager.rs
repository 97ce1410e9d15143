//! Which subflows a connection opens.
//!
//! Source: Linux out-of-tree MPTCP, `mptcp_fullmesh.c` and `mptcp_ndiffports.c`.

use alloc::vec::Vec;

use crate::PathId;

/// Which subflows a connection opens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathManager {
    /// One on every path.
    #[default]
    FullMesh,
    /// This many on the first path, told apart by their ports (`ndiffports`).
    Ports(u8),
    /// One on the first path; over the others when the server has announced them (ADD_ADDR).
    Announced,
}

impl PathManager {
    /// The path of each subflow that may exist, over `paths` paths. The first one opens the connection.
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
    fn a_full_mesh_takes_every_path_and_ports_share_the_first() {
        assert_eq!(PathManager::FullMesh.subflows(3), [PathId(0), PathId(1), PathId(2)]);
        assert_eq!(PathManager::Ports(2).subflows(3), [PathId(0), PathId(0)]);
    }
}
