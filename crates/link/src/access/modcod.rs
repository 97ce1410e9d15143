//! Modulations and codings of DVB-S2, the forward link.
//!
//! Source: ETSI EN 302 307-1 V1.4.1: tables 5a and 5b (`k_bch`), clause 5.5 (PLFRAME), table 13 (ideal Es/N0 and
//! spectral efficiency of normal FECFRAMEs without pilots, at a packet error ratio of 10⁻⁷).

use serde::{Deserialize, Serialize};
use skybraid_units::named;

named! {
    /// Constellation of a burst or frame.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Modulation {
        /// QPSK, 2 bits per symbol.
        Qpsk = "QPSK",
        /// 8PSK, 3 bits per symbol.
        Psk8 = "8PSK",
        /// 16APSK (DVB-S2), 4 bits per symbol.
        Apsk16 = "16APSK",
        /// 16QAM (DVB-RCS2), 4 bits per symbol.
        Qam16 = "16QAM",
        /// 32APSK, 5 bits per symbol.
        Apsk32 = "32APSK",
    }
}

impl Modulation {
    /// Coded bits per symbol.
    pub const fn bits_per_symbol(self) -> u32 {
        match self {
            Self::Qpsk => 2,
            Self::Psk8 => 3,
            Self::Apsk16 | Self::Qam16 => 4,
            Self::Apsk32 => 5,
        }
    }
}

/// Length of a FECFRAME.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FecFrame {
    /// 64 800 coded bits.
    #[default]
    Normal,
    /// 16 200 coded bits.
    Short,
}

impl FecFrame {
    /// Coded bits.
    pub const fn bits(self) -> u32 {
        match self {
            Self::Normal => 64_800,
            Self::Short => 16_200,
        }
    }
}

/// Loss of performance of short FECFRAMEs in dB: the upper end of the 0.2 to 0.3 dB of EN 302 307-1, clause 6.
pub const SHORT_FRAME_LOSS: f64 = 0.3;

/// Symbols of a slot, and of the PLHEADER.
const SLOT: u32 = 90;

/// Symbols of a pilot block, one after every 16 slots.
const PILOT_BLOCK: u32 = 36;

/// Bits of the BBHEADER.
const BB_HEADER: u32 = 80;

/// Modulation and coding of DVB-S2.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Modcod {
    /// MODCOD number, 1 to 28 (EN 302 307-1, table 12).
    pub id: u8,
    /// Constellation.
    pub modulation: Modulation,
    /// LDPC code rate as a fraction.
    pub rate: (u32, u32),
    /// Bits before BCH coding in a normal FECFRAME, with the BBHEADER.
    pub normal: u32,
    /// Bits before BCH coding in a short FECFRAME; there is none of rate 9/10.
    pub short: Option<u32>,
    /// Es/N0 in dB for a packet error ratio of 10⁻⁷, ideal demodulation, normal FECFRAME.
    pub es_n0: f64,
}

const fn modcod(
    id: u8,
    modulation: Modulation,
    rate: (u32, u32),
    normal: u32,
    short: u32,
    es_n0: f64,
) -> Modcod {
    let short = if short == 0 { None } else { Some(short) };
    Modcod { id, modulation, rate, normal, short, es_n0 }
}

/// MODCODs 1 to 28, in order.
pub const MODCODS: [Modcod; 28] = {
    use Modulation::{Apsk16, Apsk32, Psk8, Qpsk};
    [
        modcod(1, Qpsk, (1, 4), 16_008, 3072, -2.35),
        modcod(2, Qpsk, (1, 3), 21_408, 5232, -1.24),
        modcod(3, Qpsk, (2, 5), 25_728, 6312, -0.30),
        modcod(4, Qpsk, (1, 2), 32_208, 7032, 1.00),
        modcod(5, Qpsk, (3, 5), 38_688, 9552, 2.23),
        modcod(6, Qpsk, (2, 3), 43_040, 10_632, 3.10),
        modcod(7, Qpsk, (3, 4), 48_408, 11_712, 4.03),
        modcod(8, Qpsk, (4, 5), 51_648, 12_432, 4.68),
        modcod(9, Qpsk, (5, 6), 53_840, 13_152, 5.18),
        modcod(10, Qpsk, (8, 9), 57_472, 14_232, 6.20),
        modcod(11, Qpsk, (9, 10), 58_192, 0, 6.42),
        modcod(12, Psk8, (3, 5), 38_688, 9552, 5.50),
        modcod(13, Psk8, (2, 3), 43_040, 10_632, 6.62),
        modcod(14, Psk8, (3, 4), 48_408, 11_712, 7.91),
        modcod(15, Psk8, (5, 6), 53_840, 13_152, 9.35),
        modcod(16, Psk8, (8, 9), 57_472, 14_232, 10.69),
        modcod(17, Psk8, (9, 10), 58_192, 0, 10.98),
        modcod(18, Apsk16, (2, 3), 43_040, 10_632, 8.97),
        modcod(19, Apsk16, (3, 4), 48_408, 11_712, 10.21),
        modcod(20, Apsk16, (4, 5), 51_648, 12_432, 11.03),
        modcod(21, Apsk16, (5, 6), 53_840, 13_152, 11.61),
        modcod(22, Apsk16, (8, 9), 57_472, 14_232, 12.89),
        modcod(23, Apsk16, (9, 10), 58_192, 0, 13.13),
        modcod(24, Apsk32, (3, 4), 48_408, 11_712, 12.73),
        modcod(25, Apsk32, (4, 5), 51_648, 12_432, 13.64),
        modcod(26, Apsk32, (5, 6), 53_840, 13_152, 14.28),
        modcod(27, Apsk32, (8, 9), 57_472, 14_232, 15.69),
        modcod(28, Apsk32, (9, 10), 58_192, 0, 16.05),
    ]
};

impl Modcod {
    /// Returns the MODCOD with this number.
    pub fn find(id: u8) -> Option<&'static Self> {
        MODCODS.iter().find(|modcod| modcod.id == id)
    }

    /// Bits before BCH coding; `None` if the standard has no such frame.
    pub const fn k_bch(&self, frame: FecFrame) -> Option<u32> {
        match frame {
            FecFrame::Normal => Some(self.normal),
            FecFrame::Short => self.short,
        }
    }

    /// Symbols of a PLFRAME: header, slots, and pilot blocks if there are any.
    pub const fn symbols(&self, frame: FecFrame, pilots: bool) -> u32 {
        let slots = frame.bits() / self.modulation.bits_per_symbol() / SLOT;
        let blocks = if pilots { (slots - 1) / 16 } else { 0 };
        SLOT * (slots + 1) + PILOT_BLOCK * blocks
    }

    /// Bytes of the data field of a BBFRAME, without its header.
    pub fn data_field(&self, frame: FecFrame) -> Option<u32> {
        self.k_bch(frame).map(|bits| (bits - BB_HEADER) / 8)
    }

    /// Bits of the data field per symbol of a normal FECFRAME without pilots.
    pub fn efficiency(&self) -> f64 {
        f64::from(self.normal - BB_HEADER) / f64::from(self.symbols(FecFrame::Normal, false))
    }

    /// Es/N0 in dB above which frames are received.
    pub fn threshold(&self, frame: FecFrame) -> f64 {
        match frame {
            FecFrame::Normal => self.es_n0,
            FecFrame::Short => self.es_n0 + SHORT_FRAME_LOSS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spectral efficiency and ideal Es/N0 of EN 302 307-1, table 13, row by row.
    const TABLE_13: [(&str, &str, f64, f64); 28] = [
        ("QPSK", "1/4", 0.490243, -2.35),
        ("QPSK", "1/3", 0.656448, -1.24),
        ("QPSK", "2/5", 0.789412, -0.30),
        ("QPSK", "1/2", 0.988858, 1.00),
        ("QPSK", "3/5", 1.188304, 2.23),
        ("QPSK", "2/3", 1.322253, 3.10),
        ("QPSK", "3/4", 1.487473, 4.03),
        ("QPSK", "4/5", 1.587196, 4.68),
        ("QPSK", "5/6", 1.654663, 5.18),
        ("QPSK", "8/9", 1.766451, 6.20),
        ("QPSK", "9/10", 1.788612, 6.42),
        ("8PSK", "3/5", 1.779991, 5.50),
        ("8PSK", "2/3", 1.980636, 6.62),
        ("8PSK", "3/4", 2.228124, 7.91),
        ("8PSK", "5/6", 2.478562, 9.35),
        ("8PSK", "8/9", 2.646012, 10.69),
        ("8PSK", "9/10", 2.679207, 10.98),
        ("16APSK", "2/3", 2.637201, 8.97),
        ("16APSK", "3/4", 2.966728, 10.21),
        ("16APSK", "4/5", 3.165623, 11.03),
        ("16APSK", "5/6", 3.300184, 11.61),
        ("16APSK", "8/9", 3.523143, 12.89),
        ("16APSK", "9/10", 3.567342, 13.13),
        ("32APSK", "3/4", 3.703295, 12.73),
        ("32APSK", "4/5", 3.951571, 13.64),
        ("32APSK", "5/6", 4.119540, 14.28),
        ("32APSK", "8/9", 4.397854, 15.69),
        ("32APSK", "9/10", 4.453027, 16.05),
    ];

    #[test]
    fn modcods_follow_table_13_of_the_standard() {
        for ((modcod, (name, rate, efficiency, es_n0)), id) in MODCODS.iter().zip(TABLE_13).zip(1..)
        {
            let (k, n) = modcod.rate;
            assert_eq!((modcod.id, modcod.modulation.name()), (id, name));
            assert_eq!(alloc::format!("{k}/{n}"), rate, "{id}");
            // The standard's efficiencies fix k_bch to the bit: one bit more is 3e-5 to 8e-5.
            let found = modcod.efficiency();
            assert!((found - efficiency).abs() < 1e-6, "{id}: {found}, not {efficiency}");
            assert_eq!(modcod.es_n0, es_n0, "{id}");
        }
    }

    /// EN 302 307-1, tables 5a and 5b: BCH adds 16·12, 16·10 or 16·8 bits to a normal FECFRAME, 14·12 to a short one.
    #[test]
    fn bch_adds_its_parity_to_every_frame() {
        for modcod in &MODCODS {
            let (k, n) = modcod.rate;
            let errors = match modcod.rate {
                (2, 3) | (5, 6) => 10,
                (8, 9) | (9, 10) => 8,
                _ => 12,
            };
            assert_eq!(modcod.normal + 16 * errors, 64_800 * k / n, "{}", modcod.id);
            // The rates of short codes are nominal: 4/5 is 7/9, for example.
            let short = match modcod.rate {
                (1, 4) => Some((1, 5)),
                (1, 2) => Some((4, 9)),
                (3, 4) => Some((11, 15)),
                (4, 5) => Some((7, 9)),
                (5, 6) => Some((37, 45)),
                (9, 10) => None,
                rate => Some(rate),
            };
            assert_eq!(modcod.short.map(|bits| bits + 168), short.map(|(k, n)| 16_200 * k / n));
        }
    }

    /// EN 302 307-1, clause 5.5: slots per XFECFRAME (table 11), a header of 90 symbols, 36 pilots every 16 slots.
    #[test]
    fn a_plframe_has_its_header_and_pilots() {
        for (id, frame, pilots, symbols) in [
            (1, FecFrame::Normal, false, 32_490),
            (1, FecFrame::Normal, true, 33_282),
            (12, FecFrame::Normal, false, 21_690),
            (12, FecFrame::Normal, true, 22_194),
            (18, FecFrame::Normal, false, 16_290),
            (18, FecFrame::Normal, true, 16_686),
            (24, FecFrame::Normal, false, 13_050),
            (24, FecFrame::Normal, true, 13_338),
            (1, FecFrame::Short, false, 8190),
            (1, FecFrame::Short, true, 8370),
            (12, FecFrame::Short, true, 5598),
            (18, FecFrame::Short, true, 4212),
            (24, FecFrame::Short, true, 3402),
        ] {
            let found = Modcod::find(id).map(|modcod| modcod.symbols(frame, pilots));
            assert_eq!(found, Some(symbols), "{id} {frame:?} {pilots}");
        }
        assert_eq!(Modcod::find(0), None);
        assert_eq!(Modcod::find(29), None);
    }
}
