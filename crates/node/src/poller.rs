//! Waiting for the next descriptor that is ready, or the next due time.

use std::io;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use skybraid_units::Instant;

use skybraid_io::clock::Clock;

/// Maximum sources reported by one wake-up.
const MAX_READY: usize = 256;

/// Owner of a descriptor. Ready ones are served in this order: control first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The timer.
    Timer,
    /// SIGTERM, SIGINT.
    Signal,
    /// A UDP socket of the network side.
    Socket(u8),
    /// A listener of the network side.
    Listener(u8),
    /// A stream of the network side, by number.
    Stream(u32),
    /// A MAVLink end: its socket, device or listener.
    Mavlink(u8),
    /// A connection of a MAVLink end.
    Client(u8, u32),
    /// A UDP port.
    Port(u8),
    /// The TUN interface.
    Tun,
    /// News about interfaces.
    Interfaces,
    /// A name has been resolved.
    Names,
}

impl Source {
    const fn token(self) -> u64 {
        let (kind, place, number) = match self {
            Self::Timer => (0, 0, 0),
            Self::Signal => (1, 0, 0),
            Self::Socket(place) => (2, place, 0),
            Self::Listener(place) => (3, place, 0),
            Self::Stream(number) => (4, 0, number),
            Self::Mavlink(place) => (5, place, 0),
            Self::Client(place, number) => (6, place, number),
            Self::Port(place) => (7, place, 0),
            Self::Tun => (8, 0, 0),
            Self::Interfaces => (9, 0, 0),
            Self::Names => (10, 0, 0),
        };
        kind << 40 | (place as u64) << 32 | number as u64
    }

    const fn of(token: u64) -> Self {
        let (place, number) = ((token >> 32) as u8, token as u32);
        match token >> 40 {
            0 => Self::Timer,
            1 => Self::Signal,
            2 => Self::Socket(place),
            3 => Self::Listener(place),
            4 => Self::Stream(number),
            5 => Self::Mavlink(place),
            6 => Self::Client(place, number),
            7 => Self::Port(place),
            8 => Self::Tun,
            9 => Self::Interfaces,
            _ => Self::Names,
        }
    }
}

/// A source that is ready.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// Owner of the descriptor.
    pub source: Source,
    /// There is room to write.
    pub writable: bool,
    /// There is something to read, or an end or error to be found by reading.
    pub readable: bool,
}

/// An epoll instance with one timer.
pub struct Poller {
    epoll: Epoll,
    timer: TimerFd,
    clock: Clock,
    /// Time at which the timer fires.
    armed: Instant,
    events: [EpollEvent; MAX_READY],
    /// When the last wait but one began, and when the last one did.
    began: [Instant; 2],
}

impl Poller {
    /// A poller that watches its timer alone.
    pub fn new(clock: Clock) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        let events = [EpollEvent::empty(); MAX_READY];
        let began = [clock.now(); 2];
        let poller = Self { epoll, timer, clock, armed: Instant::FAR_FUTURE, events, began };
        poller.watch(&poller.timer, Source::Timer)?;
        Ok(poller)
    }

    /// The time.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// The clock.
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    /// When the last wait but one began: a descriptor that is ready now and was not at its end has had
    /// nothing to read then.
    pub const fn floor(&self) -> Instant {
        self.began[0]
    }

    /// Watches a descriptor for something to read. It is forgotten when it is closed.
    pub fn watch(&self, fd: &impl AsFd, source: Source) -> io::Result<()> {
        Ok(self.epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, source.token()))?)
    }

    /// Watches a descriptor that is watched already for something to read and, perhaps, for room.
    pub fn watch_room(&self, fd: &impl AsFd, source: Source, room: bool) -> io::Result<()> {
        let write = if room { EpollFlags::EPOLLOUT } else { EpollFlags::empty() };
        let mut event = EpollEvent::new(EpollFlags::EPOLLIN | write, source.token());
        Ok(self.epoll.modify(fd, &mut event)?)
    }

    /// Watches a descriptor that is watched already no longer, until [`resume`](Self::resume).
    pub fn pause(&self, fd: &impl AsFd, source: Source) -> io::Result<()> {
        let mut event = EpollEvent::new(EpollFlags::empty(), source.token());
        Ok(self.epoll.modify(fd, &mut event)?)
    }

    /// Watches a paused descriptor for something to read again.
    pub fn resume(&self, fd: &impl AsFd, source: Source) -> io::Result<()> {
        self.watch_room(fd, source, false)
    }

    /// Waits until something is ready or `due` has come, and gives what is ready in the order of
    /// [`Source`]s. `now` was read just before.
    pub fn wait(&mut self, now: Instant, due: Instant, ready: &mut Vec<Ready>) -> io::Result<()> {
        ready.clear();
        self.began = [self.began[1], now];
        let timeout = if due <= now { EpollTimeout::ZERO } else { EpollTimeout::NONE };
        // A timer that goes off too early costs a look; setting it again each time costs more.
        if due > now && due < self.armed {
            let at = TimeSpec::from(std::time::Duration::from_nanos(
                self.clock.as_monotonic_ns(due).max(1) as u64,
            ));
            self.timer.set(Expiration::OneShot(at), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
            self.armed = due;
        }
        let count = match self.epoll.wait(&mut self.events, timeout) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(error) => return Err(error.into()),
        };
        for event in self.events.iter().take(count) {
            let source = Source::of(event.data());
            if source == Source::Timer {
                // It is not ready any more after this.
                self.timer.wait().ok();
                self.armed = Instant::FAR_FUTURE;
                continue;
            }
            let writable = event.events().contains(EpollFlags::EPOLLOUT);
            let readable = !event.events().difference(EpollFlags::EPOLLOUT).is_empty();
            ready.push(Ready { source, writable, readable });
        }
        ready.sort_unstable_by_key(|ready| ready.source);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skybraid_units::Duration;
    use std::net::UdpSocket;

    #[test]
    fn sources_keep_their_numbers() {
        for source in [
            Source::Timer,
            Source::Signal,
            Source::Socket(7),
            Source::Listener(3),
            Source::Stream(u32::MAX),
            Source::Mavlink(255),
            Source::Client(9, 123_456),
            Source::Port(1),
            Source::Tun,
            Source::Interfaces,
            Source::Names,
        ] {
            assert_eq!(Source::of(source.token()), source);
        }
    }

    #[test]
    fn what_is_ready_comes_in_order_and_a_due_time_ends_the_wait() {
        let clock = Clock::starting_now();
        let mut poller = Poller::new(clock).unwrap();
        let sockets = [Source::Tun, Source::Mavlink(1), Source::Socket(2)].map(|source| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            poller.watch(&socket, source).unwrap();
            socket
        });
        let mut ready = Vec::new();
        let now = clock.now();
        let due = now + Duration::from_millis(3);
        poller.wait(now, due, &mut ready).unwrap();
        assert!(ready.is_empty() && clock.now() >= due);
        for socket in &sockets {
            socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        }
        poller.wait(clock.now(), Instant::FAR_FUTURE, &mut ready).unwrap();
        let order: Vec<Source> = ready.iter().map(|ready| ready.source).collect();
        assert_eq!(order, [Source::Socket(2), Source::Mavlink(1), Source::Tun]);
    }
}
