//! Remote addresses that are configured by name.

use std::io;
use std::net::SocketAddr;

use skybraid_units::{Duration, Instant};

use super::alarms::Alarms;

/// Interval at which a name is resolved again.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(60);
/// Retry interval for a name that could not be resolved.
const RESOLVE_RETRY: Duration = Duration::from_secs(1);

/// Silence of an address after which the next one of its name is tried: of one that has never been heard, twice as long
/// with each change up to a limit, and of one that has.
const PATIENCE: Duration = Duration::from_secs(1);
const MAX_PATIENCE: Duration = Duration::from_secs(8);
const PATIENCE_ONCE_HEARD: Duration = Duration::from_secs(30);

/// Remote address that is configured by name. It is resolved again every minute: names move.
#[derive(Debug)]
pub struct Remote {
    /// Configured `host:port`.
    pub name: String,
    addresses: Vec<SocketAddr>,
    ask_at: Instant,
    /// Time at which the address in use was last heard, or taken into use.
    silent_since: Instant,
    patience: Duration,
    /// Address that was last heard.
    heard: Option<SocketAddr>,
}

impl Remote {
    /// Creates an unresolved address.
    pub const fn new(now: Instant, name: String) -> Self {
        Self {
            name,
            addresses: Vec::new(),
            ask_at: now,
            silent_since: now,
            patience: PATIENCE,
            heard: None,
        }
    }

    /// Returns true if resolution is due, and schedules the next.
    pub fn asks(&mut self, now: Instant) -> bool {
        let due = now >= self.ask_at;
        if due {
            self.ask_at = now + RESOLVE_RETRY;
        }
        due
    }

    /// Returns whether the name has several addresses.
    pub const fn has_several(&self) -> bool {
        self.addresses.len() > 1
    }

    /// Returns true if the name has been resolved.
    pub const fn is_known(&self) -> bool {
        !self.addresses.is_empty()
    }

    /// Schedules an immediate resolution.
    pub fn ask_soon(&mut self, now: Instant) {
        self.ask_at = now;
    }

    /// Time at which it must be resolved.
    #[cfg(test)]
    pub const fn due(&self) -> Instant {
        self.ask_at
    }

    /// Handles the result of a resolution: stores the addresses, or raises an alarm.
    pub fn on_resolved(
        &mut self,
        now: Instant,
        addresses: io::Result<Vec<SocketAddr>>,
        alarms: &mut Alarms,
    ) {
        match addresses {
            Ok(addresses) => {
                self.learn(now, addresses);
                alarms.clear(&self.name);
            }
            Err(error) => {
                alarms.raise(&self.name, format!("`{}` cannot be resolved: {error}", self.name));
            }
        }
    }

    /// Stores resolved addresses. Old addresses are kept if there are none.
    pub fn learn(&mut self, now: Instant, addresses: Vec<SocketAddr>) {
        if !addresses.is_empty() {
            self.addresses = addresses;
            self.ask_at = now + RESOLVE_INTERVAL;
        }
    }

    /// Returns the address to use: the current one if still valid, else the first that `fits`.
    pub fn choose(
        &self,
        used: Option<SocketAddr>,
        fits: impl Fn(SocketAddr) -> bool,
    ) -> Option<SocketAddr> {
        let fitting = || self.addresses.iter().copied().filter(|address| fits(*address));
        used.filter(|used| fitting().any(|address| address == *used)).or_else(|| fitting().next())
    }

    /// As [`choose`](Self::choose), but returns the next address that `fits` if the one in use stays silent;
    /// `heard` says whether it is not.
    pub fn choose_heard(
        &mut self,
        now: Instant,
        used: Option<SocketAddr>,
        heard: bool,
        fits: impl Fn(SocketAddr) -> bool,
    ) -> Option<SocketAddr> {
        let chosen = self.choose(used, &fits);
        if heard && chosen == used {
            self.heard = chosen;
            self.patience = PATIENCE;
        }
        if heard || chosen != used {
            self.silent_since = now;
        }
        let patience = if self.heard == chosen { PATIENCE_ONCE_HEARD } else { self.patience };
        if now.since(self.silent_since) < patience {
            return chosen;
        }
        self.silent_since = now;
        self.patience = (self.patience * 2).min(MAX_PATIENCE);
        self.next_after(chosen?, fits).or(chosen)
    }

    /// Returns the address after `used` that `fits`, in the order of preference and from the first one again.
    pub fn next_after(
        &self,
        used: SocketAddr,
        fits: impl Fn(SocketAddr) -> bool,
    ) -> Option<SocketAddr> {
        let at = self.addresses.iter().position(|address| *address == used)?;
        let (before, after) = self.addresses.split_at(at);
        after.iter().skip(1).chain(before).copied().find(|address| fits(*address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_use_stays_in_use_while_it_is_there() {
        let [one, two, six] = ["192.0.2.1:1", "192.0.2.2:1", "[2001:db8::1]:1"]
            .map(|text| text.parse::<SocketAddr>().unwrap());
        let mut remote = Remote::new(Instant::ZERO, "ground:1".to_owned());
        assert!(remote.asks(Instant::ZERO) && !remote.asks(Instant::from_millis(999)));
        assert!(remote.asks(Instant::from_millis(1000)));
        remote.learn(Instant::from_millis(1500), vec![six, one, two]);
        assert_eq!(remote.due(), Instant::from_millis(61_500));
        assert_eq!(remote.choose(None, |address| address.is_ipv4()), Some(one));
        assert_eq!(remote.choose(Some(two), |address| address.is_ipv4()), Some(two));
        remote.learn(Instant::from_millis(1500), vec![six, one]);
        assert_eq!(remote.choose(Some(two), |address| address.is_ipv4()), Some(one));
        remote.learn(Instant::from_millis(1500), vec![]);
        assert_eq!(remote.choose(None, |_| true), Some(six));
    }

    #[test]
    fn a_silent_address_gives_way_to_the_next_of_its_name() {
        let [six, one, two] = ["[2001:db8::1]:1", "192.0.2.1:1", "192.0.2.2:1"]
            .map(|text| text.parse::<SocketAddr>().unwrap());
        let mut remote = Remote::new(Instant::ZERO, "ground:1".to_owned());
        remote.learn(Instant::ZERO, vec![six, one, two]);
        let mut used = None;
        let mut after = |seconds, alive: Option<SocketAddr>| {
            let now = Instant::ZERO + Duration::from_secs(seconds);
            let heard = used.is_some() && used == alive;
            used = remote.choose_heard(now, used, heard, |address| address != two);
            used
        };
        assert_eq!([0, 0].map(|at| after(at, Some(one))), [Some(six); 2]);
        assert_eq!([1, 2, 60].map(|at| after(at, Some(one))), [Some(one); 3]);
        // One that has been heard is kept for longer, and tried again after each other one.
        assert_eq!([70, 89].map(|at| after(at, None)), [Some(one); 2]);
        assert_eq!([90, 91].map(|at| after(at, None)), [Some(six); 2]);
        assert_eq!([92, 121].map(|at| after(at, None)), [Some(one); 2]);
        // Each change doubles the time that another one has.
        assert_eq!([122, 129].map(|at| after(at, None)), [Some(six); 2]);
        assert_eq!(after(130, None), Some(one));
    }
}
