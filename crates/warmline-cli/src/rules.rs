//! What the rules of a server let a single command do, and what they say in words.
//!
//! Asked by: `call`, `request` and whoever lists tools or rules.  Told by: the settings of the server. A run
//! asks the engine, which knows the same rules.

use warmline::config::{AccessRule, Caller};
use warmline::core::code::Reason;
use warmline::core::delivery::Delivery;
use warmline::core::exchange::{Patience, Trouble};
use warmline::core::names::is_allowed;
use warmline::settings::{Origin, ServerSettings};

use crate::problem::{Outcome, Problem};
use crate::report::text::one_line;
use crate::target::Target;

/// Lets a tool be called, or says that it may not be. Nothing is opened to find out.
pub(crate) fn admit(target: &Target, tool: &str) -> Outcome<()> {
    if may_call(&target.settings, tool) {
        return Ok(());
    }
    let server = &target.server.name;
    let what = format!("`{}` of `{server}` may not be called", one_line(tool));
    let trouble = Trouble::new(Reason::NotAllowed, what);
    Err(Problem::of_trouble(&trouble, Delivery::Unsent).of_server(server))
}

/// Whether a tool may be called, and so listed.
pub(crate) fn may_call(settings: &ServerSettings, tool: &str) -> bool {
    is_allowed(&settings.policy.allow, &settings.policy.deny, tool)
}

/// How long a call may take: `usual`, unless something else was decided for its tool. What was
/// typed wins.
pub(crate) fn patience(settings: &ServerSettings, usual: Patience, tool: &str) -> Patience {
    let is_typed = settings.origin("call_timeout") == Origin::Builder;
    match settings.policy.tools.get(tool).filter(|_| !is_typed) {
        Some(decided) => Patience {
            idle: decided.idle.unwrap_or(usual.idle),
            total: decided.total.unwrap_or(usual.total),
        },
        None => usual,
    }
}

/// A rule about callers, in words.
pub(crate) fn sentence(rule: &AccessRule) -> String {
    let tools = match &rule.tools {
        Some(tools) => tools.join(", "),
        None => "every tool".to_owned(),
    };
    let whose = match &rule.caller {
        Caller::Named(name) => format!("for {name}"),
        Caller::WithClaim { claim, has } => format!("where {claim} has {has}"),
        Caller::Everybody => "for everybody".to_owned(),
    };
    format!("{tools} {whose}")
}
