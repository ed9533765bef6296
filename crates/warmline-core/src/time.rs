//! Moments of the core. They are passed in, never read from a clock.

use std::time::Duration;

/// A moment: how long after the start of the engine it is. Never goes back.
///
/// Counted in nanoseconds, which last for 584 years; later moments saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(u64);

impl Tick {
    pub const START: Self = Self(0);

    /// Later than everything.
    pub const NEVER: Self = Self(u64::MAX);

    /// The moment that long after the start.
    pub const fn from_start(since_start: Duration) -> Self {
        Self::START.after(since_start)
    }

    pub const fn since_start(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// How long ago `earlier` was; nothing, if it is yet to come.
    pub const fn duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The moment that much later; the last there is, if there is none.
    pub const fn after(self, pause: Duration) -> Self {
        let nanos = pause.as_nanos();
        if nanos >= u64::MAX as u128 {
            return Self::NEVER;
        }
        #[expect(clippy::cast_possible_truncation, reason = "compared just above")]
        Self(self.0.saturating_add(nanos as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_end_where_time_ends() {
        let table = [
            (Duration::ZERO, Tick::START),
            (Duration::from_nanos(7), Tick(7)),
            (Duration::MAX, Tick::NEVER),
        ];
        for (pause, moment) in table {
            assert_eq!(Tick::from_start(pause), moment);
        }
        assert_eq!(
            Tick::from_start(Duration::from_secs(1)).after(Duration::MAX),
            Tick::NEVER
        );
        assert_eq!(
            Tick::START.duration_since(Tick(5)),
            Duration::ZERO,
            "yet to come"
        );
        assert_eq!(Tick(12).duration_since(Tick(5)), Duration::from_nanos(7));
    }
}
