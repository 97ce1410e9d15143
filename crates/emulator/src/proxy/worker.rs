//! Proxy thread: accepts, connects, and copies bytes when sockets are ready.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration as StdDuration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use socket2::Socket;

use super::Statistics;
use super::connection::{Connection, Progress, Split, abort};
use super::flow::Flow;
use super::listeners::{Door, Listeners, Maker};
use super::syn::Syn;

/// Subject of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Bell,
    Listener(Door),
    Connection(u64),
}

const LISTENER: u64 = 1 << 62;
const IPV6: u64 = 1 << 16;
const BELL: u64 = u64::MAX;

impl Subject {
    fn token(self) -> u64 {
        match self {
            Self::Bell => BELL,
            Self::Listener(door) => {
                LISTENER | if door.ipv6 { IPV6 } else { 0 } | u64::from(door.port)
            }
            Self::Connection(number) => number,
        }
    }

    fn of_token(token: u64) -> Self {
        if token == BELL {
            Self::Bell
        } else if token & LISTENER != 0 {
            Self::Listener(Door { ipv6: token & IPV6 != 0, port: token as u16 })
        } else {
            Self::Connection(token)
        }
    }
}

/// Connections and statistics.
#[derive(Default)]
struct Table {
    connections: BTreeMap<u64, Connection>,
    statistics: Statistics,
    next: u64,
}

/// State shared by the proxy's thread, hooks and owner.
pub(super) struct Shared {
    maker: Maker,
    own: BTreeSet<IpAddr>,
    epoll: Epoll,
    wakeup: EventFd,
    listeners: Mutex<Option<Listeners>>,
    table: Mutex<Table>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Creates the state; `own` are the addresses of the proxy's node.
    pub fn new(maker: Maker, own: BTreeSet<IpAddr>) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let wakeup = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        epoll.add(&wakeup, EpollEvent::new(EpollFlags::EPOLLIN, Subject::Bell.token()))?;
        let (listeners, table) = (Mutex::new(Some(Listeners::default())), Mutex::default());
        Ok(Self { maker, own, epoll, wakeup, listeners, table })
    }

    /// Inspects a packet before it reaches the proxy and creates a missing listener for the connection that
    /// it opens.
    pub fn on_packet(&self, packet: &[u8]) {
        let Some(syn) = Syn::read(packet) else { return };
        if syn.multipath {
            locked(&self.table).statistics.multipath += 1;
        }
        let mut guard = locked(&self.listeners);
        // There are no listeners once the proxy has stopped.
        let Some(listeners) = guard.as_mut() else { return };
        if listeners.get(syn.door).is_none() && self.open(syn.door, listeners).is_err() {
            drop(guard);
            locked(&self.table).statistics.unheard += 1;
        }
    }

    fn open(&self, door: Door, listeners: &mut Listeners) -> io::Result<()> {
        let listener = self.maker.listener(door)?;
        let token = Subject::Listener(door).token();
        self.epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, token))?;
        listeners.keep(door, listener.into());
        Ok(())
    }

    pub fn statistics(&self) -> Statistics {
        let table = locked(&self.table);
        Statistics { open: table.connections.len() as u64, ..table.statistics }
    }

    pub fn connections(&self) -> Vec<Split> {
        locked(&self.table).connections.values().map(Connection::look).collect()
    }

    /// Ends [`run`](Self::run) and prevents hooks from creating listeners.
    pub fn stop(&self) {
        *locked(&self.listeners) = None;
        // A pending wakeup is sufficient.
        self.wakeup.write(1).ok();
    }

    /// Runs the proxy until stopped; the calling thread must be in the proxy's namespace.
    pub fn run(&self) {
        let mut events = [EpollEvent::empty(); 64];
        let mut ready = BTreeSet::new();
        loop {
            let timeout = if ready.is_empty() { EpollTimeout::NONE } else { EpollTimeout::ZERO };
            let count = match self.epoll.wait(&mut events, timeout) {
                Ok(count) => count,
                Err(Errno::EINTR) => continue,
                Err(_) => break,
            };
            for event in events.iter().take(count) {
                match Subject::of_token(event.data()) {
                    Subject::Bell => return self.close(),
                    Subject::Listener(door) => self.accept(door),
                    Subject::Connection(number) => {
                        ready.insert(number);
                    }
                }
            }
            for number in std::mem::take(&mut ready) {
                if self.advance(number) == Progress::HasMore {
                    ready.insert(number);
                }
            }
        }
        self.close();
    }

    fn close(&self) {
        let connections = std::mem::take(&mut locked(&self.table).connections);
        connections.into_values().for_each(Connection::abort);
    }

    /// Accepts all pending connections of a listener.
    fn accept(&self, door: Door) {
        let Some(listener) = locked(&self.listeners).as_ref().and_then(|all| all.get(door)) else {
            return;
        };
        loop {
            let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
            match listener.accept4(flags) {
                Ok((near, _)) => self.split(near),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                        // The listener stays readable.
                        return std::thread::sleep(StdDuration::from_millis(10));
                    }
                    // The client has disconnected.
                    _ => continue,
                },
            }
        }
    }

    /// Connects to the server in the client's name.
    fn split(&self, near: Socket) {
        let mut table = locked(&self.table);
        table.statistics.opened += 1;
        let number = table.next;
        table.next += 1;
        match self.connect(number, &near) {
            Ok((far, client, server)) => {
                let (to_server, to_client) = (Flow::new(), Flow::new());
                let established = false;
                let connection =
                    Connection { client, server, near, far, to_server, to_client, established };
                table.connections.insert(number, connection);
            }
            Err(_) => {
                table.statistics.failed += 1;
                abort(&near);
            }
        }
    }

    fn connect(&self, number: u64, near: &Socket) -> io::Result<(Socket, SocketAddr, SocketAddr)> {
        let unknown = || io::Error::from(ErrorKind::AddrNotAvailable);
        let server = near.local_addr()?.as_socket().ok_or_else(unknown)?;
        let client = near.peer_addr()?.as_socket().ok_or_else(unknown)?;
        if self.own.contains(&server.ip()) {
            // The node itself has no listeners.
            return Err(io::Error::from(ErrorKind::ConnectionRefused));
        }
        let far = self.maker.socket(server.is_ipv6())?;
        far.bind(&client.into())?;
        match far.connect(&server.into()) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
            _ => {}
        }
        for side in [near, &far] {
            let edges = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLET;
            self.epoll.add(side, EpollEvent::new(edges, Subject::Connection(number).token()))?;
        }
        Ok((far, client, server))
    }

    fn advance(&self, number: u64) -> Progress {
        let mut guard = locked(&self.table);
        let table = &mut *guard;
        let Some(connection) = table.connections.get_mut(&number) else { return Progress::Over };
        let before = [connection.to_server.passed, connection.to_client.passed];
        let result = connection.advance();
        let count = &mut table.statistics;
        let held = connection.to_server.max_held.max(connection.to_client.max_held);
        count.max_held = count.max_held.max(held as u64);
        count.to_server += connection.to_server.passed - before[0];
        count.to_client += connection.to_client.passed - before[1];
        let established = connection.established;
        match result {
            Ok(Progress::Over) => {
                count.finished += 1;
                table.connections.remove(&number);
                Progress::Over
            }
            Ok(progress) => progress,
            Err(_) => {
                if established {
                    count.reset += 1;
                } else {
                    count.failed += 1;
                }
                if let Some(connection) = table.connections.remove(&number) {
                    connection.abort();
                }
                Progress::Over
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_identifies_the_subject_of_an_event() {
        let door = |ipv6| Subject::Listener(Door { ipv6, port: 65_535 });
        for subject in [Subject::Bell, door(false), door(true), Subject::Connection(77)] {
            assert_eq!(Subject::of_token(subject.token()), subject);
        }
    }
}
