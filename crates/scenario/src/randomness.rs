//! Whether a scenario's runs depend on the seed.

use skybraid_transport::TransportConfig;
use skybraid_transport::congestion::CongestionConfig;
use skybraid_units::Seed;

use crate::{Ecmp, Flow, Link, Route, Scenario, SplitAt};

impl Scenario {
    /// Whether the seed may change anything in a simulated run: whether any flow's traffic, transport or
    /// route draws at random, or any link that a flow may use. What is not known counts as random.
    pub fn is_random(&self) -> bool {
        let routes = self.routes(Seed(0));
        let drawn = matches!(self.routing.ecmp, Ecmp::Flow | Ecmp::Packet);
        if drawn && routes.iter().any(|route| route.ways.iter().any(|ways| *ways > 1)) {
            return true;
        }
        let mut used = vec![false; self.links.len()];
        for route in routes.iter().flat_map(|route| &route.routes) {
            match route {
                Route::Fixed(hops) => {
                    for hop in hops {
                        if let Some(link) = used.get_mut(hop / 2) {
                            *link = true;
                        }
                    }
                }
                Route::Spread { .. } => used.fill(true),
            }
        }
        let is_used = |link: usize| used.get(link).copied().unwrap_or(true);
        let links = self.links.iter().enumerate().filter(|(number, _)| is_used(*number));
        self.flows.iter().any(|flow| flow.is_random())
            || links.map(|(_, link)| link).any(Link::is_random)
            || self.outages.iter().any(|group| group.links.iter().any(|link| is_used(*link)))
    }
}

impl Flow {
    fn is_random(&self) -> bool {
        let proxies = self.proxies.iter().any(|SplitAt { transport, .. }| draws(transport));
        self.traffic.is_random() || draws(&self.transport) || proxies
    }
}

impl Link {
    /// Whether the seed may change anything for its packets.
    fn is_random(&self) -> bool {
        // Named one by one, so that what lies under a link cannot be forgotten here.
        let Self {
            name: _,
            group: _,
            ends: _,
            weight: _,
            config: _,
            uplink,
            downlink,
            info: _,
            cells,
            // A function of time alone, which has become part of both directions.
            orbit: _,
        } = self;
        cells.is_some() || uplink.is_random() || downlink.is_random()
    }
}

/// Whether a transport draws at random.
fn draws(transport: &TransportConfig) -> bool {
    let congestion = match &transport.congestion {
        CongestionConfig::Bbr(_) | CongestionConfig::Bbr3(_) | CongestionConfig::Custom(_) => true,
        CongestionConfig::Reno(_)
        | CongestionConfig::Cubic(_)
        | CongestionConfig::Lia(_)
        | CongestionConfig::Olia(_)
        | CongestionConfig::Balia(_)
        | CongestionConfig::Wvegas(_)
        | CongestionConfig::Ewtcp(_)
        | CongestionConfig::Coupled(_)
        | CongestionConfig::Vegas(_)
        | CongestionConfig::Westwood(_)
        | CongestionConfig::WestwoodPlus(_)
        | CongestionConfig::Ccid2(_)
        | CongestionConfig::Ccid5(_) => false,
    };
    // Schedulers and reordering engines are given no random stream; those of others may bring their own.
    congestion || transport.scheduler.custom().is_some()
}
