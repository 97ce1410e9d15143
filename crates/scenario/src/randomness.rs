//! Dependence of a scenario's runs on the seed.

use std::collections::BTreeSet;

use skybraid_link::Draw;
use skybraid_transport::TransportConfig;
use skybraid_transport::congestion::CongestionConfig;
use skybraid_units::Seed;

use crate::{Ecmp, Flow, Link, Route, Scenario, SplitAt};

impl Scenario {
    /// Returns whether the seed may change a simulated run: whether the traffic, transport or route of any
    /// flow is random, or any link that a flow may use. Custom algorithms count as random.
    pub fn is_random(&self) -> bool {
        let routes = self.routes(Seed(0));
        let drawn = matches!(self.routing.ecmp, Ecmp::Flow | Ecmp::Packet);
        if drawn && routes.iter().any(|route| route.ways.iter().any(|ways| *ways > 1)) {
            return true;
        }
        let links_of = |route: &Route| -> Vec<usize> {
            match route {
                Route::Fixed(hops) => hops.iter().map(|hop| hop.link()).collect(),
                Route::Spread { .. } => (0..self.links.len()).collect(),
            }
        };
        let used: BTreeSet<usize> =
            routes.iter().flat_map(|route| &route.routes).flat_map(links_of).collect();
        let is_used = |link: usize| used.contains(&link);
        let links = self.links.iter().enumerate().filter(|(number, _)| is_used(*number));
        self.flows.iter().any(|flow| flow.is_random())
            || links.map(|(_, link)| link).any(Link::is_random)
            || self.outages.iter().any(|group| group.links.iter().any(|link| is_used(*link)))
    }
}

impl Flow {
    fn is_random(&self) -> bool {
        let proxies = self.proxies.iter().any(|SplitAt { transport, .. }| is_random(transport));
        self.traffic.is_random() || is_random(&self.transport) || proxies
    }
}

impl Link {
    /// Returns whether the seed may change anything for packets on the link.
    fn is_random(&self) -> bool {
        // Fields are listed one by one, so that a new underlay cannot be forgotten here.
        let Self {
            name: _,
            group: _,
            ends: _,
            weight: _,
            config: _,
            uplink,
            downlink,
            population,
            info: _,
            cells,
            // A function of time alone, which is applied to both directions.
            orbit: _,
        } = self;
        let drawn = population.as_ref().is_some_and(|family| family.draw == Draw::Random);
        cells.is_some() || drawn || uplink.is_random() || downlink.is_random()
    }
}

/// Returns whether a transport is random.
fn is_random(transport: &TransportConfig) -> bool {
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
    // Built-in schedulers and reordering engines have no random stream; custom ones may bring their own.
    congestion || transport.scheduler.custom().is_some()
}
