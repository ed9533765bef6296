//! The world of a story: a server that keeps a ledger, an engine, and a gateway in front of it.

use crate::prelude::*;

use warmline::ServerHandle;
use warmline_store::keyring::Keyring;
use warmline_testkit::ServerControl;

use super::census::until;
use super::raw_http::{Legacy, bearer};

/// Where the server of every world is called.
pub(crate) const PATH: &str = "/servers/ledger/mcp";
/// The newest version of legacy clients.
pub(crate) const NEWEST: &str = "2025-11-25";
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
        decide: impl FnOnce(GatewayOptions) -> GatewayOptions,
    ) -> Self {
        Self::knowing(personality, |options, _| decide(options)).await
    }

    /// The same, with what is made by the secrets of this instance.
    pub(crate) async fn knowing(
        personality: Personality,
        decide: impl FnOnce(GatewayOptions, &Keyring) -> GatewayOptions,
    ) -> Self {
        let server = LedgerServer::start(personality).unwrap();
        let declared = Server::http(LEDGER, server.url());
        let warm = Warmline::builder().server(declared).build().unwrap();
        Self::around(server, warm, decide).await
    }

    /// The same, with a server that is declared with more words, and these people, who have tokens.
    pub(crate) async fn declared(
        personality: Personality,
        declare: impl FnOnce(Server) -> Server,
        people: &[&str],
    ) -> Self {
        let server = LedgerServer::start(personality).unwrap();
        let declared = declare(Server::http(LEDGER, server.url()));
        let warm = Warmline::builder().server(declared).build().unwrap();
        Self::around(server, warm, |options, vault| match people {
            [] => options,
            people => known(options, vault, people),
        })
        .await
    }

    /// A server whose sessions are shared like this, and these people, who have tokens.
    pub(crate) async fn shared(per: SessionScope, people: &[&str]) -> Self {
        let shared = |server: Server| server.session_per(per);
        Self::declared(Personality::legacy(), shared, people).await
    }

    /// A gateway in front of a server and an engine that were made for the story.
    pub(crate) async fn around(
        server: LedgerServer,
        warm: Warmline,
        decide: impl FnOnce(GatewayOptions, &Keyring) -> GatewayOptions,
    ) -> Self {
        let options = decide(local(), warm.vault());
        let gateway = Gateway::start(warm.clone(), options).await.unwrap();
        Self {
            server,
            warm,
            gateway,
        }
    }

    /// The same, where Alice and Bob have tokens.
    pub(crate) async fn of_alice(personality: Personality) -> Self {
        Self::declared(personality, |server| server, &["alice", "bob"]).await
    }

    /// Declares another server.
    pub(crate) fn add_server(&self, server: Server) {
        self.warm.add_server(server).unwrap();
    }

    /// What the server is made to do.
    pub(crate) fn control(&self) -> ServerControl {
        self.server.control()
    }

    /// What the server does wrong from now on.
    pub(crate) fn inject(&self, rule: FaultRule) {
        self.server.inject(rule);
    }

    /// How many messages of this method the server got.
    pub(crate) fn received(&self, method: &str) -> usize {
        self.server.ledger().messages_received(method)
    }

    /// Waits until so many calls of a tool have begun at the server.
    pub(crate) async fn under_way(&self, tool: &str, calls: usize) {
        let book = self.server.ledger();
        let is_so = || book.started_executions(tool) == calls;
        until("the calls are under way", is_so).await;
    }

    /// A legacy client of Alice's.
    pub(crate) async fn greet_as_alice(&self, path: &str) -> Legacy {
        Legacy::greet_with(self, path, "2025-11-25", json!({}), bearer("alice")).await
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

    /// Ends the session of a client, and then everything.
    pub(crate) async fn finish_with(self, client: &Legacy) {
        client.delete().await;
        self.finish().await;
    }

    /// Ends everything; nothing was done to the server that must not be.
    pub(crate) async fn finish(self) {
        self.gateway.stop().await;
        self.warm.close().await;
        assert_eq!(self.server.violations(), Vec::<String>::new());
    }
}

/// Waits until so many standing streams are held at a server.
pub(crate) async fn streams_held(control: &ServerControl, streams: usize) {
    let is_so = || control.open_get_streams() == streams;
    until("the streams are held", is_so).await;
}

/// A gateway with its pages for machines that watch.
pub(crate) fn watched(options: GatewayOptions) -> GatewayOptions {
    GatewayOptions {
        ops: Some(([127, 0, 0, 1], 0).into()),
        ..options
    }
}

/// What a gateway of this machine is told.
pub(crate) fn local() -> GatewayOptions {
    GatewayOptions {
        listen: ([127, 0, 0, 1], 0).into(),
        ..GatewayOptions::default()
    }
}

/// An audit of every call, in this file, without what is said in it.
pub(crate) fn audit_into(file: PathBuf) -> AuditOptions {
    AuditOptions {
        file,
        arguments: Vec::new(),
    }
}

/// Tools of a server that are denied to everybody, or all of it.
pub(crate) fn denied(tools: Option<&str>) -> DeclaredAccess {
    let everybody = AccessRule {
        subject: AccessSubject::Everyone,
        tools: tools.map(|pattern| vec![pattern.to_owned()]),
    };
    DeclaredAccess {
        deny: vec![everybody],
        ..DeclaredAccess::default()
    }
}

/// A gateway that lets these people in, each by a token that is called after them.
pub(crate) fn known(options: GatewayOptions, vault: &Keyring, people: &[&str]) -> GatewayOptions {
    let token = |name: &&str| BearerToken::from_text(vault, name, &format!("token-of-{name}"));
    GatewayOptions {
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

/// Lets that much time pass at once, for everything that waits in this runtime.
pub(crate) async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// The lines of an audit.
pub(crate) fn audit_lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}
