//! The world of a story: a server that keeps a ledger, an engine, and a gateway in front of it.

use std::time::Duration;

use serde_json::{Value, json};
use warmline::{Server, ServerHandle, Vault, Warmline};
use warmline_gateway::{Auth, Gateway, Options, Token};
use warmline_testkit::{LedgerServer, Personality};

use super::wire::Legacy;

/// The name of the server in every world.
pub(crate) const LEDGER: &str = "ledger";

/// A server behind a gateway.
pub(crate) struct World {
    pub(crate) server: LedgerServer,
    pub(crate) warm: Warmline,
    pub(crate) gateway: Gateway,
}

impl World {
    /// A server of this kind behind a gateway that asks nobody who they are.
    pub(crate) async fn new(personality: Personality) -> Self {
        Self::with(personality, |options| options).await
    }

    /// The same, with a gateway that is told more.
    pub(crate) async fn with(
        personality: Personality,
        decide: impl FnOnce(Options) -> Options,
    ) -> Self {
        Self::knowing(personality, |options, _| decide(options)).await
    }

    /// The same, with what is made by the secrets of this instance.
    pub(crate) async fn knowing(
        personality: Personality,
        decide: impl FnOnce(Options, &Vault) -> Options,
    ) -> Self {
        let server = LedgerServer::start(personality).unwrap();
        let declared = Server::http(LEDGER, server.url());
        let warm = Warmline::builder().server(declared).build().unwrap();
        Self::around(server, warm, decide).await
    }

    /// A gateway in front of a server and an engine that were made for the story.
    pub(crate) async fn around(
        server: LedgerServer,
        warm: Warmline,
        decide: impl FnOnce(Options, &Vault) -> Options,
    ) -> Self {
        let usual = Options {
            listen: ([127, 0, 0, 1], 0).into(),
            ..Options::default()
        };
        let options = decide(usual, warm.vault());
        let gateway = Gateway::start(warm.clone(), options).await.unwrap();
        Self {
            server,
            warm,
            gateway,
        }
    }

    /// The same, where Alice and Bob have tokens.
    pub(crate) async fn of_alice(personality: Personality) -> Self {
        Self::knowing(personality, |options, vault| {
            known(options, vault, &["alice", "bob"])
        })
        .await
    }

    /// A legacy client of Alice's.
    pub(crate) async fn greet_as_alice(&self, path: &str) -> Legacy {
        let shown = [(
            "Authorization".to_owned(),
            "Bearer token-of-alice".to_owned(),
        )];
        Legacy::greet_with(self, path, "2025-11-25", json!({}), shown.to_vec()).await
    }

    /// The URL of a path of the gateway.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.gateway.address())
    }

    /// A program with a client of its own that calls through the gateway.
    pub(crate) fn client(&self, path: &str) -> Warmline {
        let through = Server::http("through", self.url(path));
        Warmline::builder().server(through).build().unwrap()
    }

    /// Ends everything; nothing was done to the server that must not be.
    pub(crate) async fn finish(self) {
        self.gateway.stop().await;
        self.warm.close().await;
        assert_eq!(self.server.violations(), Vec::<String>::new());
    }
}

/// A gateway that lets these people in, each by a token that is called after them.
pub(crate) fn known(options: Options, vault: &Vault, people: &[&str]) -> Options {
    let token = |name: &&str| Token::of(vault, name, &format!("token-of-{name}"));
    Options {
        auth: Auth::tokens(people.iter().map(token).collect()),
        ..options
    }
}

/// One more call of the counter, which counts in its session.
pub(crate) async fn count(handle: &ServerHandle) -> i64 {
    let result = handle.call("counter", json!({})).await.unwrap();
    result.structured::<Value>().unwrap()["count"]
        .as_i64()
        .unwrap()
}

/// Waits until a condition holds; the words say what did not come true.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), waiting).await;
    assert!(waited.is_ok(), "it must come true that {what}");
}
