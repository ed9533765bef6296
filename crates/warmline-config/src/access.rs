//! `allow` and `deny` of a server: who may use which of its tools. A gateway applies these rules; the
//! engine knows no callers, and which tools are allowed to everyone is its own setting.

/// Rules of one server about its callers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredAccess {
    /// What is allowed, and to whom. If there is any rule, nothing else is allowed.
    pub allow: Vec<AccessRule>,
    /// What is denied, and to whom, whatever is allowed.
    pub deny: Vec<AccessRule>,
}

impl DeclaredAccess {
    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty()
    }

    /// Whether a rule needs a claim, which only a signed token has.
    pub fn requires_claims(&self) -> bool {
        let mut all = self.allow.iter().chain(&self.deny);
        all.any(|rule| matches!(rule.subject, AccessSubject::Claim { .. }))
    }

    /// The tools that are allowed to anyone; none for every tool.
    pub(crate) fn all_allowed_tools(&self) -> Option<Vec<String>> {
        let tools = self.allow.iter().map(|rule| rule.tools.clone());
        let tools = tools.collect::<Option<Vec<_>>>()?.concat();
        (!tools.is_empty()).then_some(tools)
    }

    /// The tools that are denied to everyone.
    pub(crate) fn tools_denied_to_everyone(&self) -> Vec<String> {
        let rules = self.deny.iter();
        let rules = rules.filter(|rule| rule.subject == AccessSubject::Everyone);
        let tools = rules.filter_map(|rule| rule.tools.clone());
        tools.flatten().collect()
    }
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessRule {
    /// Whom it is about.
    pub subject: AccessSubject,
    /// Patterns of the tools it is about, in which `*` stands for any characters; none for the
    /// whole server.
    pub tools: Option<Vec<String>>,
}

/// Whom a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessSubject {
    /// Everybody.
    Everyone,
    /// An identity, by its name.
    Identity(String),
    /// Callers whose signed token has a claim with this text, or with a list that holds it.
    Claim {
        /// The name of the claim.
        claim: String,
        /// What it must be, or hold.
        value: String,
    },
}
