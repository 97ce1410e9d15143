//! Handshake of a subflow.
//!
//! Source: RFC 4340 §8.1; RFC 9897 §3.3 (with several subflows, the peer must have confirmed it before data is sent).

use skybraid_units::Instant;

use super::{Event, Subflow};
use crate::endpoint::Role;
use crate::segment::{Dccp, DccpKind, DccpOptions};

/// State of a subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Initial state.
    Closed,
    /// A Request is due or has been sent.
    Requesting,
    /// A Request has been received.
    Responding,
    /// A Response has been received; the peer has not confirmed the acknowledgement.
    PartOpen,
    /// The handshake is complete.
    Open,
}

/// Progress of a handshake by a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// None.
    Unchanged,
    /// The client's Request was answered.
    Answered,
    /// The server knows that its Response has arrived.
    Accepted,
    /// The client knows that the server is open.
    Confirmed,
    /// The client does not know yet that the server is open.
    Unconfirmed,
}

/// State of the handshake.
#[derive(Debug)]
pub struct Handshake {
    role: Role,
    multipath: bool,
    joins: bool,
    state: State,
    /// True if a packet of the handshake is due.
    due: bool,
    /// Sequence number of the packet by which the client learned that the server is open.
    opened_with: u64,
}

impl Handshake {
    /// Creates the state of a closed subflow.
    pub const fn new(role: Role, multipath: bool) -> Self {
        Self { role, multipath, joins: false, state: State::Closed, due: false, opened_with: 0 }
    }

    /// Starts it, to join an existing connection or to open a new one.
    pub fn open(&mut self, joins: bool) {
        if self.state == State::Closed {
            self.joins = joins;
            self.state = State::Requesting;
            self.due = true;
        }
    }

    /// Current state.
    #[inline]
    pub const fn state(&self) -> State {
        self.state
    }

    /// True if the subflow joins a connection.
    pub const fn joins(&self) -> bool {
        self.joins
    }

    /// True if data may be sent.
    #[inline]
    pub const fn is_established(&self) -> bool {
        match self.state {
            State::Open => true,
            State::PartOpen => !self.multipath,
            State::Closed | State::Requesting | State::Responding => false,
        }
    }

    /// True if the client awaits an answer.
    pub const fn is_asking(&self) -> bool {
        matches!(self.state, State::Requesting | State::PartOpen)
    }

    /// True if a packet of the handshake must be sent.
    #[inline]
    pub const fn is_due(&self) -> bool {
        self.due
    }

    /// Takes the packet that must be sent, if there is one.
    #[inline]
    pub const fn take_due(&mut self) -> Option<DccpKind> {
        if !core::mem::replace(&mut self.due, false) {
            return None;
        }
        match self.state {
            State::Requesting => Some(DccpKind::Request),
            State::Responding => Some(DccpKind::Response),
            State::PartOpen => Some(DccpKind::Ack),
            State::Closed | State::Open => None,
        }
    }

    /// Processes a packet; `next` is the number of the next packet to send.
    pub fn on_packet(&mut self, dccp: &Dccp, next: u64) -> Step {
        match (self.state, dccp.kind) {
            (State::Closed | State::Responding, DccpKind::Request) => {
                self.joins = dccp.options.has(DccpOptions::JOIN);
                self.state = State::Responding;
                self.due = true;
            }
            (State::Requesting, DccpKind::Response) => {
                self.state = State::PartOpen;
                self.due = true;
                return Step::Answered;
            }
            // The acknowledgement was lost.
            (State::PartOpen, DccpKind::Response) => self.due = true,
            (State::Responding, DccpKind::Ack | DccpKind::DataAck) => {
                self.state = State::Open;
                self.opened_with = next;
                return Step::Accepted;
            }
            (State::PartOpen, _) => {
                self.state = State::Open;
                self.due = false;
                return Step::Confirmed;
            }
            (State::Open, DccpKind::Ack)
                if self.role == Role::Server && dccp.acks.newest() < self.opened_with =>
            {
                return Step::Unconfirmed;
            }
            _ => {}
        }
        Step::Unchanged
    }

    /// Repeats the client's packet after a timeout. Returns whether it is a Request.
    pub fn on_timeout(&mut self) -> bool {
        self.due = true;
        self.state == State::Requesting
    }
}

impl Subflow {
    /// Advances the handshake by a packet.
    pub(super) fn advance_handshake(&mut self, now: Instant, dccp: &Dccp) -> Option<Event> {
        let step = self.handshake.on_packet(dccp, self.sent.next());
        match step {
            Step::Unchanged => return None,
            Step::Unconfirmed => {
                self.receiver.acknowledge_now();
                return None;
            }
            Step::Answered => {
                self.end_probe(now, dccp);
                self.timer.end_back_off();
            }
            Step::Accepted => {
                self.end_probe(now, dccp);
                self.receiver.acknowledge_now();
                self.arm(now);
            }
            Step::Confirmed => {
                if dccp.kind.has_ack_number() {
                    self.end_probe(now, dccp);
                }
                self.probe.forget();
                self.timer.end_back_off();
                self.arm(now);
            }
        }
        let established = match step {
            Step::Answered => !self.multipath,
            Step::Confirmed => self.multipath,
            _ => true,
        };
        established.then_some(Event::Established)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpdccp::ack_vector::AckVector;
    use crate::segment::Datagram;
    use skybraid_units::Duration;

    fn packet(kind: DccpKind) -> Dccp {
        Dccp {
            sequence: 1,
            acks: AckVector::default(),
            elapsed: Duration::ZERO,
            data: Datagram { sequence: 0, message: 0, len: 0, fragment: 0, fragments: 0 },
            rtt_us: 0,
            kind,
            options: DccpOptions::NONE,
            priority: 3,
            ack_ratio: 2,
        }
    }

    // Source: RFC 4340 §8.1.5 and RFC 9897 §3.3.
    #[test]
    fn data_waits_for_the_confirmation_only_with_several_subflows() {
        for multipath in [false, true] {
            let [mut client, mut server] =
                [Role::Client, Role::Server].map(|role| Handshake::new(role, multipath));
            client.open(false);
            assert_eq!(client.take_due(), Some(DccpKind::Request));
            assert_eq!(server.on_packet(&packet(DccpKind::Request), 1), Step::Unchanged);
            assert_eq!(server.take_due(), Some(DccpKind::Response));
            assert_eq!(client.on_packet(&packet(DccpKind::Response), 1), Step::Answered);
            assert_eq!((client.take_due(), client.take_due()), (Some(DccpKind::Ack), None));
            assert_eq!(client.is_established(), !multipath);
            assert_eq!(server.on_packet(&packet(DccpKind::Ack), 2), Step::Accepted);
            // A second acknowledgement shows that the client does not know.
            assert_eq!(server.on_packet(&packet(DccpKind::Ack), 2), Step::Unconfirmed);
            assert_eq!(client.on_packet(&packet(DccpKind::Ack), 2), Step::Confirmed);
            assert!(client.is_established() && server.is_established());
        }
    }

    #[test]
    fn an_unanswered_request_is_repeated() {
        let mut client = Handshake::new(Role::Client, true);
        client.open(true);
        client.take_due();
        assert!(client.on_timeout() && client.joins());
        assert_eq!(client.take_due(), Some(DccpKind::Request));
    }
}
