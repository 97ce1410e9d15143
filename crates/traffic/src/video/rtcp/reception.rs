//! Reception statistics of one RTP source.
//!
//! Source: RFC 3550 §A.3 (losses), §A.8 (jitter), §6.4.1 (LSR and DLSR).

use skybraid_units::Instant;

use super::ReportBlock;
use crate::video::rtp::{Header, Unwrapper, VIDEO_CLOCK_HZ};

/// Reception statistics of a video source, for receiver reports.
#[derive(Clone, Debug, Default)]
pub struct Reception {
    sequence: Unwrapper<16>,
    first: Option<u64>,
    received: u64,
    /// Packets expected and received before the last report.
    before: (u64, u64),
    /// Transit time of the last packet in ticks, from an unknown origin.
    transit: Option<u32>,
    jitter: f64,
    /// Middle of the NTP timestamp of the last sender report, and its arrival.
    last_report: Option<(u32, Instant)>,
}

impl Reception {
    /// Records a received packet.
    pub fn on_received(&mut self, now: Instant, header: &Header) {
        let number = self.sequence.unwrap(header.sequence.into());
        self.first = Some(self.first.map_or(number, |first| first.min(number)));
        self.received += 1;
        let arrived = i128::from(now.as_nanos()) * i128::from(VIDEO_CLOCK_HZ) / 1_000_000_000;
        let transit = (arrived as u32).wrapping_sub(header.timestamp);
        if let Some(last) = self.transit.replace(transit) {
            let change = transit.wrapping_sub(last) as i32;
            self.jitter += (f64::from(change.unsigned_abs()) - self.jitter) / 16.0;
        }
    }

    /// Records a sender report of the source, by the middle 32 bits of its NTP timestamp.
    pub fn on_report(&mut self, now: Instant, ntp_middle: u32) {
        self.last_report = Some((ntp_middle, now));
    }

    /// Returns the number of packets lost so far, negative with duplicates.
    pub fn lost(&self) -> i64 {
        self.expected() as i64 - self.received as i64
    }

    /// Returns the report block on this source, whose SSRC is `ssrc`, and starts the next interval.
    pub fn report(&mut self, now: Instant, ssrc: u32) -> ReportBlock {
        let (expected, received) = (self.expected() - self.before.0, self.received - self.before.1);
        self.before = (self.expected(), self.received);
        let lost = (256 * expected.saturating_sub(received)).checked_div(expected).unwrap_or(0);
        let (last_report, delay) = self.last_report.map_or((0, 0), |(middle, at)| {
            let nanos = i128::from((now - at).as_nanos());
            (middle, ((nanos << 16) / 1_000_000_000) as u32)
        });
        ReportBlock {
            ssrc,
            fraction_lost: lost.min(255) as u8,
            lost: self.lost().clamp(i32::MIN.into(), i32::MAX.into()) as i32,
            // Without the cycle in which the first packet is placed.
            highest: (self.sequence.highest().unwrap_or(0) as u32).wrapping_sub(1 << 16),
            jitter: self.jitter as u32,
            last_report,
            delay,
        }
    }

    fn expected(&self) -> u64 {
        let highest = self.sequence.highest();
        highest.zip(self.first).map_or(0, |(highest, first)| highest - first + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(sequence: u16, timestamp: u32) -> Header {
        Header { marker: false, payload_type: 96, sequence, timestamp, ssrc: 2 }
    }

    // Source: RFC 3550 §A.3: eight of ten expected packets arrived, across the wrap of the numbers.
    #[test]
    fn losses_are_counted_across_the_wrap() {
        let mut reception = Reception::default();
        for sequence in [0xfffa, 0xfffb, 0xfffc, 0xfffe, 0xffff, 0, 2, 3] {
            reception.on_received(Instant::ZERO, &header(sequence, 0));
        }
        let block = reception.report(Instant::ZERO, 2);
        assert_eq!((block.lost, block.fraction_lost, block.highest), (2, 51, 0x1_0003));
        assert_eq!(reception.report(Instant::ZERO, 2).fraction_lost, 0);
        assert_eq!(reception.lost(), 2);
    }

    // Source: RFC 3550 §A.8: J += (|D| - J)/16; packets of 10 ms that arrive alternately 5 ms late.
    #[test]
    fn jitter_tends_to_the_mean_change_of_transit() {
        let mut reception = Reception::default();
        for number in 0..200u16 {
            let late = i64::from(number % 2) * 5;
            let now = Instant::from_millis(10 * i64::from(number) + late);
            reception.on_received(now, &header(number, 900 * u32::from(number)));
        }
        assert!((448..=450).contains(&reception.report(Instant::ZERO, 2).jitter));
    }

    #[test]
    fn the_delay_since_the_last_sender_report_is_sent() {
        let mut reception = Reception::default();
        assert_eq!(reception.report(Instant::from_millis(1), 2).last_report, 0);
        reception.on_report(Instant::from_millis(1000), 0x0304_0506);
        let block = reception.report(Instant::from_millis(1500), 2);
        assert_eq!((block.last_report, block.delay), (0x0304_0506, 1 << 15));
    }
}
