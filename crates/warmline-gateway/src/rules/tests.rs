//! Rules as tables: who may do what.

use std::sync::Arc;

use serde_json::json;
use warmline::Warmline;

use super::*;
use crate::who::Known;

fn subject(name: &str, claims: Option<Value>) -> Subject {
    let warm = Warmline::builder().build().unwrap();
    Subject::Known(Arc::new(Known::for_tests(&warm, name, claims)))
}

fn rule(whose: Whose, tools: Option<&[&str]>) -> Rule {
    let patterns = |tools: &[&str]| tools.iter().map(|tool| (*tool).to_owned()).collect();
    Rule {
        whose,
        tools: tools.map(patterns),
    }
}

fn finance() -> Whose {
    Whose::Claim {
        claim: "groups".to_owned(),
        has: "finance".to_owned(),
    }
}

#[test]
fn what_is_denied_is_denied_and_what_is_allowed_is_all_there_is() {
    let alice = || Whose::Named("alice".to_owned());
    let rules = Rules::none()
        .with(
            "bank",
            ServerRules {
                allow: vec![
                    rule(finance(), Some(&["read_*"])),
                    rule(alice(), Some(&["read_*", "pay"])),
                ],
                deny: vec![rule(Whose::Everybody, Some(&["read_secret"]))],
            },
        )
        .with(
            "open",
            ServerRules {
                allow: Vec::new(),
                deny: vec![rule(alice(), None)],
            },
        );
    let alice = subject("alice", None);
    let bob = subject("bob", Some(json!({ "groups": ["sales", "finance"] })));
    let eve = subject("eve", Some(json!({ "groups": "sales", "finance": true })));
    let one = subject("one", Some(json!({ "groups": "finance" })));
    let anybody = Subject::Anybody;
    for (who, server, tool, uses, calls) in [
        (&alice, "bank", "pay", true, true),
        (&alice, "bank", "read_secret", true, false),
        (&bob, "bank", "read_all", true, true),
        (&bob, "bank", "pay", true, false),
        (&one, "bank", "read_all", true, true),
        (&eve, "bank", "read_all", false, false),
        (&anybody, "bank", "read_all", false, false),
        (&alice, "open", "anything", false, false),
        (&bob, "open", "anything", true, true),
        (&anybody, "elsewhere", "anything", true, true),
    ] {
        let told = format!("{} {server} {tool}", who.name());
        assert_eq!(rules.may_use(who, server), uses, "{told}");
        assert_eq!(rules.may_call(who, server, tool), calls, "{told}");
    }
}

#[test]
fn a_list_keeps_what_may_be_seen_byte_for_byte() {
    let list = |text: &'static str| Bytes::from_static(text.as_bytes());
    let whole = list(r#"{ "x":1, "tools": [ {"name":"a","n":1.0} , { "name" : "b" } ],"y":[]}"#);
    assert_eq!(strike(whole.clone(), Shown::Alike, |_| true), whole);
    for (shown, expected) in [
        ("a", r#"{ "x":1, "tools": [{"name":"a","n":1.0}],"y":[]}"#),
        ("b", r#"{ "x":1, "tools": [{ "name" : "b" }],"y":[]}"#),
        ("c", r#"{ "x":1, "tools": [],"y":[]}"#),
    ] {
        let struck = strike(whole.clone(), Shown::Alike, |name| name == shown);
        assert_eq!(struck, list(expected), "{shown}");
    }
    let twice = list(r#"{"tools":[{"name":"a"}],"tools":[{"name":"b"}]}"#);
    assert_eq!(
        strike(twice, Shown::Alike, |_| true),
        list(r#"{"tools":[]}"#)
    );
    let without = list(r#"{"x":1}"#);
    assert_eq!(strike(without.clone(), Shown::ByCaller, |_| false), without);
    let escaped = list(r#"{"tools":[{"name":"\u0061"},{"name":1},{}]}"#);
    let struck = strike(escaped, Shown::Alike, |name| name == "a");
    assert_eq!(struck, list(r#"{"tools":[{"name":"\u0061"}]}"#));
}

/// mcp-spec G7, reliability T18: what one caller sees of a list nobody may keep for another. How
/// long it holds is still the server's word.
#[test]
fn a_list_that_depends_on_its_caller_is_private() {
    let list = |text: &'static str| Bytes::from_static(text.as_bytes());
    let public = r#"{"tools":[{"name":"a"},{"name":"b"}],"ttlMs":60,"cacheScope":"public"}"#;
    let kept = r#"{"tools":[{"name":"a"},{"name":"b"}],"ttlMs":60,"cacheScope":"private"}"#;
    let struck = r#"{"tools":[{"name":"a"}],"ttlMs":60,"cacheScope":"private"}"#;
    for (given, shown, sees_all, expected) in [
        (public, Shown::Alike, true, public),
        (public, Shown::ByCaller, true, kept),
        (public, Shown::Alike, false, struck),
        (public, Shown::ByCaller, false, struck),
        (kept, Shown::ByCaller, true, kept),
        (kept, Shown::ByCaller, false, struck),
    ] {
        let seen = strike(list(given), shown, |name| sees_all || name == "a");
        assert_eq!(seen, list(expected), "{given} {shown:?} {sees_all}");
    }
    let unreadable = list(r#"{"resultType":"complete","tools":1,"cacheScope":"public"}"#);
    let nothing = strike(unreadable, Shown::Alike, |_| true);
    let nothing: Value = serde_json::from_slice(&nothing).unwrap();
    let expected = json!({
        "tools": [], "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
    });
    assert_eq!(nothing, expected);
}
