//! Host name resolution, each on its own thread: it may take seconds, and neither the loop nor another name
//! waits for it. A numeric address needs no resolver and is returned at once.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use nix::sys::eventfd::{EfdFlags, EventFd};

/// Maximum concurrent resolutions; more than a configuration can have.
const MAX_RESOLVING: usize = 256;
/// Stack size of a resolver thread in bytes.
const STACK: usize = 256 << 10;

/// Owner of the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameOwner {
    /// Peer on the path with this number.
    Path(u8),
    /// Program at the MAVLink endpoint with this number.
    Mavlink(u8),
    /// Program at the UDP port with this number.
    Port(u8),
}

/// Result of a name resolution.
#[derive(Debug)]
pub struct Answer {
    /// Owner of the name.
    pub whose: NameOwner,
    /// Addresses in order of preference.
    pub addresses: io::Result<Vec<SocketAddr>>,
}

/// A name and its resolution result.
type Resolved = (String, io::Result<Vec<SocketAddr>>);

/// Host name resolver.
pub struct Names {
    resolve: fn(&str) -> io::Result<Vec<SocketAddr>>,
    results: (Sender<Resolved>, Receiver<Resolved>),
    bell: Arc<EventFd>,
    /// Owners that wait, by name.
    resolving: BTreeMap<String, Vec<NameOwner>>,
    answers: VecDeque<Answer>,
}

impl Names {
    /// Creates a resolver that uses the system's.
    pub fn start() -> io::Result<Self> {
        Self::with(|name| name.to_socket_addrs().map(Iterator::collect))
    }

    fn with(resolve: fn(&str) -> io::Result<Vec<SocketAddr>>) -> io::Result<Self> {
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        Ok(Self {
            resolve,
            results: channel(),
            bell: Arc::new(EventFd::from_value_and_flags(0, flags)?),
            resolving: BTreeMap::new(),
            answers: VecDeque::new(),
        })
    }

    /// Requests resolution of `host:port`, unless already pending.
    pub fn ask(&mut self, whose: NameOwner, name: &str) {
        let is_asking = self.resolving.values().flatten().any(|asking| *asking == whose)
            || self.answers.iter().any(|answer| answer.whose == whose);
        if is_asking {
            return;
        }
        if let Ok(address) = name.parse() {
            self.answers.push_back(Answer { whose, addresses: Ok(vec![address]) });
            self.bell.write(1).ok();
            return;
        }
        if let Some(waiting) = self.resolving.get_mut(name) {
            return waiting.push(whose);
        }
        if self.resolving.len() < MAX_RESOLVING && self.spawn(name).is_ok() {
            self.resolving.insert(name.to_owned(), vec![whose]);
        }
    }

    fn spawn(&self, name: &str) -> io::Result<()> {
        let (resolve, name) = (self.resolve, name.to_owned());
        let (results, bell) = (self.results.0.clone(), Arc::clone(&self.bell));
        let thread = thread::Builder::new().name("names".to_owned()).stack_size(STACK);
        thread
            .spawn(move || {
                let addresses = resolve(&name);
                if results.send((name, addresses)).is_ok() {
                    bell.write(1).ok();
                }
            })
            .map(drop)
    }

    /// Returns the next result.
    pub fn answer(&mut self) -> Option<Answer> {
        self.bell.read().ok();
        while let Ok((name, addresses)) = self.results.1.try_recv() {
            for whose in self.resolving.remove(&name).unwrap_or_default() {
                let addresses = match &addresses {
                    Ok(addresses) => Ok(addresses.clone()),
                    Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
                };
                self.answers.push_back(Answer { whose, addresses });
            }
        }
        self.answers.pop_front()
    }
}

impl AsFd for Names {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skybraid_io::clock::Clock;
    use skybraid_units as units;
    use std::time::Duration;

    /// Returns the next `count` results.
    fn answers(names: &mut Names, count: usize) -> Vec<Answer> {
        let mut answers = Vec::new();
        while answers.len() < count {
            answers.extend(names.answer());
            thread::sleep(Duration::from_millis(1));
        }
        answers
    }

    #[test]
    fn answers_come_with_their_askers() {
        let mut names = Names::start().unwrap();
        names.ask(NameOwner::Path(3), "127.0.0.1:14600");
        names.ask(NameOwner::Port(1), "nothing");
        let answers = answers(&mut names, 2);
        assert_eq!(answers[0].whose, NameOwner::Path(3));
        let expected: SocketAddr = "127.0.0.1:14600".parse().unwrap();
        assert_eq!(answers[0].addresses.as_ref().unwrap(), &[expected]);
        assert!(answers[1].whose == NameOwner::Port(1) && answers[1].addresses.is_err());
    }

    #[test]
    fn a_dead_name_server_delays_no_other_name_or_address() {
        // The name server for names in `.dead` responds after a minute.
        let mut names = Names::with(|name| {
            if name.contains(".dead:") {
                thread::sleep(Duration::from_secs(60));
            }
            name.to_socket_addrs().map(Iterator::collect)
        })
        .unwrap();
        let clock = Clock::starting_now();
        for path in 0..20 {
            names.ask(NameOwner::Path(path), &format!("host{path}.dead:9417"));
        }
        names.ask(NameOwner::Mavlink(0), "127.0.0.1:5760");
        assert_eq!(names.answer().unwrap().whose, NameOwner::Mavlink(0));
        for port in 0..2 {
            names.ask(NameOwner::Port(port), "localhost:5600");
        }
        for answer in answers(&mut names, 2) {
            assert!(matches!(answer.whose, NameOwner::Port(_)));
            assert_eq!(answer.addresses.unwrap()[0].port(), 5600);
        }
        // A resolved name may be requested again, a pending one is not.
        names.ask(NameOwner::Port(0), "[::1]:5600");
        names.ask(NameOwner::Path(0), "[::1]:5600");
        assert_eq!(names.answer().unwrap().whose, NameOwner::Port(0));
        assert!(names.answer().is_none());
        assert!(clock.now() < units::Instant::from_millis(30_000));
    }
}
