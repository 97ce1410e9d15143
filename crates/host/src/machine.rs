//! The calls of a protocol machine that carry data.

use skybraid_transport::datagram::Datagrams;
use skybraid_transport::parallel::Parallel;
use skybraid_transport::{Delivered, Endpoint, Transmit, mpdccp, mptcp};
use skybraid_units::Instant;

/// A protocol machine, or an endpoint of any protocol. A host that knows its protocol's machine need not look for it at
/// each call.
pub trait Machine {
    /// Passes all segments that can be sent now to `send`. They are borrowed rather than moved: a segment is large
    /// enough for copies to cost.
    fn send_all(&mut self, now: Instant, send: impl FnMut(&Transmit));
    /// Returns the next delivered message.
    fn poll_delivered(&mut self) -> Option<Delivered>;
    /// Time at which the machine must be woken.
    fn next_wakeup(&self) -> Instant;
    /// Passes the numbers of the messages dropped unsent since the last call to `take`.
    fn take_refused(&mut self, take: &mut impl FnMut(u32));
    /// Whether [`take_refused`](Self::take_refused) has something to take.
    fn has_refused(&self) -> bool;
}

macro_rules! machine {
    ($machine:ty, $self:ident, $has_refused:expr, |$take:ident| $take_refused:expr) => {
        machine!($machine, $self, $has_refused, |$take| $take_refused, |now, send| {
            while let Some(transmit) = &$self.poll_send(now) {
                send(transmit);
            }
        });
    };
    (
        $machine:ty, $self:ident, $has_refused:expr, |$take:ident| $take_refused:expr,
        |$now:ident, $send:ident| $send_all:expr
    ) => {
        impl Machine for $machine {
            #[inline]
            fn send_all(&mut $self, $now: Instant, mut $send: impl FnMut(&Transmit)) {
                $send_all
            }

            #[inline]
            fn poll_delivered(&mut self) -> Option<Delivered> {
                <$machine>::poll_delivered(self)
            }

            #[inline]
            fn next_wakeup(&self) -> Instant {
                <$machine>::next_wakeup(self)
            }

            #[inline]
            fn has_refused(&$self) -> bool {
                $has_refused
            }

            #[inline]
            fn take_refused(&mut $self, $take: &mut impl FnMut(u32)) {
                $take_refused
            }
        }
    };
}

machine!(Datagrams, self, false, |_take| {}, |now, send| Self::send_all(self, now, &mut send));
machine!(mptcp::Connection, self, false, |_take| {}, |now, send| {
    Self::send_all(self, now, &mut send);
});
machine!(Parallel, self, false, |_take| {});
machine!(mpdccp::Connection, self, Self::has_refused(self), |take| {
    Self::take_refused(self).for_each(take);
});
machine!(Endpoint, self, Self::has_refused(self), |take| Self::take_refused(self, take));
