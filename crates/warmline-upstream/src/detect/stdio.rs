//! Detects the era of a child, where silence says nothing.

use warmline_core::era::{Era, Version};
use warmline_core::era_detection::{
    EraProbeResult, EraVerdict, classify_late_initialize, classify_stdio_probe,
};
use warmline_core::exchange::{Diagnostic, Request};
use warmline_core::message::envelope::Message;
use warmline_core::message::params::Params;
use warmline_core::policy::SessionMode;
use warmline_core::pool_key::Transport;
use warmline_core::protocol::meta::ClientMeta;

use super::{INITIALIZED_METHOD, SessionOpener};
use crate::handshake;
use crate::http::post::encode_notification;
use crate::modern::encode_modern_request;
use crate::pending::{PendingEvent, is_reply};
use crate::sanitize;
use crate::server_facts::ServerFacts;
use crate::session::Driver;
use crate::session_state::RequestIdGenerator;
use crate::stdio::pipe::{Pipe, PipeCall};
use crate::stdio::session::StdioSession;
use crate::target::StdioConfig;
use warmline_platform::clock::{self, Instant};

enum ProbeEnd {
    Modern(Version, Message),
    Legacy,
    /// It is legacy, and answered `initialize` already.
    Initialized(Message),
    ChildExited(Diagnostic),
    Failed(Diagnostic),
}

enum ProbeReply {
    Discover(Message),
    Initialize(Message),
    Lost(Diagnostic),
    Silence,
}

impl SessionOpener<'_> {
    pub(super) async fn open_stdio(
        &mut self,
        reach: &StdioConfig,
    ) -> Result<(Driver, ServerFacts), Diagnostic> {
        let pipe = self.spawn_child(reach).await?;
        let opened = self.open_on_pipe(&pipe, reach).await;
        close_on_error(opened, &pipe).await
    }

    async fn spawn_child(&self, reach: &StdioConfig) -> Result<Pipe, Diagnostic> {
        let spawning = Pipe::spawn(self.server, reach, &self.upstream.child_tracker);
        // On the heap: a start is rare, and its future is large.
        Box::pin(spawning).await
    }

    async fn open_on_pipe(
        &mut self,
        pipe: &Pipe,
        reach: &StdioConfig,
    ) -> Result<(Driver, ServerFacts), Diagnostic> {
        let ids = RequestIdGenerator::new();
        if self.is_legacy() {
            return self.open_legacy_stdio(pipe, ids).await;
        }
        match self.probe_stdio(pipe, &ids).await {
            ProbeEnd::Modern(version, message) => {
                let facts = self.discovered_facts(version, Some(&message), Transport::Stdio)?;
                pipe.ignore_server_requests();
                let meta = self.profile.meta(version);
                Ok((self.stdio_driver(pipe, ids, Some(meta)), facts))
            },
            ProbeEnd::Initialized(message) => self.finish_initialize(pipe, ids, &message),
            ProbeEnd::Legacy => {
                self.known_eras.record_missing(Era::Modern);
                if self.era.is_some() {
                    let why = "it answers `server/discover` as a legacy server does";
                    return Err(self.modern_era_missing(why));
                }
                self.open_legacy_stdio(pipe, ids).await
            },
            // Some servers exit on any request before `initialize`: a new process gets it first.
            ProbeEnd::ChildExited(_) if self.era.is_none() => {
                let fresh = self.spawn_child(reach).await?;
                let opened = self.open_legacy_stdio(&fresh, RequestIdGenerator::new());
                close_on_error(opened.await, &fresh).await
            },
            ProbeEnd::ChildExited(diagnostic) | ProbeEnd::Failed(diagnostic) => {
                Err(self.start_failure(diagnostic, pipe))
            },
        }
    }

    /// Sends `initialize`, unless sessions are off.
    async fn open_legacy_stdio(
        &mut self,
        pipe: &Pipe,
        ids: RequestIdGenerator,
    ) -> Result<(Driver, ServerFacts), Diagnostic> {
        if self.server.sessions == SessionMode::Never {
            let facts = self.assumed_facts(Transport::Stdio);
            return Ok((self.stdio_driver(pipe, ids, None), facts));
        }
        let call = self.send_initialize(pipe, &ids);
        let by = clock::after(self.server.timeouts.start);
        match self.await_initialize(pipe, call, by).await {
            Ok(message) => self.finish_initialize(pipe, ids, &message),
            Err(diagnostic) => Err(self.start_failure(diagnostic, pipe)),
        }
    }

    fn stdio_driver(
        &self,
        pipe: &Pipe,
        ids: RequestIdGenerator,
        meta: Option<ClientMeta>,
    ) -> Driver {
        let (server, pipe) = (&self.server.name, pipe.clone());
        Driver::Stdio(Box::new(StdioSession::new(server, pipe, ids, meta)))
    }

    /// Sends `server/discover`, and after a silence `initialize` as well.
    async fn probe_stdio(&mut self, pipe: &Pipe, ids: &RequestIdGenerator) -> ProbeEnd {
        let start_by = clock::after(self.server.timeouts.start);
        // A configured era needs no other request.
        let mut silence_by = match self.era {
            None => start_by.min(clock::after(self.server.timeouts.probe_silence)),
            Some(_) => start_by,
        };
        let mut may_retry = true;
        loop {
            let mut discover = self.send_discover(pipe, ids);
            let mut initialize = None;
            let mut reply = first_reply(&mut discover, &mut initialize, silence_by).await;
            if matches!(reply, ProbeReply::Silence) && silence_by < start_by {
                // It may be slow, or wait for an `initialize` that it shall not get.
                if self.server.sessions == SessionMode::Never {
                    self.add_evidence("server/discover", "silence");
                    return ProbeEnd::Legacy;
                }
                let sent = "silence, so `initialize` went out as well";
                self.add_evidence("server/discover", sent);
                initialize = Some(self.send_initialize(pipe, ids));
                reply = first_reply(&mut discover, &mut initialize, start_by).await;
            }
            let verdict = match self.read_probe_reply(reply, pipe) {
                Ok(verdict) => verdict,
                Err(end) => return end,
            };
            match verdict {
                // Also a slow server that became modern by our late probe. Either way it is modern, and
                // silence needs no `initialize` any more.
                EraVerdict::RetryAt(_) if std::mem::take(&mut may_retry) => silence_by = start_by,
                EraVerdict::RetryAt(_) => {
                    let last = self.evidence.last();
                    let why = last.map(|last| last.answer.as_str()).unwrap_or_default();
                    return ProbeEnd::Failed(self.version_contradiction(why));
                },
                EraVerdict::Incompatible { supported } => {
                    return ProbeEnd::Failed(self.no_common_version(&supported));
                },
                EraVerdict::Modern(_) | EraVerdict::Legacy { .. } | EraVerdict::Undetermined => {
                    // If `initialize` was sent already, its reply comes next.
                    let Some(call) = initialize else {
                        return ProbeEnd::Legacy;
                    };
                    let initialized = self.await_initialize(pipe, call, start_by).await;
                    return initialized.map_or_else(ProbeEnd::Failed, ProbeEnd::Initialized);
                },
            }
        }
    }

    /// A verdict to go on with, or the end of the probe.
    #[expect(clippy::result_large_err, reason = "it is made once per start")]
    fn read_probe_reply(&mut self, reply: ProbeReply, pipe: &Pipe) -> Result<EraVerdict, ProbeEnd> {
        match reply {
            ProbeReply::Silence => Err(ProbeEnd::Failed(self.silent_child(pipe))),
            ProbeReply::Lost(diagnostic) => {
                self.add_evidence("server/discover", &diagnostic.message);
                Err(ProbeEnd::ChildExited(diagnostic))
            },
            ProbeReply::Discover(message) => {
                let read = classify_stdio_probe(&message);
                match self.add_reading("server/discover", &message, read) {
                    EraVerdict::Modern(version) => Err(ProbeEnd::Modern(version, message)),
                    verdict @ (EraVerdict::Legacy { .. }
                    | EraVerdict::RetryAt(_)
                    | EraVerdict::Incompatible { .. }
                    | EraVerdict::Undetermined) => Ok(verdict),
                }
            },
            ProbeReply::Initialize(message) => {
                let read = classify_late_initialize(&message);
                let verdict = self.add_reading("initialize", &message, read);
                match matches!(verdict, EraVerdict::RetryAt(_)) {
                    true => Ok(verdict),
                    false => Err(ProbeEnd::Initialized(message)),
                }
            },
        }
    }

    fn add_reading(
        &mut self,
        step: &'static str,
        message: &Message,
        read: EraProbeResult,
    ) -> EraVerdict {
        let answer = sanitize::summarize_message(message);
        self.add_evidence(step, &format!("{answer} ({})", read.row));
        read.verdict
    }

    fn send_discover(&self, pipe: &Pipe, ids: &RequestIdGenerator) -> PipeCall {
        let id = ids.next();
        let request = Request::new("server/discover", Params::empty());
        let meta = self.profile.meta(Version::NEWEST_MODERN);
        pipe.request(id, encode_modern_request(id, &request, &meta))
    }

    fn send_initialize(&self, pipe: &Pipe, ids: &RequestIdGenerator) -> PipeCall {
        let (id, offer) = (ids.next(), self.offered_version(None));
        pipe.request(id, self.profile.encode_initialize(id, offer))
    }

    async fn await_initialize(
        &mut self,
        pipe: &Pipe,
        mut call: PipeCall,
        by: Instant,
    ) -> Result<Message, Diagnostic> {
        match clock::timeout_at(by, next_reply(&mut call)).await {
            Ok(reply) => {
                let message = reply?;
                self.add_evidence("initialize", &sanitize::summarize_message(&message));
                Ok(message)
            },
            Err(clock::Elapsed) => Err(self.silent_child(pipe)),
        }
    }

    fn finish_initialize(
        &mut self,
        pipe: &Pipe,
        ids: RequestIdGenerator,
        message: &Message,
    ) -> Result<(Driver, ServerFacts), Diagnostic> {
        let facts = handshake::read_initialize(&self.server.name, Transport::Stdio, message);
        let facts = self.check_facts(facts)?;
        pipe.set_version(facts.version);
        pipe.send_message(encode_notification(INITIALIZED_METHOD, None))?;
        Ok((self.stdio_driver(pipe, ids, None), facts))
    }
}

/// A failed opening returns when its process is gone: the caller may start another one.
async fn close_on_error<T>(opened: Result<T, Diagnostic>, started: &Pipe) -> Result<T, Diagnostic> {
    if opened.is_err() {
        started.close().await;
    }
    opened
}

async fn first_reply(
    discover: &mut PipeCall,
    initialize: &mut Option<PipeCall>,
    by: Instant,
) -> ProbeReply {
    let initialized = async {
        match initialize {
            Some(call) => next_reply(call).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        reply = next_reply(discover) => reply.map_or_else(ProbeReply::Lost, ProbeReply::Discover),
        reply = initialized => reply.map_or_else(ProbeReply::Lost, ProbeReply::Initialize),
        () = clock::sleep_until(by) => ProbeReply::Silence,
    }
}

/// The reply to a request, or why none comes.
async fn next_reply(call: &mut PipeCall) -> Result<Message, Diagnostic> {
    loop {
        match call.next_event().await {
            PendingEvent::Message(message) if is_reply(&message) => return Ok(message),
            PendingEvent::Message(_) | PendingEvent::Dropped(_) => {},
            PendingEvent::Lost(_, diagnostic) => return Err(diagnostic),
        }
    }
}
