//! Arrival times of received data.
//!
//! The kernel stamps datagrams by the wall clock; both clocks are read for each batch. Streams and devices
//! have no timestamps: data that is readable now and was not when the loop started its last wait but one has
//! arrived since then. That bound is used if the loop was stalled; otherwise received data counts as having
//! just arrived.

use std::io::ErrorKind;
use std::os::fd::AsFd;

use skybraid_units::{Duration, Instant};

use super::tools::Tools;
use skybraid_io::batch::BATCH;

/// Maximum interval between polls of streams and devices; a longer interval is a stall.
pub const TICK: Duration = Duration::from_millis(25);
/// Maximum interval between two polls that is not a stall.
const PROMPT: Duration = Duration::from_millis(100);
/// Threshold for a step of the wall clock: an offset against the monotonic clock of more than this plus
/// `STEP_PPM` of the time since.
const STEP: Duration = Duration::from_millis(1);
const STEP_PPM: i64 = 1_000;

/// Last state of a drained socket buffer: when it was last empty, and the wall clock's offset then.
#[derive(Clone, Copy, Debug)]
pub struct Drained {
    at: Instant,
    offset_ns: i64,
    /// The buffer was drained, rather than the read limit reached.
    empty: bool,
}

/// A datagram with its arrival time.
pub struct Taken<'a> {
    /// Payload.
    pub bytes: &'a mut [u8],
    /// Sender of the datagram.
    pub source: Option<std::net::SocketAddr>,
    /// Time at which it reached this machine, or the earliest possible one.
    pub arrived: Instant,
    /// Upper bound of the arrival time; equal to `arrived` if the kernel's timestamp is valid.
    pub arrived_by: Instant,
}

impl Tools {
    /// Returns the state of a newly opened socket.
    pub fn drained(&self) -> Drained {
        let clock = self.poller.clock();
        Drained { at: clock.now(), offset_ns: clock.from_realtime_ns(), empty: true }
    }

    /// Receives a batch of datagrams from a socket. Returns true if there may be more.
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
            // The error concerns a sent datagram; received ones may follow.
            Err(_) => return true,
        };
        let (now, offset_ns) = (clock.now(), clock.from_realtime_ns());
        let floor = if drained.empty { self.poller.floor() } else { drained.at };
        let oldest = drained.at.max(floor);
        let stepped = drained.was_stepped(now, offset_ns);
        for datagram in self.inbox.datagrams(taken) {
            let stamp = datagram.stamp.filter(|_| !stepped);
            // If the wall clock was set since, the datagram may have arrived at any time since the socket was
            // empty.
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

    /// Returns the earliest arrival time of the data of a stream or device if the loop was stalled; otherwise
    /// `now`.
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

    /// Sends a datagram, idles for a while, and returns the age with which it is received.
    fn age(change: impl Fn(&mut Drained)) -> Duration {
        let mut tools = tools();
        let [near, far] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        stamp_arrivals(&far).unwrap();
        // The kernel starts timestamping shortly after the first socket has requested it.
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
    fn after_a_wall_clock_step_the_oldest_possible_age_counts() {
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
