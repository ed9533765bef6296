//! For whom a list is kept, and how old it may be.
//!
//! Asked by: whoever keeps lists of a server, of tools and of anything else.

use std::fmt;
use std::hash::Hash;

/// What a list is kept under.
pub(crate) trait KeptFor: Copy + Eq + Hash + Send + Sync + 'static {
    /// Whom tools say the same to, whatever session they are listed on.
    type Told: Copy + fmt::Debug + Eq + Hash + Send + Sync + 'static;

    fn told(&self) -> Self::Told;
}

/// How old a list may be, beside its horizon. A call may have changed what its session lists: the
/// number of calls that its session had when the reading began is kept with a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Age {
    /// The calls that the session had by now.
    pub(crate) calls: u32,
    pub(crate) outlives: Outlives,
}

/// Whether a list outlives a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outlives {
    /// Nobody would say if it changed.
    NoCall,
    AnyCall,
}

impl Age {
    /// Any list that holds is young enough.
    pub(crate) const ANY: Self = Self {
        calls: 0,
        outlives: Outlives::AnyCall,
    };

    /// Whether a list is young enough whose reading began after so many calls.
    pub(crate) fn allows(self, calls: u32) -> bool {
        self.outlives == Outlives::AnyCall || self.calls == calls
    }
}
