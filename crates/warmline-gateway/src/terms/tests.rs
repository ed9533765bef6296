//! What counts while one configuration follows another.

use http::Request;
use http::header::AUTHORIZATION;

use super::*;
use crate::who::{Effort, Peer};
use crate::{Rule, ServerRules, Token, Whose};

fn only_for(name: &str) -> ServerRules {
    ServerRules {
        allow: vec![Rule {
            whose: Whose::Named(name.to_owned()),
            tools: None,
        }],
        deny: Vec::new(),
    }
}

/// Options of which these tokens let in, and by which a server is for one of them alone.
fn options(warm: &Warmline, tokens: &[&str], server: &str, whose: &str) -> Options {
    let token = |name: &&str| Token::of(warm.vault(), name, name);
    Options {
        auth: Auth::tokens(tokens.iter().map(token).collect()),
        rules: Rules::none().with(server, only_for(whose)),
        ..Options::default()
    }
}

/// Which of three come in, and which of two servers each may use.
async fn let_in(current: &Current) -> Vec<(String, Vec<&'static str>)> {
    let terms = current.hold();
    let mut all = Vec::new();
    for name in ["alice", "bob", "eve"] {
        let request = Request::get("/").header(AUTHORIZATION, format!("Bearer {name}"));
        let (head, ()) = request.body(()).unwrap().into_parts();
        let peer = Peer::Address([127, 0, 0, 1].into());
        let Ok(subject) = terms.identify(&head, peer, Effort::Full).await else {
            continue;
        };
        assert!(terms.still_lets_in(&subject), "{name}");
        let may_use = |server: &&str| terms.rules.may_use(&subject, server);
        let servers = ["old", "new"].into_iter().filter(may_use).collect();
        all.push((name.to_owned(), servers));
    }
    all
}

/// P106: a server that comes with rules is never there without them, and one that loses its rules
/// keeps them until the change is whole; where it does not come to that, nothing has changed.
#[tokio::test]
async fn while_one_configuration_follows_another_both_must_let_in() {
    let warm = Warmline::builder().build().unwrap();
    let before = options(&warm, &["alice", "bob"], "old", "alice");
    let after = options(&warm, &["bob", "alice", "eve"], "new", "bob");
    let address = ([127, 0, 0, 1], 0).into();
    let current = Current::new(&before, address, &warm);
    let name = |name: &str| name.to_owned();
    let old = [
        (name("alice"), vec!["old", "new"]),
        (name("bob"), vec!["new"]),
    ];
    assert_eq!(let_in(&current).await, old);
    for ends in [Err("it cannot be used"), Ok("it counts")] {
        let between = std::cell::Cell::new(None);
        let changed = current.replace(&after, address, &warm, || {
            between.set(futures_util::FutureExt::now_or_never(let_in(&current)));
            ends
        });
        assert_eq!(changed, ends);
        let both = vec![(name("alice"), vec!["old"]), (name("bob"), vec!["new"])];
        assert_eq!(between.take(), Some(both), "while it changes");
        match ends {
            Err(_) => assert_eq!(let_in(&current).await, old),
            Ok(_) => assert_eq!(
                let_in(&current).await,
                [
                    (name("alice"), vec!["old"]),
                    (name("bob"), vec!["old", "new"]),
                    (name("eve"), vec!["old"]),
                ]
            ),
        }
    }
}
