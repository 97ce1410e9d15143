//! Fields of a datagram: numbers of variable length, times, windows.

use alloc::vec::Vec;

use skybraid_units::Instant;

use super::WireError;

/// Upper limit of numbers, so that sums of them do not overflow.
const NUMBER_LIMIT: u64 = 1 << 62;
/// Nanoseconds per microsecond.
const MICROSECOND: i64 = 1000;

/// Writes a number in groups of seven bits, lowest first; the top bit of a byte is set if another
/// follows (LEB128).
pub fn put_number(out: &mut Vec<u8>, number: u64) {
    let mut left = number;
    while left >= 0x80 {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

/// Rejects numbers that a datagram cannot carry.
pub fn check_numbers(numbers: &[u64]) -> Result<(), WireError> {
    let fits = numbers.iter().all(|number| *number < NUMBER_LIMIT);
    if fits { Ok(()) } else { Err(WireError::Field("number")) }
}

/// Writes a time in microseconds, rounded up, modulo 2³². It is rounded up because an echo earlier
/// than a retransmission means that the original has arrived (RFC 3522).
pub fn put_time(out: &mut Vec<u8>, at: Instant) {
    let nanos = at.as_nanos();
    let whole = nanos.div_euclid(MICROSECOND);
    let micros = if nanos.rem_euclid(MICROSECOND) > 0 { whole + 1 } else { whole };
    out.extend((micros as u32).to_be_bytes());
}

/// Returns the time nearest to `now` with this number of microseconds modulo 2³².
fn time_near(now: Instant, micros: u32) -> Instant {
    let base = now.as_nanos().div_euclid(MICROSECOND);
    let offset = micros.wrapping_sub(base as u32) as i32;
    Instant::from_nanos(base.saturating_add(i64::from(offset)).saturating_mul(MICROSECOND))
}

/// Encodes a window in 16 bits: 5 of exponent and 11 of mantissa, rounded down.
pub fn short_window(window: u64) -> u16 {
    let exponent = (u64::BITS - window.leading_zeros()).saturating_sub(11);
    if exponent > 31 { u16::MAX } else { (exponent as u16) << 11 | (window >> exponent) as u16 }
}

/// Decodes a window of 16 bits.
pub const fn from_short_window(short: u16) -> u64 {
    ((short & 0x7ff) as u64) << (short >> 11)
}

/// Reader of consecutive fields.
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    now: Instant,
}

impl<'a> Reader<'a> {
    /// Creates a reader of `bytes`. Times are resolved to those nearest to `now`.
    pub const fn new(bytes: &'a [u8], now: Instant) -> Self {
        Self { bytes, at: 0, now }
    }

    /// Bytes read so far.
    pub const fn position(&self) -> usize {
        self.at
    }

    /// Bytes not read yet.
    pub const fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Reads the next `count` bytes.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let taken = rest.get(..count).ok_or(WireError::Truncated)?;
        self.at += count;
        Ok(taken)
    }

    /// Reads the next `N` bytes as an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        self.take(N)?.try_into().map_err(|_| WireError::Truncated)
    }

    /// Reads a byte.
    pub fn byte(&mut self) -> Result<u8, WireError> {
        self.array().map(|[byte]| byte)
    }

    /// Reads a number of 16 bits.
    pub fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_be_bytes)
    }

    /// Reads a number of 32 bits.
    pub fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_be_bytes)
    }

    /// Reads a time.
    pub fn time(&mut self) -> Result<Instant, WireError> {
        self.u32().map(|micros| time_near(self.now, micros))
    }

    /// Reads a number of variable length, below 2⁶².
    pub fn number(&mut self) -> Result<u64, WireError> {
        let mut number = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                check_numbers(&[number])?;
                return Ok(number);
            }
        }
        Err(WireError::Field("number"))
    }

    /// Reads a number that must fit the type of the field `name`.
    pub fn number_in<T: TryFrom<u64>>(&mut self, name: &'static str) -> Result<T, WireError> {
        T::try_from(self.number()?).map_err(|_| WireError::Field(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_number_reads_back_and_takes_a_byte_per_seven_bits(number in 0..NUMBER_LIMIT) {
            let mut out = Vec::new();
            put_number(&mut out, number);
            let bits = (64 - number.leading_zeros()).max(1);
            prop_assert_eq!(out.len() as u32, bits.div_ceil(7));
            prop_assert_eq!(Reader::new(&out, Instant::ZERO).number(), Ok(number));
        }

        #[test]
        fn a_time_reads_back_rounded_up_to_the_microsecond(
            now in -1i64 << 60..1i64 << 60, offset in -1_800_000_000_000i64..1_800_000_000_000,
        ) {
            let at = now + offset;
            let mut out = Vec::new();
            put_time(&mut out, Instant::from_nanos(at));
            let read = Reader::new(&out, Instant::from_nanos(now)).time().unwrap().as_nanos();
            prop_assert!((0..1000).contains(&(read - at)), "{}", read - at);
            prop_assert_eq!(read.rem_euclid(1000), 0);
        }

        #[test]
        fn a_short_window_loses_at_most_one_part_in_1024(window in 0u64..1 << 42) {
            let read = from_short_window(short_window(window));
            prop_assert!(read <= window && window - read <= window / 1024);
            prop_assert!(window >= 2048 || read == window);
        }
    }

    // Even a clock that is off by years returns the sender's own times.
    #[test]
    fn an_echo_returns_to_its_own_clock_exactly() {
        let (here, there) = (Instant::from_millis(5_000), Instant::from_millis(1 << 42));
        let mut out = Vec::new();
        put_time(&mut out, here);
        let as_seen_there = Reader::new(&out, there).time().unwrap();
        assert_ne!(as_seen_there, here);
        out.clear();
        put_time(&mut out, as_seen_there);
        assert_eq!(Reader::new(&out, Instant::from_millis(5_100)).time(), Ok(here));
    }

    #[test]
    fn endless_and_too_large_numbers_are_refused() {
        let read = |bytes: &[u8]| Reader::new(bytes, Instant::ZERO).number();
        assert_eq!(read(&[0xff; 8]), Err(WireError::Truncated));
        assert_eq!(read(&[0xff; 12]), Err(WireError::Field("number")));
        let mut out = Vec::new();
        put_number(&mut out, NUMBER_LIMIT);
        assert_eq!(read(&out), Err(WireError::Field("number")));
    }
}
