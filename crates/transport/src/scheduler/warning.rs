//! Signs of trouble on a path, from acknowledgements: for schedulers that copy before a loss is
//! certain.

use alloc::collections::VecDeque;

use skybraid_units::{Duration, Instant};

/// Maximum packets of a path that are tracked; the oldest beyond that are forgotten.
const MAX_TRACKED: usize = 4096;

/// The worst recent delay of a path, and the age of what it has not delivered.
#[derive(Clone, Debug)]
pub struct Warning<Mark> {
    /// Time for which a bad delay is remembered.
    memory: Duration,
    /// Packets in flight, oldest first: the time of sending, and the sender's mark.
    in_flight: VecDeque<(Instant, Mark)>,
    /// Last delay, for the packet sent at that instant.
    last: Option<(Instant, Duration)>,
    /// Delay of the packet sent last of those whose fate is known, and when that was; the maximum if it is lost.
    newest: (Instant, Duration),
    /// Slope of the delay between the last two packets that arrived, in seconds per second; zero if it fell.
    slope: f64,
    /// Time until which the delay is taken to rise, and the delay that is predicted from then on.
    rises_until: Instant,
    risen: Duration,
    /// Delays that no later one exceeds, with the times of their arrival: the window's maximum.
    worst: VecDeque<(Instant, Duration)>,
}

impl<Mark: Copy> Warning<Mark> {
    /// Creates the state of a path without measurements.
    pub const fn new(memory: Duration) -> Self {
        Self {
            memory,
            in_flight: VecDeque::new(),
            last: None,
            newest: (Instant::ZERO, Duration::ZERO),
            slope: 0.0,
            rises_until: Instant::ZERO,
            risen: Duration::ZERO,
            worst: VecDeque::new(),
        }
    }

    /// Records a packet that left, with a mark that is returned when its fate is known.
    pub fn on_sent(&mut self, now: Instant, mark: Mark) {
        if self.in_flight.len() == MAX_TRACKED {
            self.in_flight.pop_front();
        }
        self.in_flight.push_back((now, mark));
    }

    fn remember(&mut self, now: Instant, delay: Duration) {
        while self.worst.back().is_some_and(|(_, smaller)| *smaller <= delay) {
            self.worst.pop_back();
        }
        self.worst.push_back((now, delay));
    }

    /// Removes the packet sent at that instant, the oldest as a rule, and returns its mark.
    fn take(&mut self, sent_at: Instant) -> Option<Mark> {
        let packet = if self.oldest() == Some(sent_at) {
            self.in_flight.pop_front()
        } else {
            let index = self.in_flight.iter().position(|(at, _)| *at == sent_at)?;
            self.in_flight.remove(index)
        };
        packet.map(|(_, mark)| mark)
    }

    /// Records an arrival after `delay` one way, or a loss, which is as bad as any delay. Returns the packet's mark.
    pub fn on_settled(
        &mut self,
        now: Instant,
        sent_at: Instant,
        delay: Option<Duration>,
    ) -> Option<Mark> {
        let mark = self.take(sent_at);
        let delay_or_max = delay.unwrap_or(Duration::MAX);
        self.remember(now, delay_or_max);
        if sent_at >= self.newest.0 {
            self.newest = (sent_at, delay_or_max);
        }
        let Some(delay) = delay else { return mark };
        if let Some((before, last)) = self.last
            && sent_at > before
        {
            let rise = (delay - last).as_secs_f64();
            self.slope = if rise > 0.0 { rise / sent_at.since(before).as_secs_f64() } else { 0.0 };
        }
        self.last = Some((sent_at, delay));
        (self.rises_until, self.risen) = (sent_at, delay);
        if self.slope > 0.0 {
            // A slope holds for no longer than the delay that it was measured in.
            self.rises_until = sent_at + delay;
            self.risen = delay + delay.mul_f64(self.slope);
        }
        mark
    }

    /// Returns the worst sign: the highest delay remembered, the delay that the last two packets
    /// predict, and the least delay of the oldest packet in flight. An acknowledgement takes `back`
    /// from its packet's arrival on. The maximum time after a loss.
    pub fn sign(&mut self, now: Instant, back: Duration) -> Duration {
        while self.worst.front().is_some_and(|(at, _)| now.since(*at) > self.memory) {
            self.worst.pop_front();
        }
        let worst = self.worst.front().map_or(Duration::ZERO, |(_, delay)| *delay);
        worst.max(self.predicted(now)).max(self.age(now) - back)
    }

    /// Delay of the packet sent last of those whose fate is known: the maximum if it is lost, zero without one.
    pub fn newest(&self) -> Duration {
        self.newest.1
    }

    /// Time of sending of the oldest packet in flight.
    pub fn oldest(&self) -> Option<Instant> {
        self.in_flight.front().map(|(sent_at, _)| *sent_at)
    }

    /// Age of the oldest packet in flight; zero without one.
    pub fn age(&self, now: Instant) -> Duration {
        self.oldest().map_or(Duration::ZERO, |oldest| now.since(oldest))
    }

    /// Returns a time until which no delay is forgotten and no packet in flight is older than `age`, if no packet
    /// leaves or is settled; `now` while the predicted delay rises.
    pub fn holds_until(&self, now: Instant, age: Duration) -> Instant {
        if now < self.rises_until {
            return now;
        }
        let forgets = self.worst.front().map_or(Instant::FAR_FUTURE, |(at, _)| *at + self.memory);
        self.oldest().map_or(forgets, |oldest| forgets.min(oldest + age))
    }

    /// Delay of a packet that leaves now, if the delay goes on rising as between the last two.
    fn predicted(&self, now: Instant) -> Duration {
        match self.last {
            Some((sent_at, delay)) if now < self.rises_until => {
                delay + now.since(sent_at).mul_f64(self.slope)
            }
            _ => self.risen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{at, ms};
    use super::*;

    const MEMORY: Duration = Duration::from_secs(1);

    #[test]
    fn the_worst_delay_is_remembered_for_its_time() {
        let mut path = Warning::new(MEMORY);
        for (sent, delay) in [(0, 30), (100, 90), (200, 40)] {
            path.on_sent(at(sent), 0);
            path.on_settled(at(sent + delay), at(sent), Some(ms(delay)));
        }
        assert_eq!(path.sign(at(300), ms(30)), ms(90));
        assert_eq!(path.sign(at(1190), ms(30)), ms(90));
        assert_eq!(path.sign(at(1191), ms(30)), ms(40));
    }

    #[test]
    fn what_is_overdue_warns_before_it_is_lost() {
        let mut path = Warning::new(MEMORY);
        path.on_sent(at(0), 0);
        path.on_sent(at(50), 0);
        assert_eq!(path.sign(at(60), ms(40)), ms(20));
        assert_eq!(path.sign(at(200), ms(40)), ms(160));
        path.on_settled(at(210), at(0), None);
        assert_eq!(path.sign(at(220), ms(40)), Duration::MAX);
        assert_eq!(path.sign(at(1300), ms(40)), ms(1210));
    }

    // The loss of what was sent at 0 is known after the arrival of what was sent at 50 ms.
    #[test]
    fn the_newest_fate_is_that_of_the_packet_sent_last() {
        let mut path = Warning::new(MEMORY);
        [0, 50, 100].into_iter().for_each(|sent| path.on_sent(at(sent), 0));
        path.on_settled(at(90), at(50), Some(ms(40)));
        path.on_settled(at(95), at(0), None);
        assert_eq!(path.newest(), ms(40));
        path.on_settled(at(200), at(100), None);
        assert_eq!(path.newest(), Duration::MAX);
    }

    #[test]
    fn a_rising_delay_is_extrapolated_by_its_slope() {
        let mut path = Warning::new(MEMORY);
        path.on_sent(at(0), 0);
        path.on_settled(at(40), at(0), Some(ms(40)));
        path.on_settled(at(80), at(20), Some(ms(60)));
        // The delay rose by one second per second.
        assert_eq!(path.sign(at(80), ms(40)), ms(120));
    }
}
