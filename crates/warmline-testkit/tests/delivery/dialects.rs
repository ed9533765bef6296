//! Every dialect in which a server says that a session is gone: not executed, the session is
//! retired, and a fresh one works.

use warmline::core::code::Reason;
use warmline::core::era::Era;
use warmline::core::protocol::gone::Dialect as Gone;
use warmline_testkit::dialects::{self, Effect};
use warmline_testkit::{Dialect, Fault, Personality, Rule};

use super::setting::Expected::{self, Error, Refused, Result, Unknown};
use super::setting::Setting;

/// How a request ends that is told so, and which form of "gone" is read from it. The wide forms
/// count only where an operator asked for them, which cannot be said here yet: they mean what
/// their status says.
#[rustfmt::skip]
fn expected(dialect: &Dialect) -> (Expected, Option<Gone>) {
    let gone = |form| (Refused(Reason::SessionGone), Some(form));
    match dialect.name {
        _ if dialect.post.effect == Effect::Served => (Result, None),
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
        "e9" | "e9b"    => gone(Gone::Stripped),
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

async fn meet(dialect: &'static Dialect) {
    let name = dialect.name;
    let setting = Setting::new(Personality::legacy().gone(dialect), Era::Legacy);
    let session = setting.session().await;
    let before = setting.pay(&format!("{name}, before"), &()).await;
    assert_eq!(before.ended, Result, "{name}");

    setting.server.control().forget_sessions();
    let (ended, gone) = expected(dialect);
    let mut outcome = setting.pay(name, &()).await;
    assert_eq!(outcome.ended, ended, "{name}: {:?}", outcome.trouble);
    let read = outcome.trouble.as_ref().and_then(|trouble| trouble.gone);
    assert_eq!(read, gone, "{name}");
    assert_eq!(session.retired().is_some(), gone.is_some(), "{name}");
    // A dialect that serves a stranger as if nothing had happened executes, of course.
    let executed = matches!(dialect.post.effect, Effect::Served);
    assert_eq!(setting.executions(name), usize::from(executed), "{name}");

    setting.forget();
    setting.go_on(name, &mut outcome).await;
    setting.finish().await;
}

/// A172, E2, E3, E6 to E10, E18, E25, P4, P7: every sure form is read from the wire, and nothing
/// was executed.
#[tokio::test]
async fn every_dialect_of_a_lost_session_is_read_for_what_it_says() {
    assert!(dialects::ALL.len() >= 50, "the table has lost rows");
    for dialect in dialects::ALL.iter() {
        meet(dialect).await;
    }
}

/// A172, P7: the same for a session that others use.
#[tokio::test]
async fn every_dialect_of_a_lost_session_is_read_by_a_call_in_the_middle_of_others() {
    // The refusal itself, whatever the server remembers: the session may be alive there.
    for dialect in dialects::ALL
        .iter()
        .filter(|one| one.post.effect == Effect::NotExecuted)
    {
        let setting = Setting::legacy();
        let (ended, _) = expected(dialect);
        let fault = Fault::Dialect(dialect.name.to_owned());
        let rule = Rule::new(fault).on_tool("pay");
        setting.row(dialect.name, rule, ended).await;
        setting.finish().await;
    }
}

/// A170, A172, E4, E9: a call without a session id learns that it needs one, and was not executed.
#[tokio::test]
async fn every_dialect_of_a_missing_session_is_read_for_what_it_says() {
    for dialect in dialects::MISSING
        .iter()
        .filter(|one| one.post.effect == Effect::NotExecuted)
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
            .row(name, Rule::new(fault).on_tool("pay"), ended)
            .await;
        assert_eq!(outcome.trouble.unwrap().gone, gone, "{name}");
        assert_eq!(session.retired().is_some(), gone.is_some(), "{name}");
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
    assert_eq!(outcome.ended, Refused(Reason::SessionGone));
    let seen = setting.server.counts().requests;
    let request = outcome.given_back.unwrap();
    let outcome = setting.told("first", session.call(request, &()).await);
    assert_eq!(
        outcome.ended,
        Expected::Unsent(Reason::Closed),
        "{:?}",
        outcome.trouble
    );
    assert_eq!(setting.server.counts().requests, seen);
    setting.finish().await;
}
