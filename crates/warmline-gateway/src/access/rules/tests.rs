//! Rules as tables: who may do what.

use std::sync::Arc;

use serde_json::json;
use warmline_engine::Warmline;

use super::*;
use crate::auth::AuthenticatedSubject;

fn subject(name: &str, claims: Option<Value>) -> Subject {
    let warm = Warmline::builder().build().unwrap();
    Subject::Authenticated(Arc::new(AuthenticatedSubject::for_tests(
        &warm, name, claims,
    )))
}

fn rule(whose: AccessSubject, tools: Option<&[&str]>) -> AccessRule {
    let patterns = |tools: &[&str]| tools.iter().map(|tool| (*tool).to_owned()).collect();
    AccessRule {
        subject: whose,
        tools: tools.map(patterns),
    }
}

fn finance() -> AccessSubject {
    AccessSubject::Claim {
        claim: "groups".to_owned(),
        value: "finance".to_owned(),
    }
}

#[test]
fn what_is_denied_is_denied_and_what_is_allowed_is_all_there_is() {
    let alice = || AccessSubject::Identity("alice".to_owned());
    let rules = AccessRules::none()
        .with_server(
            "bank",
            DeclaredAccess {
                allow: vec![
                    rule(finance(), Some(&["read_*"])),
                    rule(alice(), Some(&["read_*", "pay"])),
                ],
                deny: vec![rule(AccessSubject::Everyone, Some(&["read_secret"]))],
            },
        )
        .with_server(
            "open",
            DeclaredAccess {
                allow: Vec::new(),
                deny: vec![rule(alice(), None)],
            },
        );
    let alice = subject("alice", None);
    let bob = subject("bob", Some(json!({ "groups": ["sales", "finance"] })));
    let eve = subject("eve", Some(json!({ "groups": "sales", "finance": true })));
    let one = subject("one", Some(json!({ "groups": "finance" })));
    let anybody = Subject::Anonymous;
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
        let told = format!("{} {server} {tool}", who.audit_name());
        assert_eq!(rules.may_use(who, server), uses, "{told}");
        assert_eq!(rules.may_call(who, server, tool), calls, "{told}");
    }
}

#[test]
fn a_list_keeps_what_may_be_seen_byte_for_byte() {
    let list = |text: &'static str| Bytes::from_static(text.as_bytes());
    let whole = list(r#"{ "x":1, "tools": [ {"name":"a","n":1.0} , { "name" : "b" } ],"y":[]}"#);
    assert_eq!(filter_tool_list(whole.clone(), false, |_| true), whole);
    for (shown, expected) in [
        ("a", r#"{ "x":1, "tools": [{"name":"a","n":1.0}],"y":[]}"#),
        ("b", r#"{ "x":1, "tools": [{ "name" : "b" }],"y":[]}"#),
        ("c", r#"{ "x":1, "tools": [],"y":[]}"#),
    ] {
        let struck = filter_tool_list(whole.clone(), false, |name| name == shown);
        assert_eq!(struck, list(expected), "{shown}");
    }
    let twice = list(r#"{"tools":[{"name":"a"}],"tools":[{"name":"b"}]}"#);
    assert_eq!(
        filter_tool_list(twice, false, |_| true),
        list(r#"{"tools":[]}"#)
    );
    let without = list(r#"{"x":1}"#);
    assert_eq!(filter_tool_list(without.clone(), true, |_| false), without);
    let escaped = list(r#"{"tools":[{"name":"\u0061"},{"name":1},{}]}"#);
    let struck = filter_tool_list(escaped, false, |name| name == "a");
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
        (public, false, true, public),
        (public, true, true, kept),
        (public, false, false, struck),
        (public, true, false, struck),
        (kept, true, true, kept),
        (kept, true, false, struck),
    ] {
        let seen = filter_tool_list(list(given), shown, |name| sees_all || name == "a");
        assert_eq!(seen, list(expected), "{given} {shown:?} {sees_all}");
    }
    let unreadable = list(r#"{"resultType":"complete","tools":1,"cacheScope":"public"}"#);
    let nothing = filter_tool_list(unreadable, false, |_| true);
    let nothing: Value = serde_json::from_slice(&nothing).unwrap();
    let expected = json!({
        "tools": [], "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
    });
    assert_eq!(nothing, expected);
}
