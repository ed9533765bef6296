//! The driver over stdio, for both eras.

use std::ops::ControlFlow;

use tokio::sync::oneshot;
use warmline_core::error::code::Reason;
use warmline_core::exchange::{AttemptResult, Diagnostic, Reply, Request};
use warmline_core::message::splice::{self, Edit};
use warmline_core::protocol::meta::{self, ClientMeta};

use crate::http::call_reader::{CallEnd, CallReader};
use crate::http::post::{self, encode_notification};
use crate::http::response;
use crate::legacy::session::StreamHoldOutcome;
use crate::legacy::session::encode_legacy_request;
use crate::listener::{ExtraHeaders, Listener, ReplyPayload, ReplySink};
use crate::modern::encode_modern_request;
use crate::modern::{ParamHeaderCache, ParamHeaderRejection};
use crate::pending::PendingKind;
use crate::session_state::{CallTimer, RequestIdGenerator, Retirement};
use crate::stdio::pipe::{Pipe, PipeCall};
use crate::stdio::write_queue::WriteProgress;

#[derive(Debug)]
pub(crate) struct StdioSession {
    pub(crate) server: String,
    pub(crate) pipe: Pipe,
    /// Sent with each request; none in the legacy era, where the handshake sent it.
    client_meta: Option<ClientMeta>,
    ids: RequestIdGenerator,
    param_headers: ParamHeaderCache,
    pub(crate) retirement: Retirement,
}

impl StdioSession {
    pub(crate) fn new(
        server: &str,
        pipe: Pipe,
        ids: RequestIdGenerator,
        client_meta: Option<ClientMeta>,
    ) -> Self {
        Self {
            server: server.to_owned(),
            pipe,
            client_meta,
            ids,
            param_headers: ParamHeaderCache::default(),
            retirement: Retirement::default(),
        }
    }

    pub(crate) async fn send(&self, request: Request, listener: &dyn Listener) -> AttemptResult {
        // A program never sees the headers of an HTTP client, so nobody else would report that they
        // differ from the arguments. A schema that breaks the rules has no effect here.
        let checked = self.param_headers.headers_for(&request);
        if let Err(ParamHeaderRejection::Mismatch(error)) = checked {
            return AttemptResult::Answered(Reply::Error(error));
        }
        let request = with_trace_meta(request);
        let lists_tools = request.origin.is_forwarded() && request.method == "tools/list";
        let id = self.ids.next();
        let line = match &self.client_meta {
            Some(meta) => encode_modern_request(id, &request, meta),
            None => encode_legacy_request(id, &request),
        };
        let mut call = CallReader::new(id, CallTimer::start(request.deadlines), listener);
        // A modern server must not ask over a pipe, and gets no answer.
        let is_legacy = self.client_meta.is_none();
        call.reply_sink = is_legacy.then_some(self as &dyn ReplySink);
        let (kind, caller) = match &*request.method {
            LISTEN_METHOD => (PendingKind::Listen, None),
            _ => (PendingKind::Call, listener.caller()),
        };
        let mut pipe_call = CancelOnDrop {
            pipe: &self.pipe,
            id,
            listener,
            call: self.pipe.start_request(id, line, kind, caller),
        };
        let ending = self.follow_call(&mut pipe_call, request, &mut call).await;
        if let (true, AttemptResult::Answered(Reply::Result(list))) = (lists_tools, &ending) {
            self.param_headers.record_tools(&self.server, list);
        }
        ending
    }

    async fn follow_call(
        &self,
        pipe_call: &mut CancelOnDrop<'_>,
        request: Request,
        call: &mut CallReader<'_>,
    ) -> AttemptResult {
        let end = loop {
            let end = match call.next(pipe_call.call.next_event()).await {
                ControlFlow::Continue(event) => call.handle_pending(event).await,
                ControlFlow::Break(end) => Some(end),
            };
            if let Some(end) = end {
                break end;
            }
        };
        match end {
            CallEnd::Reply(reply) => response::ending_of_reply(&self.server, &reply),
            CallEnd::TimedOut => self.timeout_ending(pipe_call, request),
            CallEnd::Lost(lost) => {
                // These concern only the call; else the child is lost, too.
                let alone = [
                    Reason::ReplyTooLarge,
                    Reason::LocalResources,
                    Reason::TimeoutUnsent,
                ];
                let reason = lost.diagnostic.reason;
                if !call.was_reply_refused && !alone.contains(&reason) {
                    self.retirement.set(reason);
                }
                response::ending_of_send_failure(lost, request)
            },
        }
    }

    /// Ends a call that timed out: its delivery depends on how much of its line the pipe took.
    fn timeout_ending(&self, call: &mut CancelOnDrop<'_>, request: Request) -> AttemptResult {
        let server = &self.server;
        let is_in_flight = call.call.is_in_flight();
        let (what, why) = match call.call.abandon() {
            WriteProgress::Whole => {
                // A reply may be there that nobody had room for.
                if is_in_flight {
                    call.send_cancel();
                }
                return response::timeout_diagnostic(server).into_unknown();
            },
            WriteProgress::Partial => {
                self.retirement.set(Reason::TimeoutUnsent);
                let what = format!("`{server}` stopped reading in the middle of the request");
                let why = "the rest of the line would be read as another message, so it was ended";
                (what, why)
            },
            WriteProgress::Unsent => {
                let what = format!("the request to `{server}` could not be written in time");
                (what, "the program does not read its standard input")
            },
        };
        let diagnostic = Diagnostic::new(Reason::TimeoutUnsent, what);
        diagnostic.with_cause(why).into_unsent(request)
    }

    /// Sends a notification; `params` is a raw JSON object.
    pub(crate) fn notify(&self, method: &str, params: &[u8]) -> Result<(), Diagnostic> {
        self.pipe
            .send_message(encode_notification(method, Some(params)))
    }

    pub(crate) async fn wait_until_ended(&self) -> StreamHoldOutcome {
        self.pipe.wait_until_gone().await;
        self.retirement.set(Reason::ChildExit);
        StreamHoldOutcome::SessionEnded
    }
}

impl ReplySink for StdioSession {
    fn send_reply(
        &self,
        id: &[u8],
        payload: ReplyPayload,
        _: &ExtraHeaders,
    ) -> oneshot::Receiver<Diagnostic> {
        let (failed, undelivered) = oneshot::channel();
        if let Err(diagnostic) = self.pipe.send_message(payload.into_message(id).into()) {
            // The end of a child is an event of its own.
            if diagnostic.reason == Reason::LocalResources {
                tracing::warn!(server = self.server, trouble = %diagnostic, "answer not delivered");
                failed
                    .send(post::reply_not_delivered(&self.server, diagnostic))
                    .ok();
            }
        }
        undelivered
    }
}

const LISTEN_METHOD: &str = "subscriptions/listen";

/// A program gets no headers: those of a trace go into `_meta`, unless it has them.
fn with_trace_meta(request: Request) -> Request {
    let said = |name: &str| {
        let found = request.headers.iter().find(|(known, _)| known == name);
        let text = found.and_then(|(_, value)| value.to_str().ok())?;
        let mut raw = Vec::with_capacity(text.len() + 2);
        splice::write_string(&mut raw, text);
        request.params.meta_member(name).is_none().then_some(raw)
    };
    if request.headers.is_empty() {
        return request;
    }
    let parent = said(meta::TRACE_PARENT);
    // `tracestate` belongs to its parent.
    let state = parent.as_ref().and_then(|_| said(meta::TRACE_STATE));
    let all = [
        (meta::TRACE_PARENT, parent),
        (meta::TRACE_STATE, state),
        (meta::BAGGAGE, said(meta::BAGGAGE)),
    ];
    let edits: Vec<Edit<'_>> = all
        .iter()
        .filter_map(|(name, raw)| Some(Edit::Set(name, raw.as_deref()?)))
        .collect();
    if edits.is_empty() {
        return request;
    }
    let params = request.params.edited(&[], &edits);
    Request { params, ..request }
}

/// Cancels a call that is dropped before its end, if anything of it has left.
struct CancelOnDrop<'a> {
    pipe: &'a Pipe,
    id: u64,
    listener: &'a dyn Listener,
    call: PipeCall,
}

impl CancelOnDrop<'_> {
    fn send_cancel(&self) {
        let notice = post::encode_cancelled(self.id, self.listener);
        // A child that cannot be written to is gone.
        self.pipe.send_message(notice).ok();
    }
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if self.call.is_in_flight() {
            self.send_cancel();
        }
    }
}
