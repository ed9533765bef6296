//! Detects the era of a server behind a URL, and opens a session there. If the URL accepts no POST,
//! HTTP+SSE (2024-11-05) is tried (row P11).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{HeaderValue, Method};
use warmline_core::delivery::Delivery;
use warmline_core::era::{Era, Version};
use warmline_core::era_detection::{EraVerdict, classify_http_probe};
use warmline_core::error::code::Reason;
use warmline_core::exchange::{AttemptResult, Deadlines, Diagnostic, Reply, Request};
use warmline_core::message::envelope::{Message, MessageKind, RpcError};
use warmline_core::message::params::Params;
use warmline_core::policy::SessionMode;
use warmline_core::pool_key::Transport;
use warmline_core::protocol::headers::{self, SESSION_ID};

use super::{INITIALIZED_METHOD, SessionOpener, as_open_failure};
use crate::handshake::{self, HandshakeResponse};
use crate::http::endpoint::RequestHeaders;
use crate::http::post::encode_notification;
use crate::http::response::SentRequest;
use crate::http_sse::HttpSseSession;
use crate::legacy::get_stream::GetStreamWait;
use crate::legacy::session::LegacyHttpSession;
use crate::modern::ModernHttpSession;
use crate::server_facts::ServerFacts;
use crate::session::Driver;
use crate::session_state::{RequestIdGenerator, Retirement};
use crate::target::{HandshakeObserver, HttpConfig};
use crate::unsolicited_dispatcher;
use warmline_platform::clock;

impl SessionOpener<'_> {
    pub(super) async fn open_http(
        &mut self,
        reach: &HttpConfig,
        known: Option<&ServerFacts>,
    ) -> Result<(Driver, ServerFacts), Diagnostic> {
        if self.is_legacy() {
            return self.open_legacy_http(reach, None, known).await;
        }
        let headers = self.upstream.request_headers(self.server, reach)?;
        let mut modern = ModernHttpSession::new(headers, (Version::NEWEST_MODERN, self.profile));
        modern.unsolicited = unsolicited_dispatcher(self.server);
        // A modern session over HTTP needs no request to open.
        if let Some(known) = known {
            return Ok((Driver::ModernHttp(Box::new(modern)), known.clone()));
        }
        self.probe_http(reach, modern).await
    }

    async fn probe_http(
        &mut self,
        reach: &HttpConfig,
        modern: ModernHttpSession,
    ) -> Result<(Driver, ServerFacts), Diagnostic> {
        let mut heard = modern.discover().await.map_err(as_open_failure)?;
        let mut may_retry = true;
        loop {
            let read = classify_http_probe(to_probe_answer(&heard), Version::NEWEST_MODERN);
            let answer = format!("{} ({})", heard.summary, read.row);
            self.add_evidence("server/discover", &answer);
            match read.verdict {
                EraVerdict::Modern(version) => {
                    let message = heard.message.as_ref();
                    let facts = self.discovered_facts(version, message, Transport::Http)?;
                    return Ok((Driver::ModernHttp(Box::new(modern)), facts));
                },
                EraVerdict::RetryAt(_) if std::mem::take(&mut may_retry) => {
                    heard = modern.discover().await.map_err(as_open_failure)?;
                },
                EraVerdict::RetryAt(_) => return Err(self.version_contradiction(&heard.summary)),
                EraVerdict::Legacy { best } => {
                    self.known_eras.record_missing(Era::Modern);
                    if self.era.is_none() {
                        return self.open_legacy_http(reach, best, None).await;
                    }
                    return Err(self.modern_era_missing(&heard.summary));
                },
                EraVerdict::Incompatible { supported } => {
                    return Err(self.no_common_version(&supported));
                },
                EraVerdict::Undetermined => return Err(self.probe_failure(heard)),
            }
        }
    }

    async fn open_legacy_http(
        &mut self,
        reach: &HttpConfig,
        best: Option<Version>,
        known: Option<&ServerFacts>,
    ) -> Result<(Driver, ServerFacts), Diagnostic> {
        let mut headers = self.upstream.request_headers(self.server, reach)?;
        if self.server.sessions == SessionMode::Never {
            headers.version = self.server.version;
            let (ids, unsolicited) = (
                RequestIdGenerator::new(),
                unsolicited_dispatcher(self.server),
            );
            let session = LegacyHttpSession::from_parts(headers, ids, None, unsolicited);
            let facts = self.assumed_facts(Transport::Http);
            return Ok((Driver::LegacyHttp(session), facts));
        }
        // The last session used the old transport: it is tried first.
        if known.is_some_and(|known| known.transport == Transport::HttpSse)
            && let Some(opened) = self.open_http_sse(reach).await
        {
            return opened.map_err(as_open_failure);
        }
        let mut is_first = true;
        loop {
            let diagnostic = match self.initialize_http(headers.clone(), best).await {
                Ok((session, mut facts)) => {
                    facts.evidence = std::mem::take(&mut self.evidence);
                    return Ok((Driver::LegacyHttp(session), facts));
                },
                Err(diagnostic) => diagnostic,
            };
            let last = self.evidence.last();
            let was_initialize_answered = last.is_some_and(|last| last.step == INITIALIZED_METHOD);
            // The reply broke off, or the second half of the handshake was not accepted: both may be
            // chance, so there is one more try.
            let may_be_chance = diagnostic.reason == Reason::ReplyLost || was_initialize_answered;
            if may_be_chance && std::mem::take(&mut is_first) {
                continue;
            }
            let refuses_post = [Reason::NotFound, Reason::Rejected].contains(&diagnostic.reason);
            if refuses_post
                && !was_initialize_answered
                && let Some(opened) = self.open_http_sse(reach).await
            {
                return opened.map_err(as_open_failure);
            }
            return Err(as_open_failure(diagnostic));
        }
    }

    /// Sends `initialize`, then `notifications/initialized`.
    async fn initialize_http(
        &mut self,
        headers: RequestHeaders,
        best: Option<Version>,
    ) -> Result<(Arc<LegacyHttpSession>, ServerFacts), Diagnostic> {
        let guard = InitializeGuard::new(self.server.metrics.clone());
        let endpoint = Arc::clone(&headers.endpoint);
        let server = &endpoint.server;
        let ids = RequestIdGenerator::new();
        let id = ids.next();
        let body = self
            .profile
            .encode_initialize(id, self.offered_version(best));
        let started = clock::now();
        let by = clock::after(endpoint.timeouts.handshake);
        // Headers are written once there is a connection.
        let mark_sent = |_: &mut _| guard.is_unknown.store(true, Ordering::Relaxed);
        let sent = headers.send(Method::POST, &[], body, by, mark_sent);
        let arrival = sent.await.map_err(|lost| {
            let may_have_left = lost.delivery != Delivery::Unsent;
            guard.is_unknown.fetch_and(may_have_left, Ordering::Relaxed);
            lost.diagnostic
        })?;
        let session_id = arrival.headers.get(SESSION_ID).cloned();
        let sent = SentRequest {
            endpoint: &endpoint,
            era: Era::Legacy,
            has_session: false,
            id,
            retirement: &Retirement::default(),
        };
        let response = handshake::read_response(sent, arrival, by).await;
        guard.on_response(&response);
        let facts = handshake::read_initialize_response(server, response, &mut self.evidence);
        let mut facts = facts.map_err(|diagnostic| self.add_wanted_version(diagnostic))?;
        let mut headers = headers.with_version(facts.version);
        if let Some(id) = &session_id {
            check_session_id(server, id)?;
            headers = headers.with_session_id(id);
        }
        let wait = GetStreamWait::for_handshake_duration(started.elapsed());
        let wait = LegacyHttpSession::get_stream_wait(&headers, self.profile, wait);
        let unsolicited = unsolicited_dispatcher(self.server);
        let session = LegacyHttpSession::from_parts(headers, ids, wait, unsolicited);
        let mut half_open = HalfOpenSession(Some(Arc::clone(&session)));
        if let Err(diagnostic) = self.check_version(facts.version) {
            half_open.close().await;
            return Err(diagnostic);
        }
        let notice = encode_notification(INITIALIZED_METHOD, None);
        if let Err(lost) = session.poster.post_message(notice).await {
            self.add_evidence(INITIALIZED_METHOD, &lost.diagnostic.message);
            half_open.close().await;
            return Err(lost.diagnostic);
        }
        half_open.0 = None;
        facts.keeps_session = session_id.is_some();
        Ok((session, facts))
    }

    fn probe_failure(&self, heard: HandshakeResponse) -> Diagnostic {
        if let Some(diagnostic) = heard.diagnostic {
            return as_open_failure(diagnostic);
        }
        let server = &self.server.name;
        let error = heard.message.as_ref().and_then(Message::error);
        match error.and_then(|error| RpcError::parse(&error).ok()) {
            Some(error) => handshake::error_instead_of_handshake(server, heard.status, &error),
            None => {
                let what = format!("the era of `{server}` cannot be detected");
                Diagnostic::new(Reason::Handshake, what).with_cause(heard.summary)
            },
        }
    }

    /// Opens a session over HTTP+SSE if a GET brings the `endpoint` event; none if it does not.
    async fn open_http_sse(
        &mut self,
        reach: &HttpConfig,
    ) -> Option<Result<(Driver, ServerFacts), Diagnostic>> {
        let headers = match self.upstream.request_headers(self.server, reach) {
            Ok(headers) => headers,
            Err(diagnostic) => return Some(Err(diagnostic)),
        };
        let unsolicited = unsolicited_dispatcher(self.server);
        let connecting = HttpSseSession::connect(headers, &reach.url, unsolicited);
        Some(match connecting.await? {
            Ok(session) => self.initialize_http_sse(session).await,
            Err(diagnostic) => Err(diagnostic),
        })
    }

    async fn initialize_http_sse(
        &mut self,
        session: HttpSseSession,
    ) -> Result<(Driver, ServerFacts), Diagnostic> {
        self.add_evidence("GET", "an `endpoint` event: HTTP+SSE of 2024-11-05");
        let result = self.ask_initialize(&session).await;
        let server = &self.server.name;
        let facts = result.and_then(|result| {
            handshake::read_initialize_result(server, Transport::HttpSse, &result)
        });
        let facts = self.check_facts(facts)?;
        // There is one handshake in the life of a session.
        session.shared.version.set(facts.version).ok();
        let notified = session.notify(INITIALIZED_METHOD, None).await;
        notified.map_err(|lost| lost.diagnostic)?;
        Ok((Driver::HttpSse(Box::new(session)), facts))
    }

    async fn ask_initialize(&mut self, session: &HttpSseSession) -> Result<Bytes, Diagnostic> {
        let (id, offer) = (session.ids.next(), self.offered_version(None));
        let body = self.profile.encode_initialize(id, offer);
        let limit = self.server.timeouts.handshake;
        let request = Request::new("initialize", Params::empty()).with_deadlines(Deadlines {
            idle: limit,
            total: limit,
        });
        let issued = AtomicBool::new(false);
        let (ending, _) = session
            .send_with_id((id, body), request, &(), &issued)
            .await;
        match ending {
            AttemptResult::Answered(Reply::Result(result)) => {
                self.add_evidence("initialize", "a result");
                Ok(result)
            },
            AttemptResult::Answered(Reply::Error(error)) => {
                let server = &self.server.name;
                Err(handshake::handshake_refused(server, "initialize", &error))
            },
            AttemptResult::Failed(failure) if failure.diagnostic.reason == Reason::Timeout => {
                let what = failure.diagnostic.message;
                Err(Diagnostic::new(Reason::SilentServer, what))
            },
            AttemptResult::Failed(failure) => Err(failure.diagnostic),
        }
    }
}

/// The response for era detection. One that broke off counts as none, and a result with another id
/// says nothing.
fn to_probe_answer(heard: &HandshakeResponse) -> Option<(u16, Option<&Message>)> {
    match (&heard.message, &heard.diagnostic) {
        (None, Some(diagnostic)) if handshake::is_broken_off(diagnostic) => None,
        (Some(message), Some(_)) if message.kind() == MessageKind::Result => {
            Some((heard.status, None))
        },
        (message, _) => Some((heard.status, message.as_ref())),
    }
}

/// A session between the two halves of the handshake. An opening that is abandoned here ends the
/// session in the background: nobody else knows of it, and the server would keep it.
struct HalfOpenSession(Option<Arc<LegacyHttpSession>>);

impl HalfOpenSession {
    async fn close(mut self) {
        if let Some(session) = &self.0 {
            session.try_close().await.ok();
        }
        self.0 = None;
    }
}

impl Drop for HalfOpenSession {
    fn drop(&mut self) {
        if let Some(session) = self.0.take() {
            clock::spawn_if_running("close a half-open session", async move {
                session.try_close().await.ok();
            });
        }
    }
}

/// Reports an `initialize` whose outcome stays unknown: the server may hold a session that nobody
/// can end. It reports when dropped, so that an abandoned opening counts as well.
#[derive(Debug)]
struct InitializeGuard {
    observer: Option<Arc<dyn HandshakeObserver>>,
    is_unknown: AtomicBool,
}

impl InitializeGuard {
    fn new(observer: Option<Arc<dyn HandshakeObserver>>) -> Self {
        Self {
            observer,
            is_unknown: AtomicBool::new(false),
        }
    }

    /// A reply that broke off may have been that of a session.
    fn on_response(&self, response: &HandshakeResponse) {
        let is_cut = response
            .diagnostic
            .as_ref()
            .is_some_and(handshake::is_broken_off);
        if response.status != 200 || response.message.is_some() || !is_cut {
            self.is_unknown.store(false, Ordering::Relaxed);
        }
    }
}

impl Drop for InitializeGuard {
    fn drop(&mut self) {
        if let Some(observer) = &self.observer
            && self.is_unknown.load(Ordering::Relaxed)
        {
            observer.initialize_lost();
        }
    }
}

/// A session id that cannot be sent back is no session.
fn check_session_id(server: &str, id: &HeaderValue) -> Result<(), Diagnostic> {
    if headers::is_valid_session_id(id.as_bytes()) {
        return Ok(());
    }
    let what = format!("`{server}` issued a session id that cannot be used");
    let why = format!("its {} bytes are not 1 to 1024 of visible ASCII", id.len());
    Err(Diagnostic::new(Reason::BadSessionId, what).with_cause(why))
}
