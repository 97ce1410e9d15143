//! Path states: silence, reports, probation.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use skybraid_transport::PathId;
use skybraid_units::{Duration, Instant};

use super::Gateway;
use crate::config::Network;
use crate::event::{Direction, PathState, What};
use crate::health::probe::MAX_SENT_REPORTS;
use crate::health::{MtuChange, MtuState, Path, Probe, Report};
use crate::{Class, Side};

impl Gateway {
    /// Records that an interface has gone or come back.
    pub fn set_path_up(&mut self, now: Instant, id: PathId, up: bool) {
        let Some(path) = self.paths.get_mut(id) else { return };
        if path.present == up {
            return;
        }
        path.present = up;
        path.mtu.reset();
        path.probe_at = now;
        let before = if up { None } else { path.watch.give_up() };
        if let Some(before) = before {
            self.note_state(now, id, before, Direction::Both);
        }
        self.refresh_usable();
    }

    /// Makes the probes of all paths due.
    pub(super) fn probe_at_once(&mut self, now: Instant) {
        self.paths.iter_mut().for_each(|path| path.probe_at = path.probe_at.min(now));
    }

    /// Returns the probe of a path.
    pub(super) fn probe(&self, now: Instant, id: PathId) -> Probe {
        let path = self.paths.get(id);
        let number = path.map_or(0, |path| path.mtu.next_number());
        let mut reports: Vec<Report> =
            self.paths.iter().filter_map(|path| Some(path.report(path.wire?))).collect();
        if reports.len() > MAX_SENT_REPORTS {
            let turn = usize::from(number) * MAX_SENT_REPORTS % reports.len();
            reports.rotate_left(turn);
            reports.truncate(MAX_SENT_REPORTS);
        }
        Probe {
            number,
            mtu: path.map_or(0, |path| path.mtu.size().min(65_535) as u16),
            mtu_error: path.is_some_and(|path| path.mtu.state() == MtuState::Error),
            sent_us: crate::health::clock::micros(now),
            echo: path.and_then(|path| path.echo(now)),
            lag_ms: self.control.lag_ms(),
            asks: self.control.is_starting()
                || path.is_some_and(|path| {
                    path.timing.rtt().is_none() && path.watch.heard().is_some()
                }),
            reports,
        }
    }

    /// Records the peer's report on an outgoing path.
    pub(super) fn take_report(&mut self, now: Instant, id: PathId, report: &Report) {
        let Some(path) = self.paths.get_mut(id) else { return };
        let before = path.reports.outgoing();
        let last = path.reports.on_report(report);
        let seen = report.seen;
        if report.state.is_alive() && last.is_some_and(|last| last.seen.newest != seen.newest) {
            self.peer.clock.on_report(now, Duration::from_micros(report.transit_us.into()));
        }
        if let Some(change) = path.mtu.on_report(now, seen.newest, seen.arrived) {
            let name = path.name.clone();
            self.on_mtu_change(now, name, change);
        }
        if before != report.state {
            self.note_state(now, id, before, Direction::Outgoing);
        }
    }

    fn on_mtu_change(&mut self, now: Instant, path: String, change: MtuChange) {
        let bytes = match change {
            MtuChange::Raised(bytes) => bytes,
            MtuChange::BlackHole { from, to } => {
                self.record.alarm(
                    now,
                    format!(
                        "path `{path}`: packets of {from} B no longer reach the other end; now at most {to} B \
                         are sent"
                    ),
                );
                to
            }
        };
        self.record.event(now, What::Mtu { path, bytes });
    }

    /// Reports a changed state of a path to the peer and to transports.
    pub(super) fn note_state(
        &mut self,
        now: Instant,
        id: PathId,
        from: PathState,
        direction: Direction,
    ) {
        let Some(path) = self.paths.get_mut(id) else { return };
        let to = match direction {
            Direction::Outgoing => path.reports.outgoing(),
            Direction::Incoming | Direction::Both => path.watch.state(),
        };
        if to == PathState::Down {
            path.given_up += 1;
        }
        let what = What::Path { path: path.name.clone(), from, to, direction };
        self.record.event(now, what);
        if direction != Direction::Outgoing {
            self.probe_at_once(now);
        }
        self.hold_data(now, id);
        self.refresh_usable();
        // After an outage of all paths the peer's reports never said that this one was down.
        if !from.is_alive() && to.is_alive() {
            Class::ALL
                .into_iter()
                .for_each(|class| self.classes[class].transport_mut().retry(now, id));
        }
    }

    /// Fires expired timers of paths.
    pub(super) fn wake_paths(&mut self, now: Instant) {
        let health = self.config.health;
        for id in self.paths.ids() {
            // Silence may cause two transitions at once if no call came in between.
            while let Some(path) = self.paths.get_mut(id)
                && let Some(before) = path.watch.wake(now, &health)
            {
                self.note_state(now, id, before, Direction::Incoming);
            }
            if let Some(path) = self.paths.get_mut(id)
                && path.traffic.take_spent()
            {
                let what = What::DataCap { path: path.name.clone() };
                self.record.event(now, what);
                self.refresh_usable();
            }
        }
        self.wake_silence(now);
    }

    /// Handles silence on all paths: the peer may have restarted.
    fn wake_silence(&mut self, now: Instant) {
        let Some(heard) = self.paths.last_heard().filter(|_| self.session.is_up()) else { return };
        if self.session.take_loss(now, heard) {
            self.record.event(now, What::PeerLost);
        }
        if self.config.side == Side::Aircraft && self.session.take_request(now, heard) {
            self.sessions.renew(now);
        }
    }

    /// Notes whether control by this path would be too old when it is there.
    pub(super) fn note_lateness(&mut self, now: Instant, id: PathId) {
        let transit = self.paths.get(id).and_then(|path| path.timing.outgoing().last());
        let delay = transit.and_then(|transit| self.peer.clock.outgoing_delay(now, transit));
        let is_late = self.is_late_for_control(delay);
        let Some(path) = self.paths.get_mut(id) else { return };
        if core::mem::replace(&mut path.is_late, is_late) != is_late {
            self.refresh_usable();
        }
    }

    /// Sets which paths the transports may use. Data: the paths that the peer hears, else the best available. Control:
    /// every path; one past its data cap only if no other is up, and one that is too slow for control only if all are,
    /// since its copies would only lengthen the queue.
    pub(super) fn refresh_usable(&mut self) {
        let worth = |path: &Path| {
            let known = path.remote.is_some() || self.config.network == Network::Tcp;
            let worth = match path.reports.outgoing() {
                _ if !path.present || !known => 0,
                PathState::Down => 1,
                PathState::Unheard => 2,
                PathState::Suspected | PathState::Probation => 3,
                PathState::Up => 5,
            };
            if path.traffic.is_spent() { worth.min(4) } else { worth }
        };
        let best = self.paths.iter().map(worth).max().unwrap_or(0);
        let late = |path: &Path| path.is_late && path.is_heard();
        let any_in_time = self.paths.iter().any(|path| worth(path) >= 3 && !late(path));
        for (id, path) in self.paths.ids().zip(self.paths.iter()) {
            let worth = worth(path);
            let is_useless = any_in_time && late(path);
            for class in Class::ALL {
                let usable = match class {
                    Class::Control => {
                        worth > 0 && (!path.traffic.is_spent() || best < 5) && !is_useless
                    }
                    _ => worth > 0 && worth == best,
                };
                if !self.config.network.bundles(class) {
                    self.classes[class].transport_mut().set_usable(id, usable);
                }
            }
        }
    }
}
