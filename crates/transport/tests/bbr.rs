//! BBR, versions 1 and 3, over a bottleneck.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod bottleneck;

use bottleneck::{Bench, Path, SEGMENT};
use skybraid_transport::congestion::{CongestionConfig, bbr, bbr3};
use skybraid_transport::{Protocol, TransportConfig};
use skybraid_units::{Duration, Probability, Rate};

fn transport(name: &str) -> TransportConfig {
    let congestion = CongestionConfig::by_name(name).unwrap();
    TransportConfig { protocol: Protocol::Tcp, congestion, ..TransportConfig::default() }
}

/// A path on which a full segment takes 50 ms there and back, with a buffer of so many
/// bandwidth-delay products.
fn path(mbps: f64, buffer: f64, loss: f64) -> Path {
    let rate = Rate::from_mbps(mbps);
    let serialisation = rate.time_for(skybraid_units::Bytes::new(1500));
    Path {
        rate,
        propagation: Duration::from_millis(50) - serialisation,
        buffer: (mbps * 1e6 / 8.0 * 0.05 * buffer) as u64,
        loss: Probability::new(loss).unwrap(),
    }
}

/// A bulk transfer.
fn bulk(config: &TransportConfig, path: Path, seconds: f64) -> Bench {
    let mut bench = Bench::new(config, path, 1);
    bench.write(u32::MAX);
    bench.run_until(seconds);
    bench
}

#[test]
fn explore() {
    for name in ["bbr", "bbr3"] {
        let b = bulk(&transport(name), path(10.0, 1.0, 0.0), 40.0);
        println!("{name} util {:.4} lost {}", b.utilisation(1.0, 40.0), b.at(39.9).lost);
        let mut last = 0.0;
        for s in b.between(0.0, 2.0) {
            if s.at - last > 0.025 { last = s.at;
            println!("{:.3} w {:.1} f {:.1} pace {:.2} q {:.2} lost {}", s.at, s.window, s.in_flight, s.pace, s.queue as f64 / 62500.0, s.lost);}
        }
        for s in b.between(4.0, 14.0) {
            if s.at - last > 0.2 { last = s.at;
            println!("{:.3} w {:.1} f {:.1} pace {:.2} q {:.2} lost {}", s.at, s.window, s.in_flight, s.pace, s.queue as f64 / 62500.0, s.lost);}
        }
    }
    for name in ["bbr", "bbr3", "cubic"] { for mbps in [10.0, 40.0] {
        for p in [0.0, 0.001, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.15, 0.18, 0.2, 0.22, 0.25] {
            let b = bulk(&transport(name), path(mbps, 1.0, p), 30.0);
            println!("{name} {mbps} {p} util {:.3} ({:.3})", b.utilisation(5.0, 30.0), b.utilisation(5.0, 30.0)/(1.0-p));
        }
    }}
    let _ = (SEGMENT, bbr::Config::default(), bbr3::Config::default());
}
