//! What a program that embeds us can do about each code.
//!
//! Asked by: [`Error::hint`](super::Error::hint), where a trouble brings no hint of its own. It
//! speaks of this library; what `warmline explain` and the command line say speaks of commands, and
//! stands with them.

use warmline_core::code::Code;
use warmline_core::delivery::Delivery;

/// One thing to do about a code, from Rust. Where nobody knows whether it was executed, that is
/// the first thing to find out.
pub(super) const fn of(code: Code, delivery: Delivery) -> &'static str {
    match delivery {
        Delivery::Unknown => code.advice_while_unknown(),
        Delivery::Unsent | Delivery::Refused | Delivery::Answered => of_code(code),
    }
}

const fn of_code(code: Code) -> &'static str {
    match code {
        Code::ConfigUnreadable => "look at the file and the place in it that the error names",
        Code::ConfigUnknownKey => "take the nearest right word that the error names",
        Code::ConfigBadValue | Code::UsageBadArgument => "change the value that the error names",
        Code::ConfigUntrusted => "look at what the file would start, then trust it or name it",
        Code::ServerUnknown => {
            "declare it with `Builder::server` or `Warmline::add`; `Warmline::servers` names all"
        },
        Code::ToolUnknown => "see which there are: `ServerHandle::tools`",
        Code::CredentialRefused => {
            "give the server a credential that it accepts: `Server::bearer` or `Server::credential`"
        },
        Code::BadMessage => "look at what the error names; parameters are one JSON object",
        Code::EraUnknown => "leave `Server::era` and `Server::version` out",
        Code::CannotReach => "check the URL or the program's name, and whether it is up",
        Code::OpenFailed => "see what the server says in its log, or start its program by hand",
        Code::RequestRefused => "read what the server said; `Error::retry_after` says when again",
        Code::Deadline => {
            "allow more time: `Call::timeout` for this call, `Server::patience` for all of them"
        },
        Code::SessionLost => "do again what earlier calls had prepared, then call again",
        Code::AnswerLost | Code::Cancelled => code.advice_while_unknown(),
        Code::BadAnswer => "report it to the server's makers; if it was too large, ask for less",
        Code::ToolFailed => "read what the tool says",
        Code::RunUnknown => "begin the run with `named` instead of joining it",
        Code::RunEnded => "begin a new run",
        Code::NotAllowed => "change the rules of this server, or call another tool",
        Code::IdentityMissing => "send what the rule looks for, or change the rule",
        Code::CredentialUnavailable => "look at the source of the secret that the error names",
        Code::ResolveFailed => "look at what the resolver asks; the next call asks it again",
        Code::BreakerOpen => {
            "come back after `Error::retry_after`; `Warmline::events` tells why openings fail"
        },
        Code::PoolFull => "raise the limit that the error names, or let runs end sooner",
        Code::Overloaded => "come back later, or end runs that are over",
        Code::StoreUnavailable => "look at the place the error names",
        Code::RecordRefused => "nothing: a new session is opened; keep the keys with the store",
        Code::Draining | Code::Closed => "build another `Warmline`: this one is closed",
        Code::Bug => "report it, with what the log says around it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_for_programs_names_no_option_and_no_command() {
        let deliveries = [Delivery::Unsent, Delivery::Unknown];
        for (code, delivery) in Code::ALL
            .into_iter()
            .flat_map(|c| deliveries.map(|d| (c, d)))
        {
            let advice = of(code, delivery);
            let checks = advice.starts_with("check whether it was executed");
            assert!(checks || delivery != Delivery::Unknown, "{code}: {advice}");
            assert!(!advice.contains("--"), "{code}: {advice}");
            assert!(!advice.contains("`warmline "), "{code}: {advice}");
            assert!(!advice.contains("line and column"), "{code}: {advice}");
            assert!(!advice.ends_with('.'), "{code}: {advice}");
        }
    }
}
