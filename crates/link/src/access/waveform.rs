//! Reference waveforms of DVB-RCS2, the return link: linear modulation, turbo code, bursts of 536 and 1616 symbols.
//!
//! Sources: ETSI EN 301 545-2 V1.2.1, annex A (payload and symbols); ETSI TR 101 545-4 V1.1.1 (Es/N0 for a packet error
//! ratio of 10⁻⁵ without losses of implementation). The waveforms 1 and 2 (logon and control), 32 to 41 (spread
//! spectrum) and 42 to 49 are not in this table.

use super::modcod::Modulation;

/// Waveform of a burst.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Waveform {
    /// Number in the standard, 3 to 22.
    pub id: u8,
    /// Constellation.
    pub modulation: Modulation,
    /// Code rate as a fraction.
    pub rate: (u32, u32),
    /// Bytes of payload of a burst.
    pub payload: u32,
    /// Symbols of a burst, without guard time.
    pub symbols: u32,
    /// Es/N0 in dB for a packet error ratio of 10⁻⁵.
    pub es_n0: f64,
}

const fn waveform(
    id: u8,
    modulation: Modulation,
    rate: (u32, u32),
    payload: u32,
    symbols: u32,
    es_n0: f64,
) -> Waveform {
    Waveform { id, modulation, rate, payload, symbols, es_n0 }
}

/// Waveforms 3 to 22, in order.
pub const WAVEFORMS: [Waveform; 20] = {
    use Modulation::{Psk8, Qam16, Qpsk};
    [
        waveform(3, Qpsk, (1, 3), 38, 536, 0.22),
        waveform(4, Qpsk, (1, 2), 59, 536, 2.34),
        waveform(5, Qpsk, (2, 3), 85, 536, 4.29),
        waveform(6, Qpsk, (3, 4), 96, 536, 5.36),
        waveform(7, Qpsk, (5, 6), 108, 536, 6.68),
        waveform(8, Psk8, (2, 3), 115, 536, 8.08),
        waveform(9, Psk8, (3, 4), 130, 536, 9.31),
        waveform(10, Psk8, (5, 6), 144, 536, 10.82),
        waveform(11, Qam16, (3, 4), 175, 536, 11.17),
        waveform(12, Qam16, (5, 6), 194, 536, 12.56),
        waveform(13, Qpsk, (1, 3), 123, 1616, -0.51),
        waveform(14, Qpsk, (1, 2), 188, 1616, 1.71),
        waveform(15, Qpsk, (2, 3), 264, 1616, 3.69),
        waveform(16, Qpsk, (3, 4), 298, 1616, 4.73),
        waveform(17, Qpsk, (5, 6), 333, 1616, 5.94),
        waveform(18, Psk8, (2, 3), 355, 1616, 7.49),
        waveform(19, Psk8, (3, 4), 400, 1616, 8.77),
        waveform(20, Psk8, (5, 6), 444, 1616, 10.23),
        waveform(21, Qam16, (3, 4), 539, 1616, 10.72),
        waveform(22, Qam16, (5, 6), 599, 1616, 12.04),
    ]
};

impl Waveform {
    /// Returns the waveform with this number.
    pub fn find(id: u8) -> Option<&'static Self> {
        WAVEFORMS.iter().find(|waveform| waveform.id == id)
    }

    /// Coded bits of a burst, if every symbol carried data.
    pub const fn coded_bits(&self) -> u32 {
        self.symbols * self.modulation.bits_per_symbol()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guard time of a burst in symbols, which the efficiencies of TR 101 545-4 include.
    const GUARD: u32 = 4;

    /// Modulation, code rate, efficiency, Es/N0 and symbols as tabulated in TR 101 545-4, row by row.
    const TABLE: [(&str, &str, f64, f64, u32); 20] = [
        ("QPSK", "1/3", 0.56, 0.22, 536),
        ("QPSK", "1/2", 0.87, 2.34, 536),
        ("QPSK", "2/3", 1.26, 4.29, 536),
        ("QPSK", "3/4", 1.42, 5.36, 536),
        ("QPSK", "5/6", 1.60, 6.68, 536),
        ("8PSK", "2/3", 1.70, 8.08, 536),
        ("8PSK", "3/4", 1.93, 9.31, 536),
        ("8PSK", "5/6", 2.13, 10.82, 536),
        ("16QAM", "3/4", 2.59, 11.17, 536),
        ("16QAM", "5/6", 2.87, 12.56, 536),
        ("QPSK", "1/3", 0.61, -0.51, 1616),
        ("QPSK", "1/2", 0.93, 1.71, 1616),
        ("QPSK", "2/3", 1.30, 3.69, 1616),
        ("QPSK", "3/4", 1.47, 4.73, 1616),
        ("QPSK", "5/6", 1.64, 5.94, 1616),
        ("8PSK", "2/3", 1.75, 7.49, 1616),
        ("8PSK", "3/4", 1.98, 8.77, 1616),
        ("8PSK", "5/6", 2.19, 10.23, 1616),
        ("16QAM", "3/4", 2.66, 10.72, 1616),
        ("16QAM", "5/6", 2.96, 12.04, 1616),
    ];

    #[test]
    fn waveforms_follow_the_tables_of_the_standard() {
        for ((waveform, row), id) in WAVEFORMS.iter().zip(TABLE).zip(3..) {
            let (name, rate, efficiency, es_n0, symbols) = row;
            let (k, n) = waveform.rate;
            assert_eq!((waveform.id, waveform.modulation.name()), (id, name));
            assert_eq!(alloc::format!("{k}/{n}"), rate, "{id}");
            assert_eq!((waveform.symbols, waveform.es_n0), (symbols, es_n0), "{id}");
            let found = f64::from(waveform.payload * 8) / f64::from(symbols + GUARD);
            assert!((found - efficiency).abs() <= 0.0051, "{id}: {found}, not {efficiency}");
        }
        assert_eq!(Waveform::find(2), None);
        assert_eq!(Waveform::find(23), None);
    }

    #[test]
    fn a_payload_fits_into_the_coded_bits_of_its_burst() {
        for waveform in &WAVEFORMS {
            let (k, n) = waveform.rate;
            // The other symbols are preamble, postamble and pilots.
            let data = waveform.payload * 8 * n;
            assert!(data < waveform.coded_bits() * k, "{}", waveform.id);
        }
    }
}
