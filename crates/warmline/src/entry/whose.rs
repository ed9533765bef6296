//! Whose list it is. A session may list what no other does, so what was read on the session of a
//! run is of that run alone, and goes with it.

use warmline_core::era::Era;
use warmline_core::key::{CredentialId, Identity, RunId, Scope};

use crate::tools::KeptFor;

/// As whom a server is spoken to.
pub(crate) type ToolsOf = (Identity, CredentialId);

/// Whose list it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Whose {
    pub(crate) of: ToolsOf,
    /// The session that answers: that of a run, or one like all others.
    pub(crate) scope: Scope,
    /// The era that the caller asked for.
    pub(crate) era: Option<Era>,
}

impl Whose {
    pub(super) fn is_of_run(&self, run: RunId) -> bool {
        self.scope == Scope::Run(run)
    }
}

impl KeptFor for Whose {
    type Told = ToolsOf;

    fn told(&self) -> ToolsOf {
        self.of
    }
}
