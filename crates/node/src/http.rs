//! Minimal HTTP server for the status page (RFC 9112): GET, one response per connection, one thread, and
//! limits on all resources that a client may use.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use skybraid_units::{Duration, Instant};

use super::accept::{FOR_OWN, PAUSE, accept_all, source_of};
use super::host::Hosts;
use skybraid_io::clock::Clock;

/// Maximum clients; another one replaces the oldest.
const MAX_CLIENTS: usize = 32;
/// Maximum clients per source; another one replaces the oldest.
const MAX_CLIENTS_PER_SOURCE: usize = 12;
/// Maximum request length, including headers.
const MAX_REQUEST: usize = 8 << 10;
const MAX_HEADERS: usize = 64;
/// Timeout of an idle client that neither sends nor receives.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum duration of a connection.
const MAX_CONNECTION_TIME: Duration = Duration::from_secs(30);
/// Maximum consecutive reads from a client; other clients are served before further ones.
const MAX_READS: usize = 4;
/// Interval at which the server checks for the end.
const POLL_INTERVAL_MS: u16 = 100;

/// Timeout of a request to another gateway, and of each attempt to connect.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(3);
/// Maximum length of a response; larger than any state.
const MAX_RESPONSE: usize = 16 << 20;

/// Answer to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Status code.
    pub status: u16,
    /// Media type of the body.
    pub kind: &'static str,
    /// Response body.
    pub body: Vec<u8>,
}

impl Answer {
    pub fn new(kind: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { status: 200, kind, body: body.into() }
    }

    pub fn refused(status: u16) -> Self {
        let body = format!("{status} {}\n", reason(status));
        Self { status, kind: "text/plain; charset=utf-8", body: body.into() }
    }

    /// Serializes the response. Headers forbid caching, framing and loading from elsewhere.
    fn to_bytes(&self) -> Vec<u8> {
        let allow = if self.status == 405 { "Allow: GET\r\n" } else { "" };
        let mut bytes = format!(
            "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
             Content-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; style-src \
             'unsafe-inline'; img-src data:; connect-src 'self'; frame-ancestors 'none'; \
             base-uri 'none'; form-action 'none'\r\n\r\n",
            self.status,
            reason(self.status),
            self.kind,
            self.body.len(),
        )
        .into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        _ => "Service Unavailable",
    }
}

/// Returns the response to the data read so far; `None` if the request is incomplete.
pub(crate) fn answer_to(
    read: &[u8],
    is_allowed: &dyn Fn(&str) -> bool,
    answer: &dyn Fn(&str) -> Answer,
) -> Option<Answer> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(read) {
        Ok(httparse::Status::Complete(_)) => {
            // A browser always sends the Host field; a client without it is no browser.
            let is_host = |header: &&httparse::Header<'_>| header.name.eq_ignore_ascii_case("host");
            let mut named = request.headers.iter().filter(is_host);
            if !named.all(|header| std::str::from_utf8(header.value).is_ok_and(is_allowed)) {
                return Some(Answer::refused(421));
            }
            let target = request.path.unwrap_or_default();
            let path = target.split('?').next().unwrap_or_default();
            Some(if request.method == Some("GET") { answer(path) } else { Answer::refused(405) })
        }
        Ok(httparse::Status::Partial) if read.len() < MAX_REQUEST => None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            Some(Answer::refused(431))
        }
        Err(_) => Some(Answer::refused(400)),
    }
}

/// State of a client connection.
struct Client {
    stream: TcpStream,
    /// Source of the client, and address of the local end.
    from: IpAddr,
    local: IpAddr,
    read: Vec<u8>,
    /// Bytes of the answer, and how many have left.
    answer: Option<(Vec<u8>, usize)>,
    since: Instant,
    moved: Instant,
}

impl Client {
    /// Makes progress without blocking; returns true if the connection stays open.
    fn go_on(
        &mut self,
        now: Instant,
        hosts: &Hosts,
        answer: &dyn Fn(&str) -> Answer,
    ) -> io::Result<bool> {
        let mut buffer = [0; 4096];
        let mut reads = 0;
        while reads < MAX_READS {
            if let Some((bytes, sent)) = &mut self.answer {
                let rest = bytes.get(*sent..).unwrap_or_default();
                if !rest.is_empty() {
                    *sent += self.stream.write(rest)?;
                    self.moved = now;
                    if *sent >= bytes.len() {
                        // Further client data is read and discarded, to avoid a reset that overtakes the
                        // response.
                        self.stream.shutdown(Shutdown::Write)?;
                    }
                    continue;
                }
            }
            reads += 1;
            let got = self.stream.read(&mut buffer)?;
            if got == 0 {
                return Ok(false);
            }
            if self.answer.is_some() {
                continue;
            }
            self.moved = now;
            let room = MAX_REQUEST.saturating_sub(self.read.len());
            self.read.extend(buffer.iter().take(got.min(room)));
            let is_allowed = |host: &str| hosts.allow(host, self.local);
            self.answer =
                answer_to(&self.read, &is_allowed, answer).map(|answer| (answer.to_bytes(), 0));
        }
        Ok(true)
    }

    fn waits_to_write(&self) -> bool {
        self.answer.as_ref().is_some_and(|(bytes, sent)| *sent < bytes.len())
    }
}

/// Serves only the names of `hosts`, until `ended` returns true. `answer` returns the response for a path.
///
/// # Errors
/// Polling the sockets fails.
pub(super) fn serve(
    listener: &TcpListener,
    hosts: &Hosts,
    ended: &dyn Fn() -> bool,
    answer: &dyn Fn(&str) -> Answer,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let clock = Clock::starting_now();
    let mut clients: Vec<Client> = Vec::new();
    let mut accept_at = clock.now();
    while !ended() {
        let wanted = |client: &Client| {
            if client.waits_to_write() { PollFlags::POLLOUT } else { PollFlags::POLLIN }
        };
        let pauses = clock.now() < accept_at;
        let accepts = if pauses { PollFlags::empty() } else { PollFlags::POLLIN };
        let mut polled = vec![PollFd::new(listener.as_fd(), accepts)];
        polled.extend(
            clients.iter().map(|client| PollFd::new(client.stream.as_fd(), wanted(client))),
        );
        match poll(&mut polled, PollTimeout::from(POLL_INTERVAL_MS)) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = polled.iter().map(|fd| fd.any().unwrap_or(true)).collect();
        drop(polled);
        let now = clock.now();
        let mut of_clients = ready.iter().skip(1).copied();
        clients.retain_mut(|client| {
            let stays = match of_clients.next() {
                Some(true) => match client.go_on(now, hosts, answer) {
                    Ok(stays) => stays,
                    Err(error) => error.kind() == ErrorKind::WouldBlock,
                },
                _ => true,
            };
            stays
                && now.since(client.moved) < IDLE_TIMEOUT
                && now.since(client.since) < MAX_CONNECTION_TIME
        });
        if ready.first() == Some(&true) {
            let accepted = accept_all(listener, FOR_OWN, &mut |stream, from| {
                let Ok(local) = stream.local_addr() else { return };
                if stream.set_nonblocking(true).is_err() {
                    return;
                }
                let (from, local) = (source_of(from.ip()), local.ip());
                let of_one = clients.iter().filter(|client| client.from == from).count();
                let oldest = clients.iter().position(|client| client.from == from);
                if let Some(oldest) = oldest.filter(|_| of_one >= MAX_CLIENTS_PER_SOURCE) {
                    clients.remove(oldest);
                } else if clients.len() >= MAX_CLIENTS {
                    clients.remove(0);
                }
                let (read, answer) = (Vec::new(), None);
                clients.push(Client { stream, from, local, read, answer, since: now, moved: now });
            });
            if !accepted {
                accept_at = now + PAUSE;
            }
        }
    }
    Ok(())
}

/// Error: a daemon's state cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No daemon responds.
    #[error("no gateway answers at {address}: {error}")]
    Silent {
        /// Address.
        address: String,
        /// Error of the system.
        error: io::Error,
    },
    /// Another server responds.
    #[error("what answers at {address} is no gateway: {found}")]
    Foreign {
        /// Address.
        address: String,
        /// Status line.
        found: String,
    },
}

/// Requests a path from the server at `address` (`host:port`) and returns the body of the response.
///
/// # Errors
/// No response within some seconds, or another server responds.
pub fn ask(address: &str, path: &str) -> Result<Vec<u8>, AskError> {
    let silent = |error: io::Error| AskError::Silent { address: address.to_string(), error };
    let bytes = get(address, path, ASK_TIMEOUT).map_err(silent)?;
    let foreign =
        |found: &str| AskError::Foreign { address: address.to_string(), found: found.to_string() };
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    match response.parse(&bytes) {
        Ok(httparse::Status::Complete(head)) if response.code == Some(200) => {
            Ok(bytes.get(head..).unwrap_or_default().to_vec())
        }
        Ok(httparse::Status::Complete(_)) if response.code == Some(421) => {
            Err(foreign("it does not answer under this name; name it in `[status] hosts`"))
        }
        Ok(httparse::Status::Complete(_)) => {
            Err(foreign(&format!("status {}", response.code.unwrap_or_default())))
        }
        Ok(httparse::Status::Partial) => Err(foreign("an answer that breaks off")),
        Err(error) => Err(foreign(&error.to_string())),
    }
}

/// Returns all bytes of the server's response.
fn get(address: &str, path: &str, timeout: Duration) -> io::Result<Vec<u8>> {
    let clock = Clock::starting_now();
    let deadline = clock.now() + timeout;
    let left = || match deadline.since(clock.now()).as_nanos() {
        0 => Err(io::Error::from(ErrorKind::TimedOut)),
        left => Ok(std::time::Duration::from_nanos(left as u64)),
    };
    let mut stream = Err(ErrorKind::NotFound.into());
    for place in std::net::ToSocketAddrs::to_socket_addrs(address)? {
        stream = TcpStream::connect_timeout(&place, left()?.min(CONNECT_TIMEOUT));
        if stream.is_ok() {
            break;
        }
    }
    let mut stream = stream?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let (mut bytes, mut buffer) = (Vec::new(), [0; 64 << 10]);
    while bytes.len() < MAX_RESPONSE {
        stream.set_read_timeout(Some(left()?))?;
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(got) => bytes.extend(buffer.iter().take(got)),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_never_stops_sending_keeps_nobody_out() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut flood = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, peer) = listener.accept().unwrap();
        let mut request = b"GET / HTTP/1.1\r\n\r\n".to_vec();
        request.resize(20_000, b'x');
        flood.write_all(&request).unwrap();
        while stream.peek(&mut [0; 20_000]).unwrap() < request.len() {}
        stream.set_nonblocking(true).unwrap();
        let (from, now) = (peer.ip(), Instant::ZERO);
        let (local, read, answer) = (from, Vec::new(), None);
        let mut client = Client { stream, from, local, read, answer, since: now, moved: now };
        let answer = |_: &str| Answer::new("text/plain", "");
        assert!(client.go_on(now, &Hosts::default(), &answer).unwrap());
        // The data after four reads waits for the next turn.
        assert!(client.stream.peek(&mut [0]).is_ok());
    }

    #[test]
    fn a_server_that_trickles_bytes_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let trickling = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            while stream.write_all(b" ").is_ok() {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        });
        let error = get(&address, "/", Duration::from_millis(200)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        trickling.join().unwrap();
    }
}
