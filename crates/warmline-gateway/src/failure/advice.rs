//! What somebody who calls through the gateway can do about each code.
//!
//! Asked by: [`failure`](super).  It speaks to whoever calls, in words of the protocol and of the
//! gateway's configuration. What a program that embeds the engine can do stands with the engine's
//! own errors.

use warmline::core::code::Code;
use warmline::core::delivery::Delivery;

/// One thing to do about a code. Where nobody knows whether it was executed, that is the first
/// thing to find out.
pub(super) const fn of(code: Code, delivery: Delivery) -> &'static str {
    match delivery {
        Delivery::Unknown => code.advice_while_unknown(),
        Delivery::Unsent | Delivery::Refused | Delivery::Answered => of_code(code),
    }
}

const fn of_code(code: Code) -> &'static str {
    match code {
        Code::ConfigUnreadable
        | Code::ConfigUnknownKey
        | Code::ConfigBadValue
        | Code::ConfigUntrusted
        | Code::UsageBadArgument => {
            "tell whoever runs the gateway; `warmline check` names the place"
        },
        Code::ServerUnknown => "look at the name in the path; servers stand in the configuration",
        Code::ToolUnknown => "see which tools there are: `tools/list`",
        Code::CredentialRefused | Code::CredentialUnavailable => {
            "tell whoever runs the gateway to look at `credential` of this server"
        },
        Code::BadMessage => "change what the error names; parameters are one JSON object",
        Code::EraUnknown => {
            "use a client that speaks a version of this server, or offer another one"
        },
        Code::CannotReach | Code::OpenFailed | Code::ResolveFailed => {
            "tell whoever runs the gateway: its log says why, and so does `warmline doctor NAME`"
        },
        Code::RequestRefused => "read what the server said; `retryAfterMs` says when again",
        Code::Deadline => "call again with less to do, or allow more time for this server",
        Code::SessionLost => "do again what earlier calls had prepared, then call again",
        Code::AnswerLost | Code::Cancelled => code.advice_while_unknown(),
        Code::BadAnswer => "report it to the server's makers; if it was too large, ask for less",
        Code::ToolFailed => "read what the tool says",
        Code::RunUnknown => "call in the run first: whoever names a run begins it",
        Code::RunEnded => "name a new run",
        Code::NotAllowed => "call something else: `allow` and `deny` of this server decide",
        Code::IdentityMissing => "send what the rule looks for",
        Code::BreakerOpen => "call again after `retryAfterMs`",
        Code::PoolFull => "let calls and runs end sooner, or raise the limits of this server",
        Code::Overloaded => "call again later, or end runs that are over",
        Code::StoreUnavailable | Code::RecordRefused => {
            "tell whoever runs the gateway to look at its store"
        },
        Code::Draining | Code::Closed => "connect again and call again",
        Code::Bug => "report it, with what the log of the gateway says around it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_for_callers_names_nothing_of_the_library() {
        let deliveries = [Delivery::Unsent, Delivery::Unknown];
        for (code, delivery) in Code::ALL
            .into_iter()
            .flat_map(|c| deliveries.map(|d| (c, d)))
        {
            let advice = of(code, delivery);
            let checks = advice.starts_with("check whether it was executed");
            assert!(checks || delivery != Delivery::Unknown, "{code}: {advice}");
            for foreign in ["::", "builder", "Warmline`", "--"] {
                assert!(!advice.contains(foreign), "{code}: {advice}");
            }
            assert!(!advice.ends_with('.'), "{code}: {advice}");
        }
    }
}
