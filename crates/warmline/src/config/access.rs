//! Who may use a server, as its declaration says it: words of a file, for whoever lets callers in.
//!
//! Told by: `warmline_toml`, for `allow` and `deny`. Asked by: a gateway. The engine itself knows
//! no callers; which tools anybody at all may call is its own setting.

/// Rules of one server about its callers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// What may be used, and by whom; where there is any, nothing else may.
    pub allow: Vec<AccessRule>,
    /// What may not be used, and by whom, whatever is allowed.
    pub deny: Vec<AccessRule>,
}

impl Access {
    /// Whether nothing is said.
    pub fn is_nothing(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty()
    }

    /// Whether any rule asks for a claim, which only a signed token has.
    pub fn asks_for_claims(&self) -> bool {
        let mut all = self.allow.iter().chain(&self.deny);
        all.any(|rule| matches!(rule.caller, Caller::WithClaim { .. }))
    }

    /// The tools that anybody at all may call; none for every tool.
    pub(crate) fn tools_of_anybody(&self) -> Option<Vec<String>> {
        let of_each: Option<Vec<&Vec<String>>> =
            self.allow.iter().map(|rule| rule.tools.as_ref()).collect();
        let all: Vec<String> = of_each?.into_iter().flatten().cloned().collect();
        (!all.is_empty()).then_some(all)
    }
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessRule {
    /// Whom it is about.
    pub caller: Caller,
    /// The tools it is about, by patterns in which `*` stands for any characters; none for the
    /// whole server.
    pub tools: Option<Vec<String>>,
}

/// Whom a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Everybody.
    Everybody,
    /// An identity, by its name.
    Named(String),
    /// Whoever has a signed token with a claim that is this text, or a list that holds it.
    WithClaim {
        /// The name of the claim.
        claim: String,
        /// What it must be, or hold.
        has: String,
    },
}
