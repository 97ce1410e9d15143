//! Fingerprint of an end's session state, for exhaustive state searches.

use alloc::format;
use alloc::string::String;

use sha2::{Digest, Sha256};
use skybraid_units::{Duration, Instant};

use super::keyed::Session;
use super::{Sessions, TAKEOVER};

/// Age beyond which past times make no difference: they are those of pauses and calls.
const PAST: Duration = Duration::from_secs(6);

impl Sessions {
    /// Returns a number that is equal for two states with the same future behaviour, whatever the time, as
    /// long as no handshake rate is exceeded: token buckets and cookies are left out.
    pub fn fingerprint(&self, now: Instant) -> [u8; 32] {
        let mut hash = Sha256::new();
        let mut note = |what: &str, time: Option<Instant>, oldest: Duration| {
            let ahead = match time {
                None => i64::MIN,
                Some(time) if time == Instant::FAR_FUTURE => i64::MAX,
                Some(time) => time.since(now).as_nanos().max(-oldest.as_nanos()),
            };
            hash.update(what.as_bytes());
            hash.update(ahead.to_be_bytes());
        };
        note("heard", self.holder.heard_at(), TAKEOVER);
        note("asked", self.asked_at, PAST);
        note("rekey", Some(self.rekey_at), PAST);
        let sessions = [("current", self.current.as_slice()), ("earlier", &self.earlier)];
        for (place, sessions) in sessions.into_iter().chain([("pending", &*self.pending)]) {
            for session in sessions {
                note(place, Some(session.until), PAST);
                note("born", Some(session.born), self.setup.lifetime);
            }
        }
        if let Some(attempt) = &self.attempt {
            note("attempt", Some(attempt.send_at), PAST);
            attempt.note_calls(&mut |made_at| note("call", Some(made_at), PAST));
        }
        for session in self.known() {
            hash.update(described(session).as_bytes());
        }
        let attempt = self.attempt.as_ref().map(super::Attempt::described);
        let rest = (self.holder.described(), attempt);
        hash.update(format!("{rest:?}").as_bytes());
        hash.finalize().into()
    }
}

fn described(session: &Session) -> String {
    let Session { peer, number, peer_number, instances, asked, heard, .. } = session;
    let names = (peer, number, peer_number, instances, asked, heard);
    format!("{names:?} {}", session.numbers())
}
