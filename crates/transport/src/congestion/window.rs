//! Congestion window of a subflow: the control that sets it, the ceiling that bounds it and the pacer that spreads it
//! over the round trip.

use alloc::boxed::Box;

use skybraid_units::{Bytes, Duration, Instant};

use super::ceiling::Ceiling;
use super::{Congestion, ControlState, Idle, IdleRestart, Lost, Restart, Sibling, Siblings};
use crate::pacing::Pacer;
use crate::rtt::RttEstimator;

/// Congestion window of a subflow.
#[derive(Debug)]
pub struct CongestionWindow {
    control: Box<dyn Congestion>,
    /// Window and slow start threshold in bytes, as of the control's last event.
    bytes: u64,
    threshold: u64,
    coupled: bool,
    governs_recovery: bool,
    reads_rates: bool,
    pacer: Pacer,
    ceiling: Option<Box<Ceiling>>,
    idle_restart: IdleRestart,
    last_sent: Instant,
    /// Time at which the window was last full, or followed its use, and the maximum bytes in flight since.
    filled_at: Instant,
    used: u64,
    acked_since_loss: u64,
    acked_between_losses: u64,
}

impl CongestionWindow {
    /// Creates the window that `control` sets, without a ceiling.
    pub fn new(control: Box<dyn Congestion>, pacer: Pacer, idle_restart: IdleRestart) -> Self {
        let mut window = Self {
            bytes: 0,
            threshold: 0,
            coupled: control.is_coupled(),
            governs_recovery: control.governs_recovery(),
            reads_rates: control.reads_rates(),
            control,
            pacer,
            ceiling: None,
            idle_restart,
            last_sent: Instant::ZERO,
            filled_at: Instant::ZERO,
            used: 0,
            acked_since_loss: 0,
            acked_between_losses: 0,
        };
        window.update(None);
        window
    }

    /// Returns the window below `ceiling`.
    pub fn below(self, ceiling: Option<Ceiling>) -> Self {
        Self { ceiling: ceiling.map(Box::new), ..self }
    }

    /// Window in bytes, including the reduction of a recovery.
    #[inline]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Slow start threshold in bytes.
    #[inline]
    pub const fn threshold(&self) -> u64 {
        self.threshold
    }

    /// Window and threshold of the control.
    pub fn state(&self) -> ControlState {
        ControlState {
            window: self.control.window(),
            threshold: self.control.slow_start_threshold(),
        }
    }

    /// True if the control reads its siblings.
    #[inline]
    pub const fn is_coupled(&self) -> bool {
        self.coupled
    }

    /// True if the control sets the window in recovery itself.
    pub const fn governs_recovery(&self) -> bool {
        self.governs_recovery
    }

    /// True if the control reads delivery rates.
    pub const fn reads_rates(&self) -> bool {
        self.reads_rates
    }

    /// True if the ceiling limits the window, not the network.
    #[inline]
    pub fn is_capped(&self) -> bool {
        self.ceiling.as_ref().is_some_and(|ceiling| ceiling.bytes() <= self.bytes)
    }

    /// Congestion control, for its window, threshold and pacing rate.
    pub fn control(&self) -> &dyn Congestion {
        &*self.control
    }

    /// Congestion control, for events after which [`update`](Self::update) follows.
    #[inline]
    pub fn control_mut(&mut self) -> &mut dyn Congestion {
        &mut *self.control
    }

    /// Pacer, for its rate and its timer.
    #[inline]
    pub const fn pacer(&self) -> &Pacer {
        &self.pacer
    }

    /// Pacer, to ask whether it holds a segment back.
    #[inline]
    pub const fn pacer_mut(&mut self) -> &mut Pacer {
        &mut self.pacer
    }

    /// Reads window, threshold and pacing rate from the control.
    pub fn update(&mut self, srtt: Option<Duration>) {
        self.bytes = self.control.window().get();
        self.threshold = self.control.slow_start_threshold().get();
        self.pacer.follow(self.control.pacing_rate(), self.bytes, self.threshold, srtt);
        if let Some(ceiling) = &self.ceiling {
            self.bytes = self.bytes.min(ceiling.bytes());
        }
    }

    /// Sets the window of a recovery until the next [`update`](Self::update).
    #[inline]
    pub const fn set_in_recovery(&mut self, bytes: u64) {
        self.bytes = bytes;
    }

    /// Lets the ceiling follow a round-trip time sample.
    #[inline]
    pub fn on_rtt_sample(&mut self, new_round: bool, srtt: Duration, min_rtt: Duration) {
        if let Some(ceiling) = &mut self.ceiling {
            ceiling.on_rtt_sample(new_round, self.bytes, srtt, min_rtt);
        }
    }

    /// Records the end of the handshake.
    pub fn on_established(&mut self, now: Instant, srtt: Option<Duration>) {
        self.control.on_established(now, srtt);
        self.update(srtt);
    }

    /// Halves the window because the subflow delays the others.
    pub fn on_penalty(&mut self, srtt: Option<Duration>) {
        self.control.on_penalty();
        self.update(srtt);
    }

    /// Records that data is about to be sent with nothing in flight. `app_limited` is true if the application had
    /// nothing to send; `timeout` is the retransmission timeout. Returns true if nothing was sent for longer.
    pub fn on_restart(
        &mut self,
        now: Instant,
        app_limited: bool,
        timeout: Duration,
        srtt: Option<Duration>,
    ) -> bool {
        let (span, rule) = (now.since(self.last_sent), self.idle_restart);
        self.control.on_restart(&Restart { now, span, app_limited });
        let was_idle = span > timeout;
        let restarts = rule.restarts() && was_idle;
        if restarts {
            self.control.on_idle(&Idle { now, span, timeout, rule, used: 0.0 });
            (self.filled_at, self.used) = (now, 0);
        }
        if restarts || app_limited {
            self.update(srtt);
        }
        was_idle
    }

    /// Records that `in_flight` bytes are in flight after a transmission of new data in segments of `segment`. The use
    /// of the window is judged when a burst has been sent, as in Linux, so here with the next one. In `recovery` the
    /// window stays.
    pub fn on_used(
        &mut self,
        now: Instant,
        (in_flight, segment): (u64, u64),
        recovery: bool,
        rtt: &RttEstimator,
    ) {
        if !self.idle_restart.follows_use() {
            return;
        }
        let (span, timeout) = (self.last_sent.since(self.filled_at), rtt.timeout());
        if now > self.last_sent && span >= timeout {
            if !recovery {
                let used = self.used as f64 / self.bytes.max(1) as f64;
                self.control.on_idle(&Idle { now, span, timeout, rule: IdleRestart::Used, used });
                self.update(rtt.srtt());
            }
            (self.filled_at, self.used) = (self.last_sent, 0);
        }
        let slow_start = self.bytes < self.threshold;
        if in_flight + segment > self.bytes || slow_start && self.bytes < 2 * in_flight {
            (self.filled_at, self.used) = (now, 0);
        } else {
            self.used = self.used.max(in_flight);
        }
    }

    /// Records the transmission of a segment with `bytes` of data.
    #[inline]
    pub fn on_sent(&mut self, now: Instant, bytes: u32) {
        self.last_sent = now;
        self.pacer.on_sent(now, bytes);
    }

    /// Records acknowledged bytes.
    #[inline]
    pub const fn on_acked(&mut self, bytes: u64) {
        self.acked_since_loss += bytes;
    }

    /// Records a loss that acknowledgements have shown.
    pub fn on_loss(&mut self, lost: &Lost, siblings: Siblings<'_>) {
        self.begin_interval();
        self.control.on_loss(lost, siblings);
    }

    /// Records an expiry of the retransmission timer.
    pub fn on_timeout(&mut self, lost: &Lost, repeated: bool, siblings: Siblings<'_>) {
        self.begin_interval();
        self.control.on_timeout(lost, repeated, siblings);
    }

    const fn begin_interval(&mut self) {
        self.acked_between_losses = core::mem::replace(&mut self.acked_since_loss, 0);
    }

    /// Returns the view of a sibling's congestion control. `usable` is true if data may be sent.
    #[inline]
    pub fn sibling(&self, usable: bool, srtt: Option<Duration>, segment: u32) -> Sibling {
        Sibling {
            active: usable && srtt.is_some(),
            window: Bytes::new(self.bytes),
            acked_since_loss: Bytes::new(self.acked_since_loss),
            acked_between_losses: Bytes::new(self.acked_between_losses),
            srtt: srtt.unwrap_or(Duration::MAX),
            segment: Bytes::new(u64::from(segment)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::{CongestionConfig, PathBasics};
    use crate::{Role, SubflowId, TransportConfig};

    fn window(pacer: Pacer) -> CongestionWindow {
        let config = TransportConfig::default();
        let basics = PathBasics::of(&config, Role::Client, SubflowId::FIRST, 1000, true);
        let reno = CongestionConfig::by_name("reno").unwrap();
        CongestionWindow::new(reno.build(&basics), pacer, IdleRestart::Initial)
    }

    // Source: RFC 5681 §3.1 and §4.1: half the flight after a loss, the initial window after an idle period.
    #[test]
    fn a_loss_halves_the_window_and_idleness_restarts_it() {
        let (at, ms) = (Instant::from_millis, Duration::from_millis);
        let mut window = window(Pacer::default());
        let initial = window.bytes();
        let lost = Lost { now: at(10), in_flight: Bytes::new(40_000) };
        window.on_loss(&lost, Siblings::default());
        window.update(Some(ms(20)));
        assert_eq!((window.bytes(), window.threshold()), (20_000, 20_000));
        window.on_sent(at(100), 1000);
        window.on_restart(at(300), false, ms(200), Some(ms(20)));
        assert_eq!(window.bytes(), 20_000, "not longer than the timeout");
        window.on_restart(at(301), false, ms(200), Some(ms(20)));
        assert_eq!(window.bytes(), initial);
    }

    // Source: Khalili et al. 2012 (OLIA): bytes acknowledged between the last two losses.
    #[test]
    fn the_bytes_between_losses_are_those_of_the_interval_before() {
        let mut window = window(Pacer::default());
        let lost = Lost { now: Instant::ZERO, in_flight: Bytes::new(10_000) };
        window.on_acked(7000);
        window.on_timeout(&lost, false, Siblings::default());
        window.on_acked(50);
        let sibling = window.sibling(true, None, 1000);
        assert_eq!(sibling.acked_since_loss, Bytes::new(50));
        assert_eq!(sibling.acked_between_losses, Bytes::new(7000));
        assert!(!sibling.active, "without a round-trip time");
    }

    #[test]
    fn a_ceiling_bounds_the_window_and_the_pacer_does_not_follow_it() {
        let ms = Duration::from_millis;
        let mut window = window(Pacer::of_windows(true)).below(Some(Ceiling::new(1000)));
        window.update(Some(ms(100)));
        let (free, rate) = (window.bytes(), window.pacer().rate());
        assert!(rate.is_some() && !window.is_capped());
        window.on_rtt_sample(true, ms(100), ms(10));
        window.update(Some(ms(100)));
        assert_eq!((window.bytes(), window.pacer().rate()), (free / 5, rate));
        assert!(window.is_capped());
    }
}
