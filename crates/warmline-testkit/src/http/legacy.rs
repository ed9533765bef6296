//! The rules of the legacy era over HTTP: sessions, versions, the standing stream.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use serde_json::Value;

use super::reply::Reply;
use super::serve::{Answer, Exchange};
use crate::answer;
use crate::call::{Call, Era};
use crate::dialects::{Dialect, Effect, Words};
use crate::message::{Kind, kind, response};
use crate::personality::{EventIds, GetStream, LegacyLeg};
use crate::state::{Ended, Readiness, Session};
use crate::stream::Stream;

impl Exchange<'_> {
    /// A POST of the legacy era.
    pub(crate) fn legacy_post(&mut self) -> Answer {
        if let Some(refusal) = self.content_refused() {
            return refusal.into();
        }
        if self.facts.method == "initialize" {
            return self.open();
        }
        match self.session(|dialect| dialect.post) {
            Err(refusal) => refusal.into(),
            Ok(session) => self.in_session(session),
        }
    }

    fn in_session(&mut self, session: Option<String>) -> Answer {
        match kind(self.message) {
            Kind::Request => {
                self.check_ids(session.as_deref());
                self.state
                    .check_readiness(session.as_deref(), &self.facts.method);
                let call = self.call(Era::Legacy, session);
                self.keep_stream(&call);
                Answer::Run(Box::new(call), Vec::new())
            },
            Kind::Notification => {
                self.legacy_notice(session.as_ref());
                Reply::empty(202).into()
            },
            Kind::Response => {
                self.settle_question(session);
                Reply::empty(202).into()
            },
            Kind::Malformed => {
                self.state.violation("the body is not one JSON-RPC message");
                Reply::error(400, &Value::Null, -32600, "Invalid Request").into()
            },
        }
    }

    /// `initialize`: gives a session where the server keeps any.
    fn open(&mut self) -> Answer {
        self.state
            .counts
            .initializes
            .fetch_add(1, Ordering::Relaxed);
        if kind(self.message) != Kind::Request {
            self.state.violation("initialize is not a request");
        }
        if let Some(refusal) = self.stale_initialize() {
            return refusal.into();
        }
        let mut call = self.call(Era::Legacy, None);
        if let Some(error) = answer::refuses_initialize(&call) {
            return Reply::json(400, &response(&call.id, &Err(error))).into();
        }
        if self.state.personality.legacy == LegacyLeg::Stateless {
            return Answer::Run(Box::new(call), Vec::new());
        }
        let id = self.quirk.session_id.clone().unwrap_or_else(new_session_id);
        let version = answer::negotiated(&call);
        let session = Session::new(&version, call.params["capabilities"].clone());
        self.state.counts.sessions.fetch_add(1, Ordering::Relaxed);
        let mut memory = self.state.memory();
        memory.issued.insert(id.clone(), Ended::NotByClient);
        memory.sessions.insert(id.clone(), session);
        drop(memory);
        self.check_ids(Some(&id));
        call.session = Some(id.clone());
        call.facts.session = Some(id.clone());
        self.keep_stream(&call);
        Answer::Run(Box::new(call), vec![("Mcp-Session-Id".to_owned(), id)])
    }

    /// An `initialize` must not carry a session id; many servers refuse one that does.
    fn stale_initialize(&self) -> Option<Reply> {
        let carried = self.request.header("mcp-session-id")?;
        self.state.violation("initialize carries a session id");
        let words = self.state.personality.gone.initialize;
        let known = self.state.memory().sessions.contains_key(carried);
        (!known && words.effect == Effect::NotExecuted).then(|| self.words(&words))
    }

    /// The session a request belongs to, or its refusal.
    fn session(&self, which: impl Fn(&Dialect) -> Words) -> Result<Option<String>, Reply> {
        let carried = self.request.header("mcp-session-id");
        let personality = &self.state.personality;
        match (personality.legacy, carried) {
            (LegacyLeg::Refused, _) => Err(self.unsupported_version()),
            (LegacyLeg::Stateless, carried) => {
                if carried.is_some() {
                    self.state
                        .violation("a session id was sent that nobody gave");
                }
                self.version_refused(None).map_or(Ok(None), Err)
            },
            (LegacyLeg::Sessions, None) => {
                let words = which(personality.missing);
                if !self.is_probe() {
                    self.state
                        .violation(format!("{} without a session id", self.facts.method));
                }
                if words.effect == Effect::Served {
                    Ok(None)
                } else {
                    Err(self.words(&words))
                }
            },
            (LegacyLeg::Sessions, Some(id)) => self.known_session(id, which(personality.gone)),
        }
    }

    fn known_session(&self, id: &str, gone: Words) -> Result<Option<String>, Reply> {
        self.expire(id);
        let mut memory = self.state.memory();
        match memory.issued.get(id) {
            None => self
                .state
                .violation("a session id was sent that nobody gave"),
            Some(Ended::ByClient) if self.facts.method != "DELETE" => {
                self.state
                    .violation("a session was used after its client deleted it");
            },
            Some(Ended::ByClient | Ended::NotByClient) => {},
        }
        if let Some(session) = memory.sessions.get_mut(id) {
            session.last_used = Instant::now();
            let version = session.version.clone();
            drop(memory);
            return match self.version_refused(Some(&version)) {
                Some(refusal) => Err(refusal),
                None => Ok(Some(id.to_owned())),
            };
        }
        if gone.effect != Effect::Served {
            return Err(self.words(&gone));
        }
        // The id is taken for good and the state behind it is new: a loss nobody is told of.
        let version = self
            .request
            .header("mcp-protocol-version")
            .unwrap_or_default();
        let mut session = Session::new(version, Value::Null);
        session.readiness = Readiness::Ready;
        memory.sessions.insert(id.to_owned(), session);
        Ok(Some(id.to_owned()))
    }

    fn expire(&self, id: &str) {
        let Some(limit) = self.state.personality.session_idle else {
            return;
        };
        let mut memory = self.state.memory();
        let old = memory
            .sessions
            .get(id)
            .is_some_and(|one| one.last_used.elapsed() > limit);
        if old {
            memory.sessions.remove(id);
        }
    }

    /// Checks `MCP-Protocol-Version` against what was negotiated.
    fn version_refused(&self, negotiated: Option<&str>) -> Option<Reply> {
        let served = &self.state.personality.legacy_versions;
        let Some(header) = self.request.header("mcp-protocol-version") else {
            if negotiated.is_some_and(|version| version >= "2025-06-18") {
                self.state.violation(format!(
                    "{} without MCP-Protocol-Version",
                    self.facts.method
                ));
            }
            return None;
        };
        if !served.iter().any(|version| version == header) {
            let message = format!(
                "Bad Request: Unsupported protocol version: {header} (supported versions: {})",
                served.join(", ")
            );
            return Some(Reply::error(400, &Value::Null, -32000, &message));
        }
        if negotiated.is_some_and(|version| version != header) {
            self.state.violation(format!(
                "MCP-Protocol-Version {header} is not what was agreed"
            ));
        }
        None
    }

    pub(super) fn unsupported_version(&self) -> Reply {
        let supported = match self.state.personality.legacy {
            LegacyLeg::Refused => &self.state.personality.modern_versions,
            LegacyLeg::Sessions | LegacyLeg::Stateless => &self.state.personality.legacy_versions,
        };
        let requested = self.request.header("mcp-protocol-version");
        let data = serde_json::json!({"supported": supported, "requested": requested});
        let error =
            crate::message::RpcError::with_data(-32022, "Unsupported protocol version", data);
        Reply::json(400, &response(&self.facts.id, &Err(error)))
    }

    /// Ids are never used twice in a session, progress tokens not twice at a time.
    fn check_ids(&self, session: Option<&str>) {
        let token = &self.message["params"]["_meta"]["progressToken"];
        let mut memory = self.state.memory();
        let Some(session) = session.and_then(|id| memory.sessions.get_mut(id)) else {
            return;
        };
        if !session.ids.insert(self.facts.id.to_string()) {
            self.state
                .violation(format!("id {} was used twice in a session", self.facts.id));
        }
        if !token.is_null() && !session.tokens.insert(token.to_string()) {
            self.state
                .violation(format!("progress token {token} is used twice at a time"));
        }
    }

    /// Keeps what a call says, if its client can ask for it again.
    fn keep_stream(&self, call: &Call) {
        if self.state.personality.sse_form().event_ids == EventIds::Absent {
            return;
        }
        let mut memory = self.state.memory();
        if let Some(session) = call
            .session
            .as_ref()
            .and_then(|id| memory.sessions.get_mut(id))
        {
            session
                .streams
                .insert(call.stream.name.clone(), Arc::clone(&call.stream));
        }
    }

    fn legacy_notice(&self, session: Option<&String>) {
        if self.facts.method == "notifications/initialized" {
            self.state
                .check_readiness(session.map(String::as_str), &self.facts.method);
        }
        if self.facts.method == "notifications/cancelled" {
            let id = &self.message["params"]["requestId"];
            let memory = self.state.memory();
            if let Some(running) = memory.running.get(&(session.cloned(), id.to_string())) {
                running.notify_one();
            }
        }
    }

    fn settle_question(&self, session: Option<String>) {
        let id = self.message["id"].to_string();
        let mut memory = self.state.memory();
        match memory.questions.remove(&(session, id.clone())) {
            // Nobody may be waiting for it: a question of the test itself.
            Some(waiting) => drop(waiting.send(self.message.clone())),
            None if self.message["id"]
                .as_u64()
                .is_none_or(|id| id > memory.last_question) =>
            {
                self.state
                    .violation(format!("an answer to {id}, which was never asked"));
            },
            None => {},
        }
    }

    /// `GET`: the standing stream, or the rest of a stream that broke.
    pub(crate) fn legacy_get(&mut self) -> Answer {
        if !self.request.accepts("text/event-stream") {
            self.state
                .violation("GET does not accept text/event-stream");
            return Reply::text(406, "Not Acceptable").into();
        }
        match self.state.personality.get {
            GetStream::Refused => {
                return Reply::text(405, "Method Not Allowed")
                    .header("Allow", "POST")
                    .into();
            },
            GetStream::Silent => return Answer::Follow(Stream::new("silent"), 0),
            GetStream::Offered => {},
        }
        let id = match self.session(|dialect| dialect.get) {
            Err(refusal) => return refusal.into(),
            Ok(None) => return Reply::text(405, "Method Not Allowed").into(),
            Ok(Some(id)) => id,
        };
        let mut memory = self.state.memory();
        let Some(session) = memory.sessions.get_mut(&id) else {
            return Reply::text(404, "Session not found").into();
        };
        if let Some(last) = self.request.header("last-event-id") {
            return resume(session, last);
        }
        if session
            .standing
            .as_ref()
            .is_some_and(|stream| stream.is_read())
        {
            return Reply::error(
                409,
                &Value::Null,
                -32000,
                "Conflict: Only one SSE stream is allowed per session",
            )
            .into();
        }
        let stream = Stream::new(format!("g{}", self.state.next_stream()));
        session.standing = Some(Arc::clone(&stream));
        session
            .streams
            .insert(stream.name.clone(), Arc::clone(&stream));
        Answer::Follow(stream, 0)
    }

    /// `DELETE`: the client is done with its session.
    pub(crate) fn legacy_delete(&mut self) -> Answer {
        if self.state.personality.legacy != LegacyLeg::Sessions {
            return Reply::text(405, "Method Not Allowed")
                .header("Allow", "POST")
                .into();
        }
        match self.session(|dialect| dialect.delete) {
            Err(refusal) => refusal.into(),
            Ok(id) => {
                let mut memory = self.state.memory();
                let session = id.as_ref().and_then(|id| memory.sessions.remove(id));
                if let Some(standing) = session.and_then(|session| session.standing) {
                    standing.end();
                }
                memory
                    .issued
                    .insert(id.unwrap_or_default(), Ended::ByClient);
                Reply::empty(200).into()
            },
        }
    }
}

/// The rest of a stream after the event with this id.
fn resume(session: &Session, last: &str) -> Answer {
    let (name, place) = last.rsplit_once('.').unwrap_or_default();
    match (session.streams.get(name), place.parse()) {
        (Some(stream), Ok(place)) => Answer::Follow(Arc::clone(stream), place),
        _ => Reply::error(400, &Value::Null, -32000, "Invalid event ID format").into(),
    }
}

fn new_session_id() -> String {
    format!("{:032x}", fastrand::u128(..))
}
