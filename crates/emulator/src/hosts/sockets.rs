//! UDP sockets for the segments of Skybraid's own transports.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use skybraid_host::{Carried, Carrier, FlowId, Hosts, Numbered, Outgoing, Setup, SideId};
use skybraid_link::Cause;
use skybraid_transport::{PathId, Segment};
use skybraid_units::Instant;

use super::datagrams::{PathSocket, PathSockets, Sent};
use super::{Place, ports};

/// Sockets and timers of all sides.
pub struct Sockets {
    sides: Vec<Side>,
}

struct Side {
    sockets: PathSockets,
    /// Connection number in the datagrams.
    connection: u16,
    due: Instant,
}

impl Numbered for Side {
    type Id = SideId;
    const EXPECTED: &'static str = "a side of this run";
}

impl Sockets {
    /// Opens a socket for every path of every connection, at both ends.
    ///
    /// # Errors
    /// A socket cannot be created or bound.
    pub fn open(setup: &Setup, hosts: &Hosts, place: &Place<'_>) -> io::Result<Self> {
        let side = |side: SideId| {
            let flow = hosts.flow_of(side).map_or(0, FlowId::index);
            let paths = setup.flows.get(flow).map_or(&[][..], |flow| flow.paths.as_slice());
            let vehicle = side.is_initiator();
            let node = if vehicle { place.vehicle } else { place.ground };
            let open = |(own, path): (usize, &usize)| {
                let (here, there) = place.addresses(*path)?;
                let near = SocketAddr::new(here, ports::vehicle(flow, own));
                let far = SocketAddr::new(there, ports::ground(flow, own));
                Ok(if vehicle { (near, far) } else { (far, near) })
            };
            let ends = paths.iter().enumerate().map(open).collect::<io::Result<Vec<_>>>()?;
            let open =
                |(local, remote): &(SocketAddr, SocketAddr)| PathSocket::open(*local, *remote);
            let sockets = node.run(|| ends.iter().map(open).collect::<io::Result<Vec<_>>>())??;
            let (sockets, connection) = (PathSockets::new(sockets), flow as u16);
            Ok(Side { sockets, connection, due: Instant::FAR_FUTURE })
        };
        Ok(Self { sides: hosts.sides().map(side).collect::<io::Result<_>>()? })
    }

    /// Returns every socket with the number of its side.
    pub fn sockets(&self) -> impl Iterator<Item = (SideId, BorrowedFd<'_>)> {
        let numbered = self.numbered();
        numbered.flat_map(|(number, side)| {
            side.sockets.sockets().iter().map(move |socket| (number, socket.as_fd()))
        })
    }

    fn numbered(&self) -> impl Iterator<Item = (SideId, &Side)> {
        let numbered = self.sides.iter().enumerate();
        numbered.map(|(number, side)| (SideId::from_index(number), side))
    }

    /// Returns the expiry and the side of the earliest timer.
    pub fn next_due(&self) -> (Instant, SideId) {
        let due = self.numbered().map(|(number, side)| (side.due, number));
        due.min().unwrap_or((Instant::FAR_FUTURE, SideId::from_index(0)))
    }

    /// Clears the timer of side number `side` until the next [`wake_at`](Carrier::wake_at).
    pub fn clear(&mut self, side: SideId) {
        if let Some(side) = Side::find_mut(&mut self.sides, side) {
            side.due = Instant::FAR_FUTURE;
        }
    }

    /// Receives all pending datagrams of side number `side`.
    ///
    /// # Errors
    /// A socket has failed.
    pub fn receive(
        &mut self,
        now: Instant,
        side: SideId,
        mut each: impl FnMut(PathId, &Segment),
    ) -> io::Result<()> {
        let Some(Side { sockets, connection, .. }) = Side::find_mut(&mut self.sides, side) else {
            return Ok(());
        };
        let own = *connection;
        sockets.receive(now, |path, connection, segment, _| {
            if connection == own {
                each(path, segment);
            }
        })?;
        Ok(())
    }
}

impl Carrier for Sockets {
    /// A segment is lost if its socket's buffer is full, as in a full queue of the host, or if the peer is
    /// unreachable.
    fn carry(&mut self, _now: Instant, outgoing: &Outgoing<'_>) -> Carried {
        let side = Side::find_mut(&mut self.sides, outgoing.side);
        let Some(side) = side else { return Carried::InFlight };
        let transmit = outgoing.transmit;
        let sent = side.sockets.send(transmit.path, side.connection, &transmit.segment);
        match sent {
            Ok(Sent::Left) => Carried::InFlight,
            Ok(Sent::Unreachable) => Carried::Lost(Cause::Outage),
            Ok(Sent::Full) | Err(_) => Carried::Lost(Cause::Queue),
        }
    }

    fn wake_at(&mut self, side: SideId, due: Instant) {
        if let Some(side) = Side::find_mut(&mut self.sides, side) {
            side.due = side.due.min(due);
        }
    }
}
