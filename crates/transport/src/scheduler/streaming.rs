//! Streaming code: each frame's repair packets protect the frames before it as well.

use alloc::collections::VecDeque;
use alloc::vec;

use skybraid_units::{Duration, Instant};

use super::coded::repair_paths;
use super::low_rtt::lowest_rtt;
use super::{Choice, Grouping, Repairs, Run, Scheduler, Unit};
use crate::{PathView, algorithm};

algorithm! {
    name: "streaming",
    summary: "Uses the path with the lowest round-trip time. After each frame (messages written \
              together), (`burst` + 1) / `delay` random linear combinations of it and the previous \
              `delay` frames are sent on the next path. So any `burst` consecutive losses are \
              recovered within `delay` frames, with one failure in 65,000: the additional \
              combination guards against linear dependence. Nothing waits for an acknowledgement. \
              Over protocols that retransmit, it is `low_rtt`.",
    source: "Martinian and Sundberg 2004; Tambur (NSDI 2023): windows over frames; code: RFC 8681",
    parameters: {
        burst: u16 = 8, "number", "8", "consecutive losses that are recovered, 1 to 128",
            "from 1 to 128" if (1..=128).contains(burst);
        delay: u8 = 3, "number", "3", "frames within which they are recovered, 1 to 16",
            "from 1 to 16" if (1..=16).contains(delay);
        ack_delay: Duration = Duration::from_millis(100), "time", "100ms",
            "maximum time for which the receiver holds an acknowledgement",
            "above zero" if ack_delay.is_positive();
    },
    scheduler: |config| Streaming { config: config.clone(), firsts: VecDeque::new() },
}

#[derive(Debug)]
struct Streaming {
    config: Config,
    /// Sequence numbers of the first datagrams of the newest frames.
    firsts: VecDeque<u64>,
}

impl Scheduler for Streaming {
    fn choose(&mut self, _now: Instant, unit: &Unit, paths: &[PathView]) -> Choice {
        lowest_rtt(unit, paths)
    }

    fn ack_delay(&self) -> Option<Duration> {
        Some(self.config.ack_delay)
    }

    fn grouping(&self) -> Option<Grouping> {
        Some(Grouping::Frames)
    }

    fn repair(&mut self, now: Instant, run: &Run, paths: &[PathView]) -> Repairs {
        if !run.fresh {
            return Repairs::default();
        }
        let delay = usize::from(self.config.delay);
        if self.firsts.len() > delay {
            self.firsts.pop_front();
        }
        self.firsts.push_back(run.span.0);
        let count = (usize::from(self.config.burst) + 1).div_ceil(delay);
        let other = repair_paths(now, run, None, paths).first().map(|path| path.id);
        let paths = other.map_or_else(vec::Vec::new, |path| vec![path; count]);
        Repairs { first: self.firsts.front().copied(), paths }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{UNIT, paths};
    use super::*;
    use crate::coding::{Decoder, Encoder};
    use crate::segment::{Datagram, Repair};
    use crate::{PathId, PathSet};
    use alloc::vec::Vec;

    enum Packet {
        Data(Datagram),
        Repair(Repair),
    }

    /// Returns the packets of each frame of `size` datagrams, in the order in which they leave.
    fn stream(config: &Config, frames: u64, size: u64) -> Vec<Vec<Packet>> {
        let (mut scheduler, mut encoder) = (config.build(), Encoder::default());
        let two = paths(&[50, 60]);
        let unit = Unit { carried_by: PathSet::only(PathId(0)), ..UNIT };
        (0..frames)
            .map(|frame| {
                let (first, last) = (frame * size, frame * size + size - 1);
                let mut packets = Vec::new();
                for sequence in first..=last {
                    let message = sequence as u32;
                    let datagram =
                        Datagram { sequence, message, len: 9, fragment: 0, fragments: 1 };
                    encoder.on_sent(datagram);
                    packets.push(Packet::Data(datagram));
                }
                let run = Run { span: (first, last), ..Run::of(first, &unit, Instant::ZERO, true) };
                let repairs = scheduler.repair(Instant::ZERO, &run, &two);
                for path in repairs.paths {
                    assert_eq!(path, PathId(1));
                    let repair = encoder.repair(repairs.first.unwrap(), last).unwrap();
                    packets.push(Packet::Repair(repair));
                }
                packets
            })
            .collect()
    }

    // Source: Martinian and Sundberg, theorem 1: a burst of B in a delay of T frames of n packets needs
    // an overhead of B / (T · n); here (B + 1) / T packets a frame.
    #[test]
    fn every_burst_is_recovered_within_the_delay() {
        for (burst, delay, size) in [(8, 3, 5), (4, 2, 3), (12, 3, 20), (1, 1, 1)] {
            let config = Config { burst, delay, ..Config::default() };
            let frames = stream(&config, 12, size);
            let each = frames[0].len();
            assert_eq!(each as u64 - size, (u64::from(burst) + 1).div_ceil(delay.into()));
            for start in 3 * each..6 * each {
                let (mut decoder, mut missing) = (Decoder::default(), Vec::new());
                for (number, packet) in frames.iter().flatten().enumerate() {
                    let frame = (number / each) as u64;
                    let lost = (start..start + usize::from(burst)).contains(&number);
                    let take = &mut |it: crate::coding::Recovered| {
                        missing.retain(|sequence| *sequence != it.datagram.sequence);
                    };
                    match packet {
                        Packet::Data(datagram) if lost => missing.push(datagram.sequence),
                        Packet::Data(datagram) => decoder.on_datagram(datagram, &[], take),
                        Packet::Repair(repair) if !lost => decoder.on_repair(repair, &[], take),
                        Packet::Repair(_) => {}
                    }
                    if (number + 1) % each == 0 {
                        let late = |sequence: &u64| sequence / size + u64::from(delay) <= frame;
                        assert!(!missing.iter().any(late), "{burst} {delay} {size}: {start}");
                    }
                }
            }
        }
    }
}
