//! Tables for orders: who wants what, and what a session is told of it.

use super::*;

/// A client that goes by its identity.
fn known(name: Digest) -> Giver {
    Giver::Known(name, Identity(name))
}

/// What is said, in words.
fn told(said: Vec<Said>) -> Vec<String> {
    let words = said.into_iter().map(|(method, params)| {
        let text = String::from_utf8_lossy(params.raw()).into_owned();
        format!("{method} {text}")
    });
    words.collect()
}

fn level_of(name: &str) -> Params {
    Params::of(&json!({ "level": name })).unwrap()
}

/// mcp-spec 8.7.2: of a resource, or a part of it, those hear who asked for it. Where not all of
/// them are known, nobody can tell.
#[test]
fn who_wants_a_resource_is_told_from_who_does_not() {
    let [one, other] = [1, 2].map(|number| Digest::new([number; 16]));
    let mut orders = Orders::default();
    orders.note(known(one), "resources/subscribe", &uri("note:///a"));
    orders.asking.push(AskedFor {
        client: one,
        who: Identity(one),
        uri: "note:///b/".to_owned(),
    });
    let rows = [
        ("note:///a", Some(true)),
        ("note:///a/part", Some(true)),
        ("note:///a#part", Some(true)),
        ("note:///ab", None),
        ("note:///b/part", Some(true)),
        ("note:///c", None),
    ];
    for (uri, expected) in rows {
        assert_eq!(orders.wants(one, uri), expected, "{uri}");
        let others = expected.map(|_| false);
        assert_eq!(orders.wants(other, uri), others, "{uri}");
    }
    // Somebody else wants it, and nobody knows who.
    orders.note(Giver::All, "resources/subscribe", &uri("note:///a"));
    assert_eq!(orders.wants(one, "note:///a"), Some(true));
    assert_eq!(orders.wants(other, "note:///a"), None);
    orders.note(Giver::All, "resources/unsubscribe", &uri("note:///a"));
    assert_eq!(orders.wants(other, "note:///a"), Some(false));
}

fn uri(uri: &str) -> Params {
    Params::of(&json!({ "uri": uri })).unwrap()
}

#[test]
fn what_one_client_takes_back_another_may_still_want() {
    let [one, other] = [1, 2].map(|byte| Digest::new([byte; 16]));
    let mut orders = Orders::default();
    for client in [known(one), known(other), Giver::All] {
        orders.note(client, "resources/subscribe", &uri("a"));
    }
    let back = "resources/unsubscribe";
    assert_eq!(orders.meant(known(one), back, &uri("a")), Meant::Granted);
    assert_eq!(orders.meant(known(one), back, &uri("b")), Meant::AsSaid);
    orders.note(known(one), back, &uri("a"));
    assert!(orders.subscriptions.contains("a"));
    assert_eq!(orders.meant(known(other), back, &uri("a")), Meant::AsSaid);
    orders.note(known(other), back, &uri("a"));
    assert!(orders.is_empty() && orders.wishes.is_empty());
}

#[test]
fn whoever_leaves_takes_back_what_nobody_else_wants() {
    let [one, other] = [1, 2].map(|byte| Digest::new([byte; 16]));
    let mut orders = Orders::default();
    for (client, wanted) in [(one, "a"), (other, "a"), (one, "b")] {
        orders.note(known(client), "resources/subscribe", &uri(wanted));
    }
    orders.note(known(one), LEVEL, &level_of("debug"));
    orders.note(known(other), LEVEL, &level_of("error"));
    let quieter = r#"logging/setLevel {"level":"error"}"#;
    let rows = [
        (
            one,
            vec![quieter, r#"resources/unsubscribe {"uri":"b"}"#],
            vec!["a"],
        ),
        (one, vec![], vec!["a"]),
        (other, vec![r#"resources/unsubscribe {"uri":"a"}"#], vec![]),
    ];
    for (client, unwanted, left) in rows {
        assert_eq!(told(orders.left(client).unwrap_or_default()), unwanted);
        assert!(orders.subscriptions.iter().eq(&left), "{orders:?}");
    }
    assert!(orders.is_empty() && orders.wishes.is_empty(), "{orders:?}");
}

#[test]
fn a_session_logs_for_the_one_who_wants_most() {
    let [one, other] = [1, 2].map(|byte| Digest::new([byte; 16]));
    let mut orders = Orders::default();
    for (client, said, meant, then) in [
        (one, "info", Meant::AsSaid, "info"),
        (other, "error", Meant::Granted, "info"),
        (one, "alert", Meant::Level("error"), "error"),
        (other, "debug", Meant::AsSaid, "debug"),
        (one, "debug", Meant::AsSaid, "debug"),
    ] {
        assert_eq!(
            orders.meant(known(client), LEVEL, &level_of(said)),
            meant,
            "{said}"
        );
        orders.note(known(client), LEVEL, &level_of(said));
        assert_eq!(orders.log_level.as_deref(), Some(then), "{said}");
    }
    // Who says not who it is stands for all.
    orders.note(Giver::All, LEVEL, &level_of("alert"));
    assert_eq!(orders.log_level.as_deref(), Some("alert"));
    // What is no level its server refuses.
    assert_eq!(
        orders.meant(known(one), LEVEL, &level_of("loud")),
        Meant::AsSaid
    );
}

#[test]
fn a_session_is_told_what_it_was_not_told_before() {
    let mut before = Orders::default();
    before.note(Giver::All, LEVEL, &level_of("info"));
    before.note(Giver::All, "resources/subscribe", &uri("kept"));
    before.note(Giver::All, "resources/subscribe", &uri("gone"));
    let mut now = before.clone();
    now.note(Giver::All, LEVEL, &level_of("debug"));
    now.note(Giver::All, "resources/unsubscribe", &uri("gone"));
    now.note(Giver::All, "resources/subscribe", &uri("new"));
    let said = |now: &Orders, before| told(now.beyond(before));
    assert_eq!(
        said(&now, Some(&before)),
        [
            r#"logging/setLevel {"level":"debug"}"#,
            r#"resources/unsubscribe {"uri":"gone"}"#,
            r#"resources/subscribe {"uri":"new"}"#,
        ]
    );
    assert_eq!(said(&now, None).len(), 3);
    assert_eq!(said(&now, Some(&now)), [""; 0]);
}
