//! Tables for orders: who wants what, and what a session is told of it.

use super::*;

/// A client that goes by its identity.
fn known(name: Digest) -> RequestingClient {
    RequestingClient::Client(name, Identity(name))
}

/// What is said, in words.
fn told(said: Vec<RestoreRequest>) -> Vec<String> {
    let words = said.into_iter().map(|(method, params)| {
        let text = String::from_utf8_lossy(params.raw()).into_owned();
        format!("{method} {text}")
    });
    words.collect()
}

fn level_of(name: &str) -> Params {
    Params::from_serialize(&json!({ "level": name })).unwrap()
}

/// mcp-spec 8.7.2: of a resource, or a part of it, those hear who asked for it. Where not all of
/// them are known, nobody can tell.
#[test]
fn who_wants_a_resource_is_told_from_who_does_not() {
    let [one, other] = [1, 2].map(|number| Digest::new([number; 16]));
    let mut orders = ClientState::default();
    orders.apply_request(known(one), "resources/subscribe", &uri("note:///a"));
    orders.pending.push(PendingSubscription {
        client: one,
        identity: Identity(one),
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
        assert_eq!(orders.is_interested(one, uri), expected, "{uri}");
        let others = expected.map(|_| false);
        assert_eq!(orders.is_interested(other, uri), others, "{uri}");
    }
    // Somebody else wants it, and nobody knows who.
    orders.apply_request(
        RequestingClient::AllClients,
        "resources/subscribe",
        &uri("note:///a"),
    );
    assert_eq!(orders.is_interested(one, "note:///a"), Some(true));
    assert_eq!(orders.is_interested(other, "note:///a"), None);
    orders.apply_request(
        RequestingClient::AllClients,
        "resources/unsubscribe",
        &uri("note:///a"),
    );
    assert_eq!(orders.is_interested(other, "note:///a"), Some(false));
}

fn uri(uri: &str) -> Params {
    Params::from_serialize(&json!({ "uri": uri })).unwrap()
}

#[test]
fn what_one_client_takes_back_another_may_still_want() {
    let [one, other] = [1, 2].map(|byte| Digest::new([byte; 16]));
    let mut orders = ClientState::default();
    for client in [known(one), known(other), RequestingClient::AllClients] {
        orders.apply_request(client, "resources/subscribe", &uri("a"));
    }
    let back = "resources/unsubscribe";
    assert_eq!(
        orders.action_for(known(one), back, &uri("a")),
        ClientStateAction::AnswerLocally
    );
    assert_eq!(
        orders.action_for(known(one), back, &uri("b")),
        ClientStateAction::Forward
    );
    orders.apply_request(known(one), back, &uri("a"));
    assert!(orders.subscriptions.contains("a"));
    assert_eq!(
        orders.action_for(known(other), back, &uri("a")),
        ClientStateAction::Forward
    );
    orders.apply_request(known(other), back, &uri("a"));
    assert!(orders.is_empty() && orders.interests.is_empty());
}

#[test]
fn whoever_leaves_takes_back_what_nobody_else_wants() {
    let [one, other] = [1, 2].map(|byte| Digest::new([byte; 16]));
    let mut orders = ClientState::default();
    for (client, wanted) in [(one, "a"), (other, "a"), (one, "b")] {
        orders.apply_request(known(client), "resources/subscribe", &uri(wanted));
    }
    orders.apply_request(known(one), SET_LEVEL_METHOD, &level_of("debug"));
    orders.apply_request(known(other), SET_LEVEL_METHOD, &level_of("error"));
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
        assert_eq!(
            told(orders.remove_client(client).unwrap_or_default()),
            unwanted
        );
        assert!(orders.subscriptions.iter().eq(&left), "{orders:?}");
    }
    assert!(
        orders.is_empty() && orders.interests.is_empty(),
        "{orders:?}"
    );
}

#[test]
fn a_session_logs_for_the_one_who_wants_most() {
    let [one, other] = [1, 2].map(|byte| Digest::new([byte; 16]));
    let mut orders = ClientState::default();
    for (client, said, meant, then) in [
        (one, "info", ClientStateAction::Forward, "info"),
        (other, "error", ClientStateAction::AnswerLocally, "info"),
        (
            one,
            "alert",
            ClientStateAction::ForwardWithLevel("error"),
            "error",
        ),
        (other, "debug", ClientStateAction::Forward, "debug"),
        (one, "debug", ClientStateAction::Forward, "debug"),
    ] {
        assert_eq!(
            orders.action_for(known(client), SET_LEVEL_METHOD, &level_of(said)),
            meant,
            "{said}"
        );
        orders.apply_request(known(client), SET_LEVEL_METHOD, &level_of(said));
        assert_eq!(orders.log_level.as_deref(), Some(then), "{said}");
    }
    // Who says not who it is stands for all.
    orders.apply_request(
        RequestingClient::AllClients,
        SET_LEVEL_METHOD,
        &level_of("alert"),
    );
    assert_eq!(orders.log_level.as_deref(), Some("alert"));
    // What is no level its server refuses.
    assert_eq!(
        orders.action_for(known(one), SET_LEVEL_METHOD, &level_of("loud")),
        ClientStateAction::Forward
    );
}

#[test]
fn a_session_is_told_what_it_was_not_told_before() {
    let apply = |state: &mut ClientState, method, params| {
        state.apply_request(RequestingClient::AllClients, method, &params);
    };
    let mut before = ClientState::default();
    apply(&mut before, SET_LEVEL_METHOD, level_of("info"));
    apply(&mut before, "resources/subscribe", uri("kept"));
    apply(&mut before, "resources/subscribe", uri("gone"));
    let mut now = before.clone();
    apply(&mut now, SET_LEVEL_METHOD, level_of("debug"));
    apply(&mut now, "resources/unsubscribe", uri("gone"));
    apply(&mut now, "resources/subscribe", uri("new"));
    let said = |now: &ClientState, before| told(now.requests_since(before));
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
