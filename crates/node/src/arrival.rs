//! When what is read reached this machine.
//!
//! The kernel stamps datagrams by the wall clock; both clocks are read for each batch. Streams and devices
//! have no stamps: what is readable now and was not when the loop began to wait the last time but one has
//! come since then. That bound is used when the loop was held up; otherwise what is read has just come.

use std::io::ErrorKind;
use std::os::fd::AsFd;

use skybraid_units::{Duration, Instant};

use super::tools::Tools;
use skybraid_io::batch::BATCH;

/// The loop looks at streams and devices at least so often, so that a longer time between two looks is a
/// stall.
pub const TICK: Duration = Duration::from_millis(25);
/// Time between two looks up to which there was no stall.
const PROMPT: Duration = Duration::from_millis(100);
/// The wall clock was set when it moved against the other one by more than this, and by more than this share
/// of the time since.
const STEP: Duration = Duration::from_millis(1);
const STEP_PPM: i64 = 1_000;

/// What is known of a socket's buffer: when it was empty last, and the wall clock's offset then.
#[derive(Clone, Copy, Debug)]
pub struct Drained {
    at: Instant,
    offset_ns: i64,
    /// It was left empty, and not because of a bound.
    empty: bool,
}

/// A datagram with its time of arrival.
pub struct Taken<'a> {
    /// Its bytes.
    pub bytes: &'a mut [u8],
    /// Its sender.
    pub source: Option<std::net::SocketAddr>,
    /// Time at which it reached this machine, or the earliest possible one.
    pub arrived: Instant,
    /// The latest time at which it can have: the same where the kernel's stamp counts.
    pub arrived_by: Instant,
}

impl Tools {
    /// The state of a socket that has just been opened.
    pub fn drained(&self) -> Drained {
        let clock = self.poller.clock();
        Drained { at: clock.now(), offset_ns: clock.from_realtime_ns(), empty: true }
    }

    /// Takes a batch of what waits in a socket. True if there may be more.
    pub fn take(
        &mut self,
        socket: &impl AsFd,
        drained: &mut Drained,
        each: &mut dyn FnMut(Taken<'_>),
    ) -> bool {
        let clock = self.poller.clock();
        let before = clock.now();
        let taken = match self.inbox.take(socket) {
            Ok(taken) => taken,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            // It is about something that was sent; datagrams may lie behind it.
            Err(_) => return true,
        };
        let (now, offset_ns) = (clock.now(), clock.from_realtime_ns());
        let floor = if drained.empty { self.poller.floor() } else { drained.at };
        let oldest = drained.at.max(floor);
        let stepped = drained.was_stepped(now, offset_ns);
        for datagram in self.inbox.datagrams(taken) {
            let stamp = datagram.stamp.filter(|_| !stepped);
            // The wall clock was set since: it may have come at any time since the socket was empty.
            let stamped = stamp.map(|stamp| Instant::from_nanos(stamp + offset_ns));
            let stamped = stamped.map(|at| at.max(drained.at).min(now));
            each(Taken {
                bytes: datagram.bytes,
                source: datagram.source,
                arrived: stamped.unwrap_or(oldest),
                arrived_by: stamped.unwrap_or(now),
            });
        }
        drained.empty = taken < BATCH;
        if drained.empty {
            (drained.at, drained.offset_ns) = (before, offset_ns);
        }
        !drained.empty
    }

    /// When what a stream or a device has to read now came at the earliest, where the loop was held up;
    /// otherwise now.
    pub fn arrival(&self, now: Instant) -> Instant {
        let floor = self.poller.floor();
        if now.since(floor) > PROMPT { floor } else { now }
    }
}

impl Drained {
    fn was_stepped(self, now: Instant, offset_ns: i64) -> bool {
        let moved = (offset_ns - self.offset_ns).abs();
        let drift = now.since(self.at).as_nanos().max(0) / 1_000_000 * STEP_PPM;
        moved > STEP.as_nanos() + drift
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alarms::Alarms;
    use crate::poller::Poller;
    use skybraid_io::batch::stamp_arrivals;
    use skybraid_io::clock::Clock;
    use std::net::UdpSocket;

    fn tools() -> Tools {
        let (sender, _) = std::sync::mpsc::sync_channel(1);
        Tools::new(Poller::new(Clock::starting_now()).unwrap(), Alarms::new(sender)).unwrap()
    }

    fn wait(tools: &mut Tools) {
        let now = tools.poller.now();
        tools.poller.wait(now, now, &mut Vec::new()).unwrap();
    }

    /// Sends a datagram, lets the process do nothing for a while, and gives the age with which it is taken.
    fn age(change: impl Fn(&mut Drained)) -> Duration {
        let mut tools = tools();
        let [near, far] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        stamp_arrivals(&far).unwrap();
        // The kernel begins to stamp a moment after the first socket has asked for it.
        std::thread::sleep(std::time::Duration::from_millis(100));
        let mut drained = tools.drained();
        (0..2).for_each(|_| wait(&mut tools));
        std::thread::sleep(std::time::Duration::from_millis(100));
        near.send_to(b"x", far.local_addr().unwrap()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(200));
        change(&mut drained);
        let mut ages = Vec::new();
        tools.take(&far, &mut drained, &mut |taken| ages.push(taken.arrived));
        assert_eq!(ages.len(), 1);
        tools.poller.now().since(ages[0])
    }

    #[test]
    fn an_age_counts_from_the_kernels_stamp() {
        let age = age(|_| {}).as_millis_f64();
        assert!((200.0..300.0).contains(&age), "{age} ms");
    }

    #[test]
    fn after_a_step_of_the_wall_clock_the_oldest_possible_age_counts() {
        for step in [-3_600, 3_600] {
            let age = age(|drained| drained.offset_ns += step * 1_000_000_000).as_millis_f64();
            assert!((300.0..400.0).contains(&age), "{age} ms");
        }
    }

    #[test]
    fn what_a_stream_has_after_a_stall_is_as_old_as_the_look_before() {
        let mut tools = tools();
        wait(&mut tools);
        wait(&mut tools);
        let now = tools.poller.now();
        assert_eq!(tools.arrival(now), now);
        std::thread::sleep(std::time::Duration::from_millis(300));
        wait(&mut tools);
        let now = tools.poller.now();
        assert!(now.since(tools.arrival(now)).as_millis_f64() >= 300.0);
        wait(&mut tools);
        let now = tools.poller.now();
        assert_eq!(tools.arrival(now), now);
    }
}
