//! The time limits and the ids of one call.

use std::sync::atomic::{AtomicU64, Ordering};

use warmline_core::exchange::Patience;

use crate::clock::{self, Instant};

/// When a call has waited long enough.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    patience: Patience,
    idle_by: Instant,
    total_by: Instant,
}

impl Limits {
    /// Both limits run from now on.
    pub(crate) fn begin(patience: Patience) -> Self {
        Self {
            patience,
            idle_by: clock::after(patience.idle),
            total_by: clock::after(patience.total),
        }
    }

    /// The server showed that it works on the call: the idle limit starts anew.
    pub(crate) fn sign_of_life(&mut self) {
        self.idle_by = clock::after(self.patience.idle);
    }

    /// The moment at which waiting ends if nothing happens.
    pub(crate) fn by(&self) -> Instant {
        self.idle_by.min(self.total_by)
    }

    /// The moment at which the call ends whatever happens.
    pub(crate) fn total_by(&self) -> Instant {
        self.total_by
    }
}

/// Request ids of one session: never reused, also not after a restart that resumes the session,
/// because each process counts up from a start drawn at random.
#[derive(Debug)]
pub(crate) struct Ids(AtomicU64);

impl Ids {
    pub(crate) fn new() -> Self {
        // Far below 2^53, where JSON numbers stop being exact.
        Self(AtomicU64::new(fastrand::u64(1..1 << 48)))
    }

    pub(crate) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// An id as it stands on the wire, without a heap allocation.
#[derive(Debug)]
pub(crate) struct Digits {
    digits: [u8; 20],
    start: usize,
}

impl Digits {
    pub(crate) fn of(mut number: u64) -> Self {
        let mut digits = [b'0'; 20];
        let mut start = digits.len();
        loop {
            start -= 1;
            // A remainder of ten is a digit.
            digits[start] = b'0' + u8::try_from(number % 10).unwrap_or(0);
            number /= 10;
            if number == 0 {
                return Self { digits, start };
            }
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.digits[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_stands_on_the_wire_as_its_decimal_digits() {
        for number in [0, 7, 10, 1234, u64::from(u32::MAX), u64::MAX] {
            assert_eq!(Digits::of(number).as_bytes(), number.to_string().as_bytes());
        }
    }

    #[tokio::test]
    async fn a_limit_of_any_size_is_a_limit() {
        let endless = Patience {
            idle: std::time::Duration::MAX,
            total: std::time::Duration::MAX,
        };
        let mut limits = Limits::begin(endless);
        limits.sign_of_life();
        assert!(limits.by() > clock::now());
    }

    #[test]
    fn ids_are_never_reused_and_stay_exact_in_json() {
        let ids = Ids::new();
        let first = ids.next();
        assert_eq!(ids.next(), first + 1);
        assert!(first < 1 << 53);
    }
}
