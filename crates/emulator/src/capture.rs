//! Packet captures: one pcapng file per path and host, with the headers that a real packet would
//! have, so that stock Wireshark opens them.
//!
//! Payload bytes are left out; the original length includes them. Time starts at the run's beginning.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufWriter, Error};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use etherparse::{IpNumber, PacketBuilder};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, PcapError};
use skybraid_transport::mpdccp::wire::header as dccp_header;
use skybraid_transport::segment::Flags;
use skybraid_transport::wire::{carries_mptcp, tcp_options};
use skybraid_transport::{Body, Segment};
use skybraid_units::Instant;

/// Captures of a run: for each path, one at the vehicle and one at the ground.
pub struct Captures {
    /// Two per path: vehicle, ground.
    files: Vec<Capture>,
}

/// Record of a packet that enters a link.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Time of entering the link.
    pub entered: Instant,
    /// Arrival time; `None` if the packet is lost, or not yet known to arrive.
    pub arrives: Option<Instant>,
    /// Index of the path.
    pub path: usize,
    /// Vehicle to ground.
    pub uplink: bool,
    /// Index of the flow, from which the ports are derived.
    pub flow: usize,
    /// Segment carried.
    pub segment: &'a Segment,
}

struct Capture {
    writer: PcapNgWriter<BufWriter<File>>,
    /// Packets that this host will see later; files are ordered by time.
    coming: BinaryHeap<Reverse<Seen>>,
    count: u64,
}

/// A packet as seen by a host; ordered by time, then by insertion.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    at: Instant,
    number: u64,
    headers: Vec<u8>,
    length: u32,
}

impl Captures {
    /// Creates the files `NAME-vehicle.pcapng` and `NAME-ground.pcapng` for each path in `folder`.
    ///
    /// # Errors
    /// A file cannot be created or written.
    pub fn create(folder: &Path, paths: &[String]) -> io::Result<Self> {
        let hosts = |path: &String| ["vehicle", "ground"].map(|host| (path.clone(), host));
        let files = paths.iter().flat_map(hosts).map(|(path, host)| {
            let name = format!("{path}-{host}");
            Capture::create(folder.join(&name).with_extension("pcapng"), &name)
        });
        Ok(Self { files: files.collect::<io::Result<_>>()? })
    }

    /// Records a packet at its sender and, if it arrives, at its receiver. Times must not decrease.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        let headers = headers(entry)?;
        let (sender, receiver) = if entry.uplink { (0, 1) } else { (1, 0) };
        let seen = [(sender, Some(entry.entered)), (receiver, entry.arrives)];
        for (host, at) in seen {
            if let (Some(at), Some(file)) = (at, self.files.get_mut(2 * entry.path + host)) {
                file.note(at, headers.clone(), entry.segment.size);
                file.flush_until(entry.entered)?;
            }
        }
        Ok(())
    }

    /// Records a packet at its receiver alone, when its arrival is known later than that it was sent.
    ///
    /// # Errors
    /// A packet has no valid headers.
    pub fn write_arrival(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        let headers = headers(entry)?;
        let receiver = usize::from(entry.uplink);
        if let (Some(at), Some(file)) =
            (entry.arrives, self.files.get_mut(2 * entry.path + receiver))
        {
            file.note(at, headers, entry.segment.size);
        }
        Ok(())
    }

    /// Writes the remaining packets and closes the files.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn finish(self) -> io::Result<()> {
        for mut file in self.files {
            file.flush_until(Instant::FAR_FUTURE)?;
            file.writer
                .into_inner()
                .into_inner()
                .map_err(|error| error.into_error())?
                .sync_all()?;
        }
        Ok(())
    }
}

impl Capture {
    fn create(path: PathBuf, name: &str) -> io::Result<Self> {
        let file = BufWriter::new(File::create(path)?);
        let mut writer = PcapNgWriter::new(file).map_err(from_pcap)?;
        let interface = InterfaceDescriptionBlock {
            linktype: DataLink::IPV4,
            snaplen: 0,
            options: vec![
                InterfaceDescriptionOption::IfName(name.into()),
                // Nanosecond resolution.
                InterfaceDescriptionOption::IfTsResol(9),
            ],
        };
        writer.write_pcapng_block(interface).map_err(from_pcap)?;
        Ok(Self { writer, coming: BinaryHeap::new(), count: 0 })
    }

    fn note(&mut self, at: Instant, headers: Vec<u8>, length: u32) {
        self.count += 1;
        self.coming.push(Reverse(Seen { at, number: self.count, headers, length }));
    }

    fn flush_until(&mut self, now: Instant) -> io::Result<()> {
        while self.coming.peek().is_some_and(|Reverse(seen)| seen.at <= now) {
            let Some(Reverse(seen)) = self.coming.pop() else { break };
            let block = EnhancedPacketBlock {
                interface_id: 0,
                timestamp: std::time::Duration::from_nanos(seen.at.as_nanos().max(0) as u64),
                original_len: seen.length,
                data: seen.headers.into(),
                options: Vec::new(),
            };
            self.writer.write_pcapng_block(block).map_err(from_pcap)?;
        }
        Ok(())
    }
}

fn from_pcap(error: PcapError) -> Error {
    match error {
        PcapError::IoError(error) => error,
        other => Error::other(other.to_string()),
    }
}

/// Returns the bytes of the packet up to its payload.
fn headers(entry: &Entry<'_>) -> io::Result<Vec<u8>> {
    let net = entry.path as u8;
    let (vehicle, ground) = (Ipv4Addr::new(10, net, 0, 1), Ipv4Addr::new(10, net, 0, 2));
    // Several subflows over one path differ in the vehicle's port.
    let subflow = match &entry.segment.body {
        Body::Tcp(tcp) => u16::from(tcp.subflow),
        _ => 0,
    };
    let ports = (40_000 + 64 * entry.flow as u16 + subflow, 5_000 + entry.flow as u16);
    let (from, to, source, target) = if entry.uplink {
        (vehicle, ground, ports.0, ports.1)
    } else {
        (ground, vehicle, ports.1, ports.0)
    };
    let ip = PacketBuilder::ipv4(from.octets(), to.octets(), 64);
    let mut bytes = Vec::new();
    let (payload, written) = match &entry.segment.body {
        Body::Tcp(tcp) => {
            let options = tcp_options(entry.segment, tcp);
            // The SYN takes the sequence number before the first byte.
            let syn = tcp.flags.has(Flags::SYN);
            let seq = (tcp.seq as u32).wrapping_add(u32::from(!syn));
            let window = (tcp.window_end.saturating_sub(tcp.data_ack) >> 8).min(65_535);
            let mut builder = ip.tcp(source, target, seq, window as u16);
            if syn {
                builder = builder.syn();
            }
            if tcp.flags.has(Flags::ACK) {
                builder = builder.ack((tcp.ack as u32).wrapping_add(1));
            }
            if tcp.len > 0 {
                builder = builder.psh();
            }
            // MPTCP closes with its own option; its subflows stay open.
            if tcp.flags.has(Flags::FIN) && !carries_mptcp(entry.segment, tcp) {
                builder = builder.fin();
            }
            let builder = builder.options_raw(&options).map_err(Error::other)?;
            let payload = vec![0; tcp.len as usize];
            (payload.len(), builder.write(&mut bytes, &payload))
        }
        Body::Dccp(dccp) => {
            let addresses = (from.octets(), to.octets());
            let header = dccp_header(dccp, entry.segment.sent_at, (source, target), addresses);
            let payload = dccp.data.len as usize;
            let content = [header, vec![0; payload]].concat();
            (payload, ip.write(&mut bytes, IpNumber::DCCP, &content))
        }
        Body::Datagram(_) | Body::Report(_) | Body::Repair(_) => {
            let payload = vec![0; entry.segment.size.saturating_sub(28) as usize];
            (payload.len(), ip.udp(source, target).write(&mut bytes, &payload))
        }
    };
    written.map_err(Error::other)?;
    bytes.truncate(bytes.len() - payload);
    Ok(bytes)
}
