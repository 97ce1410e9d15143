//! Samples of a connection's subflows, as reported by the kernel.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use skybraid_host::record::SubflowRow;
use skybraid_units::Instant;
use socket2::{SockAddr, Socket};

use super::info::{MptcpInfo, SubflowInfo, TcpInfo, mptcp_info, subflows, tcp_info};

/// State of all subflows that one end of a connection has had.
#[derive(Debug)]
pub struct Subflows {
    /// The flow.
    flow: u16,
    /// True at the vehicle's end.
    vehicle: bool,
    /// The connection was opened with MPTCP.
    multipath: bool,
    /// Outgoing data is paced by the kernel.
    paced: bool,
    /// Paths in the connection's order: the vehicle's address and the index in the scenario.
    paths: Vec<(IpAddr, u16)>,
    known: Vec<Subflow>,
    connection: MptcpInfo,
}

/// A subflow.
#[derive(Clone, Copy, Debug)]
pub struct Subflow {
    local: SocketAddr,
    remote: SocketAddr,
    /// Path in the connection's numbering; `None` if the address belongs to none.
    pub path: Option<usize>,
    /// Last known state.
    pub last: TcpInfo,
    /// Segments considered lost since the start.
    lost: u64,
    /// The subflow existed at the last query.
    alive: bool,
    /// State and losses at the last row.
    sampled: Option<(TcpInfo, u64)>,
}

impl Subflows {
    /// Creates an empty state for an end of flow number `flow`.
    pub fn new(
        flow: usize,
        vehicle: bool,
        multipath: bool,
        paced: bool,
        paths: &[(IpAddr, u16)],
    ) -> Self {
        let (paths, connection) = (paths.to_vec(), MptcpInfo::default());
        Self { flow: flow as u16, vehicle, multipath, paced, paths, known: Vec::new(), connection }
    }

    /// Returns every subflow seen so far, by number.
    pub fn known(&self) -> &[Subflow] {
        &self.known
    }

    /// Returns the state of the MPTCP connection as a whole.
    pub const fn connection(&self) -> MptcpInfo {
        self.connection
    }

    /// Queries the kernel for the state of the subflows.
    ///
    /// # Errors
    /// Error of the kernel.
    pub fn sample(&mut self, socket: &Socket) -> io::Result<()> {
        let mut found = Vec::new();
        if self.multipath {
            let MptcpInfo { fell_back, reinjections } = mptcp_info(socket.as_fd())?;
            self.connection.fell_back |= fell_back;
            self.connection.reinjections = self.connection.reinjections.max(reinjections);
        }
        if self.multipath && !self.connection.fell_back {
            found = subflows(socket.as_fd())?;
        } else {
            found.extend(self.only_one(socket)?);
        }
        self.known.iter_mut().for_each(|subflow| subflow.alive = false);
        for subflow in found {
            self.note(subflow);
        }
        Ok(())
    }

    /// Returns a TCP connection as its only subflow; `None` until it is established.
    fn only_one(&self, socket: &Socket) -> io::Result<Option<SubflowInfo>> {
        let tcp = tcp_info(socket.as_fd())?;
        // A closed connection no longer has addresses.
        let known = self.known.first().map(|known| (known.local, known.remote));
        let addresses =
            known.or_else(|| canonical(socket.local_addr()).zip(canonical(socket.peer_addr())));
        Ok(addresses.map(|(local, remote)| SubflowInfo { local, remote, tcp }))
    }

    fn note(&mut self, found: SubflowInfo) {
        let SubflowInfo { local, remote, tcp } = found;
        let same = |known: &&mut Subflow| known.local == local && known.remote == remote;
        if let Some(known) = self.known.iter_mut().find(same) {
            (known.last, known.alive) = (tcp, true);
            known.lost = known.lost.max(tcp.total_lost());
            return;
        }
        let address = if self.vehicle { local } else { remote }.ip();
        let path = self.paths.iter().position(|(vehicle, _)| *vehicle == address);
        let (lost, sampled) = (tcp.total_lost(), None);
        self.known.push(Subflow { local, remote, path, last: tcp, lost, alive: true, sampled });
    }

    /// Returns a row for every existing subflow, with the changes since the last row. A subflow whose address
    /// belongs to no path has none.
    pub fn rows(&mut self, at: Instant) -> impl Iterator<Item = SubflowRow> {
        let (flow, vehicle, paced, paths) = (self.flow, self.vehicle, self.paced, &self.paths);
        let alive = self.known.iter_mut().enumerate().filter(|(_, subflow)| subflow.alive);
        alive.filter_map(move |(number, subflow)| {
            let (_, path) = *paths.get(subflow.path?)?;
            let now = subflow.last;
            let before = subflow.sampled.replace((now, subflow.lost));
            let reductions = u64::from(was_reduced(before.map(|(info, _)| info), now));
            let (before, lost) = before.unwrap_or_default();
            Some(SubflowRow {
                at,
                flow,
                end: u8::from(!vehicle),
                path,
                subflow: u8::try_from(number).unwrap_or(u8::MAX),
                window: now.window_bytes(),
                threshold: now.threshold_bytes(),
                srtt: now.srtt(),
                in_flight: now.in_flight_bytes(),
                acked_bytes: now.acked_bytes.saturating_sub(before.acked_bytes),
                retransmitted: now
                    .total_retransmitted
                    .wrapping_sub(before.total_retransmitted)
                    .into(),
                lost: subflow.lost - lost,
                reductions,
                pacing_bps: (paced && now.pacing != u64::MAX).then(|| now.pacing.saturating_mul(8)),
            })
        })
    }
}

/// Returns true if the window was reduced since `before`. The kernel does not count reductions; one is
/// detected by the state of recovery or by a new threshold after retransmissions, at most one between two
/// samples.
fn was_reduced(before: Option<TcpInfo>, now: TcpInfo) -> bool {
    let Some(before) = before else { return now.is_reduced() };
    let entered = now.is_reduced() && !before.is_reduced();
    let sent_again = now.total_retransmitted != before.total_retransmitted;
    entered || (sent_again && now.threshold != before.threshold)
}

fn canonical(address: io::Result<SockAddr>) -> Option<SocketAddr> {
    let address = address.ok()?.as_socket()?;
    Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subflow(local: &str, acked_bytes: u64) -> SubflowInfo {
        let tcp = TcpInfo { acked_bytes, segment: 1400, window: 10, ..TcpInfo::default() };
        let remote = "10.0.0.2:5000".parse().unwrap();
        SubflowInfo { local: local.parse().unwrap(), remote, tcp }
    }

    #[test]
    fn subflows_keep_their_numbers_and_rows_hold_what_is_new() {
        let paths = ["10.0.0.1", "10.1.0.1"].map(|address| address.parse().unwrap());
        let paths: Vec<_> = paths.into_iter().zip([4, 7]).collect();
        let mut subflows = Subflows::new(3, true, true, false, &paths);
        subflows.note(subflow("10.0.0.1:1000", 100));
        subflows.note(subflow("10.1.0.1:1001", 0));
        subflows.note(subflow("10.9.0.1:1002", 0));
        let rows: Vec<_> = subflows.rows(Instant::ZERO).collect();
        let numbers: Vec<_> = rows.iter().map(|row| (row.subflow, row.path)).collect();
        assert_eq!(numbers, [(0, 4), (1, 7)]);
        assert_eq!((rows[0].acked_bytes, rows[0].window, rows[0].pacing_bps), (100, 14_000, None));
        subflows.known.iter_mut().for_each(|subflow| subflow.alive = false);
        subflows.note(subflow("10.1.0.1:1001", 60));
        subflows.note(subflow("10.0.0.1:1003", 5));
        let rows: Vec<_> = subflows.rows(Instant::from_millis(100)).collect();
        let new: Vec<_> = rows.iter().map(|row| (row.subflow, row.path, row.acked_bytes)).collect();
        assert_eq!(new, [(1, 7, 60), (3, 4, 5)]);
        assert_eq!(subflows.known().len(), 4);
    }

    #[test]
    fn a_reduction_shows_as_recovery_or_as_a_new_threshold() {
        let open = TcpInfo { threshold: 50, ..TcpInfo::default() };
        let recovering = TcpInfo { recovery: 3, threshold: 30, total_retransmitted: 2, ..open };
        let over = TcpInfo { recovery: 0, total_retransmitted: 3, ..recovering };
        assert!(!was_reduced(None, open) && was_reduced(None, recovering));
        assert!(was_reduced(Some(open), recovering) && was_reduced(Some(open), over));
        assert!(!was_reduced(Some(recovering), over));
        assert!(!was_reduced(Some(over), TcpInfo { threshold: 60, ..over }));
    }
}
