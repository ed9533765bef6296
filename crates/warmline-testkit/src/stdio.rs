//! The ledger server over pipes: one client, one process, one line for each message.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::{Notify, mpsc};

use crate::answer;
use crate::call::{Call, Era, Quirk};
use crate::fault::{CutAt, Executes, Fault, Moment};
use crate::ledger::{Facts, Phase, arguments_of};
use crate::message::{Kind, RpcError, kind, response};
use crate::personality::{EraLock, LegacyLeg, ModernLeg};
use crate::spoil::texts;
use crate::state::{Session, State};
use crate::stream::Stream;

/// The name of the one session of a pipe, in the ledger.
const PIPE: &str = "stdio";

/// Why a server over pipes ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// The client closed the server's input.
    InputEnded,
    /// It was told to crash.
    Crashed,
}

/// What goes to the client.
enum Out {
    Bytes(Vec<u8>),
    /// Close the output and live on.
    Close,
}

/// One client on a pair of pipes.
struct Pipe {
    state: Arc<State>,
    out: mpsc::Sender<Out>,
}

/// Serves a client until its input ends, or the server is told to crash.
///
/// After `read_limit` messages nothing is read any more.
pub(crate) async fn serve<R, W>(
    state: Arc<State>,
    input: R,
    output: W,
    read_limit: Option<u64>,
) -> io::Result<Ending>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (out, outgoing) = mpsc::channel(1024);
    let writer = tokio::spawn(write(output, outgoing));
    let pipe = Arc::new(Pipe {
        state: Arc::clone(&state),
        out,
    });
    let ending = tokio::select! {
        biased;
        () = state.crash.notified() => Ok(Ending::Crashed),
        read = read(&pipe, input, read_limit) => read.map(|()| Ending::InputEnded),
    };
    writer.abort();
    ending
}

async fn write<W: AsyncWrite + Unpin>(output: W, mut outgoing: mpsc::Receiver<Out>) {
    let mut output = Some(output);
    while let Some(out) = outgoing.recv().await {
        match (out, output.as_mut()) {
            (Out::Bytes(bytes), Some(open)) => {
                let written = open.write_all(&bytes).await;
                if written.is_err() || open.flush().await.is_err() {
                    output = None;
                }
            },
            (Out::Close, Some(open)) => {
                drop(open.shutdown().await);
                output = None;
            },
            (Out::Bytes(_) | Out::Close, None) => {},
        }
    }
}

async fn read<R>(pipe: &Arc<Pipe>, input: R, limit: Option<u64>) -> io::Result<()>
where
    R: AsyncRead + Unpin,
{
    let mut lines = BufReader::new(input);
    let mut count = 0;
    loop {
        if limit.is_some_and(|limit| count >= limit) {
            std::future::pending::<()>().await;
        }
        let mut line = Vec::new();
        if lines.read_until(b'\n', &mut line).await? == 0 {
            return Ok(());
        }
        count += 1;
        match serde_json::from_slice(&line) {
            Ok(message) => pipe.receive(message),
            Err(_) => pipe.state.violation("a line on stdin is not JSON"),
        }
    }
}

impl Pipe {
    fn receive(self: &Arc<Self>, message: Value) {
        self.state.counts.requests.fetch_add(1, Ordering::Relaxed);
        let facts = self.facts(&message);
        self.state.ledger.write(Phase::Received, &facts);
        match kind(&message) {
            Kind::Request => {
                let fault = self.state.fault(&facts, &message);
                drop(tokio::spawn(Arc::clone(self).answer(message, facts, fault)));
            },
            Kind::Notification => self.notice(&message),
            Kind::Response => self.settle_question(message),
            Kind::Malformed => self.state.violation("a line is not one JSON-RPC message"),
        }
    }

    fn facts(&self, message: &Value) -> Facts {
        let params = &message["params"];
        let method = message["method"]
            .as_str()
            .unwrap_or("(response)")
            .to_owned();
        let tool = (method == "tools/call").then(|| params["name"].as_str().unwrap_or_default());
        let era = self.era(message);
        Facts {
            era: era.word(),
            connection: 1,
            session: (era == Era::Legacy).then(|| PIPE.to_owned()),
            arguments: arguments_of(message),
            tool: tool.map(str::to_owned),
            method,
            meta: params["_meta"].clone(),
            id: message["id"].clone(),
            credential: None,
            extra: BTreeMap::new(),
        }
    }

    fn era(&self, message: &Value) -> Era {
        let meta = &message["params"]["_meta"];
        let claims = meta
            .get("io.modelcontextprotocol/protocolVersion")
            .is_some();
        match self.state.personality.modern {
            ModernLeg::Unknown => Era::Legacy,
            ModernLeg::Served | ModernLeg::RefusedByVersion if claims => Era::Modern,
            ModernLeg::Served | ModernLeg::RefusedByVersion => Era::Legacy,
        }
    }

    async fn answer(self: Arc<Self>, message: Value, facts: Facts, fault: Option<Fault>) {
        let id = facts.id.clone();
        if self.before(&id, fault.as_ref()).await == Go::Stop {
            return;
        }
        let quirk = fault.as_ref().map(Quirk::of).unwrap_or_default();
        let era = self.era(&message);
        let call = Call {
            state: Arc::clone(&self.state),
            era,
            session: facts.session.clone(),
            id: id.clone(),
            method: facts.method.clone(),
            params: message["params"].clone(),
            stream: Stream::new(format!("p{}", self.state.next_stream())),
            facts,
            quirk,
            cancelled: Arc::new(Notify::new()),
        };
        if let Some(error) = self.refused(&call) {
            // What is not executed is late all the same.
            tokio::time::sleep(call.quirk.delay).await;
            return self.say(&response(&id, &Err(error))).await;
        }
        let stream = Arc::clone(&call.stream);
        drop(tokio::spawn(call.run()));
        self.forward(&stream, fault.as_ref()).await;
    }

    /// Faults that strike before anything is done.
    async fn before(&self, id: &Value, fault: Option<&Fault>) -> Go {
        let line = match fault {
            Some(Fault::ForgetSessions) => {
                self.state.forget_sessions();
                return Go::On;
            },
            Some(Fault::Silence(Moment::BeforeExecuting)) => return Go::Stop,
            Some(Fault::Crash(Moment::BeforeExecuting)) => {
                self.state.crash.notify_one();
                return Go::Stop;
            },
            Some(Fault::Cut(CutAt::BeforeExecuting, _)) => {
                self.send(Out::Close).await;
                return Go::Stop;
            },
            Some(Fault::Error {
                code,
                message,
                data,
            }) => {
                let mut error = RpcError::new(*code, message.as_str());
                error.data = (!data.is_null()).then(|| data.clone());
                response(id, &Err(error)).to_string()
            },
            Some(Fault::Result(result)) => response(id, &Ok(result.clone())).to_string(),
            Some(Fault::Reply(canned)) if canned.executes == Executes::No => {
                crate::dialects::fill(&canned.body, id, None)
            },
            _ => return Go::On,
        };
        self.send(Out::Bytes(format!("{line}\n").into_bytes()))
            .await;
        Go::Stop
    }

    /// The rules of the eras on a pipe.
    fn refused(self: &Arc<Self>, call: &Call) -> Option<RpcError> {
        match call.era {
            Era::Modern => self.modern_refused(call),
            Era::Legacy => self.legacy_refused(call),
        }
    }

    /// A pipe that has turned modern may refuse to turn back.
    fn locked(&self, call: &Call) -> Option<RpcError> {
        let personality = &self.state.personality;
        let locked = personality.lock == EraLock::FirstWins && self.state.memory().seen_modern;
        locked.then(|| {
            let requested = &call.params["protocolVersion"];
            let data = json!({"supported": personality.modern_versions, "requested": requested});
            RpcError::with_data(
                -32022,
                "connection is serving the 2026-07-28 protocol",
                data,
            )
        })
    }

    fn modern_refused(&self, call: &Call) -> Option<RpcError> {
        self.state.memory().seen_modern = true;
        let meta = &call.params["_meta"];
        if !meta["io.modelcontextprotocol/clientCapabilities"].is_object() {
            self.state
                .violation("params._meta lacks io.modelcontextprotocol/clientCapabilities");
            return Some(RpcError::invalid_params("params._meta is incomplete"));
        }
        let version = &meta["io.modelcontextprotocol/protocolVersion"];
        let served = match self.state.personality.modern {
            ModernLeg::RefusedByVersion => &self.state.personality.legacy_versions,
            ModernLeg::Served | ModernLeg::Unknown => &self.state.personality.modern_versions,
        };
        if self
            .state
            .memory()
            .running
            .contains_key(&(None, call.id.to_string()))
        {
            self.state
                .violation(format!("id {} is still in flight", call.id));
        }
        let fits = served.iter().any(|one| version == one.as_str());
        let data = json!({"supported": served, "requested": version});
        (!fits).then(|| RpcError::with_data(-32022, "Unsupported protocol version", data))
    }

    fn legacy_refused(self: &Arc<Self>, call: &Call) -> Option<RpcError> {
        if call.method == "initialize" {
            self.state
                .counts
                .initializes
                .fetch_add(1, Ordering::Relaxed);
            if let Some(error) = answer::refuses_initialize(call).or_else(|| self.locked(call)) {
                return Some(error);
            }
            self.open(call);
        } else if self.state.personality.legacy == LegacyLeg::Refused {
            return Some(RpcError::invalid_params("params._meta is missing"));
        } else if !self.state.memory().sessions.contains_key(PIPE) {
            if call.method != "server/discover" {
                self.state
                    .violation(format!("{} before initialize", call.method));
            }
            return Some(RpcError::new(-32601, "Method not found"));
        }
        self.check_ids(call);
        self.state.check_readiness(Some(PIPE), &call.method);
        None
    }

    fn open(self: &Arc<Self>, call: &Call) {
        let mut session = Session::new(
            &answer::negotiated(call),
            call.params["capabilities"].clone(),
        );
        let standing = Stream::new("pipe");
        session.standing = Some(Arc::clone(&standing));
        self.state.counts.sessions.fetch_add(1, Ordering::Relaxed);
        self.state
            .memory()
            .sessions
            .insert(PIPE.to_owned(), session);
        let pipe = Arc::clone(self);
        drop(tokio::spawn(
            async move { pipe.forward(&standing, None).await },
        ));
    }

    fn check_ids(&self, call: &Call) {
        let token = &call.params["_meta"]["progressToken"];
        let mut memory = self.state.memory();
        let Some(session) = memory.sessions.get_mut(PIPE) else {
            return;
        };
        if !session.ids.insert(call.id.to_string()) {
            self.state
                .violation(format!("id {} was used twice in a session", call.id));
        }
        if !token.is_null() && !session.tokens.insert(token.to_string()) {
            self.state
                .violation(format!("progress token {token} is used twice at a time"));
        }
    }

    /// Carries what a call says to the client, spoilt as told.
    async fn forward(&self, stream: &Stream, fault: Option<&Fault>) {
        let mut place = 0;
        while let Some(message) = stream.at(place).await {
            place += 1;
            let is_response = message.get("method").is_none();
            if is_response && self.after(&message, fault).await == Go::Stop {
                return;
            }
            for mut text in texts(fault.filter(|_| is_response), &message) {
                text.push(b'\n');
                self.send(Out::Bytes(text)).await;
            }
        }
    }

    /// Faults that strike when the effect is done and the response is ready.
    async fn after(&self, response: &Value, fault: Option<&Fault>) -> Go {
        match fault {
            Some(Fault::Silence(Moment::AfterExecuting)) => Go::Stop,
            Some(Fault::Delay(ms, Moment::AfterExecuting)) => {
                tokio::time::sleep(Duration::from_millis(*ms)).await;
                Go::On
            },
            Some(Fault::Crash(Moment::AfterExecuting)) => {
                self.state.crash.notify_one();
                Go::Stop
            },
            Some(Fault::Reply(canned)) => {
                let line = crate::dialects::fill(&canned.body, &response["id"], None);
                self.send(Out::Bytes(format!("{line}\n").into_bytes()))
                    .await;
                Go::Stop
            },
            Some(Fault::Cut(at, _)) => {
                let text = response.to_string().into_bytes();
                if let CutAt::InBody(count) = at {
                    let part = text.get(..*count).unwrap_or(&text).to_vec();
                    self.send(Out::Bytes(part)).await;
                }
                self.send(Out::Close).await;
                Go::Stop
            },
            _ => Go::On,
        }
    }

    fn notice(&self, message: &Value) {
        if message["method"] == "notifications/initialized" {
            self.state
                .check_readiness(Some(PIPE), "notifications/initialized");
        }
        if message["method"] != "notifications/cancelled" {
            return;
        }
        let id = message["params"]["requestId"].to_string();
        let memory = self.state.memory();
        for session in [None, Some(PIPE.to_owned())] {
            if let Some(running) = memory.running.get(&(session, id.clone())) {
                running.notify_one();
            }
        }
    }

    fn settle_question(&self, message: Value) {
        let id = message["id"].to_string();
        let waiting = self
            .state
            .memory()
            .questions
            .remove(&(Some(PIPE.to_owned()), id));
        match waiting {
            Some(waiting) => drop(waiting.send(message)),
            None => self
                .state
                .violation("an answer to a question that was never asked"),
        }
    }

    async fn say(&self, message: &Value) {
        self.send(Out::Bytes(format!("{message}\n").into_bytes()))
            .await;
    }

    async fn send(&self, out: Out) {
        // A writer that is gone means the server is ending.
        self.out.send(out).await.unwrap_or_default();
    }
}

#[derive(PartialEq, Eq)]
enum Go {
    On,
    Stop,
}
