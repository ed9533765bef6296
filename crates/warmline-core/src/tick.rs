//! Moments as the core sees them: handed in, never asked for.

use std::time::Duration;

/// A moment: how long after the start of the engine it is. Never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(Duration);

impl Tick {
    /// The start of the engine.
    pub const START: Self = Self(Duration::ZERO);

    /// The moment that long after the start.
    pub const fn at(since_start: Duration) -> Self {
        Self(since_start)
    }

    /// How long after the start it is.
    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// How long ago `earlier` was; nothing, if it is yet to come.
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment that much later; the last there is, if there is none.
    pub const fn after(self, pause: Duration) -> Self {
        Self(self.0.saturating_add(pause))
    }
}
