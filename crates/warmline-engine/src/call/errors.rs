//! The errors that a call ends with. An unknown tool is recognised without another request.

use std::sync::Arc;

use bytes::Bytes;
use warmline_core::delivery::Delivery;
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::protocol::unknown_tool::is_unknown_tool_message;

use super::{CallState, CallStop, known_list_owner};
use crate::error::{Error, ErrorContext};
use crate::events::{Event, Fingerprint, SessionRef};
use crate::metrics::{CallOutcome, CallRecorder, MethodLabel};
use crate::tools::{self, ToolList};

/// The JSON-RPC code by which most servers refuse an unknown tool.
const INVALID_PARAMS: i64 = -32602;

impl CallState<'_> {
    pub(super) fn protocol_error(&mut self, raw: &Bytes) -> Error {
        if let Some(metrics) = self.metrics.take() {
            metrics.finish_answered(CallOutcome::ProtocolError);
        }
        let mut error = Error::from_server_error(&self.server.name, &self.request.method, raw);
        if let (Some(reply), Some(tool)) = (error.server_error(), self.request.tool.as_deref())
            && (is_unknown_tool_message(&reply.message, tool)
                || (reply.code == INVALID_PARAMS && self.lacks_tool(tool)))
        {
            error = error.with_diagnostic(self.unknown_tool_diagnostic(tool));
        }
        error
            .with_context(self.error_context())
            .with_attempts(self.history.attempts())
    }

    /// The error of a call without an attempt.
    pub(super) fn reject(&mut self, diagnostic: Diagnostic) -> Error {
        self.finish_with_error(diagnostic, Delivery::Unsent)
            .with_attempts(0)
    }

    /// The error of a call that ends before its next attempt.
    pub(super) fn unsent_error(&mut self, diagnostic: Diagnostic) -> Error {
        let delivery = self.history.overall_delivery(Delivery::Unsent);
        self.finish_with_error(diagnostic, delivery)
    }

    /// The error of a call that the end of its run or of the engine stopped.
    pub(super) fn stopped_error(&mut self, stopped: CallStop) -> Error {
        let diagnostic = match stopped {
            CallStop::NotAdmitted(diagnostic) => return self.reject(diagnostic),
            CallStop::Cancelled(diagnostic) => diagnostic,
        };
        if self.metrics.as_ref().map(CallRecorder::method) == Some(MethodLabel::Listen) {
            // A stream that ends with its run has not failed.
            self.metrics = None;
        }
        let last = self.last_delivery.unwrap_or(Delivery::Unsent);
        let delivery = match self.in_flight {
            true => Delivery::Unknown,
            false => self.history.overall_delivery(last),
        };
        self.finish_with_error(diagnostic, delivery)
    }

    /// The error that ends the call, with metrics and an event.
    pub(super) fn finish_with_error(
        &mut self,
        diagnostic: Diagnostic,
        delivery: Delivery,
    ) -> Error {
        if diagnostic.reason == Reason::Internal {
            self.report_internal_error();
        }
        if let Some(metrics) = self.metrics.take() {
            self.report_failure(&metrics, &diagnostic, delivery);
            metrics.finish_failed(delivery, diagnostic.code);
        }
        // The session does not know the headers of a single call.
        let diagnostic = warmline_upstream::redact_headers(&self.request.headers, diagnostic);
        Error::new(diagnostic, delivery)
            .with_context(self.error_context())
            .with_attempts(self.history.attempts())
    }

    fn error_context(&self) -> ErrorContext {
        ErrorContext {
            server: Some(self.server.name.to_string()),
            method: Some(self.request.method.to_string()),
            tool: self.request.tool.as_ref().map(ToString::to_string),
            run: self.caller.run.as_ref().map(|run| run.name.to_string()),
            generation: self.generation,
            location: self.server.display_location(),
        }
    }

    fn report_failure(&self, metrics: &CallRecorder, diagnostic: &Diagnostic, delivery: Delivery) {
        let mut session = SessionRef::for_server(Arc::clone(&self.server.name));
        session.identity = Some(Fingerprint::from(self.caller.identity.id));
        let run = self.caller.run.as_ref();
        session.run = run.map(|run| Fingerprint::from(run.id));
        session.generation = self.generation;
        self.caller.engine.context.events.emit(Event::CallFailed {
            session,
            method: metrics.method(),
            delivery,
            code: diagnostic.code,
            reason: diagnostic.reason,
            attempts: metrics.attempts(),
            took: metrics.elapsed(),
        });
    }

    fn report_internal_error(&self) {
        let context = &self.caller.engine.context;
        context.metrics.engine.invariant_failures.increment();
        context.events.emit(Event::InvariantViolated {
            promise: "no call fails by a fault of Warmline",
            server: Some(Arc::clone(&self.server.name)),
        });
    }

    /// The diagnostic of a failed result that says the server has no such tool.
    pub(super) fn detect_unknown_tool(&self, result: &[u8]) -> Option<Box<Diagnostic>> {
        let tool = self.request.tool.as_deref()?;
        let text = only_text_block(result)?;
        is_unknown_tool_message(&text, tool)
            .then(|| Box::new(self.unknown_tool_diagnostic(tool).with_cause(text)))
    }

    fn unknown_tool_diagnostic(&self, tool: &str) -> Diagnostic {
        let known = self.cached_tools();
        if known.as_ref().is_some_and(|tools| tools.contains(tool)) {
            // The cached list is outdated.
            self.server.tool_lists.forget_all();
        }
        tools::unknown_tool(&self.server.name, tool, known.as_deref())
    }

    fn lacks_tool(&self, tool: &str) -> bool {
        self.cached_tools()
            .is_some_and(|tools| !tools.contains(tool))
    }

    fn cached_tools(&self) -> Option<Arc<ToolList>> {
        let owner = known_list_owner(self.caller, self.server);
        self.server.tool_lists.peek(&owner)
    }
}

fn only_text_block(result: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct ToolResultText {
        content: Vec<TextBlock>,
    }
    #[derive(serde::Deserialize)]
    struct TextBlock {
        text: Option<String>,
    }
    let body: ToolResultText = serde_json::from_slice(result).ok()?;
    let [only] = <[TextBlock; 1]>::try_from(body.content).ok()?;
    only.text
}
