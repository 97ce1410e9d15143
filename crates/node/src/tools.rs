//! What both sides of a gateway work with.

use std::io;

use super::alarms::Alarms;
use super::local::HEAD;
use super::names::Names;
use super::poller::{Poller, Source};
use skybraid_io::batch::{Inbox, SLOT};

/// One of each, shared by all that the loop drives.
pub struct Tools {
    /// Descriptors and the timer.
    pub poller: Poller,
    /// The resolver.
    pub names: Names,
    /// Problems that somebody has to fix.
    pub alarms: Alarms,
    /// Room for datagrams.
    pub inbox: Inbox,
    /// Room for bytes of streams, and for the largest packet of a TUN interface with what is in front of it.
    pub scratch: Vec<u8>,
}

impl Tools {
    /// All of them.
    pub fn new(poller: Poller, alarms: Alarms) -> io::Result<Self> {
        let names = Names::start()?;
        poller.watch(&names, Source::Names)?;
        Ok(Self { poller, names, alarms, inbox: Inbox::default(), scratch: vec![0; SLOT + HEAD] })
    }
}
