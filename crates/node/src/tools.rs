//! Resources shared by both sides of a gateway.

use std::io;

use super::alarms::Alarms;
use super::local::HEAD;
use super::names::Names;
use super::poller::{Poller, Source};
use skybraid_io::batch::{Inbox, SLOT};

/// Shared resources of the event loop.
pub struct Tools {
    /// Descriptors and the timer.
    pub poller: Poller,
    /// Name resolver.
    pub names: Names,
    /// Problems that somebody has to fix.
    pub alarms: Alarms,
    /// Receive buffers for datagrams.
    pub inbox: Inbox,
    /// Buffer for stream data, and for the largest packet of a TUN interface with its header.
    pub scratch: Vec<u8>,
}

impl Tools {
    /// Creates all resources.
    pub fn new(poller: Poller, alarms: Alarms) -> io::Result<Self> {
        let names = Names::start()?;
        poller.watch(&names, Source::Names)?;
        Ok(Self { poller, names, alarms, inbox: Inbox::default(), scratch: vec![0; SLOT + HEAD] })
    }
}
