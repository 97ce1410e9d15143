//! Captures of the real frames at each end of a lane, one pcapng file per end.
//!
//! The forwarder copies frames into chunks of memory and passes full chunks to a writer thread. If the disk
//! is too slow, chunks are left out and their frames counted.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration as StdDuration;

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, PcapError};
use skybraid_units::{Duration, Instant};

/// Chunk size.
const CHUNK: usize = 256 << 10;
/// Maximum chunks queued for the disk: 32 MiB.
const MAX_WAITING: usize = 128;
/// Length of the header of each frame in a chunk: time, length, port.
const HEADER: usize = 16;
/// Maximum reordering of recorded frames, since the forwarder may read early frames late.
const MAX_REORDERING: Duration = Duration::from_millis(20);
/// Polling interval of the writer. Waking it would cost the forwarder time.
const POLL_INTERVAL: StdDuration = StdDuration::from_millis(5);

/// Forwarder's side of the captures.
pub(super) struct Capture {
    full: SyncSender<Vec<u8>>,
    empty: Receiver<Vec<u8>>,
    chunk: Vec<u8>,
    frames_in_chunk: u64,
    missing: u64,
    writer: JoinHandle<io::Result<()>>,
}

impl Capture {
    /// Creates `NAME-vehicle.pcapng` and `NAME-ground.pcapng` for each lane.
    pub fn create(folder: &Path, lanes: &[String]) -> io::Result<Self> {
        let ends = lanes.iter().flat_map(|lane| ["vehicle", "ground"].map(|host| (lane, host)));
        let files: io::Result<Vec<_>> =
            ends.map(|(lane, host)| Ending::create(folder, &format!("{lane}-{host}"))).collect();
        let files = files?;
        let (full, chunks) = sync_channel(MAX_WAITING);
        let (emptied, empty) = channel();
        let writer = std::thread::Builder::new().name("capture".into());
        let writer =
            writer.spawn(move || write(files, &chunks, |chunk| emptied.send(chunk).ok()))?;
        let chunk = Vec::with_capacity(CHUNK);
        Ok(Self { full, empty, chunk, frames_in_chunk: 0, missing: 0, writer })
    }

    /// Records a frame received or sent at the end with this number.
    pub fn note(&mut self, end: usize, at: Instant, frame: &[u8]) {
        if self.chunk.len() + HEADER + frame.len() > CHUNK {
            self.flush();
        }
        self.chunk.extend_from_slice(&at.as_nanos().to_le_bytes());
        self.chunk.extend_from_slice(&(frame.len() as u32).to_le_bytes());
        self.chunk.extend_from_slice(&(end as u32).to_le_bytes());
        self.chunk.extend_from_slice(frame);
        self.frames_in_chunk += 1;
    }

    /// Passes recorded frames to the writer.
    pub fn flush(&mut self) {
        if self.chunk.is_empty() {
            return;
        }
        let next = self.empty.try_recv().unwrap_or_else(|_| Vec::with_capacity(CHUNK));
        let chunk = std::mem::replace(&mut self.chunk, next);
        if let Err(TrySendError::Full(mut left) | TrySendError::Disconnected(mut left)) =
            self.full.try_send(chunk)
        {
            self.missing += self.frames_in_chunk;
            left.clear();
            self.chunk = left;
        }
        self.frames_in_chunk = 0;
    }

    /// Writes the remaining frames. Returns the number of missing frames, and an error if any.
    pub fn finish(mut self) -> (u64, Option<io::Error>) {
        self.flush();
        drop(self.full);
        let panicked = || Err(io::Error::other("the writer of captures has ended by an error"));
        (self.missing, self.writer.join().unwrap_or_else(|_| panicked()).err())
    }
}

/// Capture file of one end.
struct Ending {
    path: PathBuf,
    writer: PcapNgWriter<BufWriter<File>>,
    /// Frames that may still be preceded by others.
    recent: Vec<(Instant, Vec<u8>)>,
}

impl Ending {
    fn create(folder: &Path, name: &str) -> io::Result<Self> {
        let path = folder.join(format!("{name}.pcapng"));
        let file = File::create(&path).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot create `{}`: {error}", path.display()))
        })?;
        let mut writer =
            PcapNgWriter::new(BufWriter::with_capacity(CHUNK, file)).map_err(from_pcap)?;
        let interface = InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: 0,
            options: vec![
                InterfaceDescriptionOption::IfName(name.to_owned().into()),
                // Nanosecond resolution.
                InterfaceDescriptionOption::IfTsResol(9),
            ],
        };
        writer.write_pcapng_block(interface).map_err(from_pcap)?;
        Ok(Self { path, writer, recent: Vec::new() })
    }

    /// Writes the frames up to `until` in order of time.
    fn write_until(&mut self, until: Instant) -> io::Result<()> {
        self.recent.sort_by_key(|(at, _)| *at);
        let ready = self.recent.partition_point(|(at, _)| *at <= until);
        for (at, frame) in self.recent.drain(..ready) {
            let block = EnhancedPacketBlock {
                interface_id: 0,
                timestamp: StdDuration::from_nanos(at.as_nanos().max(0) as u64),
                original_len: frame.len() as u32,
                data: frame.into(),
                options: Vec::new(),
            };
            let written = self.writer.write_pcapng_block(block).map_err(from_pcap);
            written.map_err(|error| cannot_write(&self.path, &error))?;
        }
        Ok(())
    }

    /// Writes all remaining frames.
    fn finish(mut self) -> io::Result<()> {
        self.write_until(Instant::FAR_FUTURE)?;
        self.writer.into_inner().flush().map_err(|error| cannot_write(&self.path, &error))
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write the capture `{}`: {error}", path.display()))
}

fn from_pcap(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other.to_string()),
    }
}

/// Writes chunks until the channel is closed.
fn write(
    mut files: Vec<Ending>,
    chunks: &Receiver<Vec<u8>>,
    give_back: impl Fn(Vec<u8>) -> Option<()>,
) -> io::Result<()> {
    loop {
        match chunks.try_recv() {
            Ok(mut chunk) => {
                let mut newest = Instant::from_nanos(i64::MIN / 2);
                let mut rest = chunk.as_slice();
                while let Some((end, at, frame, behind)) = record(rest) {
                    newest = newest.max(at);
                    if let Some(file) = files.get_mut(end) {
                        file.recent.push((at, frame.to_vec()));
                    }
                    rest = behind;
                }
                chunk.clear();
                give_back(chunk);
                for file in &mut files {
                    file.write_until(newest - MAX_REORDERING)?;
                }
            }
            Err(TryRecvError::Empty) => std::thread::sleep(POLL_INTERVAL),
            Err(TryRecvError::Disconnected) => break,
        }
    }
    files.into_iter().try_for_each(Ending::finish)
}

/// Returns the first record of a chunk (number of the end, time, frame) and the remaining bytes.
fn record(chunk: &[u8]) -> Option<(usize, Instant, &[u8], &[u8])> {
    let (at, rest) = chunk.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (end, rest) = rest.split_first_chunk()?;
    let (frame, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let at = Instant::from_nanos(i64::from_le_bytes(*at));
    Some((u32::from_le_bytes(*end) as usize, at, frame, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcap_file::pcapng::{Block, PcapNgReader};

    fn frames(path: &Path) -> Vec<(u64, Vec<u8>)> {
        let mut reader = PcapNgReader::new(File::open(path).unwrap()).unwrap();
        let mut all = Vec::new();
        while let Some(block) = reader.next_block() {
            if let Block::EnhancedPacket(packet) = block.unwrap() {
                all.push((packet.timestamp.as_nanos() as u64, packet.data.into_owned()));
            }
        }
        all
    }

    #[test]
    fn frames_are_written_to_the_file_of_their_end_in_order_of_time() {
        let folder = std::env::temp_dir().join(format!("skybraid-capture-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut capture = Capture::create(&folder, &["lte".into(), "geo".into()]).unwrap();
        for number in 0..3000_i64 {
            // Swap each pair.
            let at = Instant::from_millis(number ^ 1);
            capture.note(3, at, &[number as u8; 600]);
        }
        capture.note(0, Instant::from_nanos(5), &[9; 60]);
        let (missing, error) = capture.finish();
        assert!(missing == 0 && error.is_none());
        let written = frames(&folder.join("geo-ground.pcapng"));
        assert_eq!(written.len(), 3000);
        assert!(written.is_sorted_by_key(|(at, _)| *at));
        assert!(written.iter().all(|(at, frame)| frame[..] == [(at / 1_000_000) as u8 ^ 1; 600]));
        assert_eq!(frames(&folder.join("lte-vehicle.pcapng")), vec![(5, vec![9; 60])]);
        assert_eq!(frames(&folder.join("lte-ground.pcapng")), vec![]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn frames_that_the_disk_has_no_time_for_are_counted() {
        let (full, _chunks) = sync_channel(1);
        let (_emptied, empty) = channel();
        let writer = std::thread::spawn(|| Ok(()));
        let chunk = Vec::new();
        let mut capture = Capture { full, empty, chunk, frames_in_chunk: 0, missing: 0, writer };
        for _ in 0..3 {
            capture.note(0, Instant::ZERO, &[0; 100]);
            capture.note(0, Instant::ZERO, &[0; 100]);
            capture.flush();
        }
        assert_eq!(capture.finish().0, 4);
    }
}
