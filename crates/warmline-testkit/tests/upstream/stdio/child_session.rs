//! An open session with a child, and the words to talk to it.

use crate::prelude::*;

use rustix::process::{Pid, Signal, kill_process};
use warmline_core::exchange::{AttemptFailure, Deadlines};

/// A program that runs, and the session with it.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) program: Program,
    pub(crate) session: Session,
}

impl Child {
    /// The ledger server, spoken to in this era.
    pub(crate) async fn ledger(era: Era, args: &[&str]) -> Self {
        Self::start(Program::ledger(args), era).await
    }

    /// A script that has gone through the legacy handshake before its first line.
    pub(crate) async fn script(script: &str) -> Self {
        Self::start(
            Program::script(&format!("{HANDSHAKE}{script}")),
            Era::Legacy,
        )
        .await
    }

    pub(crate) async fn start(program: Program, era: Era) -> Self {
        let server = program.server();
        Self::of(
            program,
            ServerTarget {
                era: Some(era),
                ..server
            },
        )
        .await
    }

    /// A program that is started as this server says.
    pub(crate) async fn of(program: Program, server: ServerTarget) -> Self {
        let declared = ClientProfile {
            capabilities: Bytes::from_static(br#"{"elicitation":{},"sampling":{},"roots":{}}"#),
            ..ClientProfile::default()
        };
        let session = Upstream::new().open(&server, &declared).await;
        let session = session.unwrap_or_else(|trouble| panic!("{trouble:?}"));
        Self { program, session }
    }

    /// Calls a tool with all the patience there is.
    pub(crate) async fn call(&self, name: &str, arguments: Value) -> AttemptResult {
        self.session.call(tool(name, arguments), &()).await
    }

    /// Calls a tool that has this long.
    pub(crate) async fn call_within(&self, ms: u64, name: &str, arguments: Value) -> AttemptResult {
        let limit = Duration::from_millis(ms);
        let patience = Deadlines {
            idle: limit,
            total: limit,
        };
        self.session
            .call(tool(name, arguments).with_deadlines(patience), &())
            .await
    }

    /// The session works: a call gets its own answer.
    pub(crate) async fn works(&self) {
        let value = json!({"unique": fastrand::u64(..)});
        let result = result(self.call("echo", value.clone()).await);
        assert_eq!(result["structuredContent"]["arguments"], value);
    }

    /// How often a tool was executed to its end, over all processes.
    pub(crate) fn executions(&self, tool: &str) -> usize {
        let lines = self.program.lives().concat();
        lines
            .iter()
            .filter(|line| line["phase"] == "commit" && line["tool"] == tool)
            .count()
    }

    /// Waits until the program has written a line like this to its ledger.
    pub(crate) async fn until_line(&self, what: &str, fits: impl Fn(&Value) -> bool) {
        until(what, || self.program.lives().concat().iter().any(&fits)).await;
    }

    /// Waits until the program has said this on its standard error.
    pub(crate) async fn until_said(&self, words: &str) {
        until(words, || self.said().contains(words)).await;
    }

    /// The end of the program's standard error.
    pub(crate) fn said(&self) -> String {
        self.session.child().unwrap().stderr_tail
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.session.child().unwrap().pid).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// The census after a session that ended by itself, or is ended now.
    pub(crate) async fn ends(self) {
        self.session.close().await;
        drop(self.session);
        no_task_left().await;
        self.program.gone().await;
    }
}

/// `initialize` and `notifications/initialized`.
pub(crate) const HANDSHAKE: &str = r#"
hear
reply '{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"script","version":"1"}}'
hear
"#;

pub(crate) fn tool(name: &str, arguments: Value) -> Request {
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

/// The JSON-RPC error of a call that must have one.
pub(crate) fn error(ending: &AttemptResult) -> Value {
    match ending {
        AttemptResult::Answered(Reply::Error(raw)) => serde_json::from_slice(raw).unwrap(),
        AttemptResult::Answered(Reply::Result(_)) | AttemptResult::Failed(_) => {
            panic!("{ending:?}")
        },
    }
}

/// The failure of a call that must fail like this.
#[track_caller]
pub(crate) fn failed(ending: AttemptResult, delivery: Delivery, reason: Reason) -> AttemptFailure {
    match ending {
        AttemptResult::Failed(failure) => {
            let seen = (failure.delivery(), failure.diagnostic.reason);
            assert_eq!(seen, (delivery, reason), "{failure:?}");
            *failure
        },
        AttemptResult::Answered(reply) => panic!("answered: {reply:?}"),
    }
}

pub(crate) const ERAS: [Era; 2] = [Era::Legacy, Era::Modern];
