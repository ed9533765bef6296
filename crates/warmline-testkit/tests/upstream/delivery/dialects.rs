//! Every dialect in which a server says that a session is gone: not executed, the session is
//! retired, and a fresh one works.

use crate::prelude::*;

use warmline_core::protocol::session_gone::{
    SessionGoneForm as Gone, SessionGoneMatching, SessionGoneRemedy,
};
use warmline_testkit::Dialect;
use warmline_testkit::faults::dialects::{self, DialectEffect};

use super::fixture::Expected::{self, Error, Refused, Result, Unknown};
use super::scripted_server::{ReplyStep, Stub};

/// How a request ends that is told so where an operator asked for the wide forms, and which form
/// of "gone" is read from it. What may have been executed is never called refused.
fn expected_wide(dialect: &Dialect) -> End {
    let gone = |form| (Unknown(Reason::SessionGone), Some(form));
    match dialect.name {
        "e19" | "g8" => gone(Gone::Unavailable),
        "e21" => gone(Gone::Internal),
        "e22" | "g10" => gone(Gone::InBand),
        "g7" => gone(Gone::Conflict),
        "g9" => gone(Gone::Wrapped),
        _ => expected(dialect),
    }
}

/// The same where nobody asked for them: they mean what their status says.
#[rustfmt::skip]
fn expected(dialect: &Dialect) -> End {
    let gone = |form| (Refused(Reason::SessionGone), Some(form));
    match dialect.name {
        _ if dialect.post.effect == DialectEffect::Served => (Result, None),
        "a3" | "a9" | "a10" | "a32" | "e8" => gone(Gone::NoValidId),
        "a8" | "e25"    => gone(Gone::NotInitialized),
        "a15"           => gone(Gone::UnauthorizedNotFound),
        "a19" | "a22"   => (Refused(Reason::SessionMismatch), Some(Gone::OtherUser)),
        "a23"           => gone(Gone::Stateless),
        "a31"           => gone(Gone::UnauthorizedNoValidId),
        "a35"           => gone(Gone::InvalidId),
        "a38-410" | "g5" => gone(Gone::Gone),
        "a38-502"       => (Unknown(Reason::GatewayError), None),
        "a38-503" | "e19" | "g8" => (Unknown(Reason::Unavailable), None),
        "e9" | "e9b"    => gone(Gone::HeaderStripped),
        "e18"           => gone(Gone::NotFoundNamesSession),
        "e20"           => (Refused(Reason::SingleSession), Some(Gone::SingleSession)),
        "e21"           => (Error(-32603), None),
        "e22"           => (Error(32600), None),
        "g7"            => (Unknown(Reason::Conflict), None),
        "g9"            => (Unknown(Reason::ServerError), None),
        "g10"           => (Error(-32002), None),
        "g11"           => (Unknown(Reason::ServerError), Some(Gone::EndedWhileRunning)),
        _               => gone(Gone::NotFound),
    }
}

async fn meet(dialect: &'static Dialect, breadth: SessionGoneMatching) {
    let name = dialect.name;
    let mut setting = Setting::new(Personality::legacy().session_gone(dialect), Era::Legacy);
    setting.known_as.session_gone_matching = breadth;
    let session = setting.session().await;
    let before = setting.pay(&format!("{name}, before"), &()).await;
    assert_eq!(before.ended, Result, "{name}");

    setting.server.control().forget_sessions();
    let (ended, gone) = match breadth {
        SessionGoneMatching::Sure => expected(dialect),
        SessionGoneMatching::Wide => expected_wide(dialect),
    };
    let mut outcome = setting.pay(name, &()).await;
    assert_eq!(outcome.ended, ended, "{name}: {:?}", outcome.trouble);
    let read = outcome
        .trouble
        .as_ref()
        .and_then(|trouble| trouble.session_gone);
    assert_eq!(read, gone, "{name}");
    assert_eq!(session.retired_reason().is_some(), gone.is_some(), "{name}");
    // A dialect that serves a stranger as if nothing had happened executes, of course.
    let executed = matches!(dialect.post.effect, DialectEffect::Served);
    assert_eq!(setting.executions(name), usize::from(executed), "{name}");

    setting.forget();
    setting.go_on(name, &mut outcome).await;
    setting.finish().await;
}

/// A172, E2, E3, E6 to E10, E18, E25, P4, P7: every sure form is read from the wire, and nothing
/// was executed.
#[tokio::test]
async fn every_dialect_of_a_lost_session_is_read_for_what_it_says() {
    let holds = dialects::SESSION_GONE.len() >= 50;
    assert!(holds, "the table has lost rows");
    for dialect in dialects::SESSION_GONE.iter() {
        meet(dialect, SessionGoneMatching::Sure).await;
    }
}

/// reliability G7, G8, G9, G10; E19, E21, E22: wide forms heal the session, not the call.
#[tokio::test]
async fn the_wide_dialects_count_where_an_operator_asked_for_them() {
    for dialect in dialects::SESSION_GONE.iter() {
        meet(dialect, SessionGoneMatching::Wide).await;
    }
}

/// How an attempt ends, and which form of "gone" is read from it.
type End = (Expected, Option<Gone>);
/// Events that come before the answer.
type Notices = &'static [&'static str];

/// An error that comes on a stream of events, after these other events.
async fn on_a_stream(before: Notices, error: &'static str) -> Stub {
    Stub::with_sessions(move |_| {
        let error = format!(r#"{{"jsonrpc":"2.0","id":$ID,"error":{error}}}"#);
        let events = before.iter().map(|event| (*event).to_owned());
        events.chain([error]).map(ReplyStep::Event).collect()
    })
    .await
}

/// reliability G10: a stream can carry the same error, and it means the same, but only as the first
/// thing that the stream brings.
#[tokio::test]
async fn the_wide_dialects_are_read_from_streams_too() {
    const LOST: &str = r#"{"code":-32002,"message":"Session not found"}"#;
    const NOTICE: &str =
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#;
    let gone = (Unknown(Reason::SessionGone), Some(Gone::InBand));
    let answer = (Error(-32002), None);
    let rows: [(SessionGoneMatching, Notices, End); 3] = [
        (SessionGoneMatching::Sure, &[], answer),
        (SessionGoneMatching::Wide, &[], gone),
        (SessionGoneMatching::Wide, &[NOTICE], answer),
    ];
    for (breadth, before, (ended, form)) in rows {
        let stub = on_a_stream(before, LOST).await;
        let mut server = ServerTarget::http("ledger", stub.url.parse().unwrap());
        (server.era, server.session_gone_matching) = (Some(Era::Legacy), breadth);
        let upstream = Upstream::new();
        let session = upstream
            .open(&server, &ClientProfile::default())
            .await
            .unwrap();
        let outcome = Outcome::of(session.call(payment("stream"), &()).await);
        assert_eq!(outcome.ended, ended, "{breadth:?}: {:?}", outcome.trouble);
        let read = outcome.trouble.and_then(|trouble| trouble.session_gone);
        assert_eq!(read, form, "{breadth:?}");
        let retired = session.retired_reason().is_some();
        assert_eq!(retired, form.is_some(), "{breadth:?}");
    }
}

/// A170: a server that was taken for sessionless says that it needs one, also on a stream; nothing
/// was executed, and the request comes back.
#[tokio::test]
async fn a_request_without_an_id_that_is_told_it_needs_one_says_so() {
    let stub = Stub::start(|_| {
        let error = r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":0,"message":"method \"tools/call\" is invalid during session initialization"}}"#;
        vec![ReplyStep::Event(error.to_owned())]
    })
    .await;
    let session = stub.session(Era::Legacy).await;
    let outcome = Outcome::of(session.call(payment("needs"), &()).await);
    outcome.ends(Refused(Reason::SessionGone));
    let holds = outcome.words().contains("wants a session");
    assert!(holds, "{}", outcome.words());
    let form = outcome
        .trouble
        .and_then(|trouble| trouble.session_gone)
        .unwrap();
    let row = (form, form.remedy());
    assert_eq!(row, (Gone::NeedsSession, SessionGoneRemedy::Open));
    assert!(session.retired_reason().is_some() && outcome.given_back.is_some());
}

/// A170, A172, E4, E9: a call without a session id learns that it needs one, and was not executed.
#[tokio::test]
async fn every_dialect_of_a_missing_session_is_read_for_what_it_says() {
    for dialect in dialects::SESSION_MISSING
        .iter()
        .filter(|one| one.post.effect == DialectEffect::NotExecuted)
    {
        let name = dialect.name;
        let setting = Setting::new(Personality::legacy_stateless(), Era::Legacy);
        let session = setting.session().await;
        let (ended, gone) = match name {
            "b6" => (Refused(Reason::Version), None),
            _ => (Refused(Reason::SessionGone), Some(Gone::NeedsSession)),
        };
        let fault = Fault::Dialect(name.to_owned());
        let outcome = setting
            .row(name, FaultRule::new(fault).on_tool("pay"), ended)
            .await;
        assert_eq!(outcome.trouble.unwrap().session_gone, gone, "{name}");
        assert_eq!(session.retired_reason().is_some(), gone.is_some(), "{name}");
        setting.finish().await;
    }
}

/// P5: a session that was reported lost is not used again.
#[tokio::test]
async fn a_retired_session_lets_no_call_in_and_gives_it_back() {
    let setting = Setting::legacy();
    let session = setting.session().await;
    setting.server.control().forget_sessions();
    let outcome = setting.pay("first", &()).await;
    outcome.ends(Refused(Reason::SessionGone));
    let seen = setting.server.counts().requests;
    let request = outcome.given_back.unwrap();
    let outcome = setting.told("first", session.call(request, &()).await);
    outcome.ends(Expected::Unsent(Reason::Closed));
    assert_eq!(setting.server.counts().requests, seen);
    setting.finish().await;
}
