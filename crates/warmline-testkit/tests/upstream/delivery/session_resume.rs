//! Sessions that are taken up again, by this process or another: an id is all there is to them.

use crate::prelude::*;

use warmline_core::pool_key::Transport;
use warmline_upstream::{ResumableSession, ServerFacts};

use super::fixture::Expected::{Refused, Result};

async fn count(session: &Session) -> u64 {
    let outcome = Outcome::of(session.call(tool("counter", &json!({})), &()).await);
    outcome.ends(Result);
    outcome.answer["structuredContent"]["count"]
        .as_u64()
        .unwrap()
}

/// Takes the session up in a process of its own, as far as `upstream` can tell.
fn elsewhere(setting: &Setting, kept: &ResumableSession) -> Session {
    let mut server = setting.known_as.clone();
    // Its connections end soon, so that the census need not wait for them.
    server.timeouts.connection_idle = Duration::from_millis(20);
    Upstream::new()
        .resume(&server, &setting.declared, kept)
        .unwrap()
}

#[tokio::test]
async fn a_kept_session_goes_on_without_a_word_on_the_wire() {
    let setting = Setting::legacy();
    let first = setting.open().await;
    assert_eq!(count(&first).await, 1);
    let kept = first.kept().unwrap();
    assert_eq!(first.session_id(), Some(kept.session_id.as_str()));
    // Dropped, not closed: the server knows nothing of it.
    drop(first);

    let before = setting.server.counts().requests;
    let second = elsewhere(&setting, &kept);
    assert_eq!(setting.server.counts().requests, before, "nothing was sent");
    assert_eq!(second.facts().version, Version::V2025_11_25);
    assert_eq!(count(&second).await, 2, "the same session");
    let third = elsewhere(&setting, &second.kept().unwrap());
    assert_eq!((count(&second).await, count(&third).await), (3, 4));

    let entries = setting.server.ledger().entries();
    let received = entries
        .iter()
        .filter(|one| one.phase == ExecutionPhase::Received);
    let ids: Vec<u64> = received.filter_map(|one| one.id.as_u64()).collect();
    let unique: BTreeSet<u64> = ids.iter().copied().collect();
    assert_eq!(unique.len(), ids.len(), "no id was used twice");
    third.close().await;
    assert_eq!(setting.server.counts().open_sessions, 0);
    setting.finish().await;
}

#[tokio::test]
async fn a_kept_session_that_the_server_forgot_is_told_by_the_first_call() {
    let setting = Setting::legacy();
    let kept = setting.open().await.kept().unwrap();
    setting.server.control().forget_sessions();
    let session = elsewhere(&setting, &kept);
    let outcome = Outcome::of(session.call(tool("counter", &json!({})), &()).await);
    outcome.ends(Refused(Reason::SessionGone));
    assert_eq!(session.retired_reason(), Some(Reason::SessionGone));
    setting.finish().await;
}

#[tokio::test]
async fn only_a_session_with_an_id_can_be_kept() {
    for (personality, era) in [
        (Personality::legacy_stateless(), Era::Legacy),
        (Personality::modern(), Era::Modern),
    ] {
        let setting = Setting::new(personality, era);
        let session = setting.open().await;
        assert!(session.kept().is_none(), "{era}");
        drop(session);
        setting.finish().await;
    }
}

#[tokio::test]
async fn what_does_not_fit_is_not_taken_up() {
    let setting = Setting::legacy();
    let kept = setting.open().await.kept().unwrap();
    let with = |change: fn(&mut ServerFacts)| {
        let mut facts = ServerFacts::clone(&kept.facts);
        change(&mut facts);
        ResumableSession {
            facts: Arc::new(facts),
            ..kept.clone()
        }
    };
    let named = |id: &str| ResumableSession {
        session_id: id.to_owned(),
        ..kept.clone()
    };
    let rows = [
        with(|facts| facts.era = Era::Modern),
        with(|facts| facts.transport = Transport::HttpSse),
        with(|facts| facts.transport = Transport::Stdio),
        named(""),
        named("a b"),
        named("line\nbreak"),
        named(&"x".repeat(1025)),
    ];
    let (upstream, declared) = (Upstream::new(), ClientProfile::default());
    for row in rows {
        let trouble = upstream.resume(&setting.known_as, &declared, &row);
        let trouble = trouble.unwrap_err();
        assert_eq!(trouble.reason, Reason::RecordRefused, "{trouble:?}");
    }
    let process = ServerTarget::stdio("ledger", "true", [""; 0]);
    let trouble = upstream.resume(&process, &declared, &kept).unwrap_err();
    assert_eq!(trouble.reason, Reason::RecordRefused, "{trouble:?}");
    setting.finish().await;
}
