//! The state as it is shown.

use alloc::format;

use skybraid_units::{Duration, Instant};

use super::Gateway;
use crate::health::Path;
use crate::snapshot::{ChannelSnapshot, ClassSnapshot, PathSnapshot, Snapshot};

impl Gateway {
    /// How everything stands.
    pub fn snapshot(&self, now: Instant) -> Snapshot {
        let heard = self.paths.iter().filter_map(|path| path.watch.heard()).max();
        let ms = |duration: Duration| duration.as_millis_f64();
        let path = |path: &Path| {
            let delay = path.transit.smoothed().and_then(|it| self.clock.incoming_delay(it));
            let told = path.told;
            let out = told.map(|told| Duration::from_micros(i64::from(told.transit_us)));
            let window = path.window();
            PathSnapshot {
                name: path.name.clone(),
                outgoing: path.outgoing,
                incoming: path.watch.state(),
                remote: path.remote.map(|remote| format!("{remote}")),
                rtt_ms: path.rtt.map(ms),
                min_rtt_ms: path.least_rtt().map(ms),
                incoming_delay_ms: delay.map(ms),
                outgoing_delay_ms: out.and_then(|it| self.clock.outgoing_delay(it)).map(ms),
                jitter_ms: ms(path.transit.jitter()),
                incoming_loss: window.loss,
                outgoing_loss: path.outgoing_loss(),
                outgoing_bps: window.outgoing_bps,
                incoming_bps: window.incoming_bps,
                outgoing_bytes: path.totals.outgoing_bytes,
                incoming_bytes: path.totals.incoming_bytes,
                outgoing_datagrams: path.totals.outgoing,
                incoming_datagrams: path.totals.incoming,
                control_won: path.totals.control_won,
                mtu: path.mtu,
                data_left: path.data_left(),
                given_up: path.totals.given_up,
            }
        };
        let classes = self.stats.iter().zip(&self.carriers);
        Snapshot {
            name: self.config.name.clone(),
            side: self.config.side,
            uptime_ms: ms(now.since(self.started)),
            session: self.session_up && !self.silence.told,
            sessions: self.sessions_so_far,
            peer_restarts: self.peer_restarts,
            silent_ms: heard.map(|heard| ms(now.since(heard))),
            paths: self.paths.iter().map(path).collect(),
            classes: classes
                .zip(&self.menders)
                .map(|((stats, carrier), mender)| ClassSnapshot {
                    repaired: mender.mended,
                    ..stats.snapshot(carrier.duplicates())
                })
                .collect(),
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
            refused: self.refused,
        }
    }
}
