//! Notifications to systemd: ready and alive (sd_notify(3)).

use std::env;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use skybraid_units::{Duration, Instant};

/// Connection to the service manager, if there is one.
pub struct Notify {
    socket: Option<UnixDatagram>,
    every: Duration,
    due: Instant,
}

impl Notify {
    /// Reads the variables `NOTIFY_SOCKET` and `WATCHDOG_USEC`.
    pub fn from_environment() -> Self {
        let path = env::var("NOTIFY_SOCKET").ok();
        let watchdog = env::var("WATCHDOG_USEC").ok().and_then(|text| text.parse::<i64>().ok());
        Self::to(path.as_deref(), watchdog)
    }

    fn to(path: Option<&str>, watchdog_us: Option<i64>) -> Self {
        let socket = path.and_then(|path| {
            let socket = UnixDatagram::unbound().ok()?;
            socket.set_nonblocking(true).ok()?;
            let address = match path.strip_prefix('@') {
                Some(name) => SocketAddr::from_abstract_name(name),
                None => SocketAddr::from_pathname(path),
            };
            socket.connect_addr(&address.ok()?).ok()?;
            Some(socket)
        });
        // Twice within the watchdog timeout.
        let every = watchdog_us.filter(|_| socket.is_some());
        let every = every.map_or(Duration::MAX, |us| Duration::from_micros(us / 2));
        Self { socket, every, due: Instant::FAR_FUTURE }
    }

    /// Reports that the gateway is ready.
    pub fn ready(&mut self, now: Instant) {
        self.say("READY=1");
        if self.every < Duration::MAX {
            self.due = now + self.every;
        }
    }

    /// Reports shutdown.
    pub fn stopping(&self) {
        self.say("STOPPING=1");
    }

    /// Time of the next call of [`alive`](Self::alive).
    pub const fn due(&self) -> Instant {
        self.due
    }

    /// Sends a keep-alive if due.
    pub fn alive(&mut self, now: Instant) {
        if now >= self.due {
            self.say("WATCHDOG=1");
            self.due = now + self.every;
        }
    }

    fn say(&self, text: &str) {
        if let Some(socket) = &self.socket {
            socket.send(text.as_bytes()).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_manager_hears_of_readiness_and_life() {
        let name = format!("skybraid-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        let mut notify = Notify::to(Some(&format!("@{name}")), Some(2_000_000));
        let heard = || {
            let mut bytes = [0; 64];
            let length = manager.recv(&mut bytes).unwrap();
            String::from_utf8_lossy(&bytes[..length]).into_owned()
        };
        notify.ready(Instant::ZERO);
        assert_eq!((heard().as_str(), notify.due()), ("READY=1", Instant::from_millis(1000)));
        notify.alive(Instant::from_millis(999));
        notify.alive(Instant::from_millis(1000));
        assert_eq!((heard().as_str(), notify.due()), ("WATCHDOG=1", Instant::from_millis(2000)));
        notify.stopping();
        assert_eq!(heard(), "STOPPING=1");
        let mut nobody = Notify::to(None, Some(1));
        nobody.ready(Instant::ZERO);
        assert_eq!(nobody.due(), Instant::FAR_FUTURE);
    }
}
