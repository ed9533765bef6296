//! For whom a list is kept, and how old it may be.
//!
//! Asked by: whoever keeps lists of a server, of tools and of anything else.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use bytes::Bytes;

use crate::clock::{self, Instant};

/// What a list is kept under.
pub(crate) trait KeptFor: Copy + Eq + Hash + Send + Sync + 'static {
    /// Whom tools say the same to, whatever session they are listed on.
    type Told: Copy + fmt::Debug + Eq + Hash + Send + Sync + 'static;

    fn told(&self) -> Self::Told;
}

/// A list as it was read: each item as raw JSON.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) items: Vec<Bytes>,
    /// How long it is good by the word of its server, if that says anything of it.
    pub(crate) good_for: Option<Duration>,
}

impl From<Vec<Bytes>> for Read {
    fn from(items: Vec<Bytes>) -> Self {
        Self {
            items,
            good_for: None,
        }
    }
}

/// How old a list may be, beside its horizon. A call may have changed what its session lists: the
/// number of calls that its session had when the reading began is kept with a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Age {
    /// The calls that the session had by now.
    pub(crate) calls: u32,
    pub(crate) outlives: Outlives,
    pub(crate) stated: Stated,
}

/// Whether it counts how long the server said that a list is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stated {
    /// Whoever is told the list is told the truth of now.
    Counts,
    /// It is looked for something that seldom changes, and asked for only if it is not found.
    Aside,
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
        stated: Stated::Aside,
    };
    /// Any that is as young as its server said.
    pub(crate) const AS_STATED: Self = Self {
        stated: Stated::Counts,
        ..Self::ANY
    };

    /// Whether a list is young enough whose reading began after so many calls, and that is good
    /// until then by the word of its server.
    pub(crate) fn allows(self, calls: u32, good_until: Option<Instant>) -> bool {
        let is_good = || good_until.is_none_or(|until| clock::now() < until);
        (self.outlives == Outlives::AnyCall || self.calls == calls)
            && (self.stated == Stated::Aside || is_good())
    }
}
