//! State of the gateway, for pages, logs and metrics.

use alloc::format;
use alloc::vec::Vec;

use skybraid_units::{Duration, Instant};

use super::Gateway;
use crate::Class;
use crate::event::PathState;
use crate::health::Path;
use crate::link::ClassLink;
use crate::snapshot::{ChannelSnapshot, PathSnapshot, Snapshot, TunSnapshot};

impl Gateway {
    /// Returns the state of the whole gateway.
    pub fn snapshot(&self, now: Instant) -> Snapshot {
        let heard = self.paths.last_heard();
        let ms = |duration: Duration| duration.as_millis_f64();
        let lost = self.session.is_peer_lost();
        let classes: Vec<_> = self.classes.iter().map(ClassLink::snapshot).collect();
        let control_won = &classes[Class::Control.index()].by_path;
        let path = |(path, control_won): (&Path, &u64)| {
            // What the peer hears has not been reported for a long time.
            let outgoing = if lost { PathState::Unheard } else { path.reports.outgoing() };
            let incoming = path.watch.state();
            // What was measured of a direction before it went down says nothing of it now.
            let both_ways = outgoing.is_alive() && incoming.is_alive();
            let report = path.reports.last().filter(|_| outgoing.is_alive());
            let outgoing_transit =
                report.map(|report| Duration::from_micros(i64::from(report.transit_us)));
            let incoming_transit =
                path.timing.incoming().smoothed().filter(|_| incoming.is_alive());
            let (window, totals) = (path.traffic.window(), path.traffic.totals());
            let max_delay = |transit| self.peer.clock.max_incoming_delay(now, transit);
            let outgoing_delay =
                outgoing_transit.and_then(|transit| self.peer.clock.outgoing_delay(now, transit));
            PathSnapshot {
                name: path.name.clone(),
                outgoing,
                incoming,
                remote: path.remote.map(|remote| format!("{remote}")),
                rtt_ms: path.timing.rtt().filter(|_| both_ways).map(ms),
                min_rtt_ms: path.timing.min_rtt().filter(|_| both_ways).map(ms),
                incoming_delay_ms: incoming_transit
                    .and_then(|transit| self.peer.clock.incoming_delay(now, transit))
                    .map(ms),
                outgoing_delay_ms: outgoing_delay.map(ms),
                incoming_late: self.is_late_for_control(incoming_transit.and_then(max_delay)),
                outgoing_late: self.is_late_for_control(outgoing_delay),
                jitter_ms: incoming_transit.map(|_| ms(path.timing.incoming().jitter())),
                incoming_loss: incoming.is_alive().then_some(window.loss),
                outgoing_loss: report.map(|_| path.reports.outgoing_loss()),
                outgoing_bps: window.outgoing_bps,
                incoming_bps: window.incoming_bps,
                outgoing_bytes: totals.outgoing_bytes,
                incoming_bytes: totals.incoming_bytes,
                outgoing_datagrams: totals.outgoing,
                incoming_datagrams: totals.incoming,
                control_won: *control_won,
                mtu: path.mtu.size(),
                mtu_state: path.mtu.state(),
                incoming_mtu: path.reports.incoming_mtu().map(|(bytes, _)| bytes),
                peer_mtu_error: path.reports.incoming_mtu().is_some_and(|(_, error)| error),
                black_holes: path.mtu.black_holes,
                data_left: path.traffic.data_left(),
                given_up: path.given_up,
            }
        };
        Snapshot {
            name: self.config.name.clone(),
            side: self.config.side,
            uptime_ms: ms(self.record.uptime(now)),
            session: self.session.is_up() && !lost,
            peer: self.sessions.peer().map(|peer| format!("{peer}")),
            session_left_ms: self.sessions.time_left(now).map(ms),
            session_overdue: self.session.is_up() && self.sessions.is_overdue(now),
            session_expired: self.session.is_expired(),
            sessions: self.session.established(),
            peer_restarts: self.session.peer_restarts(),
            peer_duplicated: self.sessions.is_peer_duplicated(now),
            silent_ms: heard.map(|heard| ms(now.since(heard))),
            paths: self.paths.iter().zip(control_won).map(path).collect(),
            classes,
            channels: self
                .channels
                .iter()
                .map(|channel| ChannelSnapshot {
                    name: channel.name.clone(),
                    written: channel.written,
                    delivered: channel.delivered,
                    shared: channel.wire.is_some(),
                })
                .collect(),
            control_limit: self.control.rate(),
            sources: self
                .channels
                .sources
                .snapshot(|id| self.channels.get(id).map(|channel| channel.name.as_str())),
            refused: self.record.refused(),
            bugs: skybraid_units::invariant::bugs(),
            tun: self.config.tun.as_ref().map(|_| TunSnapshot {
                peer: self.rules.inner().peer().map(|peer| format!("{peer}")),
                refused_outgoing: self.rules.inner().refused[0],
                refused_incoming: self.rules.inner().refused[1],
            }),
        }
    }
}
