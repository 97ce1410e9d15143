//! One session: keys, and numbers sent and seen.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use skybraid_transport::seen::SeenNumbers;
use skybraid_transport::{PathId, PathSet};
use skybraid_units::{Duration, Instant};
use snow::StatelessTransportState;

use super::envelope::{HEAD, LAST_NUMBER, Mac, OVERHEAD, TAG, head};
use super::{NoSession, Refusal};

/// Silence of a path after which its datagrams are refused under the same keys: the times in them go round after 71
/// minutes.
const MAX_SILENCE: Duration = Duration::from_secs(30 * 60);

/// A session.
pub(super) struct Session {
    /// Index of the peer among the trusted peers.
    pub peer: usize,
    /// Our session number, in every datagram from the peer.
    pub number: u16,
    /// The peer's session number.
    pub peer_number: u16,
    /// Our instance and the peer's, as sent in the handshake.
    pub instances: Instances,
    /// Hello of the peer.
    pub hello: Vec<u8>,
    /// Keyed hash of the init of this session.
    pub asked: Mac,
    /// Response to that init; empty at the initiator.
    pub answer: Vec<u8>,
    /// Whether an authentic datagram has arrived.
    pub heard: bool,
    /// Time at which its keys were made.
    pub born: Instant,
    /// Time at which it is forgotten, unless it is the current one.
    pub until: Instant,
    /// Datagrams sealed and opened.
    pub count: u64,
    /// Keys, and the numbers used and seen with them.
    pub keys: Keys,
}

/// Keys of a session, and the numbers used and seen with them.
pub(super) struct Keys {
    state: StatelessTransportState,
    sent: [u64; PathSet::CAPACITY],
    /// By path.
    received: Vec<Received>,
}

/// Authentic datagrams of a path.
#[derive(Clone, Default)]
struct Received {
    /// Their numbers, with a window of 4096.
    seen: SeenNumbers<65>,
    /// Time of the last one.
    heard_at: Option<Instant>,
}

impl From<StatelessTransportState> for Keys {
    fn from(state: StatelessTransportState) -> Self {
        Self { state, sent: [0; PathSet::CAPACITY], received: Vec::new() }
    }
}

impl Keys {
    /// What has arrived on a path.
    fn received(&self, path: PathId) -> Option<&Received> {
        self.received.get(path.index())
    }
}

/// Names a start of an end and what it knows of its peer.
pub(super) type Instance = [u8; 8];

/// Instances of both ends, which name what they know of one another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Instances {
    pub own: Instance,
    pub peer: Instance,
}

impl Session {
    /// Seals a message into `out`.
    pub fn seal(
        &mut self,
        path: PathId,
        plain: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<u64, NoSession> {
        let next = self.keys.sent.get_mut(path.index()).ok_or(NoSession)?;
        let number = *next;
        if number >= LAST_NUMBER {
            return Err(NoSession);
        }
        out.resize(OVERHEAD + plain.len(), 0);
        let (start, sealed) = out.split_first_chunk_mut::<HEAD>().ok_or(NoSession)?;
        *start = head(self.peer_number, path, number);
        self.keys.state.write_message(nonce(path, number), plain, sealed).map_err(|_| NoSession)?;
        *next += 1;
        self.count += 1;
        Ok(number)
    }

    /// Whether a path has been silent for so long that the age of its datagrams is uncertain.
    pub fn is_silent(&self, now: Instant, path: PathId) -> bool {
        let heard_at = self.keys.received(path).and_then(|received| received.heard_at);
        now.since(heard_at.unwrap_or(self.born)) > MAX_SILENCE
    }

    /// Opens a datagram into `plain`. True if its number is the newest on its path.
    pub fn open(
        &mut self,
        now: Instant,
        path: PathId,
        number: u64,
        sealed: &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<bool, Refusal> {
        if self.keys.received(path).is_some_and(|received| received.seen.contains(number)) {
            return Err(Refusal::Replayed);
        }
        plain.resize(sealed.len().saturating_sub(TAG), 0);
        let read = self.keys.state.read_message(nonce(path, number), sealed, plain);
        read.map_err(|_| Refusal::Forged)?;
        self.heard = true;
        self.count += 1;
        let all = &mut self.keys.received;
        if all.len() <= path.index() {
            all.resize(path.index() + 1, Received::default());
        }
        let received = all.get_mut(path.index()).ok_or(Refusal::Foreign)?;
        received.heard_at = Some(now);
        let is_newest = received.seen.is_newest(number);
        received.seen.insert(number);
        Ok(is_newest)
    }

    /// Sequence numbers used and seen, by path.
    pub fn numbers(&self) -> String {
        let used = self.keys.sent.iter().enumerate().filter(|(_, next)| **next > 0);
        let seen = self.keys.received.iter().map(|received| &received.seen);
        format!("{:?} {:?}", used.collect::<Vec<_>>(), seen.collect::<Vec<_>>())
    }

    /// Whether a datagram is authentic and its number among the newest that have been opened on `path`.
    pub fn is_recent_copy(
        &self,
        path: PathId,
        number: u64,
        sealed: &[u8],
        scratch: &mut Vec<u8>,
    ) -> bool {
        let received = self.keys.received(path);
        let recent = received.is_some_and(|received| received.seen.is_recent(number));
        scratch.resize(sealed.len().saturating_sub(TAG), 0);
        recent && self.keys.state.read_message(nonce(path, number), sealed, scratch).is_ok()
    }
}

/// Combines path and number, which is used once per path, into a nonce.
const fn nonce(path: PathId, number: u64) -> u64 {
    (path.0 as u64) << 48 | number
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::noise::{
        Secret, ask, diffie_hellman, keys, read_init, read_response, respond,
    };
    use crate::{PrivateKey, PublicKey};

    const PATH: PathId = PathId(5);

    fn pair() -> [Session; 2] {
        let privates = [1, 2].map(|byte| PrivateKey([byte; 32]));
        let (public, _) = diffie_hellman(&privates[1], &PublicKey([9; 32])).unwrap();
        let (mut asking, init) =
            ask(&[], &privates[0], &public, false, Secret::new([3; 32]), &[]).unwrap();
        let (mut answering, ..) =
            read_init(&[], &privates[1], false, Secret::new([4; 32]), &init).unwrap();
        let response = respond(&mut answering, None, &[]).unwrap();
        read_response(&mut asking, None, &response).unwrap();
        [(asking, 1, 2), (answering, 2, 1)].map(|(noise, number, peer_number)| Session {
            peer: 0,
            number,
            peer_number,
            instances: Instances::default(),
            hello: Vec::new(),
            asked: Mac::default(),
            answer: Vec::new(),
            heard: false,
            born: Instant::ZERO,
            until: Instant::FAR_FUTURE,
            count: 0,
            keys: keys(noise).unwrap().into(),
        })
    }

    #[test]
    fn no_nonce_is_used_twice_and_none_after_the_last() {
        let [mut one, mut other] = pair();
        one.keys.sent[PATH.index()] = LAST_NUMBER - 1;
        let (mut out, mut plain) = (Vec::new(), Vec::new());
        assert_eq!(one.seal(PATH, b"the last", &mut out), Ok(LAST_NUMBER - 1));
        assert_eq!(
            other.open(Instant::ZERO, PATH, LAST_NUMBER - 1, &out[HEAD..], &mut plain),
            Ok(true)
        );
        assert_eq!(plain, b"the last");
        assert_eq!(one.seal(PATH, b"one more", &mut out), Err(NoSession));
        assert_eq!(one.seal(PathId(6), b"another path", &mut out), Ok(0));
    }

    // Source: the format of docs/protocol.md, and snow's own reading of a message for the rest.
    #[test]
    fn the_nonce_is_made_of_path_and_number() {
        let [mut one, other] = pair();
        one.keys.sent[PATH.index()] = 0x0102_0304_0506;
        let (mut out, mut plain) = (Vec::new(), [0; 2]);
        one.seal(PATH, b"hi", &mut out).unwrap();
        assert_eq!(out[..10], [0x30, 0, 2, 5, 1, 2, 3, 4, 5, 6]);
        assert_eq!(out.len(), 2 + OVERHEAD);
        let read = other.keys.state.read_message(0x0005_0102_0304_0506, &out[10..], &mut plain);
        assert_eq!((read, &plain), (Ok(2), b"hi"));
    }
}
