//! Broken invariants, which are bugs of the program. They panic in tests and debug builds; a release build
//! counts them and continues, and the driver reports the count.

use core::panic::Location;
use core::sync::atomic::{AtomicU64, Ordering};

use once_cell::race::OnceRef;

static BUGS: AtomicU64 = AtomicU64::new(0);
static FIRST: OnceRef<'static, Location<'static>> = OnceRef::new();

/// Records a broken invariant at the caller's source location.
///
/// # Panics
/// In builds with debug assertions.
#[track_caller]
#[cold]
pub fn bug(what: &str) {
    debug_assert!(false, "broken invariant: {what}");
    BUGS.fetch_add(1, Ordering::Relaxed);
    let _already_set = FIRST.set(Location::caller());
}

/// Number of broken invariants since the start of the process. Any number above 0 is a bug of Skybraid.
pub fn bugs() -> u64 {
    BUGS.load(Ordering::Relaxed)
}

/// Source line of the first broken invariant.
pub fn first_bug() -> Option<&'static Location<'static>> {
    FIRST.get()
}

/// An optional value that an invariant promises.
pub trait Promised<T>: Sized {
    /// Returns the option unchanged; records a bug if it is `None`.
    #[track_caller]
    fn promised(self, what: &str) -> Option<T>;
}

impl<T> Promised<T> for Option<T> {
    #[inline]
    #[track_caller]
    fn promised(self, what: &str) -> Self {
        if self.is_none() {
            bug(what);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_promise_records_nothing() {
        assert_eq!(Some(7).promised("a number"), Some(7));
        assert_eq!(bugs(), 0);
        assert!(first_bug().is_none());
    }

    #[test]
    #[should_panic(expected = "broken invariant: a link of this path")]
    fn a_broken_promise_panics_in_tests() {
        assert_eq!(None::<u8>.promised("a link of this path"), None);
    }
}
