//! Names of hosts, resolved on a thread of its own: that may take seconds, and the loop waits for
//! nobody.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use nix::sys::eventfd::{EfdFlags, EventFd};

/// Questions that may wait.
const MOST_WAITING: usize = 256;

/// Whose name it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The peer's on path number …
    Path(u8),
    /// The program's at MAVLink end number …
    Mavlink(u8),
    /// The program's at UDP port number …
    Port(u8),
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// Whose name it is.
    pub whose: Whose,
    /// The addresses, the best first.
    pub addresses: io::Result<Vec<SocketAddr>>,
}

/// See the module.
pub struct Names {
    questions: SyncSender<(Whose, String)>,
    answers: Receiver<Answer>,
    bell: Arc<EventFd>,
    /// Who waits for an answer.
    asking: Vec<Whose>,
}

impl Names {
    /// Starts the thread. It ends with this value, or with its last question.
    pub fn start() -> io::Result<Self> {
        let bell = Arc::new(EventFd::from_value_and_flags(
            0,
            EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC,
        )?);
        let (questions, asked) = sync_channel::<(Whose, String)>(MOST_WAITING);
        let (told, answers) = sync_channel(MOST_WAITING);
        let ring = Arc::clone(&bell);
        thread::Builder::new().name("names".to_owned()).spawn(move || {
            for (whose, name) in asked {
                let addresses = name.to_socket_addrs().map(Iterator::collect);
                if told.send(Answer { whose, addresses }).is_err() {
                    return;
                }
                ring.write(1).ok();
            }
        })?;
        Ok(Self { questions, answers, bell, asking: Vec::new() })
    }

    /// Asks for `host:port`, unless that has been asked and not answered yet.
    pub fn ask(&mut self, whose: Whose, name: &str) {
        if !self.asking.contains(&whose)
            && self.questions.try_send((whose, name.to_owned())).is_ok()
        {
            self.asking.push(whose);
        }
    }

    /// Takes the next answer.
    pub fn answer(&mut self) -> Option<Answer> {
        self.bell.read().ok();
        let answer = self.answers.try_recv().ok()?;
        self.asking.retain(|whose| *whose != answer.whose);
        Some(answer)
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
    use std::time::Duration;

    #[test]
    fn answers_come_with_their_askers() {
        let mut names = Names::start().unwrap();
        names.ask(Whose::Path(3), "127.0.0.1:14600");
        names.ask(Whose::Port(1), "nothing");
        let mut answers = Vec::new();
        while answers.len() < 2 {
            answers.extend(names.answer());
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(answers[0].whose, Whose::Path(3));
        let expected: SocketAddr = "127.0.0.1:14600".parse().unwrap();
        assert_eq!(answers[0].addresses.as_ref().unwrap(), &[expected]);
        assert!(answers[1].whose == Whose::Port(1) && answers[1].addresses.is_err());
    }
}
