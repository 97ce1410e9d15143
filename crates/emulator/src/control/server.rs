//! Control socket and its clients.

use std::fs::{Permissions, remove_file, set_permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Map, Value, json};

use super::request::{Request, status};
use crate::forward::Controls;

/// Interval at which a thread checks for the server's shutdown.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Status interval of a watching client.
const POLLS_PER_STATUS: u32 = 5;
/// Timeout after which a client that does not read is dropped.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum length of a request line.
const MAX_LINE: usize = 64 << 10;

/// Live control server. Dropping it stops it and removes the socket.
pub struct Server {
    path: PathBuf,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// State shared by all clients.
struct Access {
    controls: Controls,
    facts: Map<String, Value>,
    stop: Box<dyn Fn() + Send + Sync>,
    ended: Arc<AtomicBool>,
}

impl Access {
    /// Returns the state of the paths, with the facts.
    fn status(&self) -> Value {
        let mut status = status(&self.controls.snapshot());
        if let Some(fields) = status.as_object_mut() {
            fields.extend(self.facts.clone());
        }
        status
    }
}

impl Server {
    /// Listens at `path`, accessible to this user only. `facts` are part of every status. `stop` is called
    /// when a client requests the end of the run. A stale socket is replaced.
    ///
    /// # Errors
    /// Another run is listening at the path, the path is not a socket, or the socket cannot be created.
    pub fn start(
        path: &Path,
        controls: Controls,
        facts: Map<String, Value>,
        stop: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<Self> {
        make_room(path)?;
        let failed = |error: io::Error| {
            let text = format!("cannot listen at `{}`: {error}", path.display());
            io::Error::new(error.kind(), text)
        };
        let listener = UnixListener::bind(path).map_err(failed)?;
        set_permissions(path, Permissions::from_mode(0o600)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let ended = Arc::new(AtomicBool::new(false));
        let access =
            Arc::new(Access { controls, facts, stop: Box::new(stop), ended: Arc::clone(&ended) });
        let thread = std::thread::Builder::new().name("control".into());
        let thread = thread.spawn(move || accept(&listener, &access))?;
        Ok(Self { path: path.to_owned(), ended, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
        remove_file(&self.path).ok();
    }
}

/// Removes a stale socket.
fn make_room(path: &Path) -> io::Result<()> {
    let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(()) };
    let taken = |what: &str| {
        let text =
            format!("`{}`: found {what}, expected a free place for a socket", path.display());
        Err(io::Error::new(ErrorKind::AddrInUse, text))
    };
    if !found.file_type().is_socket() {
        return taken("a file");
    }
    match UnixStream::connect(path) {
        Ok(_) => taken("the socket of another run"),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => remove_file(path),
        Err(error) => taken(&format!("a socket that cannot be tried ({error})")),
    }
}

fn accept(listener: &UnixListener, access: &Arc<Access>) {
    let mut clients: Vec<JoinHandle<()>> = Vec::new();
    while !access.ended.load(Ordering::Acquire) {
        let wait = PollTimeout::try_from(POLL_INTERVAL).unwrap_or(PollTimeout::ZERO);
        poll(&mut [PollFd::new(listener.as_fd(), PollFlags::POLLIN)], wait).ok();
        clients.retain(|client| !client.is_finished());
        match listener.accept() {
            Ok((stream, _)) => {
                let access = Arc::clone(access);
                // If there are too many clients to serve this one, it is dropped.
                let client = std::thread::Builder::new().name("control client".into());
                clients.extend(client.spawn(move || drop(serve(stream, &access))));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // Possibly too many open files.
            Err(_) => std::thread::sleep(POLL_INTERVAL),
        }
    }
    for client in clients {
        client.join().ok();
    }
}

/// Serves a client until it disconnects.
fn serve(mut stream: UnixStream, access: &Access) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(POLL_INTERVAL))?;
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    let mut lines = Lines::default();
    // Countdown to the next status of a watching client.
    let mut watch: Option<u32> = None;
    while !access.ended.load(Ordering::Acquire) {
        let Some(length) = lines.read(&mut stream)? else { return Ok(()) };
        while let Some(line) = lines.next() {
            let answer = match line {
                Ok(line) if line.trim_ascii().is_empty() => continue,
                Ok(line) => answer(&line, access, &mut watch),
                Err(problem) => refusal(&problem),
            };
            say(&mut stream, &answer)?;
        }
        if let Some(left) = watch.as_mut().filter(|_| length == 0) {
            *left -= 1;
            if *left == 0 {
                *left = POLLS_PER_STATUS;
                say(&mut stream, &access.status())?;
            }
        }
    }
    Ok(())
}

fn answer(line: &[u8], access: &Access, watch: &mut Option<u32>) -> Value {
    let request = match Request::read(line) {
        Ok(request) => request,
        Err(problem) => return refusal(&problem),
    };
    if let Some((path, command)) = request.command() {
        return match access.controls.apply(path, command) {
            Ok(()) => json!({ "ok": true }),
            Err(error) => refusal(&error.to_string()),
        };
    }
    match request {
        Request::Stop {} => {
            (access.stop)();
            json!({ "ok": true })
        }
        Request::Watch {} => {
            *watch = Some(POLLS_PER_STATUS);
            access.status()
        }
        _ => access.status(),
    }
}

fn refusal(problem: &str) -> Value {
    json!({ "ok": false, "error": problem })
}

fn say(stream: &mut UnixStream, answer: &Value) -> io::Result<()> {
    stream.write_all(format!("{answer}\n").as_bytes())
}

/// Splits received data into lines.
#[derive(Default)]
struct Lines {
    buffer: Vec<u8>,
    /// Inside a line that is too long.
    skipping: bool,
    too_long: bool,
}

impl Lines {
    /// Reads available bytes and returns their number: 0 on timeout, `None` at the end of the stream.
    fn read(&mut self, stream: &mut UnixStream) -> io::Result<Option<usize>> {
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk) {
            Ok(0) => Ok(None),
            Ok(length) => {
                self.add(chunk.get(..length).unwrap_or_default());
                Ok(Some(length))
            }
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                Ok(Some(0))
            }
            Err(error) => Err(error),
        }
    }

    fn add(&mut self, mut bytes: &[u8]) {
        if self.skipping {
            let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return };
            bytes = bytes.get(end + 1..).unwrap_or_default();
            self.skipping = false;
        }
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() > MAX_LINE && !self.buffer.contains(&b'\n') {
            self.buffer.clear();
            (self.skipping, self.too_long) = (true, true);
        }
    }

    /// Returns the next complete line, or the error in it.
    fn next(&mut self) -> Option<Result<Vec<u8>, String>> {
        if std::mem::take(&mut self.too_long) {
            return Some(Err(format!(
                "found a line longer than {MAX_LINE} bytes, expected a JSON object a line"
            )));
        }
        let end = self.buffer.iter().position(|byte| *byte == b'\n')?;
        let behind = self.buffer.split_off(end + 1);
        let mut line = std::mem::replace(&mut self.buffer, behind);
        line.pop();
        Some(Ok(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_whatever_pieces_they_come_in() {
        let mut lines = Lines::default();
        let mut found = Vec::new();
        for piece in ["ab", "c\nde\n", "\nf", "g\n", "tail"] {
            lines.add(piece.as_bytes());
            while let Some(line) = lines.next() {
                found.push(String::from_utf8(line.unwrap()).unwrap());
            }
        }
        assert_eq!(found, ["abc", "de", "", "fg"]);
    }

    #[test]
    fn a_line_without_end_is_skipped_and_said_to_be() {
        let mut lines = Lines::default();
        for _ in 0..40 {
            lines.add(&[b'x'; 4096]);
        }
        lines.add(b"yy\n{}\n");
        assert!(lines.next().unwrap().unwrap_err().contains("longer than"));
        assert_eq!(lines.next().unwrap().unwrap(), b"{}");
        assert!(lines.next().is_none());
    }
}
