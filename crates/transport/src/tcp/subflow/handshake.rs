//! Handshake of a subflow.
//!
//! Source: RFC 9293 §3.5; RFC 8684 §3.2 (a joined subflow waits for the fourth acknowledgement).

use skybraid_units::{Duration, Instant};

use crate::segment::Flags;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Initial state.
    Closed,
    /// A SYN is due or has been sent.
    SynSent,
    /// A SYN has been received.
    SynReceived,
    /// A joining subflow has received the SYN/ACK; the server has not confirmed the third
    /// acknowledgement.
    AwaitingFourthAck,
    /// Data may be sent.
    Established,
    /// The address of the subflow was removed.
    Removed,
}

/// Progress of a handshake by a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// None.
    Unchanged,
    /// The server knows that its SYN/ACK has arrived.
    Accepted,
    /// The client knows that its SYN has been answered.
    Answered,
    /// The client's SYN has been answered, and its third acknowledgement must be confirmed.
    Joining,
    /// The client knows that its third acknowledgement has arrived.
    Joined,
}

/// Reaction to a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// The SYN or SYN/ACK is sent again.
    Syn,
    /// The third acknowledgement is sent again.
    ThirdAck,
    /// Nothing is sent any more.
    Nothing,
    /// Data is sent again: the subflow is established.
    Data,
}

/// State of the handshake.
#[derive(Debug)]
pub struct Handshake {
    state: State,
    joins: bool,
    syn_due: bool,
    syn_at: Instant,
    syn_repeated: bool,
}

impl Default for Handshake {
    fn default() -> Self {
        Self {
            state: State::Closed,
            joins: false,
            syn_due: false,
            syn_at: Instant::ZERO,
            syn_repeated: false,
        }
    }
}

impl Handshake {
    /// Starts it, to join an existing connection or to open a new one.
    pub fn open(&mut self, joins: bool) {
        if self.is_closed() {
            self.joins = joins;
            self.state = State::SynSent;
            self.syn_due = true;
        }
    }

    /// Ends the subflow for good.
    pub const fn remove(&mut self) {
        self.state = State::Removed;
        self.syn_due = false;
    }

    /// True in the initial state.
    pub const fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// True after [`remove`](Self::remove).
    #[inline]
    pub const fn is_removed(&self) -> bool {
        matches!(self.state, State::Removed)
    }

    /// True if data may be sent.
    #[inline]
    pub const fn is_established(&self) -> bool {
        matches!(self.state, State::Established)
    }

    /// True while a joining client's third acknowledgement must be confirmed.
    #[inline]
    pub const fn awaits_fourth_ack(&self) -> bool {
        matches!(self.state, State::AwaitingFourthAck)
    }

    /// True if a SYN or SYN/ACK must be sent.
    #[inline]
    pub const fn syn_due(&self) -> bool {
        self.syn_due
    }

    /// Records that a SYN or SYN/ACK was sent. Returns its flags.
    pub const fn on_syn_sent(&mut self, now: Instant) -> Flags {
        self.syn_due = false;
        self.syn_at = now;
        let mut flags = Flags::SYN;
        if matches!(self.state, State::SynReceived) {
            flags = flags.and(Flags::ACK);
        }
        if self.joins {
            flags = flags.and(Flags::JOIN);
        }
        flags
    }

    /// Processes a SYN or SYN/ACK.
    pub fn on_syn(&mut self, flags: Flags) -> Step {
        if !flags.has(Flags::ACK) {
            if matches!(self.state, State::Closed | State::SynReceived) {
                self.joins = flags.has(Flags::JOIN);
                self.syn_repeated |= self.state == State::SynReceived;
                self.state = State::SynReceived;
                self.syn_due = true;
            }
            return Step::Unchanged;
        }
        if self.state != State::SynSent {
            return Step::Unchanged;
        }
        self.syn_due = false;
        if self.joins {
            self.state = State::AwaitingFourthAck;
            return Step::Joining;
        }
        self.state = State::Established;
        Step::Answered
    }

    /// Processes any other segment.
    #[inline]
    pub const fn on_segment(&mut self) -> Step {
        let step = match self.state {
            State::SynReceived => Step::Accepted,
            State::AwaitingFourthAck => Step::Joined,
            _ => return Step::Unchanged,
        };
        self.state = State::Established;
        step
    }

    /// Round-trip time of the SYN or SYN/ACK just answered; `None` if it was sent more than once.
    pub fn round_trip(&self, now: Instant) -> Option<Duration> {
        (!self.syn_repeated).then(|| now.since(self.syn_at))
    }

    /// Returns what must be sent again after a timeout.
    pub const fn on_timeout(&mut self) -> Repeat {
        match self.state {
            State::SynSent | State::SynReceived => {
                self.syn_due = true;
                self.syn_repeated = true;
                Repeat::Syn
            }
            State::AwaitingFourthAck => Repeat::ThirdAck,
            State::Closed | State::Removed => Repeat::Nothing,
            State::Established => Repeat::Data,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Instant {
        Instant::from_millis(ms)
    }

    // Source: RFC 8684 §3.2: SYN+JOIN, SYN/ACK+JOIN, ACK+JOIN, and the ACK that confirms it.
    #[test]
    fn a_joining_client_is_established_by_the_fourth_segment() {
        let (mut client, mut server) = (Handshake::default(), Handshake::default());
        client.open(true);
        let syn = client.on_syn_sent(at(0));
        assert_eq!((syn, server.on_syn(syn)), (Flags::SYN.and(Flags::JOIN), Step::Unchanged));
        let answer = server.on_syn_sent(at(10));
        assert_eq!(client.on_syn(answer), Step::Joining);
        assert_eq!(client.round_trip(at(20)), Some(Duration::from_millis(20)));
        assert!(client.awaits_fourth_ack() && !client.is_established());
        assert_eq!(client.on_timeout(), Repeat::ThirdAck);
        assert_eq!(server.on_segment(), Step::Accepted);
        assert_eq!((client.on_segment(), client.on_segment()), (Step::Joined, Step::Unchanged));
        assert!(client.is_established() && server.is_established());
    }

    // Source: RFC 6298 §3 (Karn's algorithm): no sample from what was sent twice.
    #[test]
    fn a_repeated_syn_gives_no_round_trip_time() {
        let mut client = Handshake::default();
        client.open(false);
        client.on_syn_sent(at(0));
        assert_eq!((client.on_timeout(), client.syn_due()), (Repeat::Syn, true));
        client.on_syn_sent(at(1000));
        assert_eq!(client.on_syn(Flags::SYN.and(Flags::ACK)), Step::Answered);
        assert_eq!(client.round_trip(at(1040)), None);
        client.remove();
        assert_eq!((client.on_timeout(), client.on_segment()), (Repeat::Nothing, Step::Unchanged));
    }
}
