//! Identities that a rule finds in headers.

use crate::prelude::*;

use http::{HeaderMap, HeaderName};
use warmline_engine::identity::{HeaderRequirement, HeaderRule};

use crate::credentials::fixture::{count_in, declared, engine, saw_no_credential, stateful};

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| {
            let name = HeaderName::try_from(*name).unwrap();
            (name, HeaderValue::from_static(value))
        })
        .collect()
}

/// A60, A61, A101, A102: who differs in one header of the rule has a session of its own, also in a
/// run of the same name.
#[tokio::test]
async fn callers_who_differ_in_a_header_of_the_rule_never_share_a_session() {
    let ledger = stateful();
    let warm = engine(declared(&ledger));
    let callers: [&[(&str, &str)]; 6] = [
        &[("Authorization", "Bearer one")],
        &[("authorization", "Bearer two")],
        &[("Authorization", "Bearer one"), ("X-Tenant-ID", "acme")],
        &[("Authorization", "Bearer one"), ("X-User-ID", "alice")],
        &[("Authorization", "Bearer one"), ("X-API-Key", "k")],
        &[("Authorization", "Bearer one"), ("Cookie", "s=1")],
    ];
    let mut runs = Vec::new();
    for caller in callers {
        let who = warm.identity_from_headers(&headers(caller)).unwrap();
        let run = who.named_run("chat").unwrap();
        assert_eq!(count_in(&run).await, 1, "{caller:?} is alone");
        runs.push(run);
    }
    assert_eq!(ledger.counts().open_sessions, 6);
    // The tokens of callers are not ours to send.
    assert!(saw_no_credential(&ledger));
    warm.close().await;
}

/// A62: what is not in the rule splits nothing.
#[tokio::test]
async fn callers_who_differ_in_other_headers_are_the_same() {
    let ledger = stateful();
    let warm = engine(declared(&ledger));
    let mut runs = Vec::new();
    for (number, trace) in ["a", "b", "c"].into_iter().enumerate() {
        let who = [
            ("Authorization", "Bearer one"),
            ("User-Agent", trace),
            ("Traceparent", trace),
        ];
        let run = warm
            .identity_from_headers(&headers(&who))
            .unwrap()
            .named_run("chat")
            .unwrap();
        assert_eq!(count_in(&run).await, i64::try_from(number).unwrap() + 1);
        runs.push(run);
    }
    warm.close().await;
}

/// A71: the rule can be replaced, and whoever it does not find is told so.
#[tokio::test]
async fn a_rule_of_ones_own_decides_and_who_is_missing_is_told() {
    let ledger = stateful();
    let rule = HeaderRule::from_names(["X-Team"])
        .unwrap()
        .require(HeaderRequirement::All);
    let warm = Warmline::builder()
        .server(declared(&ledger))
        .identity_extractor(rule)
        .build()
        .unwrap();
    let of = |pairs: &[(&'static str, &'static str)]| warm.identity_from_headers(&headers(pairs));
    let lamp = of(&[("X-Team", "lamp"), ("Authorization", "Bearer one")]).unwrap();
    let same = of(&[("x-team", "lamp"), ("Authorization", "Bearer two")]).unwrap();
    assert_eq!(lamp.fingerprint(), same.fingerprint());
    let error = of(&[("Authorization", "Bearer one")]).unwrap_err();
    assert_eq!(error.code(), Code::IdentityMissing);
    assert!(ledger.ledger().entries().is_empty());
}
