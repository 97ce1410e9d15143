//! The peer's receive window when it blocks: persist probes, and relief from a subflow that holds it up.
//!
//! Source: RFC 9293 §3.8.6.1 (probing); Raiciu et al., "How Hard Can It Be?", NSDI 2012 (opportunistic
//! retransmission and penalisation), as in Linux out-of-tree MPTCP, `mptcp_rcv_buf_optimization`.

use skybraid_units::{Duration, Instant};

use super::send::SendSide;
use super::subflows::Subflows;
use crate::SubflowId;
use crate::tcp::scoreboard::Chunk;
use crate::tcp::subflow::Subflow;

/// Window in segments up to which a slow subflow's chunk is always retransmitted.
const SMALL_WINDOW_SEGMENTS: u64 = 4;
/// Ratio of round-trip times above which the chunk of a slow subflow with a larger window is
/// retransmitted.
const MUCH_SLOWER: i64 = 4;
/// Number of a subflow's oldest segments searched for the chunk that blocks the connection.
const SEARCH_DEPTH: usize = 8;

/// State of the peer's window while it blocks, and counts of what that cost.
#[derive(Debug)]
pub struct PeerWindow {
    persist_at: Instant,
    /// Start of the current blocking although a subflow has room.
    since: Option<Instant>,
    time: Duration,
    times: u64,
    /// Data sequence number of the last opportunistic retransmission, and time of the last penalty.
    last_opportunistic: Option<u64>,
    penalised_at: Option<Instant>,
    opportunistic: u64,
}

impl Default for PeerWindow {
    fn default() -> Self {
        Self {
            persist_at: Instant::FAR_FUTURE,
            since: None,
            time: Duration::ZERO,
            times: 0,
            last_opportunistic: None,
            penalised_at: None,
            opportunistic: 0,
        }
    }
}

impl PeerWindow {
    /// Number of times that the window began to block.
    #[inline]
    pub const fn times(&self) -> u64 {
        self.times
    }

    /// Time for which the window has blocked up to `now`.
    pub fn time(&self, now: Instant) -> Duration {
        self.time + self.since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// Number of opportunistic retransmissions.
    pub const fn opportunistic(&self) -> u64 {
        self.opportunistic
    }

    /// Time of the next probe; [`Instant::FAR_FUTURE`] while the window does not block.
    #[inline]
    pub const fn next_wakeup(&self) -> Instant {
        self.persist_at
    }

    /// Ends the blocking period: the window has opened.
    pub fn on_opened(&mut self, now: Instant) {
        self.persist_at = Instant::FAR_FUTURE;
        if let Some(since) = self.since.take() {
            self.time += now.since(since);
        }
    }

    /// Sends a probe if it is due.
    #[inline]
    pub fn wake(&mut self, now: Instant, subflows: &mut Subflows) {
        if self.persist_at <= now {
            self.persist_at = now + subflows.probe_interval();
            let mut all = subflows.all_mut().iter_mut();
            if let Some(subflow) = all.find(|subflow| subflow.is_usable()) {
                subflow.probe();
            }
        }
    }

    /// Handles a full window: starts probing, and `relieves` the connection if a subflow has room.
    /// Returns whether a new period of blocking has begun.
    pub fn on_blocked(
        &mut self,
        now: Instant,
        relieves: bool,
        send: &SendSide,
        subflows: &mut Subflows,
    ) -> bool {
        let all = subflows.all();
        if !all.iter().any(Subflow::is_established) {
            return false;
        }
        if self.persist_at == Instant::FAR_FUTURE && all.iter().all(Subflow::is_idle) {
            self.persist_at = now + subflows.probe_interval();
        }
        let free = all
            .iter()
            .filter(|subflow| subflow.is_usable() && subflow.has_room(send.segment()))
            .min_by_key(|subflow| subflow.srtt_or_max())
            .map(Subflow::id);
        let Some(free) = free else { return false };
        let begins = self.since.is_none();
        if begins {
            self.since = Some(now);
            self.times += 1;
        }
        if relieves && all.len() > 1 {
            self.relieve(now, free, send, subflows);
        }
        begins
    }

    /// Relieves the window while subflow `free` has room: penalises the subflow that carries the oldest
    /// unacknowledged chunk, and retransmits the chunk on `free` if that is much faster.
    fn relieve(&mut self, now: Instant, free: SubflowId, send: &SendSide, subflows: &mut Subflows) {
        let una = send.data_una();
        let find = |subflow: &Subflow| {
            subflow
                .outstanding()
                .take(SEARCH_DEPTH)
                .find(|chunk| chunk.dsn <= una && una < chunk.end())
        };
        let all = subflows.all();
        let fast = &subflows[free];
        let fast_srtt = fast.srtt_or_max();
        if find(fast).is_some() {
            return;
        }
        let mut others = all.iter().filter(|subflow| subflow.id() != free);
        let holder = others.find_map(|subflow| Some((subflow.id(), find(subflow)?)));
        let Some((holder, head)) = holder else { return };
        let Some(config) = subflows.config() else { return };
        let (penalises, retransmits) = (config.penalisation, config.opportunistic_retransmission);
        let slow = &mut subflows[holder];
        let slow_srtt = slow.srtt_or_max();
        let due = self.penalised_at.is_none_or(|last| now.since(last) >= fast_srtt);
        if penalises && fast_srtt < slow_srtt && due {
            slow.penalise();
            self.penalised_at = Some(now);
        }
        let small = slow.window() <= SMALL_WINDOW_SEGMENTS * u64::from(send.segment());
        let much_slower =
            fast_srtt < Duration::MAX && (small || fast_srtt * MUCH_SLOWER < slow_srtt);
        if retransmits
            && much_slower
            && self.last_opportunistic != Some(head.dsn)
            && !head.carried_by.contains(free.as_path())
        {
            self.last_opportunistic = Some(head.dsn);
            self.opportunistic += 1;
            let carried_by = head.carried_by.with(free.as_path());
            subflows[free].assign(Chunk { carried_by, ..head });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_while_the_window_blocks_and_no_longer() {
        let at = Instant::from_millis;
        let mut window = PeerWindow { since: Some(at(100)), times: 1, ..PeerWindow::default() };
        assert_eq!(window.time(at(130)), Duration::from_millis(30));
        window.on_opened(at(150));
        assert_eq!((window.time(at(900)), window.times()), (Duration::from_millis(50), 1));
        assert_eq!(window.next_wakeup(), Instant::FAR_FUTURE);
    }
}
