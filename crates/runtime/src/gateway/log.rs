//! The event log: a line of JSON for each event and, now and then, for the whole state. It has a thread
//! of its own, so that a slow or full disk holds up nothing else.

use std::fs::{File, OpenOptions, create_dir_all};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use serde_json::json;
use skybraid_units::calendar::{days_in_month, days_since_1970};
use skybraid_units::{Duration, Instant};

use super::watch::{Books, Told, unix_s};
use crate::clock::Clock;

/// The kind of file, and the kind's version.
const FORMAT: &str = "skybraid-gateway-log";
const VERSION: u32 = 1;
/// What waits for the next writing is at most so much.
const MOST_WAITING: usize = 1 << 20;
/// How often what waits is written.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(50);

/// Lines on their way to a file. The file never holds half a line in its middle.
struct Lines {
    name: PathBuf,
    header: String,
    file: Option<File>,
    /// How much of the file is whole lines.
    whole: u64,
    waiting: Vec<u8>,
    waiting_lines: u64,
    /// Something could not be taken back: the next line begins with a line end.
    torn: bool,
}

impl Lines {
    fn new(name: PathBuf, header: String) -> Self {
        let waiting = Vec::new();
        Self { name, header, file: None, whole: 0, waiting, waiting_lines: 0, torn: false }
    }

    /// Takes a line; whether there was room.
    fn add(&mut self, line: &str) -> bool {
        let fits = self.waiting.len() + line.len() < MOST_WAITING;
        if fits {
            self.waiting.extend_from_slice(line.as_bytes());
            self.waiting.push(b'\n');
            self.waiting_lines += 1;
        }
        fits
    }

    /// Writes what waits; what cannot be written is dropped. How many lines those were, with the reason.
    fn flush(&mut self, unix: f64) -> Result<(), (u64, io::Error)> {
        let lines = std::mem::take(&mut self.waiting_lines);
        let bytes = std::mem::take(&mut self.waiting);
        if bytes.is_empty() {
            return Ok(());
        }
        self.write(&bytes, unix).map_err(|error| (lines, error))
    }

    fn write(&mut self, bytes: &[u8], unix: f64) -> io::Result<()> {
        if self.file.is_none() {
            let mut file = begin(&self.name, unix)?;
            let header = format!("{}\n", self.header);
            file.write_all(header.as_bytes())?;
            self.whole = header.len() as u64;
            self.file = Some(file);
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        let line_end: &[u8] = if self.torn { b"\n" } else { b"" };
        let all = [line_end, bytes].concat();
        match file.write_all(&all).and_then(|()| file.sync_data_if_it_can()) {
            Ok(()) => {
                self.torn = false;
                self.whole += all.len() as u64;
                Ok(())
            }
            Err(error) => {
                self.torn = file.set_len(self.whole).is_err();
                Err(error)
            }
        }
    }
}

trait Sync {
    fn sync_data_if_it_can(&self) -> io::Result<()>;
}

impl Sync for File {
    /// The log is most wanted when the power was cut. Pipes and the like cannot be synchronised.
    fn sync_data_if_it_can(&self) -> io::Result<()> {
        match self.sync_data() {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
            other => other,
        }
    }
}

/// Opens a file that was not there before: `flight.jsonl` becomes `flight-20261122T140500Z.jsonl`.
fn begin(name: &Path, unix: f64) -> io::Result<File> {
    let part =
        |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let (stem, ending) = (part(name.file_stem()), part(name.extension()));
    let ending = if ending.is_empty() { "jsonl".to_string() } else { ending };
    let folder = name.parent().unwrap_or(Path::new(""));
    if !folder.as_os_str().is_empty() {
        create_dir_all(folder)?;
    }
    let mut taken = io::Error::from(io::ErrorKind::AlreadyExists);
    for number in 1..1000 {
        let again = if number == 1 { String::new() } else { format!("-{number}") };
        let file = folder.join(format!("{stem}-{}{again}.{ending}", utc(unix)));
        match OpenOptions::new().append(true).create_new(true).open(&file) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => taken = error,
            other => return other,
        }
    }
    Err(taken)
}

/// A time as ISO 8601 writes it without hyphens and colons, in UTC.
fn utc(unix: f64) -> String {
    let seconds = unix as i64;
    let (mut days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let mut year = 1970;
    while days_since_1970(year + 1, 1, 1) <= days {
        year += 1;
    }
    days -= days_since_1970(year, 1, 1);
    let mut month = 1;
    while days >= days_in_month(year, month) {
        days -= days_in_month(year, month);
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}{month:02}{:02}T{hour:02}{minute:02}{second:02}Z", days + 1)
}

/// Writes the log until there are no more events, and then the state at the end and what is left.
pub(super) fn keep(books: &Books, name: PathBuf, every: Duration, events: &Receiver<Told>) {
    let about = books.about();
    let header = json!({
        "format": FORMAT,
        "version": VERSION,
        "software": about.version,
        "name": about.name,
        "side": about.side,
        "paths": about.paths,
        "unix": unix_s(),
    });
    let mut lines = Lines::new(name, header.to_string());
    let clock = Clock::starting_now();
    let (mut flush_at, mut sample_at) = (clock.now(), Instant::ZERO);
    loop {
        let event = events.recv_timeout(LOOK_EVERY);
        if let Ok(told) = &event {
            take(books, &mut lines, &serde_json::to_string(told).unwrap_or_default());
        }
        let now = clock.now();
        let ended = matches!(event, Err(RecvTimeoutError::Disconnected));
        if now >= sample_at || ended {
            sample_at = now + every;
            if let Some(state) = books.state() {
                let line = json!({ "t_ms": state.uptime_ms, "unix": unix_s(), "sample": state });
                take(books, &mut lines, &line.to_string());
            }
        }
        if now >= flush_at || ended {
            flush_at = now + FLUSH_EVERY;
            write(books, &mut lines);
        }
        if ended {
            return;
        }
    }
}

fn take(books: &Books, lines: &mut Lines, line: &str) {
    if !lines.add(line) {
        books.log_lost(1, "too much to write at once");
    }
}

fn write(books: &Books, lines: &mut Lines) {
    let some = lines.waiting_lines > 0;
    match lines.flush(unix_s()) {
        Err((lost, error)) => {
            let what = format!("{}: {error}", lines.name.display());
            books.log_lost(lost, &what);
        }
        Ok(()) if some => {
            if let Some(told) = books.log_works() {
                lines.add(&serde_json::to_string(&told).unwrap_or_default());
            }
        }
        Ok(()) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn folder(test: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("skybraid-log-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    // Source: `date -u -d @…`.
    #[test]
    fn a_log_is_named_by_the_time_of_its_start() {
        assert_eq!(utc(0.0), "19700101T000000Z");
        assert_eq!(utc(951_782_400.0), "20000229T000000Z");
        assert_eq!(utc(1_795_356_300.9), "20261122T140500Z");
    }

    #[test]
    fn no_log_is_written_over_another() {
        let folder = folder("over");
        for expected in ["flight-19700101T000000Z.jsonl", "flight-19700101T000000Z-2.jsonl"] {
            let mut lines = Lines::new(folder.join("flight.jsonl"), "header".to_string());
            assert!(lines.add(expected));
            lines.flush(0.0).unwrap();
            let found = fs::read_to_string(folder.join(expected)).unwrap();
            assert_eq!(found, format!("header\n{expected}\n"));
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_full_disk_costs_lines_and_nothing_else() {
        let mut lines = Lines::new("/dev/full".into(), "header".to_string());
        lines.file = Some(OpenOptions::new().append(true).open("/dev/full").unwrap());
        lines.add("one");
        lines.add("two");
        let (lost, error) = lines.flush(0.0).unwrap_err();
        assert_eq!((lost, error.kind()), (2, io::ErrorKind::StorageFull));
        // It goes on as soon as there is room; a line that was torn stays apart from the next one.
        let folder = folder("full");
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("roomy.jsonl");
        lines.file = Some(OpenOptions::new().append(true).create_new(true).open(&file).unwrap());
        assert!(lines.torn, "/dev/full cannot be cut");
        lines.add("three");
        lines.flush(0.0).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "\nthree\n");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut lines = Lines::new("/dev/null".into(), String::new());
        let long = "x".repeat(MOST_WAITING / 4);
        assert_eq!([(); 5].map(|()| lines.add(&long)), [true, true, true, false, false]);
    }
}
