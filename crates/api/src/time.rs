//! Time and randomness as values that are handed in.

use std::fmt;

/// A moment in whole seconds of UTC, as Kubernetes' `metav1.Time` prints it:
/// `2026-11-21T09:40:00Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Parses RFC 3339 text, dropping fractions of a second.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse::<jiff::Timestamp>().ok().map(|t| Timestamp(t.as_second()))
    }

    /// Formats the time for headers of HTTP: `Sat, 21 Nov 2026 09:40:00 GMT`. Nothing beyond the
    /// years that they can say.
    pub fn http_date(self) -> Option<String> {
        let moment = jiff::Timestamp::from_second(self.0).ok()?;
        let printer = jiff::fmt::rfc2822::DateTimePrinter::new();
        printer.timestamp_to_rfc9110_string(&moment).ok()
    }

    /// Seconds from `earlier` to this moment; negative when it lies before.
    pub fn since(self, earlier: Timestamp) -> i64 {
        self.0 - earlier.0
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_second(self.0) {
            Ok(moment) => moment.fmt(f),
            Err(_) => f.write_str("0001-01-01T00:00:00Z"),
        }
    }
}

/// Clock. Below the wiring of the server no code reads any other.
pub trait Clock: Send + Sync {
    /// Returns the present time.
    fn now(&self) -> Timestamp;

    /// Returns the present time in microseconds since 1970 (for Lease and Event times).
    fn now_micros(&self) -> i64 {
        self.now().0 * 1_000_000
    }

    /// Returns the first whole second that is not in the past: a period that begins with it is not
    /// shorter than its seconds.
    fn next_second(&self) -> Timestamp {
        Timestamp(-(-self.now_micros()).div_euclid(1_000_000))
    }

    /// Microseconds since some moment, for rates and for how long something may take. Never steps
    /// back, whatever is done to the wall clock; a clock that is set by hand, as in tests, may let
    /// both be one.
    fn monotonic_micros(&self) -> i64 {
        self.now_micros()
    }
}

/// Source of randomness. Below the wiring of the server no code uses any other.
pub trait Rng: Send + Sync {
    /// Fills the buffer.
    fn fill(&self, buffer: &mut [u8]);

    /// Draws a random number.
    fn next_u64(&self) -> u64 {
        let mut buffer = [0; 8];
        self.fill(&mut buffer);
        u64::from_le_bytes(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_print_as_kubernetes_prints_them() {
        let moment = Timestamp::parse("2026-11-21T09:40:00.123456Z").expect("parses");
        assert_eq!(moment.http_date().as_deref(), Some("Sat, 21 Nov 2026 09:40:00 GMT"));
        assert_eq!(moment.to_string(), "2026-11-21T09:40:00Z");
        assert_eq!(Timestamp(0).to_string(), "1970-01-01T00:00:00Z");
        assert_eq!(Timestamp::parse("yesterday"), None);
    }
}
