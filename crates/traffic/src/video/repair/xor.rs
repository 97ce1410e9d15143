//! Parity codes: each repair packet is the exclusive or of some source packets.
//!
//! Source: RFC 8627 §1.1 (rows, columns, and both), §6.3.4 (iterative decoding of both).

use core::iter::StepBy;
use core::ops::Range;

use skybraid_units::invariant::Promised as _;

use super::Code;

/// Returns the source packets that repair packet `repair` (from 0) of a group of `sources` covers; none
/// for a Reed–Solomon code.
pub(super) fn covered(code: Code, sources: usize, repair: usize) -> StepBy<Range<usize>> {
    let column = |column: usize, columns: usize| (column..sources).step_by(columns.max(1));
    match code {
        Code::Xor => column(0, 1),
        Code::Interleaved { columns } => column(repair, columns),
        Code::Grid { columns } => {
            let rows = sources.div_ceil(columns.max(1));
            if repair < rows {
                let start = repair * columns;
                (start..(start + columns).min(sources)).step_by(1)
            } else {
                column(repair - rows, columns)
            }
        }
        Code::ReedSolomon { .. } => column(sources, 1),
    }
}

/// Returns a source packet that is the only missing one of those that a known repair packet covers, and the
/// position of that repair packet.
pub(super) fn next_recoverable(
    code: Code,
    sources: usize,
    known: &[bool],
) -> Option<(usize, usize)> {
    let is_known = |position: usize| {
        known.get(position).copied().promised("a position of the group").unwrap_or(false)
    };
    (sources..known.len()).filter(|&repair| is_known(repair)).find_map(|repair| {
        let mut missing =
            covered(code, sources, repair - sources).filter(|&source| !is_known(source));
        let only = missing.next()?;
        missing.next().is_none().then_some((only, repair))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn sets(code: Code, sources: usize) -> Vec<Vec<usize>> {
        (0..code.repairs(sources)).map(|repair| covered(code, sources, repair).collect()).collect()
    }

    // Source: RFC 8627 §1.1.1 to §1.1.3, the drawings, with L = 3 columns and D = 2 rows.
    #[test]
    fn rows_and_columns_match_the_figures() {
        assert_eq!(sets(Code::Xor, 4), [[0, 1, 2, 3]]);
        assert_eq!(sets(Code::Interleaved { columns: 3 }, 6), [[0, 3], [1, 4], [2, 5]]);
        let rows = [[0, 1, 2].as_slice(), &[3, 4, 5]];
        let columns = [[0, 3].as_slice(), &[1, 4], &[2, 5]];
        assert_eq!(sets(Code::Grid { columns: 3 }, 6), [rows.as_slice(), &columns].concat());
    }

    #[test]
    fn each_packet_is_in_one_row_and_one_column() {
        for sources in 1..40 {
            for columns in 1..12 {
                let grid = sets(Code::Grid { columns }, sources);
                let interleaved = sets(Code::Interleaved { columns }, sources);
                for source in 0..sources {
                    let covers = |sets: &[Vec<usize>]| {
                        sets.iter().filter(|set| set.contains(&source)).count()
                    };
                    assert_eq!((covers(&grid), covers(&interleaved)), (2, 1));
                }
                assert!(grid.iter().all(|set| !set.is_empty()));
            }
        }
    }
}
