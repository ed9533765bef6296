//! The policy during a reload.

use http::Request;
use http::header::AUTHORIZATION;

use super::*;
use crate::auth::{KeyLookup, Peer};
use crate::{AccessRule, AccessSubject, BearerToken, DeclaredAccess};

fn only_for(name: &str) -> DeclaredAccess {
    DeclaredAccess {
        allow: vec![AccessRule {
            subject: AccessSubject::Identity(name.to_owned()),
            tools: None,
        }],
        deny: Vec::new(),
    }
}

/// Options with these tokens, and with a server for one of them alone.
fn options(warm: &Warmline, tokens: &[&str], server: &str, whose: &str) -> GatewayOptions {
    let token = |name: &&str| BearerToken::from_text(warm.vault(), name, name);
    GatewayOptions {
        auth: Auth::tokens(tokens.iter().map(token).collect()),
        rules: AccessRules::none().with_server(server, only_for(whose)),
        ..GatewayOptions::default()
    }
}

/// Who of three callers is accepted, and which of two servers each may use.
async fn accepted(current: &CurrentAccessPolicy) -> Vec<(String, Vec<&'static str>)> {
    let policy = current.policy.load_full();
    let mut all = Vec::new();
    for name in ["alice", "bob", "eve"] {
        let request = Request::get("/").header(AUTHORIZATION, format!("Bearer {name}"));
        let (head, ()) = request.body(()).unwrap().into_parts();
        let peer = Peer::Address([127, 0, 0, 1].into());
        let Ok(subject) = policy.authenticate(&head, peer, KeyLookup::Fetch).await else {
            continue;
        };
        assert!(policy.still_accepts(&subject), "{name}");
        let may_use = |server: &&str| policy.rules.may_use(&subject, server);
        let servers = ["old", "new"].into_iter().filter(may_use).collect();
        all.push((name.to_owned(), servers));
    }
    all
}

/// P106: during a reload a server has its old and its new rules, and a caller must pass both
/// authentications. If the reload fails, nothing has changed.
#[tokio::test]
async fn during_a_reload_both_policies_must_accept() {
    let warm = Warmline::builder().build().unwrap();
    let before = options(&warm, &["alice", "bob"], "old", "alice");
    let after = options(&warm, &["bob", "alice", "eve"], "new", "bob");
    let address = ([127, 0, 0, 1], 0).into();
    let current = CurrentAccessPolicy::new(&before, address, &warm);
    let name = |name: &str| name.to_owned();
    let old = [
        (name("alice"), vec!["old", "new"]),
        (name("bob"), vec!["new"]),
    ];
    assert_eq!(accepted(&current).await, old);
    for ends in [Err("it cannot be used"), Ok("it counts")] {
        let between = std::cell::Cell::new(None);
        let changed = current.replace(&after, address, &warm, || {
            between.set(futures_util::FutureExt::now_or_never(accepted(&current)));
            ends
        });
        assert_eq!(changed, ends);
        let both = vec![(name("alice"), vec!["old"]), (name("bob"), vec!["new"])];
        assert_eq!(between.take(), Some(both), "while it changes");
        match ends {
            Err(_) => assert_eq!(accepted(&current).await, old),
            Ok(_) => assert_eq!(
                accepted(&current).await,
                [
                    (name("alice"), vec!["old"]),
                    (name("bob"), vec!["old", "new"]),
                    (name("eve"), vec!["old"]),
                ]
            ),
        }
    }
}
