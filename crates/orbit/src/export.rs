//! Export of a service's delays for other tools.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use skybraid_units::{Duration, Instant};

use crate::service::Service;

impl Service {
    /// Returns CSV with the columns `time_s` and `delay_ms`: the one-way delay from each time on.
    pub fn csv(&self) -> String {
        let mut text = String::from("time_s,delay_ms\n");
        for (at, delay) in self.delay_steps() {
            text.push_str(&format!("{:.3},{:.6}\n", at.as_secs_f64(), delay.as_millis_f64()));
        }
        text
    }

    /// Returns round-trip times in Hypatia's format for a path: lines of `time_ns,rtt_ns` without a header,
    /// with twice the one-way delay, and zero in gaps.
    pub fn hypatia(&self) -> String {
        let lost = self.gaps.iter().map(|(at, _)| (*at, Duration::ZERO));
        let served = self.samples.iter().map(|sample| (sample.at, sample.delay * 2));
        let mut rows: Vec<(Instant, Duration)> = lost.chain(served).collect();
        rows.sort_unstable_by_key(|(at, _)| *at);
        rows.dedup_by_key(|(_, rtt)| *rtt);
        let mut text = String::new();
        for (at, rtt) in rows {
            text.push_str(&format!("{},{}\n", at.as_nanos(), rtt.as_nanos()));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::Sample;
    use alloc::vec;

    #[test]
    fn delays_start_with_the_run_and_are_written_on_change() {
        let sample = |seconds: i64, micros: i64| Sample {
            at: Instant::from_millis(seconds * 1000),
            delay: Duration::from_micros(micros),
            elevation: 45.0,
            gateway: 0,
            hops: 0,
        };
        let samples = vec![sample(2, 5000), sample(3, 5000), sample(4, 5123)];
        let gap =
            |from: i64, length: i64| (Instant::from_millis(from), Duration::from_millis(length));
        let gaps = vec![gap(0, 2000), gap(4500, 500)];
        let service = Service { samples, gaps, ..Service::default() };
        assert_eq!(service.csv(), "time_s,delay_ms\n0.000,5.000000\n4.000,5.123000\n");
        let expected = "0,0\n2000000000,10000000\n4000000000,10246000\n4500000000,0\n";
        assert_eq!(service.hypatia(), expected);
    }
}
