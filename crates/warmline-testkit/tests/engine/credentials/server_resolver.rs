//! Servers whose place is looked up at the first call.

use crate::prelude::*;

use http::header::AUTHORIZATION;
use parking_lot::Mutex;
use warmline::SessionStore;
use warmline_engine::server_resolver::{ResolvedServer, ServerResolver, resolve_failed};
use warmline_store::{BoxFuture, ServerDescriptor, store_factory_fn};

use crate::credentials::fixture::{count_in, engine, executed, guarded, stateful};

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
    fn resolve<'a>(
        &'a self,
        card: &'a ServerDescriptor,
    ) -> BoxFuture<'a, Result<ResolvedServer, Diagnostic>> {
        let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        Box::pin(async move {
            let place = self.place.lock().clone();
            let token = HeaderValue::try_from(format!("Bearer token-{number}")).unwrap();
            match place {
                Some(url) => Ok(ResolvedServer::from_url(url)?.header(AUTHORIZATION, token)),
                None => Err(resolve_failed(format!("`{}` is not registered", card.name))),
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
    let run = warm.begin_run();
    let server = run.server("lamp").unwrap();
    assert_eq!((register.asked(), old.counts().connections), (0, 0));
    register.say(&new.url());
    let calls = (0..100).map(|_| server.call("counter", json!({})).into_future());
    for counted in join_all(calls).await {
        counted.unwrap().ok().unwrap();
    }
    assert_eq!(register.asked(), 1);
    assert_eq!(new.ledger().messages_received("initialize"), 1);
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
    let run = warm.begin_run();
    let down = Fault::Reply(CannedReply::new(500, "down"));
    ledger.inject(FaultRule::new(down).always());
    let server = run.server("lamp").unwrap();
    assert!(server.call("counter", json!({})).await.is_err());
    ledger.control().clear_faults();
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
    let run = warm.begin_run();
    assert_eq!(count_in(&run).await, 1);
    ledger.control().require_token("token-2");
    assert_eq!(count_in(&run).await, 2, "state was kept");
    assert_eq!(register.asked(), 2);
    assert_eq!(ledger.ledger().messages_received("initialize"), 1);
    run.end().await;
}

/// Bad input: a resolver that fails is a typed error, nothing is sent, and the next call asks it
/// again.
#[tokio::test]
async fn a_resolver_that_fails_is_told_and_asked_again() {
    let ledger = stateful();
    let register = Register::default();
    let warm = engine(Server::resolved("lamp", register.clone()));
    let run = warm.begin_run();
    let server = run.server("lamp").unwrap();
    let error = server.call("counter", json!({})).await.unwrap_err();
    let delivery = (error.code(), error.delivery());
    assert_eq!(delivery, (Code::ResolveFailed, Delivery::Unsent));
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
    let stores = store_factory_fn(move |_: &ServerDescriptor| {
        choosing.fetch_add(1, Ordering::SeqCst);
        Some(Arc::new(MemoryStore::new()) as Arc<dyn SessionStore>)
    });
    let builder = Warmline::builder().server(Server::resolved("lamp", register.clone()));
    let builder = builder.vault(Keyring::ephemeral().unwrap()).store(stores);
    let warm = builder.build().unwrap();
    let run = warm.begin_run();
    let server = run.server("lamp").unwrap();
    let counted = async || {
        let counted = server
            .call_by_exposed_name("counter", json!({}))
            .await
            .unwrap();
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
    assert_eq!(ledger.ledger().messages_received("initialize"), 2);
    assert_eq!(asked(), before);
    run.end().await;
    warm.close().await;
}
