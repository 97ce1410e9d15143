//! Event log: a line of JSON for each event and, periodically, for the whole state. It has its own thread, so
//! that a slow or full disk blocks nothing else.

use std::fs::{File, OpenOptions, create_dir_all};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use serde_json::json;
use skybraid_gateway::config::LogConfig;
use skybraid_units::calendar::date_of;
use skybraid_units::{Duration, Instant};

use super::watch::{LoggedEvent, WatchState, unix_s};
use skybraid_io::clock::Clock;

/// File format and its version.
const FORMAT: &str = "skybraid-gateway-log";
const VERSION: u32 = 1;
/// Maximum bytes that wait to be written.
const MAX_WAITING: usize = 1 << 20;
/// Interval at which lines are written.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);
const POLL_INTERVAL: std::time::Duration = std::time::Duration::from_millis(50);

/// Limits of a file, and of all files that are kept.
#[derive(Clone, Copy, Debug)]
struct Limits {
    max_size: u64,
    max_age: Duration,
    keep: u64,
}

/// Lines to be written to a file. No file contains a partial line in its middle.
struct Lines {
    name: PathBuf,
    /// First line of each file, extended by its time and its number in a run.
    header: serde_json::Value,
    limits: Limits,
    file: Option<File>,
    /// Path of the file, or of the last one.
    path: PathBuf,
    /// Start of the file by the clock of the caller, and the number of files so far.
    begun: Instant,
    parts: u64,
    /// Bytes of the file in whole lines.
    whole: u64,
    waiting: Vec<u8>,
    waiting_lines: u64,
    /// A partial line could not be truncated: the next line starts with a newline.
    torn: bool,
}

impl Lines {
    fn new(name: PathBuf, header: serde_json::Value, limits: Limits) -> Self {
        Self {
            name,
            header,
            limits,
            file: None,
            path: PathBuf::new(),
            begun: Instant::ZERO,
            parts: 0,
            whole: 0,
            waiting: Vec::new(),
            waiting_lines: 0,
            torn: false,
        }
    }

    /// Appends a line; returns false if the buffer is full.
    fn add(&mut self, line: &str) -> bool {
        let fits = self.waiting.len() + line.len() < MAX_WAITING;
        if fits {
            self.waiting.extend_from_slice(line.as_bytes());
            self.waiting.push(b'\n');
            self.waiting_lines += 1;
        }
        fits
    }

    /// Writes buffered lines; those that cannot be written are dropped. Returns their number with the error.
    fn flush(&mut self, now: Instant, unix: f64) -> Result<(), (u64, io::Error)> {
        let lines = std::mem::take(&mut self.waiting_lines);
        let bytes = std::mem::take(&mut self.waiting);
        if bytes.is_empty() {
            return Ok(());
        }
        self.write(&bytes, now, unix).map_err(|error| (lines, error))
    }

    fn write(&mut self, bytes: &[u8], now: Instant, unix: f64) -> io::Result<()> {
        let is_full = self.whole + bytes.len() as u64 > self.limits.max_size;
        let is_removed = self.file.as_ref().is_some_and(is_removed);
        if is_full || is_removed || now.since(self.begun) >= self.limits.max_age {
            // The file has only complete lines: the last one has been written.
            self.file = None;
        }
        if self.file.is_none() {
            let (mut file, path) = begin(&self.name, unix)?;
            if let Some(header) = self.header.as_object_mut() {
                header.insert("unix".to_string(), unix.into());
                header.insert("part".to_string(), (self.parts + 1).into());
            }
            let header = format!("{}\n", self.header);
            if let Err(error) = file.write_all(header.as_bytes()) {
                // A full disk would otherwise gain an empty file with each attempt.
                std::fs::remove_file(&path).ok();
                return Err(error);
            }
            self.whole = header.len() as u64;
            self.torn = false;
            self.begun = now;
            self.parts += 1;
            self.file = Some(file);
            self.path = path;
            let keep = self.limits.keep.saturating_sub(self.limits.max_size);
            remove_oldest(&self.name, &self.path, keep);
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
    /// The log matters most after a power failure. Pipes and the like cannot be synchronised.
    fn sync_data_if_it_can(&self) -> io::Result<()> {
        match self.sync_data() {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
            other => other,
        }
    }
}

/// Returns whether somebody has removed a file that is open.
fn is_removed(file: &File) -> bool {
    file.metadata().is_ok_and(|about| about.is_file() && about.nlink() == 0)
}

/// Removes the oldest files of a log until all but `current` total at most `keep` bytes. The current file may
/// seem the oldest: the wall clock of a machine without a battery begins in the past.
fn remove_oldest(name: &Path, current: &Path, keep: u64) {
    let (stem, ending) = stem_and_ending(name);
    let (before, after) = (format!("{stem}-"), format!(".{ending}"));
    let is_part = |file: &std::ffi::OsStr| {
        let time = file.to_str().and_then(|file| file.strip_prefix(&before)?.strip_suffix(&after));
        time.is_some_and(is_time)
    };
    let folder =
        name.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut files: Vec<_> = entries
        .flatten()
        .filter(|entry| {
            is_part(&entry.file_name()) && Some(&*entry.file_name()) != current.file_name()
        })
        .filter_map(|entry| {
            let about = entry.metadata().ok().filter(std::fs::Metadata::is_file)?;
            Some((about.modified().ok()?, entry.file_name(), about.len()))
        })
        .collect();
    files.sort();
    let mut size: u64 = files.iter().map(|(_, _, size)| size).sum();
    for (_, file, of_file) in files {
        if size <= keep {
            return;
        }
        if std::fs::remove_file(folder.join(file)).is_ok() {
            size -= of_file;
        }
    }
}

/// Returns true if a text is a time as from [`utc`], with an optional number.
fn is_time(text: &str) -> bool {
    let (time, number) = text.split_once('-').unwrap_or((text, "2"));
    let shape = time.bytes().map(|byte| if byte.is_ascii_digit() { b'0' } else { byte });
    shape.eq(*b"00000000T000000Z") && number.parse::<u16>().is_ok()
}

/// Returns the name of a log's files without their times, and their extension.
fn stem_and_ending(name: &Path) -> (String, String) {
    let part =
        |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let ending = part(name.extension());
    (part(name.file_stem()), if ending.is_empty() { "jsonl".to_string() } else { ending })
}

/// Creates a new file and returns it with its path: `flight.jsonl` becomes `flight-20261122T140500Z.jsonl`.
fn begin(name: &Path, unix: f64) -> io::Result<(File, PathBuf)> {
    let (stem, ending) = stem_and_ending(name);
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
            other => return other.map(|opened| (opened, file)),
        }
    }
    Err(taken)
}

/// Formats a time in UTC as in ISO 8601, without hyphens and colons.
fn utc(unix: f64) -> String {
    let seconds = unix as i64;
    let (year, month, day) = date_of(seconds.div_euclid(86_400));
    let second = seconds.rem_euclid(86_400);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// Writes the log until the channel of events is closed, then the final state and the remaining lines.
pub(super) fn keep(
    watch: &WatchState,
    name: PathBuf,
    config: &LogConfig,
    events: &Receiver<LoggedEvent>,
) {
    let about = watch.about();
    let header = json!({
        "format": FORMAT,
        "version": VERSION,
        "software": about.version,
        "name": about.name,
        "side": about.side,
        "paths": about.paths,
    });
    let limits = Limits {
        max_size: config.max_size.get(),
        max_age: config.max_age,
        keep: config.keep.get(),
    };
    let mut lines = Lines::new(name, header, limits);
    let clock = Clock::starting_now();
    let (mut flush_at, mut sample_at) = (clock.now(), Instant::ZERO);
    loop {
        let event = events.recv_timeout(POLL_INTERVAL);
        if let Ok(logged) = &event {
            take(watch, &mut lines, &serde_json::to_string(logged).unwrap_or_default());
        }
        let now = clock.now();
        let ended = matches!(event, Err(RecvTimeoutError::Disconnected));
        if now >= sample_at || ended {
            sample_at = now + config.every;
            if let Some(state) = watch.state() {
                let line = json!({ "t_ms": state.uptime_ms, "unix": unix_s(), "sample": state });
                take(watch, &mut lines, &line.to_string());
            }
        }
        if now >= flush_at || ended {
            flush_at = now + FLUSH_INTERVAL;
            write(watch, &mut lines, now);
        }
        if ended {
            return;
        }
    }
}

fn take(watch: &WatchState, lines: &mut Lines, line: &str) {
    if !lines.add(line) {
        watch.log_lost(1, "too much to write at once");
    }
}

fn write(watch: &WatchState, lines: &mut Lines, now: Instant) {
    let some = lines.waiting_lines > 0;
    match lines.flush(now, unix_s()) {
        Err((lost, error)) => {
            watch.log_lost(lost, &reason(&lines.name, &error));
        }
        Ok(()) if some => {
            if let Some(logged) = watch.log_works(&lines.path) {
                lines.add(&serde_json::to_string(&logged).unwrap_or_default());
            }
        }
        Ok(()) => {}
    }
}

/// Returns why the log cannot be written, with a hint for what looks like the folder's permissions: a locked
/// gateway may write only to the folder that was there at its start.
fn reason(name: &Path, error: &io::Error) -> String {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; restart the gateway if its folder was removed and made again"
        }
        _ => "",
    };
    format!("{}: {error}{hint}", name.display())
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

    const LIMITS: Limits =
        Limits { max_size: 10_000_000, max_age: Duration::from_secs(3600), keep: 20_000_000 };

    fn lines(name: impl Into<PathBuf>, limits: Limits) -> Lines {
        Lines::new(name.into(), json!({ "format": FORMAT }), limits)
    }

    #[test]
    fn no_log_is_written_over_another() {
        let folder = folder("over");
        for expected in ["flight-19700101T000000Z.jsonl", "flight-19700101T000000Z-2.jsonl"] {
            let mut lines = lines(folder.join("flight.jsonl"), LIMITS);
            assert!(lines.add(expected));
            lines.flush(Instant::ZERO, 0.0).unwrap();
            let found = fs::read_to_string(folder.join(expected)).unwrap();
            let header = format!("{{\"format\":\"{FORMAT}\",\"part\":1,\"unix\":0.0}}");
            assert_eq!(found, format!("{header}\n{expected}\n"));
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Returns the files of a folder by name, with their lines.
    fn parts(folder: &Path) -> Vec<(String, Vec<String>)> {
        let mut parts: Vec<(String, Vec<String>)> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let text = fs::read_to_string(entry.path()).unwrap();
                assert!(text.ends_with('\n'), "a line is not whole");
                let lines = text.lines().map(str::to_string).collect();
                (entry.file_name().into_string().unwrap(), lines)
            })
            .collect();
        parts.sort();
        parts
    }

    #[test]
    fn a_log_is_rotated_by_size_with_whole_lines() {
        let folder = folder("size");
        let limits = Limits { max_size: 10_000, ..LIMITS };
        let mut lines = lines(folder.join("flight.jsonl"), limits);
        for number in 0..100 {
            lines.add(&format!("{{\"number\":{number},\"text\":\"{}\"}}", "x".repeat(1_000)));
            lines.flush(Instant::ZERO, f64::from(number)).unwrap();
        }
        let parts = parts(&folder);
        assert_eq!(parts.len(), 12);
        let mut number = 0;
        for (part, (_, lines)) in parts.iter().enumerate() {
            assert!(lines.iter().map(|line| line.len() + 1).sum::<usize>() <= 10_000);
            for (place, line) in lines.iter().enumerate() {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                if place == 0 {
                    assert_eq!(
                        (&line["format"], &line["part"]),
                        (&FORMAT.into(), &(part + 1).into())
                    );
                } else {
                    assert_eq!(line["number"], number);
                    number += 1;
                }
            }
        }
        assert_eq!(number, 100);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_log_that_somebody_removed_is_begun_again() {
        let folder = folder("removed");
        let mut lines = lines(folder.join("flight.jsonl"), LIMITS);
        for minute in 0..4 {
            lines.add("{}");
            lines.flush(Instant::ZERO, 60.0 * f64::from(minute)).unwrap();
            if minute == 1 {
                fs::remove_file(folder.join("flight-19700101T000000Z.jsonl")).unwrap();
            }
        }
        let counts: Vec<usize> = parts(&folder).iter().map(|(_, lines)| lines.len()).collect();
        assert_eq!(counts, [3]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_log_is_rotated_by_age() {
        let folder = folder("age");
        let mut lines = lines(folder.join("flight.jsonl"), LIMITS);
        for minute in 0..150 {
            lines.add("{}");
            let now = Instant::from_millis(60_000 * minute);
            lines.flush(now, 60.0 * minute as f64).unwrap();
        }
        let counts: Vec<usize> = parts(&folder).iter().map(|(_, lines)| lines.len()).collect();
        assert_eq!(counts, [61, 61, 31]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_oldest_files_of_a_log_are_removed_and_no_others() {
        let folder = folder("keep");
        let limits = Limits { max_size: 10_000, keep: 30_000, ..LIMITS };
        fs::create_dir_all(&folder).unwrap();
        let others = ["flight-notes.jsonl", "flight-19700101T000000Z.txt", "flight.jsonl", "a"];
        others.iter().for_each(|name| fs::write(folder.join(name), "other\n").unwrap());
        let mut lines = lines(folder.join("flight.jsonl"), limits);
        for number in 0..100 {
            lines.add(&"x".repeat(1_000));
            lines.flush(Instant::ZERO, f64::from(number)).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let parts = parts(&folder);
        let is_other = |name: &str| others.contains(&name);
        assert_eq!(parts.iter().filter(|(name, _)| is_other(name)).count(), others.len());
        let own: Vec<&String> =
            parts.iter().map(|(name, _)| name).filter(|name| !is_other(name)).collect();
        assert_eq!(own.len(), 3, "{own:?}");
        assert_eq!(own[2], "flight-19700101T000139Z.jsonl");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_full_disk_costs_lines_and_nothing_else() {
        let mut lines = lines("/dev/full", LIMITS);
        lines.file = Some(OpenOptions::new().append(true).open("/dev/full").unwrap());
        lines.add("one");
        lines.add("two");
        let (lost, error) = lines.flush(Instant::ZERO, 0.0).unwrap_err();
        assert_eq!((lost, error.kind()), (2, io::ErrorKind::StorageFull));
        // Logging resumes as soon as there is space; a partial line stays separate from the next one.
        let folder = folder("full");
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("roomy.jsonl");
        lines.file = Some(OpenOptions::new().append(true).create_new(true).open(&file).unwrap());
        assert!(lines.torn, "/dev/full cannot be cut");
        lines.add("three");
        lines.flush(Instant::ZERO, 0.0).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "\nthree\n");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_current_log_of_the_oldest_time_is_not_removed() {
        let folder = folder("clock");
        fs::create_dir_all(&folder).unwrap();
        let day = std::time::Duration::from_secs(86_400);
        for number in 1..5 {
            let name = format!("flight-2050010{number}T000000Z.jsonl");
            let file = File::create(folder.join(name)).unwrap();
            file.set_len(10_000).unwrap();
            let now = file.metadata().unwrap().modified().unwrap();
            file.set_modified(now + day).unwrap();
        }
        let mut lines =
            lines(folder.join("flight.jsonl"), Limits { max_size: 10_000, keep: 30_000, ..LIMITS });
        lines.add("{}");
        lines.flush(Instant::ZERO, 0.0).unwrap();
        let left: Vec<_> =
            fs::read_dir(&folder).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert!(left.contains(&"flight-19700101T000000Z.jsonl".into()), "{left:?}");
        assert_eq!(left.len(), 3);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut lines = lines("/dev/null", LIMITS);
        let long = "x".repeat(MAX_WAITING / 4);
        assert_eq!([(); 5].map(|()| lines.add(&long)), [true, true, true, false, false]);
    }

    #[test]
    fn a_refused_folder_has_a_hint_and_a_full_disk_has_none() {
        let reason = |kind: io::ErrorKind| reason(Path::new("log.jsonl"), &kind.into());
        assert!(reason(io::ErrorKind::PermissionDenied).ends_with("was removed and made again"));
        assert!(!reason(io::ErrorKind::StorageFull).contains("restart"));
    }
}
