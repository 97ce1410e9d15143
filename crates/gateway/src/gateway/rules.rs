//! Rules of local applications: what they may exchange with the peer's, and in which class.

use skybraid_transport::mutran::mavlink::Header;
use skybraid_units::Instant;

use super::channels::Kind;
use crate::config::GatewayConfig;
use crate::inner::InnerAddresses;
use crate::policy::Policy;
use crate::signing::Signature;
use crate::sources::Component;
use crate::{Class, SigningKey};

/// Rules for messages.
#[derive(Debug)]
pub(super) struct Rules {
    policy: Policy,
    /// Addresses allowed in packets of the TUN interface.
    inner: InnerAddresses,
    signing: Option<SigningKey>,
}

/// Place of an outgoing message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outbound {
    pub class: Class,
    /// Sender of a MAVLink frame.
    pub component: Component,
    /// Key of messages that supersede one another in the queue.
    pub kind: Option<u32>,
}

/// Reason why a message is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// No MAVLink frame, or an IP packet of an address that is not allowed.
    Content,
    /// The signature is wrong.
    Signature,
}

impl Rules {
    pub fn new(config: &GatewayConfig, signing: Option<SigningKey>) -> Self {
        Self {
            policy: Policy::new(&config.messages, &config.rule),
            inner: InnerAddresses::new(config.tun.as_ref()),
            signing,
        }
    }

    pub const fn inner(&self) -> &InnerAddresses {
        &self.inner
    }

    pub const fn inner_mut(&mut self) -> &mut InnerAddresses {
        &mut self.inner
    }

    /// Returns the place of a message that a local application writes to a channel of this kind.
    pub fn outbound(&mut self, now: Instant, kind: Kind, bytes: &[u8]) -> Result<Outbound, Unfit> {
        let of_class = |class| Outbound { class, component: (0, 0), kind: None };
        match kind {
            Kind::Datagrams(class) => Ok(of_class(class)),
            Kind::Packets if self.inner.admits_outgoing(bytes) => {
                Ok(of_class(self.policy.of_packet(bytes)))
            }
            Kind::Packets => Err(Unfit::Content),
            Kind::Mavlink => {
                let (header, _) = self.frame(bytes)?;
                // A signed frame must not overtake earlier frames.
                let latest = self.policy.is_superseded_in_queue(header.message) && !header.signed;
                Ok(Outbound {
                    class: self.policy.of_frame(now, &header).class,
                    component: (header.system, header.component),
                    kind: latest.then_some(header.message),
                })
            }
        }
    }

    /// Whether an IP packet of the peer may be delivered.
    pub fn admits_incoming(&mut self, packet: &[u8]) -> bool {
        self.inner.admits_incoming(packet)
    }

    /// Returns the header and the signature of a MAVLink frame.
    pub fn frame(&self, bytes: &[u8]) -> Result<(Header, Signature), Unfit> {
        let header = frame_header(bytes).ok_or(Unfit::Content)?;
        match Signature::of(self.signing.as_ref(), &header, bytes) {
            Signature::Wrong => Err(Unfit::Signature),
            signature => Ok((header, signature)),
        }
    }

    /// Whether only the newest message of this MAVLink number counts.
    pub fn is_latest(&self, message: u32) -> bool {
        self.policy.is_latest(message)
    }
}

/// Parses the header of a frame that fills `bytes` exactly.
pub(super) fn frame_header(bytes: &[u8]) -> Option<Header> {
    Header::parse(bytes).ok().filter(|header| header.frame() == bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_has_its_class_and_a_broken_frame_has_none() {
        let mut rules = Rules {
            policy: Policy::new(&crate::config::MessagesConfig::default(), &[]),
            inner: InnerAddresses::new(None),
            signing: Some(SigningKey([7; 32])),
        };
        let port = rules.outbound(Instant::ZERO, Kind::Datagrams(Class::Video), b"anything");
        assert_eq!(port, Ok(Outbound { class: Class::Video, component: (0, 0), kind: None }));
        let broken = rules.outbound(Instant::ZERO, Kind::Mavlink, b"\xfd\x09no frame");
        assert_eq!(broken, Err(Unfit::Content));
    }
}
