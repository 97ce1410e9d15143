//! State machines of the traffic sources.

use alloc::boxed::Box;

use skybraid_units::{Bytes, Duration, Instant, Rate};

use crate::TrafficConfig;
use crate::video::rate::Report;
use crate::video::{Camera, Part};

/// A message that an application writes to the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// Size of the message.
    pub bytes: u32,
    /// Number of copies written, at least 1.
    pub copies: u8,
    /// Time after which the message is useless, if the application sets one.
    pub deadline: Option<Instant>,
    /// Frame and packet number, for video traffic.
    pub part: Option<Part>,
}

impl From<u32> for Write {
    fn from(bytes: u32) -> Self {
        Self { bytes, copies: 1, deadline: None, part: None }
    }
}

/// An application that writes messages from `start` until `stop`.
#[derive(Debug)]
pub struct Source {
    shape: Shape,
    next: Instant,
    stop: Instant,
}

#[derive(Debug)]
enum Shape {
    Cbr { pace: Pace },
    Bulk { packet: u32 },
    OnOff { period: Instant, pace: Pace, on: Duration, off: Duration },
    File { size: u32 },
    Ping { every: Duration, packet: u32 },
    Video(Box<Camera>),
}

/// Due times of messages at a constant bit rate. The interval is kept as nanoseconds and a remainder, so
/// that rounding errors do not accumulate.
#[derive(Clone, Copy, Debug)]
struct Pace {
    packet: u32,
    interval: Duration,
    /// Fraction of a nanosecond missing from `interval`, and the fraction accumulated so far, both in
    /// units of 1/`rate` ns.
    remainder: u64,
    accumulated: u64,
    rate: u64,
}

impl Pace {
    fn new(rate: Rate, packet: u32) -> Self {
        let rate = rate.as_bps().max(1);
        let scaled = u128::from(packet) * 8 * 1_000_000_000;
        Self {
            packet,
            interval: Duration::from_nanos((scaled / u128::from(rate)) as i64),
            remainder: (scaled % u128::from(rate)) as u64,
            accumulated: 0,
            rate,
        }
    }

    /// Returns the due time of the message after the one due at `last`.
    fn next_due(&mut self, last: Instant) -> Instant {
        self.accumulated += self.remainder;
        let mut next = last + self.interval;
        if self.accumulated >= self.rate {
            self.accumulated -= self.rate;
            next += Duration::from_nanos(1);
        }
        next
    }
}

fn clamp(size: Bytes) -> u32 {
    u32::try_from(size.get()).unwrap_or(u32::MAX).max(1)
}

impl Source {
    /// Creates a source from a checked configuration.
    pub fn new(config: &TrafficConfig, start: Instant, stop: Instant) -> Self {
        let shape = match config {
            TrafficConfig::Cbr { rate, packet } => {
                Shape::Cbr { pace: Pace::new(*rate, clamp(*packet)) }
            }
            TrafficConfig::Bulk { packet } => Shape::Bulk { packet: clamp(*packet) },
            TrafficConfig::OnOff { rate, packet, on, off } => {
                let pace = Pace::new(*rate, clamp(*packet));
                Shape::OnOff { period: start, pace, on: *on, off: *off }
            }
            TrafficConfig::File { size } => Shape::File { size: clamp(*size) },
            TrafficConfig::Ping { every, packet } => {
                Shape::Ping { every: *every, packet: clamp(*packet) }
            }
            TrafficConfig::Video(video) => Shape::Video(Box::new(Camera::new(video, start))),
        };
        Self { shape, next: start, stop }
    }

    /// Returns the due time of the next message; [`Instant::FAR_FUTURE`] if there is none.
    #[inline]
    pub fn next_write(&self) -> Instant {
        if self.next < self.stop { self.next } else { Instant::FAR_FUTURE }
    }

    /// Handles a receiver's report on a video. The next message may be due earlier than before.
    pub fn on_feedback(&mut self, now: Instant, report: &Report<'_>) {
        if let Shape::Video(camera) = &mut self.shape {
            camera.on_feedback(now, report);
            self.next = camera.next_write();
        }
    }

    /// Returns the message that is due at `now`, if any.
    #[inline]
    pub fn write(&mut self, now: Instant) -> Option<Write> {
        if self.next_write() > now {
            return None;
        }
        let never = Instant::FAR_FUTURE;
        match &mut self.shape {
            Shape::Cbr { pace } => {
                self.next = pace.next_due(self.next);
                Some(pace.packet.into())
            }
            Shape::Bulk { packet } => {
                // A bulk source has no due times, so that the end is checked here.
                if now >= self.stop {
                    self.next = never;
                    return None;
                }
                Some((*packet).into())
            }
            Shape::OnOff { period, pace, on, off } => {
                self.next = pace.next_due(self.next);
                if self.next >= *period + *on {
                    *period = *period + *on + *off;
                    pace.accumulated = 0;
                    self.next = *period;
                }
                Some(pace.packet.into())
            }
            Shape::File { size } => {
                self.next = never;
                Some((*size).into())
            }
            Shape::Ping { every, packet } => {
                self.next += *every;
                Some((*packet).into())
            }
            Shape::Video(camera) => {
                let written = camera.write(now);
                self.next = camera.next_write();
                written
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(config: &TrafficConfig, seconds: i64) -> (u64, u64) {
        let stop = Instant::ZERO + Duration::from_secs(seconds);
        let mut source = Source::new(config, Instant::ZERO, stop);
        let (mut messages, mut bytes) = (0, 0);
        while source.next_write() != Instant::FAR_FUTURE {
            bytes += u64::from(source.write(source.next_write()).unwrap().bytes);
            messages += 1;
        }
        (messages, bytes)
    }

    #[test]
    fn constant_bit_rate_keeps_its_rate_over_half_an_hour() {
        let config = TrafficConfig::Cbr { rate: Rate::from_mbps(10.0), packet: Bytes::new(1200) };
        assert_eq!(written(&config, 1800), (1_875_000, 2_250_000_000));
    }

    // Source: pedrazzi2020 PED-V3: on 0.5 s at 20 Mbit/s, off 2 s gives blocks of 1.25 MB and 4 Mbit/s.
    #[test]
    fn the_on_off_source_sends_whole_blocks_at_its_mean_rate() {
        let config = TrafficConfig::OnOff {
            rate: Rate::from_mbps(20.0),
            packet: Bytes::new(1000),
            on: Duration::from_millis(500),
            off: Duration::from_secs(2),
        };
        assert_eq!(written(&config, 250), (125_000, 125_000_000));
    }

    #[test]
    fn a_bulk_source_writes_only_between_start_and_stop() {
        let config = TrafficConfig::Bulk { packet: Bytes::new(16_384) };
        let (start, stop) = (Instant::from_millis(500), Instant::from_millis(2000));
        let mut source = Source::new(&config, start, stop);
        let writes = [499, 500, 1999, 2000, 3000]
            .map(|ms| source.write(Instant::from_millis(ms)).map(|write| write.bytes));
        assert_eq!(writes, [None, Some(16_384), Some(16_384), None, None]);
        assert_eq!(source.next_write(), Instant::FAR_FUTURE);
    }

    #[test]
    fn a_file_is_one_message_and_pings_keep_their_interval() {
        assert_eq!(written(&TrafficConfig::File { size: Bytes::new(12_345) }, 10), (1, 12_345));
        let ping =
            TrafficConfig::Ping { every: Duration::from_millis(100), packet: Bytes::new(56) };
        assert_eq!(written(&ping, 10), (100, 5600));
    }
}
