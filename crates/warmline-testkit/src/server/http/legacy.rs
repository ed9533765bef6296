//! The rules of the legacy era over HTTP: sessions, versions, the standing stream.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use serde_json::Value;

use super::exchange::{EraDecision, HttpExchange};
use super::reply::HttpReply;
use crate::faults::dialects::{Dialect, DialectEffect, DialectReply};
use crate::faults::personality::{EventIds, GetStreamSupport, LegacySupport};
use crate::server::call::{Call, Era};
use crate::server::message::{MessageKind, message_kind, response};
use crate::server::message_stream::MessageStream;
use crate::server::methods;
use crate::server::state::{ClientDeletion, Readiness, Session};

impl HttpExchange<'_> {
    /// A POST of the legacy era.
    pub(crate) fn legacy_post(&mut self) -> EraDecision {
        if let Some(refusal) = self.check_content_headers() {
            return refusal.into();
        }
        if self.info.method == "initialize" {
            return self.open_session();
        }
        match self.resolve_session(|dialect| dialect.post) {
            Err(refusal) => refusal.into(),
            Ok(session) => self.handle_in_session(session),
        }
    }

    fn handle_in_session(&mut self, session: Option<String>) -> EraDecision {
        match message_kind(self.message) {
            MessageKind::Request => {
                self.check_unique_ids(session.as_deref());
                self.state
                    .check_readiness(session.as_deref(), &self.info.method);
                let call = self.new_call(Era::Legacy, session);
                self.retain_stream(&call);
                EraDecision::Execute(Box::new(call), Vec::new())
            },
            MessageKind::Notification => {
                self.handle_legacy_notification(session.as_ref());
                HttpReply::empty(202).into()
            },
            MessageKind::Response => {
                self.settle_server_request(session);
                HttpReply::empty(202).into()
            },
            MessageKind::Malformed => {
                self.state
                    .record_violation("the body is not one JSON-RPC message");
                HttpReply::error(400, &Value::Null, -32600, "Invalid Request").into()
            },
        }
    }

    /// `initialize`: gives a session where the server keeps any.
    fn open_session(&mut self) -> EraDecision {
        self.state
            .counters
            .initializes
            .fetch_add(1, Ordering::Relaxed);
        if message_kind(self.message) != MessageKind::Request {
            self.state.record_violation("initialize is not a request");
        }
        if let Some(refusal) = self.reject_stale_initialize() {
            return refusal.into();
        }
        let mut call = self.new_call(Era::Legacy, None);
        if let Some(error) = methods::initialize_error(&call) {
            return HttpReply::json(400, &response(&call.id, &Err(error))).into();
        }
        if self.state.personality.legacy == LegacySupport::Stateless {
            return EraDecision::Execute(Box::new(call), Vec::new());
        }
        let id = self
            .overrides
            .session_id
            .clone()
            .unwrap_or_else(new_session_id);
        let version = methods::negotiated_version(&call);
        let session = Session::new(&version, call.params["capabilities"].clone());
        self.state.counters.sessions.fetch_add(1, Ordering::Relaxed);
        let mut memory = self.state.memory();
        memory
            .issued_session_ids
            .insert(id.clone(), ClientDeletion::NotDeleted);
        memory.sessions.insert(id.clone(), session);
        drop(memory);
        self.check_unique_ids(Some(&id));
        call.session = Some(id.clone());
        call.info.session = Some(id.clone());
        self.retain_stream(&call);
        EraDecision::Execute(Box::new(call), vec![("Mcp-Session-Id".to_owned(), id)])
    }

    /// An `initialize` must not carry a session id; many servers refuse one that does.
    fn reject_stale_initialize(&self) -> Option<HttpReply> {
        let carried = self.request.header("mcp-session-id")?;
        self.state
            .record_violation("initialize carries a session id");
        let words = self.state.personality.session_gone.initialize;
        let known = self.state.memory().sessions.contains_key(carried);
        (!known && words.effect == DialectEffect::NotExecuted).then(|| self.dialect_reply(&words))
    }

    /// The session a request belongs to, or its refusal.
    fn resolve_session(
        &self,
        which: impl Fn(&Dialect) -> DialectReply,
    ) -> Result<Option<String>, HttpReply> {
        let carried = self.request.header("mcp-session-id");
        let personality = &self.state.personality;
        match (personality.legacy, carried) {
            (LegacySupport::Refused, _) => Err(self.unsupported_version_reply()),
            (LegacySupport::Stateless, carried) => {
                if carried.is_some() {
                    self.state
                        .record_violation("a session id was sent that nobody gave");
                }
                self.reject_protocol_version(None).map_or(Ok(None), Err)
            },
            (LegacySupport::Sessions, None) => {
                let words = which(personality.session_missing);
                if !self.is_era_probe() {
                    self.state
                        .record_violation(format!("{} without a session id", self.info.method));
                }
                if words.effect == DialectEffect::Served {
                    Ok(None)
                } else {
                    Err(self.dialect_reply(&words))
                }
            },
            (LegacySupport::Sessions, Some(id)) => {
                self.resolve_known_session(id, which(personality.session_gone))
            },
        }
    }

    fn resolve_known_session(
        &self,
        id: &str,
        gone: DialectReply,
    ) -> Result<Option<String>, HttpReply> {
        self.expire_idle_session(id);
        let mut memory = self.state.memory();
        match memory.issued_session_ids.get(id) {
            None => self
                .state
                .record_violation("a session id was sent that nobody gave"),
            Some(ClientDeletion::Deleted) if self.info.method != "DELETE" => {
                self.state
                    .record_violation("a session was used after its client deleted it");
            },
            Some(ClientDeletion::Deleted | ClientDeletion::NotDeleted) => {},
        }
        if let Some(session) = memory.sessions.get_mut(id) {
            session.last_used = Instant::now();
            let version = session.version.clone();
            drop(memory);
            return match self.reject_protocol_version(Some(&version)) {
                Some(refusal) => Err(refusal),
                None => Ok(Some(id.to_owned())),
            };
        }
        if gone.effect != DialectEffect::Served {
            return Err(self.dialect_reply(&gone));
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

    fn expire_idle_session(&self, id: &str) {
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
    fn reject_protocol_version(&self, negotiated: Option<&str>) -> Option<HttpReply> {
        let served = &self.state.personality.legacy_versions;
        let Some(header) = self.request.header("mcp-protocol-version") else {
            if negotiated.is_some_and(|version| version >= "2025-06-18") {
                self.state
                    .record_violation(format!("{} without MCP-Protocol-Version", self.info.method));
            }
            return None;
        };
        if !served.iter().any(|version| version == header) {
            let message = format!(
                "Bad Request: Unsupported protocol version: {header} (supported versions: {})",
                served.join(", ")
            );
            return Some(HttpReply::error(400, &Value::Null, -32000, &message));
        }
        if negotiated.is_some_and(|version| version != header) {
            self.state.record_violation(format!(
                "MCP-Protocol-Version {header} is not what was agreed"
            ));
        }
        None
    }

    pub(super) fn unsupported_version_reply(&self) -> HttpReply {
        let supported = match self.state.personality.legacy {
            LegacySupport::Refused => &self.state.personality.modern_versions,
            LegacySupport::Sessions | LegacySupport::Stateless => {
                &self.state.personality.legacy_versions
            },
        };
        let requested = self.request.header("mcp-protocol-version");
        let data = serde_json::json!({"supported": supported, "requested": requested});
        let error = crate::server::message::RpcError::with_data(
            -32022,
            "Unsupported protocol version",
            data,
        );
        HttpReply::json(400, &response(&self.info.id, &Err(error)))
    }

    /// Ids are never used twice in a session, progress tokens not twice at a time.
    fn check_unique_ids(&self, session: Option<&str>) {
        let token = &self.message["params"]["_meta"]["progressToken"];
        let mut memory = self.state.memory();
        let Some(session) = session.and_then(|id| memory.sessions.get_mut(id)) else {
            return;
        };
        if !session.request_ids.insert(self.info.id.to_string()) {
            self.state
                .record_violation(format!("id {} was used twice in a session", self.info.id));
        }
        if !token.is_null() && !session.progress_tokens.insert(token.to_string()) {
            self.state
                .record_violation(format!("progress token {token} is used twice at a time"));
        }
    }

    /// Keeps what a call says, if its client can ask for it again.
    fn retain_stream(&self, call: &Call) {
        if self.state.personality.sse_format().event_ids == EventIds::Absent {
            return;
        }
        let mut memory = self.state.memory();
        if let Some(session) = call
            .session
            .as_ref()
            .and_then(|id| memory.sessions.get_mut(id))
        {
            session
                .resumable_streams
                .insert(call.stream.name.clone(), Arc::clone(&call.stream));
        }
    }

    fn handle_legacy_notification(&self, session: Option<&String>) {
        if self.info.method == "notifications/initialized" {
            self.state
                .check_readiness(session.map(String::as_str), &self.info.method);
        }
        if self.info.method == "notifications/cancelled" {
            let id = &self.message["params"]["requestId"];
            let memory = self.state.memory();
            if let Some(running) = memory
                .running_calls
                .get(&(session.cloned(), id.to_string()))
            {
                running.notify_one();
            }
        }
    }

    fn settle_server_request(&self, session: Option<String>) {
        let id = self.message["id"].to_string();
        let mut memory = self.state.memory();
        match memory
            .pending_server_requests
            .remove(&(session, id.clone()))
        {
            // Nobody may be waiting for it: a question of the test itself.
            Some(waiting) => drop(waiting.send(self.message.clone())),
            None if self.message["id"]
                .as_u64()
                .is_none_or(|id| id > memory.last_server_request_id) =>
            {
                self.state
                    .record_violation(format!("an answer to {id}, which was never asked"));
            },
            None => {},
        }
    }

    /// `GET`: the standing stream, or the rest of a stream that broke.
    pub(crate) fn legacy_get(&mut self) -> EraDecision {
        if !self.request.accepts("text/event-stream") {
            self.state
                .record_violation("GET does not accept text/event-stream");
            return HttpReply::text(406, "Not Acceptable").into();
        }
        match self.state.personality.get_stream {
            GetStreamSupport::Refused => {
                return HttpReply::text(405, "Method Not Allowed")
                    .with_header("Allow", "POST")
                    .into();
            },
            GetStreamSupport::Silent => {
                return EraDecision::FollowStream(MessageStream::new("silent"), 0);
            },
            GetStreamSupport::Offered => {},
        }
        let id = match self.resolve_session(|dialect| dialect.get) {
            Err(refusal) => return refusal.into(),
            Ok(None) => return HttpReply::text(405, "Method Not Allowed").into(),
            Ok(Some(id)) => id,
        };
        let mut memory = self.state.memory();
        let Some(session) = memory.sessions.get_mut(&id) else {
            return HttpReply::text(404, "Session not found").into();
        };
        if let Some(last) = self.request.header("last-event-id") {
            return resume_stream(session, last);
        }
        if session
            .get_stream
            .as_ref()
            .is_some_and(|stream| stream.has_reader())
        {
            return HttpReply::error(
                409,
                &Value::Null,
                -32000,
                "Conflict: Only one SSE stream is allowed per session",
            )
            .into();
        }
        let stream = MessageStream::new(format!("g{}", self.state.next_stream_number()));
        session.get_stream = Some(Arc::clone(&stream));
        session
            .resumable_streams
            .insert(stream.name.clone(), Arc::clone(&stream));
        EraDecision::FollowStream(stream, 0)
    }

    /// `DELETE`: the client is done with its session.
    pub(crate) fn legacy_delete(&mut self) -> EraDecision {
        if self.state.personality.legacy != LegacySupport::Sessions {
            return HttpReply::text(405, "Method Not Allowed")
                .with_header("Allow", "POST")
                .into();
        }
        match self.resolve_session(|dialect| dialect.delete) {
            Err(refusal) => refusal.into(),
            Ok(id) => {
                let mut memory = self.state.memory();
                let session = id.as_ref().and_then(|id| memory.sessions.remove(id));
                if let Some(standing) = session.and_then(|session| session.get_stream) {
                    standing.end();
                }
                memory
                    .issued_session_ids
                    .insert(id.unwrap_or_default(), ClientDeletion::Deleted);
                HttpReply::empty(200).into()
            },
        }
    }
}

/// The rest of a stream after the event with this id.
fn resume_stream(session: &Session, last: &str) -> EraDecision {
    let (name, place) = last.rsplit_once('.').unwrap_or_default();
    match (session.resumable_streams.get(name), place.parse()) {
        (Some(stream), Ok(place)) => EraDecision::FollowStream(Arc::clone(stream), place),
        _ => HttpReply::error(400, &Value::Null, -32000, "Invalid event ID format").into(),
    }
}

fn new_session_id() -> String {
    format!("{:032x}", fastrand::u128(..))
}
