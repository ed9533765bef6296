//! Which calls may run twice, and which troubles another try can overcome, row by row.

use bytes::Bytes;

use super::super::*;
use crate::exchange::Request;
use crate::policy::ToolPolicy;
use crate::protocol::session_gone::SessionGoneForm;

fn params(raw: &'static str) -> Params {
    Params::parse(Bytes::from_static(raw.as_bytes())).expect(raw)
}

const SAFE: Idempotency = Idempotency::Idempotent;
const UNSAFE: Idempotency = Idempotency::NotIdempotent;

fn hints(read_only: bool, idempotent: bool) -> ToolHints {
    ToolHints {
        read_only,
        idempotent,
        have_changed: false,
    }
}

/// reliability 4.1: reads and idempotent controls of the protocol repeat, everything else does not.
#[test]
fn a_method_repeats_if_the_protocol_says_that_it_only_reads() {
    #[rustfmt::skip]
    let table = [
        ("ping",                     SAFE),
        ("server/discover",          SAFE),
        ("tools/list",               SAFE),
        ("resources/list",           SAFE),
        ("resources/templates/list", SAFE),
        ("resources/read",           SAFE),
        ("prompts/list",             SAFE),
        ("prompts/get",              SAFE),
        ("completion/complete",      SAFE),
        ("subscriptions/listen",     SAFE),
        ("tasks/get",                SAFE),
        ("logging/setLevel",         SAFE),
        ("resources/subscribe",      SAFE),
        ("resources/unsubscribe",    SAFE),
        ("tasks/result",             SAFE),
        ("tasks/cancel",             SAFE),
        ("tasks/update",             UNSAFE),
        ("tools/call",               UNSAFE),
        ("initialize",               UNSAFE),
        ("example/unheard-of",       UNSAFE),
    ];
    for (method, repeat) in table {
        let asked = IdempotencyQuery {
            method,
            params: &Params::empty(),
            hints: None,
            caller: None,
        };
        assert_eq!(
            call_idempotency(&asked, &Policy::default()),
            repeat,
            "{method}"
        );
    }
}

#[test]
fn reads_that_have_effects_do_not_repeat_where_the_operator_says_so() {
    let policy = Policy {
        reads_have_effects: true,
        ..Policy::default()
    };
    #[rustfmt::skip]
    let table = [
        ("resources/read", UNSAFE), ("prompts/get", UNSAFE), ("resources/list", SAFE), ("ping", SAFE),
    ];
    for (method, repeat) in table {
        let asked = IdempotencyQuery {
            method,
            params: &Params::empty(),
            hints: None,
            caller: None,
        };
        assert_eq!(call_idempotency(&asked, &policy), repeat, "{method}");
    }
}

fn listed() -> Policy {
    Policy {
        trust_idempotent_hint: vec!["put_*".to_owned()],
        ..Policy::default()
    }
}

fn wary() -> Policy {
    Policy {
        trust_read_only_hint: false,
        ..Policy::default()
    }
}

fn deduplicating() -> Policy {
    Policy {
        dedupe_by_call_id: true,
        ..Policy::default()
    }
}

fn decided(repeatable: bool) -> Policy {
    let tool = ToolPolicy {
        repeatable: Some(repeatable),
        ..ToolPolicy::default()
    };
    let mut policy = deduplicating();
    policy.dedupe_by_call_id = !repeatable;
    policy.tools.insert("put_row".to_owned(), tool);
    policy
}

/// reliability T17: a128, reliability 4.1: whose word counts for a tool, first to last.
#[test]
fn a_tool_repeats_by_the_word_of_whoever_counts_first() {
    use Idempotency::{Idempotent, NotIdempotent};
    let (reads, same, acts) = (hints(true, false), hints(false, true), hints(false, false));
    #[rustfmt::skip]
    let table = [
        // policy             hints        caller             so
        (Policy::default(),   None,        None,              UNSAFE),
        (Policy::default(),   Some(acts),  None,              UNSAFE),
        (Policy::default(),   Some(reads), None,              SAFE),
        (Policy::default(),   Some(same),  None,              UNSAFE),
        (listed(),            Some(same),  None,              SAFE),
        (listed(),            None,        None,              UNSAFE),
        (wary(),              Some(reads), None,              UNSAFE),
        (deduplicating(),     None,        None,              SAFE),
        (decided(true),       Some(acts),  None,              SAFE),
        (decided(false),      Some(reads), None,              UNSAFE),
        (decided(false),      Some(reads), Some(Idempotent),  SAFE),
        (decided(true),       Some(reads), Some(NotIdempotent),        UNSAFE),
        (Policy::default(),   None,        Some(Idempotent),  SAFE),
    ];
    let params = params(r#"{"name":"put_row","arguments":{"inputResponses":1}}"#);
    for (policy, hints, said, repeat) in table {
        let asked = IdempotencyQuery {
            method: "tools/call",
            params: &params,
            hints,
            caller: said,
        };
        assert_eq!(
            call_idempotency(&asked, &policy),
            repeat,
            "{hints:?} {said:?} {policy:?}"
        );
    }
}

/// reliability T14: a server that takes back what it said of a tool is not believed again.
#[test]
fn a_tool_whose_hints_changed_does_not_repeat_by_its_hints() {
    let changed = ToolHints {
        have_changed: true,
        ..hints(true, true)
    };
    let params = params(r#"{"name":"put_row"}"#);
    let asked = IdempotencyQuery {
        method: "tools/call",
        params: &params,
        hints: Some(changed),
        caller: None,
    };
    assert_eq!(call_idempotency(&asked, &listed()), UNSAFE);
    // What people decided does not depend on hints.
    assert_eq!(call_idempotency(&asked, &decided(true)), SAFE);
}

/// reliability 4.1, reliability D89: an answer of a person is spent once, whatever anybody says.
#[test]
fn a_round_that_carries_answers_never_repeats() {
    for raw in [
        r#"{"name":"put_row","inputResponses":{}}"#,
        r#"{"name":"put_row","requestState":"s"}"#,
        r#"{"name":"put_row","requestState":"s","inputResponses":{"a":{}}}"#,
    ] {
        for method in ["tools/call", "resources/read", "prompts/get"] {
            let asked = IdempotencyQuery {
                method,
                params: &params(raw),
                hints: Some(hints(true, true)),
                caller: Some(Idempotency::Idempotent),
            };
            assert_eq!(
                call_idempotency(&asked, &deduplicating()),
                UNSAFE,
                "{method} {raw}"
            );
        }
    }
}

/// reliability 4.5 to 4.8: what another try can overcome.
#[test]
fn a_reason_says_what_another_try_needs() {
    use FailureClass::*;
    #[rustfmt::skip]
    let table = [
        (Reason::Dns,             Busy),
        (Reason::ConnectRefused,  Busy),
        (Reason::ConnectTimeout,  Busy),
        (Reason::Tls,             Permanent),
        (Reason::TlsClosed,       Busy),
        (Reason::Proxy,           Permanent),
        (Reason::LocalResources,  Busy),
        (Reason::WriteFailed,     ConnectionFailed),
        (Reason::ReplyLost,       ConnectionFailed),
        (Reason::BadReply,        ConnectionFailed),
        (Reason::NoReplyChannel,  ConnectionFailed),
        (Reason::ReplyTooLarge,   Permanent),
        (Reason::Timeout,         Permanent),
        (Reason::TimeoutUnsent,   Permanent),
        (Reason::Redirect,        Permanent),
        (Reason::Rejected,        Permanent),
        (Reason::RejectedUnclear, Permanent),
        (Reason::Unauthorized,    Credential),
        (Reason::Forbidden,       Permanent),
        (Reason::NotFound,        Permanent),
        (Reason::TooLarge,        Permanent),
        (Reason::Conflict,        Busy),
        (Reason::RateLimited,     Throttled),
        (Reason::TooEarly,        RetryOnce),
        (Reason::ServerError,     Busy),
        (Reason::GatewayError,    Busy),
        (Reason::Unavailable,     Busy),
        (Reason::Version,         RetryOnce),
        (Reason::HeaderMismatch,  Permanent),
        (Reason::SessionGone,     SessionGone),
        (Reason::ChildExit,       SessionGone),
        (Reason::ProgramMissing,  Permanent),
        (Reason::Cancelled,       Permanent),
        (Reason::Draining,        Permanent),
        (Reason::BreakerOpen,     Permanent),
        (Reason::Overloaded,      Permanent),
        (Reason::InvalidRequest,  Permanent),
        (Reason::NotAllowed,      Permanent),
        (Reason::Closed,          ConnectionFailed),
    ];
    for (reason, expected) in table {
        assert_eq!(
            classify_failure(&Diagnostic::new(reason, ""), None),
            expected,
            "{reason}"
        );
    }
}

/// E20, reliability G3b: a session that another user has, or the only one there is, is nothing
/// that a new try could change.
#[test]
fn a_dialect_says_whether_a_new_session_helps() {
    const NO_HELP: [SessionGoneForm; 2] =
        [SessionGoneForm::OtherUser, SessionGoneForm::SingleSession];
    const DOUBTFUL: [SessionGoneForm; 3] = [
        SessionGoneForm::HeaderStripped,
        SessionGoneForm::UnauthorizedNotFound,
        SessionGoneForm::UnauthorizedNoValidId,
    ];
    for dialect in SessionGoneForm::ALL {
        let mut diagnostic = Diagnostic::new(Reason::Unauthorized, "");
        diagnostic.session_gone = Some(dialect);
        let expected = if NO_HELP.contains(&dialect) {
            FailureClass::Permanent
        } else if DOUBTFUL.contains(&dialect) {
            FailureClass::SessionGoneOnce
        } else {
            FailureClass::SessionGone
        };
        assert_eq!(classify_failure(&diagnostic, None), expected, "{dialect}");
    }
}

/// reliability D94, reliability D100: the end of a stream or a child is a server's word.
#[test]
fn a_wire_that_took_the_session_with_it_is_a_lost_session() {
    #[rustfmt::skip]
    let table = [
        (Reason::ReplyLost,   Some(Reason::ReplyLost), FailureClass::SessionGone),
        (Reason::ReplyLost,   None,                    FailureClass::ConnectionFailed),
        (Reason::WriteFailed, Some(Reason::ChildExit), FailureClass::SessionGone),
        (Reason::Timeout,     Some(Reason::Timeout),   FailureClass::Permanent),
        // Somebody else's call ended it before ours was sent.
        (Reason::Closed,      Some(Reason::ReplyLost), FailureClass::ConnectionFailed),
    ];
    for (reason, retired, expected) in table {
        let diagnostic = Diagnostic::new(reason, "");
        assert_eq!(
            classify_failure(&diagnostic, retired),
            expected,
            "{reason} {retired:?}"
        );
    }
}

/// P86, reliability R8: a repeat carries the same key each time, and its number.
#[test]
fn a_repeat_is_marked_in_meta() {
    #[rustfmt::skip]
    let table = [
        (r#"{"name":"t"}"#,
         r#"{"name":"t","_meta":{"dev.warmline/callId":"c-1","dev.warmline/attempt":2}}"#),
        (r#"{"_meta":{"progressToken":7},"name":"t"}"#,
         r#"{"_meta":{"progressToken":7,"dev.warmline/callId":"c-1","dev.warmline/attempt":2},"name":"t"}"#),
        (r#"{"_meta":{"dev.warmline/callId":"mine","dev.warmline/attempt":1}}"#,
         r#"{"_meta":{"dev.warmline/callId":"mine","dev.warmline/attempt":2}}"#),
        (r#"{"_meta":null}"#,
         r#"{"_meta":{"dev.warmline/callId":"c-1","dev.warmline/attempt":2}}"#),
    ];
    for (before, after) in table {
        let request = Request::new("tools/call", params(before));
        let marked = with_attempt_meta(&request.params, "c-1", 2);
        assert_eq!(marked.raw(), after.as_bytes(), "{before}");
    }
}
