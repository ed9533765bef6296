//! A server of either transport, a census of what was alive before, and calls that must work.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use warmline_core::era::Era;
use warmline_core::exchange::{AttemptResult, Reply, Request};
use warmline_core::message::params::Params;
use warmline_testkit::{Census, Fault, FaultRule, LedgerServer, Personality};
use warmline_upstream::{ClientProfile, Listener, ServerTarget, Session, Upstream};

use crate::census::until;
use crate::http_sse_server::OldServer;
use crate::stdio_program::Program;

/// How soon all must be as it was.
const SETTLES_WITHIN: Duration = Duration::from_secs(20);

/// Plays a story while no other runs in this process: what is counted belongs to all of it.
pub(crate) fn play(story: impl Future<Output = ()>) {
    crate::play_alone(async {
        // The first child of a process opens what all later ones share.
        let first = tokio::process::Command::new("true").status();
        assert!(first.await.unwrap().success());
        story.await;
    });
}

/// A server, and what was alive when nobody talked to it.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) server: ServerTarget,
    pub(crate) declared: ClientProfile,
    behind: Behind,
    quiet: Census,
}

/// Who serves.
#[derive(Debug)]
enum Behind {
    Url(LedgerServer),
    TwoEndpoints(OldServer),
    Pipes(Program),
}

impl Scene {
    /// A server behind a URL. Idle connections end at once, so that the census comes out even.
    pub(crate) fn http(personality: Personality, era: Option<Era>) -> Self {
        let ledger = LedgerServer::start(personality).unwrap();
        let server = ServerTarget::http("scene", ledger.url().parse().unwrap());
        Self::of(server, era, Behind::Url(ledger))
    }

    /// The same server, doing this to every call of a tool.
    pub(crate) fn always(self, tool: &str, fault: Fault) -> Self {
        if let Behind::Url(ledger) = &self.behind {
            ledger.inject(FaultRule::new(fault).on_tool(tool).always());
        }
        self
    }

    /// A server of the transport of 2024-11-05, which only gives arguments back.
    pub(crate) fn two_endpoints() -> Self {
        let old = OldServer::start();
        let server = ServerTarget::http("scene", old.url().parse().unwrap());
        Self::of(server, None, Behind::TwoEndpoints(old))
    }

    /// A server that is a child.
    pub(crate) fn stdio(args: &[&str], era: Option<Era>) -> Self {
        let program = Program::ledger(args);
        Self::of(program.server(), era, Behind::Pipes(program))
    }

    fn of(mut server: ServerTarget, era: Option<Era>, behind: Behind) -> Self {
        server.era = era;
        server.timeouts.connection_idle = Duration::from_millis(10);
        let declared = ClientProfile {
            capabilities: Bytes::from_static(br#"{"elicitation":{},"sampling":{},"roots":{}}"#),
            ..ClientProfile::default()
        };
        Self {
            server,
            declared,
            behind,
            quiet: Census::take(),
        }
    }

    pub(crate) async fn open(&self, upstream: &Upstream) -> Session {
        let opened = upstream.open(&self.server, &self.declared).await;
        opened.unwrap_or_else(|trouble| panic!("{trouble:?}"))
    }

    /// Opens a session, and takes the census again once it rests.
    pub(crate) async fn rest(&mut self) -> Session {
        let session = self.open(&Upstream::new()).await;
        echoes(&session).await;
        match &self.behind {
            Behind::Url(ledger) => {
                let open = || ledger.counts().open_connections;
                until("the connections rest", || open() == 0).await;
                self.settles("the session rests").await;
            },
            // The stream is the session.
            Behind::TwoEndpoints(old) => {
                until("only the stream is open", || old.connections() == 1).await;
            },
            Behind::Pipes(_) => {},
        }
        self.quiet = Census::take();
        session
    }

    /// A new session works, and can be ended.
    pub(crate) async fn opens_and_works(&self, upstream: &Upstream) {
        let session = self.open(upstream).await;
        echoes(&session).await;
        session.close().await;
    }

    /// The census: all is as it was.
    pub(crate) async fn settles(&self, when: &str) {
        if let Err(leaks) = self.quiet.wait_until_clean(SETTLES_WITHIN).await {
            panic!("{when}: {leaks}");
        }
    }

    /// All is over: nothing is left, and nothing was done that a client must not do.
    pub(crate) async fn ends(self) {
        match self.behind {
            Behind::Url(ledger) => {
                let violations = ledger.violations();
                assert!(violations.is_empty(), "{violations:?}");
            },
            Behind::TwoEndpoints(old) => {
                until("no connection is left", || old.connections() == 0).await;
                assert!(old.heard().contains(&"GET".to_owned()));
            },
            Behind::Pipes(program) => program.gone().await,
        }
    }
}

pub(crate) fn tool(name: &str, arguments: &Value) -> Request {
    let params = json!({"name": name, "arguments": arguments});
    Request::new("tools/call", Params::from_serialize(&params).unwrap())
}

/// The result of a call that must have one.
pub(crate) fn result(ending: AttemptResult) -> Value {
    match ending {
        AttemptResult::Answered(Reply::Result(raw)) => serde_json::from_slice(&raw).unwrap(),
        AttemptResult::Answered(Reply::Error(raw)) => panic!("{}", String::from_utf8_lossy(&raw)),
        AttemptResult::Failed(failure) => panic!("{failure:?}"),
    }
}

/// Three calls side by side, each of which must get its own answer.
pub(crate) async fn echoes(session: &Session) {
    let echo = async || {
        let value = json!({"unique": fastrand::u64(..)});
        let result = result(Box::pin(session.call(tool("echo", &value), &())).await);
        assert_eq!(result["structuredContent"]["arguments"], value);
    };
    tokio::join!(echo(), echo(), echo());
}

/// Sends a request once, as the sweep needs it: a future that owns nothing but its request.
pub(crate) async fn send(
    session: &Session,
    request: Request,
    listener: &dyn Listener,
) -> AttemptResult {
    session.send(request, listener).await
}
