//! Polling of descriptors and timers.

use std::io;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use skybraid_units::Instant;

use skybraid_io::clock::Clock;

/// Maximum sources reported per wakeup.
const MAX_READY: usize = 256;

/// Owner of a descriptor. Ready ones are served in this order: control first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Timer.
    Timer,
    /// SIGTERM, SIGINT.
    Signal,
    /// A UDP socket of the network side.
    Socket(u8),
    /// A listener of the network side.
    Listener(u8),
    /// A stream of the network side, by number.
    Stream(u32),
    /// A MAVLink endpoint: its socket, device or listener.
    Mavlink(u8),
    /// A connection of a MAVLink endpoint.
    Client(u8, u32),
    /// A UDP port.
    Port(u8),
    /// The TUN interface.
    Tun,
    /// Interface notifications.
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

/// A ready source.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// Owner of the descriptor.
    pub source: Source,
    /// The descriptor is writable.
    pub writable: bool,
    /// The descriptor is readable, or reading reports an end or error.
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
    /// Start times of the last wait but one, and of the last.
    began: [Instant; 2],
}

impl Poller {
    /// Creates a poller that watches only its timer.
    pub fn new(clock: Clock) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, flags)?;
        let events = [EpollEvent::empty(); MAX_READY];
        let began = [clock.now(); 2];
        let poller = Self { epoll, timer, clock, armed: Instant::FAR_FUTURE, events, began };
        poller.watch(&poller.timer, Source::Timer)?;
        Ok(poller)
    }

    /// Returns the current time.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Returns the clock.
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    /// Returns the start of the last wait but one: a descriptor that is ready now and has been drained since
    /// had no data at that time.
    pub const fn floor(&self) -> Instant {
        self.began[0]
    }

    /// Watches a descriptor for readability, until it is closed.
    pub fn watch(&self, fd: &impl AsFd, source: Source) -> io::Result<()> {
        Ok(self.epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, source.token()))?)
    }

    /// Watches an already watched descriptor for readability and, optionally, writability.
    pub fn watch_writable(&self, fd: &impl AsFd, source: Source, room: bool) -> io::Result<()> {
        let write = if room { EpollFlags::EPOLLOUT } else { EpollFlags::empty() };
        let mut event = EpollEvent::new(EpollFlags::EPOLLIN | write, source.token());
        Ok(self.epoll.modify(fd, &mut event)?)
    }

    /// Stops watching a descriptor until [`resume`](Self::resume).
    pub fn pause(&self, fd: &impl AsFd, source: Source) -> io::Result<()> {
        let mut event = EpollEvent::new(EpollFlags::empty(), source.token());
        Ok(self.epoll.modify(fd, &mut event)?)
    }

    /// Watches a paused descriptor for readability again.
    pub fn resume(&self, fd: &impl AsFd, source: Source) -> io::Result<()> {
        self.watch_writable(fd, source, false)
    }

    /// Waits until a source is ready or `due` is reached, and returns ready sources in the order of
    /// [`Source`]. `now` was read just before.
    pub fn wait(&mut self, now: Instant, due: Instant, ready: &mut Vec<Ready>) -> io::Result<()> {
        ready.clear();
        self.began = [self.began[1], now];
        let timeout = if due <= now { EpollTimeout::ZERO } else { EpollTimeout::NONE };
        // A timer that expires too early costs one wakeup; setting it each time costs more.
        if due > now && due < self.armed {
            let at = TimeSpec::from(std::time::Duration::from_nanos(
                self.clock.as_boottime_ns(due).max(1) as u64,
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
                // Clears the readiness of the timer.
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
