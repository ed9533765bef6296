//! Servers whose place is looked up at the first call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use http::HeaderValue;
use http::header::AUTHORIZATION;
use parking_lot::Mutex;
use serde_json::{Value, json};
use warmline::core::code::Code;
use warmline::core::delivery::Delivery;
use warmline::core::exchange::Trouble;
use warmline::resolve::{Resolved, ServerResolver, unresolved};
use warmline::store::{MemoryStore, ServerCard, Stepping, by_server};
use warmline::{Server, SessionStore, Vault, Warmline};
use warmline_testkit::{Canned, Fault, Rule};

use crate::scene::{count_in, engine, executed, guarded, stateful};

/// A register in which the place of a server can be changed.
#[derive(Clone, Debug, Default)]
struct Register {
    place: Arc<Mutex<Option<String>>>,
    asked: Arc<AtomicUsize>,
}

impl Register {
    fn say(&self, url: &str) {
        *self.place.lock() = Some(url.to_owned());
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl ServerResolver for Register {
    fn resolve<'a>(&'a self, card: &'a ServerCard) -> Stepping<'a, Result<Resolved, Trouble>> {
        let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        Box::pin(async move {
            let place = self.place.lock().clone();
            let token = HeaderValue::try_from(format!("Bearer token-{number}")).unwrap();
            match place {
                Some(url) => Ok(Resolved::at(url)?.header(AUTHORIZATION, token)),
                None => Err(unresolved(format!("`{}` is not registered", card.name))),
            }
        })
    }
}

/// A115, A116, A117: nothing is resolved or connected before the first call; a hundred first calls
/// ask once and shake hands once, at the place of that moment.
#[tokio::test]
async fn the_first_calls_resolve_once_and_not_before() {
    let (old, new) = (stateful(), stateful());
    let register = Register::default();
    register.say(&old.url());
    let warm = engine(Server::resolved("lamp", register.clone()));
    let run = warm.begin();
    let server = run.server("lamp").unwrap();
    assert_eq!((register.asked(), old.counts().connections), (0, 0));
    register.say(&new.url());
    let calls = (0..100).map(|_| server.call("counter", json!({})).into_future());
    for counted in join_all(calls).await {
        counted.unwrap().ok().unwrap();
    }
    assert_eq!(register.asked(), 1);
    assert_eq!(new.ledger().received("initialize"), 1);
    assert_eq!(new.ledger().executions("counter"), 100);
    assert!(old.ledger().entries().is_empty());
    run.end().await;
}

/// A118: the handshake failed; the next call repeats the handshake and asks nobody where it is.
#[tokio::test]
async fn a_failed_handshake_does_not_resolve_again() {
    let ledger = stateful();
    let register = Register::default();
    register.say(&ledger.url());
    let warm = engine(Server::resolved("lamp", register.clone()));
    let run = warm.begin();
    let down = Fault::Reply(Canned::new(500, "down"));
    ledger.inject(Rule::new(down).always());
    let server = run.server("lamp").unwrap();
    assert!(server.call("counter", json!({})).await.is_err());
    ledger.control().clear();
    assert_eq!(count_in(&run).await, 1);
    assert_eq!(register.asked(), 1);
    run.end().await;
}

/// A119: the token that the resolver gave expired; it is asked for another, and the session stays.
#[tokio::test]
async fn a_token_of_the_resolver_is_renewed_after_a_refusal() {
    let ledger = guarded("token-1");
    let register = Register::default();
    register.say(&ledger.url());
    let warm = engine(Server::resolved("lamp", register.clone()));
    let run = warm.begin();
    assert_eq!(count_in(&run).await, 1);
    ledger.control().demand_token("token-2");
    assert_eq!(count_in(&run).await, 2, "state was kept");
    assert_eq!(register.asked(), 2);
    assert_eq!(ledger.ledger().received("initialize"), 1);
    run.end().await;
}

/// Bad input: a resolver that fails is a typed error, nothing is sent, and the next call asks it
/// again.
#[tokio::test]
async fn a_resolver_that_fails_is_told_and_asked_again() {
    let ledger = stateful();
    let register = Register::default();
    let warm = engine(Server::resolved("lamp", register.clone()));
    let run = warm.begin();
    let server = run.server("lamp").unwrap();
    let error = server.call("counter", json!({})).await.unwrap_err();
    assert_eq!(
        (error.code(), error.delivery()),
        (Code::ResolveFailed, Delivery::Unsent)
    );
    assert!(error.to_string().contains("not registered"), "{error}");
    register.say(&ledger.url());
    assert_eq!(count_in(&run).await, 1);
    assert_eq!(executed(&ledger, "counter").len(), 1);
    run.end().await;
}

/// A121, A157: a call by the name that a model knows looks the server up, meets it and calls it; a
/// heal asks neither the resolver nor the store's factory again and opens no connection.
#[tokio::test]
async fn a_heal_asks_neither_resolver_nor_factory_again() {
    let ledger = stateful();
    let register = Register::default();
    register.say(&ledger.url());
    let chosen = Arc::new(AtomicUsize::new(0));
    let choosing = Arc::clone(&chosen);
    let stores = by_server(move |_: &ServerCard| {
        choosing.fetch_add(1, Ordering::SeqCst);
        Some(Arc::new(MemoryStore::new()) as Arc<dyn SessionStore>)
    });
    let builder = Warmline::builder().server(Server::resolved("lamp", register.clone()));
    let builder = builder.vault(Vault::ephemeral().unwrap()).store(stores);
    let warm = builder.build().unwrap();
    let run = warm.begin();
    let server = run.server("lamp").unwrap();
    let counted = async || {
        let counted = server.call_exposed("counter", json!({})).await.unwrap();
        counted.structured::<Value>().unwrap()["count"].clone()
    };
    let asked = || {
        let chosen = chosen.load(Ordering::SeqCst);
        (register.asked(), chosen, ledger.counts().connections)
    };
    assert_eq!(counted().await, 1);
    let before = asked();
    assert_eq!(before.0, 1);
    assert!(before.1 >= 1, "the factory was asked");
    ledger.control().forget_sessions();
    assert_eq!(counted().await, 1, "in a new session");
    assert_eq!(ledger.ledger().received("initialize"), 2);
    assert_eq!(asked(), before);
    run.end().await;
    warm.close().await;
}
