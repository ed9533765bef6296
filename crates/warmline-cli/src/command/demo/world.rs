//! The two servers of the demo, and the two ways to use them.

use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use warmline::core::code::Code;
use warmline::core::delivery::Delivery;
use warmline::core::era::Era;
use warmline::core::exchange::{Ending, Reply, Request};
use warmline::core::protocol::params::Params;
use warmline::upstream::{Declared, Server, Session, Upstream};

use crate::clock;
use crate::content::rendered;
use crate::problem::{Outcome, Problem};

/// A server of the demo and how to reach it.
#[derive(Debug)]
pub(super) struct World {
    upstream: Upstream,
    server: Server,
}

/// What came of a call.
#[derive(Debug)]
pub(super) enum Heard {
    Result(Value),
    Lost(Delivery),
}

impl World {
    /// This very program, started as a server over stdio.
    pub(super) fn stdio() -> Outcome<Self> {
        let program = std::env::current_exe().map_err(|error| bug(&error.to_string()))?;
        let args = ["demo-server", "--stdio", "--era", "legacy"];
        let server = Server::stdio("demo", program.to_string_lossy(), args);
        Ok(Self::of(server))
    }

    /// A server that listens already.
    pub(super) fn http(url: &str) -> Outcome<Self> {
        let url = url.parse().map_err(|_| bug("the demo server has no URL"))?;
        Ok(Self::of(Server::http("demo", url)))
    }

    fn of(mut server: Server) -> Self {
        server.era = Some(Era::Legacy);
        Self {
            upstream: Upstream::new(),
            server,
        }
    }

    pub(super) async fn open(&self) -> Outcome<Session> {
        let opened = Box::pin(self.upstream.open(&self.server, &Declared::default())).await;
        opened.map_err(|trouble| Problem::of_trouble(&trouble, Delivery::Unsent))
    }

    /// A call that must be answered.
    pub(super) async fn call(&self, session: &Session, tool: &str, args: &str) -> Outcome<Answer> {
        match self.attempt(session, tool, args).await? {
            Heard::Result(result) => Ok(Answer(result)),
            Heard::Lost(delivery) => Err(bug("the demo server did not answer").delivered(delivery)),
        }
    }

    /// A call that may be lost.
    pub(super) async fn attempt(
        &self,
        session: &Session,
        tool: &str,
        args: &str,
    ) -> Outcome<Heard> {
        let raw = Bytes::from(format!("{{\"name\":\"{tool}\",\"arguments\":{args}}}"));
        let params = Params::parse(raw).map_err(|error| bug(&error.to_string()))?;
        let request = Request::new("tools/call", params);
        match Box::pin(session.call(request, &())).await {
            Ending::Answered(Reply::Result(raw)) => Ok(Heard::Result(
                serde_json::from_slice(&raw).unwrap_or_default(),
            )),
            Ending::Answered(Reply::Error(raw)) => Err(bug(&String::from_utf8_lossy(&raw))),
            Ending::Failed(failure) => Ok(Heard::Lost(failure.delivery())),
        }
    }

    /// The usual way: open, call, close, for every call.
    pub(super) async fn time_per_call(&self, calls: u32) -> Outcome<Duration> {
        let begun = clock::now();
        for _ in 0..calls {
            let session = self.open().await?;
            self.call(&session, "counter", "{}").await?;
            session.close().await;
        }
        Ok(begun.elapsed())
    }

    /// The same calls on one session. Opening it counts too.
    pub(super) async fn time_held(&self, calls: u32) -> Outcome<Duration> {
        let begun = clock::now();
        let session = self.open().await?;
        for _ in 0..calls {
            self.call(&session, "counter", "{}").await?;
        }
        session.close().await;
        Ok(begun.elapsed())
    }
}

/// A tool's answer.
#[derive(Debug)]
pub(super) struct Answer(Value);

impl Answer {
    pub(super) fn number(&self, at: &str) -> i64 {
        self.0
            .pointer(at)
            .and_then(Value::as_i64)
            .unwrap_or_default()
    }

    pub(super) fn text(&self) -> String {
        rendered(&self.0)
    }
}

fn bug(why: &str) -> Problem {
    Problem::new(Code::Bug, "the demo does not get on with its own server").because(why)
}
