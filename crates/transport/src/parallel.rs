//! Several independent TCP connections, one per path: what an application can do without multipath
//! transport, and the baseline for MPTCP.
//!
//! Messages are distributed over the connections in turn, so that each carries an equal share. Each
//! connection delivers its messages in order; there is no order between connections, and no message
//! moves from one to another. A connection whose send buffer is full is skipped while another has
//! room.
//!
//! Source: Pedrazzi 2020 (TCP case: one stream, split equally over k connections).

use alloc::sync::Arc;
use alloc::vec::Vec;

use skybraid_units::{Bytes, Instant, Promised};

use crate::endpoint::{ConnectionTotals, Role, SubflowSample, Transmit};
use crate::mptcp::Connection;
use crate::segment::{Segment, Tcp};
use crate::{Delivered, Message, PathId, PathInfo, PathSet, TransportConfig};

/// Number of the only path of each connection.
const OWN: PathId = PathId(0);

/// One end of several connections. Connection n uses path n.
#[derive(Debug)]
pub struct Parallel {
    connections: Vec<Connection>,
    /// Index of the connection that carries the next message.
    turn: usize,
}

impl Parallel {
    /// Creates one connection per path (at least one path; those beyond the 64th are ignored). The
    /// client opens all connections at once.
    pub fn new(config: &Arc<TransportConfig>, paths: &[PathInfo], role: Role) -> Self {
        let one = |path| Connection::new(config, core::slice::from_ref(path), role);
        Self { connections: paths.iter().take(PathSet::CAPACITY).map(one).collect(), turn: 0 }
    }

    /// Index of the connection that carries the next message.
    fn next(&self) -> usize {
        let (before, after) = self.connections.split_at(self.turn);
        let has_room =
            |connection: &Connection| connection.unacknowledged() < connection.send_buffer();
        let found = after.iter().chain(before).position(has_room).unwrap_or(0);
        (self.turn + found) % self.connections.len().max(1)
    }

    /// Queues a message on the next connection.
    pub fn write(&mut self, message: Message) {
        let next = self.next();
        if let Some(connection) = self.connections.get_mut(next).promised("a connection") {
            connection.write(message);
        }
        self.turn = if next + 1 < self.connections.len() { next + 1 } else { 0 };
    }

    /// Bytes written but not yet acknowledged on the connection that carries the next message.
    pub fn unacknowledged(&self) -> Bytes {
        let next = self.connections.get(self.next()).promised("a connection");
        next.map_or(Bytes::ZERO, Connection::unacknowledged)
    }

    /// Bytes that the send buffer of the connection that carries the next message holds.
    pub fn send_buffer(&self) -> Option<Bytes> {
        let next = self.connections.get(self.next()).promised("a connection");
        next.map(Connection::send_buffer)
    }

    /// Processes a segment that arrived on `path`.
    #[inline(never)]
    pub fn receive(&mut self, now: Instant, path: PathId, segment: &Segment, tcp: &Tcp) {
        if let Some(connection) = self.connections.get_mut(path.index()) {
            connection.receive(now, OWN, segment, tcp);
        }
    }

    /// Returns the next segment to send and its path.
    pub fn poll_send(&mut self, now: Instant) -> Option<Transmit> {
        self.connections.iter_mut().enumerate().find_map(|(index, connection)| {
            let transmit = connection.poll_send(now)?;
            Some(Transmit { path: PathId(index as u8), ..transmit })
        })
    }

    /// Returns the next message that is complete and in the order of its connection.
    pub fn poll_delivered(&mut self) -> Option<Delivered> {
        self.connections.iter_mut().enumerate().find_map(|(index, connection)| {
            let delivered = connection.poll_delivered()?;
            Some(Delivered { path: PathId(index as u8), ..delivered })
        })
    }

    /// Earliest instant at which [`wake`](Self::wake) must be called.
    pub fn next_wakeup(&self) -> Instant {
        self.connections.iter().map(Connection::next_wakeup).fold(Instant::FAR_FUTURE, Instant::min)
    }

    /// Fires expired timers.
    pub fn wake(&mut self, now: Instant) {
        for connection in &mut self.connections {
            connection.wake(now);
        }
    }

    /// Closes the sending side of all connections.
    pub fn close(&mut self) {
        self.connections.iter_mut().for_each(Connection::close);
    }

    /// Sums the totals of all connections.
    pub fn totals(&self, now: Instant) -> ConnectionTotals {
        let mut totals = ConnectionTotals::default();
        for connection in &self.connections {
            totals += connection.totals(now);
        }
        totals
    }

    /// Returns the state of each connection.
    pub fn samples(&self) -> impl Iterator<Item = SubflowSample> + '_ {
        self.connections.iter().enumerate().flat_map(|(index, connection)| {
            let path = PathId(index as u8);
            let subflow = path.0;
            connection.samples().map(move |sample| SubflowSample { subflow, path, ..sample })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Class, Endpoint, Protocol};
    use alloc::collections::VecDeque;
    use skybraid_units::Duration;

    /// A pair of endpoints over two wires of 10 ms. Segments on `dead` are lost.
    struct Pair {
        ends: [Endpoint; 2],
        wires: VecDeque<(Instant, usize, Transmit)>,
        dead: Option<PathId>,
        now: Instant,
        /// Numbers and paths of the delivered messages, in order of arrival.
        arrived: Vec<(u32, u8)>,
    }

    impl Pair {
        fn new(config: &TransportConfig) -> Self {
            let paths = [PathInfo::default(); 2];
            let ends = [Role::Client, Role::Server].map(|role| Endpoint::new(config, &paths, role));
            let (wires, arrived) = (VecDeque::new(), Vec::new());
            Self { ends, wires, dead: None, now: Instant::ZERO, arrived }
        }

        fn write(&mut self, id: u32, bytes: u32) {
            let message = Message { stream: 0, id, class: Class::Data, bytes, deadline: None };
            self.ends[0].write(self.now, message);
        }

        fn settle(&mut self) {
            for side in [0, 1] {
                while let Some(transmit) = self.ends[side].poll_send(self.now) {
                    if self.dead != Some(transmit.path) {
                        let arrives = self.now + Duration::from_millis(10);
                        self.wires.push_back((arrives, side, transmit));
                    }
                }
                while let Some(message) = self.ends[side].poll_delivered() {
                    self.arrived.push((message.id, message.path.0));
                }
            }
        }

        fn run_until(&mut self, end: Instant) {
            loop {
                self.settle();
                let arrival = self.wires.front().map_or(Instant::FAR_FUTURE, |(at, ..)| *at);
                let due = self.ends.iter().map(Endpoint::next_wakeup).fold(arrival, Instant::min);
                if due > end {
                    break;
                }
                self.now = due;
                while self.wires.front().is_some_and(|(at, ..)| *at <= due) {
                    let (_, side, transmit) = self.wires.pop_front().unwrap();
                    self.ends[1 - side].receive(due, transmit.path, &transmit.segment);
                }
                self.ends.iter_mut().for_each(|end| end.wake(due));
            }
            self.now = end;
        }
    }

    fn config() -> TransportConfig {
        TransportConfig { protocol: Protocol::ParallelTcp, ..TransportConfig::default() }
    }

    #[test]
    fn messages_take_turns_and_each_connection_keeps_order() {
        let mut pair = Pair::new(&config());
        for id in 0..1000 {
            pair.write(id, 100 + id % 3000);
        }
        pair.run_until(Instant::from_millis(5_000));
        for path in [0, 1] {
            let own: Vec<u32> =
                pair.arrived.iter().filter(|(_, by)| *by == path).map(|(id, _)| *id).collect();
            let expected: Vec<u32> = (0..1000).filter(|id| id % 2 == u32::from(path)).collect();
            assert_eq!(own, expected, "path {path}");
        }
    }

    #[test]
    fn a_dead_path_delays_no_other_connection() {
        let mut pair = Pair::new(&config());
        pair.dead = Some(PathId(1));
        (0..10).for_each(|id| pair.write(id, 500));
        pair.run_until(Instant::from_millis(1_000));
        assert_eq!(pair.arrived, [0, 2, 4, 6, 8].map(|id| (id, 0)));
        // The SYN repeated after 1 s is lost as well; the one after 3 s opens the connection.
        pair.dead = None;
        pair.run_until(Instant::from_millis(2_900));
        assert_eq!(pair.arrived.len(), 5);
        pair.run_until(Instant::from_millis(3_100));
        assert_eq!(pair.arrived.get(5..).unwrap(), [1, 3, 5, 7, 9].map(|id| (id, 1)));
    }

    #[test]
    fn a_connection_with_a_full_send_buffer_is_skipped() {
        let config = TransportConfig { send_buffer: Bytes::new(3_000), ..config() };
        let mut pair = Pair::new(&config);
        pair.dead = Some(PathId(1));
        for id in 0..6 {
            pair.write(id, 1_000);
        }
        assert_eq!(pair.ends[0].unacknowledged(), Bytes::new(3_000), "both are full");
        pair.run_until(Instant::from_millis(500));
        assert_eq!(pair.ends[0].unacknowledged(), Bytes::ZERO, "on the connection of path 0");
        (6..9).for_each(|id| pair.write(id, 1_000));
        pair.run_until(Instant::from_millis(900));
        assert_eq!(pair.arrived, [0, 2, 4, 6, 7, 8].map(|id| (id, 0)));
    }
}
