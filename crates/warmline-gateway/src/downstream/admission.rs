//! Admits requests by the rules, and audits how they end. Every request to a server passes here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::Response;
use warmline_core::error::code::{Code, Reason};
use warmline_core::exchange::Diagnostic;
use warmline_core::message::params::Params;
use warmline_engine::relay::RelayHandle as _;
use warmline_engine::{Error, ServerHandle};

use crate::GatewayState;
use crate::access::audit::AuditLine;
use crate::access::rules;
use crate::auth::Subject;
use crate::downstream::legacy::session_ticket::SessionTicket;
use crate::downstream::{RequestContext, message};
use crate::metrics::{AbandonedCall, GatewayCounters};
use crate::response::ResponseBody;
use crate::response::rejection::RequestRejection;

/// The server in the audit lines of requests to all servers.
const ALL_SERVERS: &str = "*";

/// A request that the rules allow.
pub(crate) struct Admission {
    /// Who reads the list of tools.
    list_viewer: Option<(Arc<GatewayState>, Subject)>,
    audit_line: AuditLine,
    /// Counts the request as cancelled if it is dropped before its end.
    counters: Option<Arc<GatewayCounters>>,
}

impl Drop for Admission {
    fn drop(&mut self) {
        if let Some(counters) = &self.counters {
            counters.abandoned_calls.increment(AbandonedCall::Cancelled);
        }
    }
}

impl RequestContext<'_> {
    pub(crate) fn admit(
        &self,
        server: &str,
        method: &str,
        params: &Params,
    ) -> Result<Admission, Box<Error>> {
        let line = self.audit_line(server, method, params);
        if let Some(what) = self.denial_text(server, method, params) {
            return Err(not_allowed(what, line));
        }
        let is_list = method == "tools/list";
        Ok(Admission {
            list_viewer: is_list.then(|| (Arc::clone(self.shared), self.subject.clone())),
            audit_line: line,
            counters: Some(Arc::clone(&self.shared.counters)),
        })
    }

    /// Checks whether a notification may go to a server. Only a rejection is audited.
    ///
    /// # Errors
    /// As [`RequestContext::admit`].
    pub(crate) fn check_notification(
        &self,
        server: &str,
        method: &str,
        params: &Params,
    ) -> Result<(), Box<Error>> {
        match self.denial_text(server, method, params) {
            Some(what) => Err(not_allowed(what, self.audit_line(server, method, params))),
            None => Ok(()),
        }
    }

    fn denial_text(&self, server: &str, method: &str, params: &Params) -> Option<String> {
        let terms = self.shared.access.policy.load();
        let rules = &terms.rules;
        let is_call = method == "tools/call";
        if !rules.may_use(&self.subject, server) {
            return Some(format!("`{}` may not be used", server.escape_debug()));
        }
        if !is_call || rules.may_call_request(&self.subject, server, params) {
            return None;
        }
        let server = server.escape_debug();
        Some(match params.name() {
            Some(tool) => format!("`{}` of `{server}` may not be called", tool.escape_debug()),
            None => format!("a call of `{server}` must name its tool as a string"),
        })
    }

    /// The audit line of a request that goes to no server, or to all.
    pub(crate) fn target_audit_line(&self, method: &str, params: &Params) -> AuditLine {
        let server = self.target.server.unwrap_or(ALL_SERVERS);
        self.audit_line(server, method, params)
    }

    /// Audits a response that rejects the request, unless the request has its line: the last step of every
    /// request, so that none is rejected without one. `message` is its method and parameters.
    pub(crate) fn audit_rejection_once(
        &self,
        message: Option<(&str, &Params)>,
        response: &Response<ResponseBody>,
    ) {
        let is_due = |audited: &Arc<AtomicBool>| !audited.load(Ordering::Relaxed);
        if self.audited.as_ref().is_some_and(is_due)
            && let Some(rejection) = response.extensions().get()
        {
            self.audit_rejection(message, rejection);
        }
    }

    pub(crate) fn audit_rejection(
        &self,
        message: Option<(&str, &Params)>,
        rejection: &RequestRejection,
    ) {
        match (message, rejection) {
            (None, RequestRejection::Rpc(rejection)) => {
                self.audit_rejected_head(rejection.audit_reason);
            },
            (None, RequestRejection::Failed(error)) => {
                self.audit_rejected_head(error.code().as_str());
            },
            // It was audited with the decision.
            (_, RequestRejection::Failed(error)) if error.code() == Code::NotAllowed => {},
            (Some((method, params)), rejection) => {
                let line = self.target_audit_line(method, params);
                match rejection {
                    RequestRejection::Rpc(rejection) => {
                        line.finish_rejected(rejection.audit_reason);
                    },
                    RequestRejection::Failed(error) => line.finish(&Err(error.clone())),
                }
            },
        }
    }

    pub(crate) fn audit_rejected_head(&self, why: &'static str) {
        if let (Some(audit), Some(noted)) = (&self.shared.audit, &self.audited) {
            noted.store(true, Ordering::Relaxed);
            let whose = (self.subject.audit_name(), why);
            audit.write_rejection((Some(self.head.path), self.target.server), whose, 0);
        }
    }

    fn audit_line(&self, server: &str, method: &str, params: &Params) -> AuditLine {
        let (Some(audit), Some(noted)) = (&self.shared.audit, &self.audited) else {
            return AuditLine::default();
        };
        noted.store(true, Ordering::Relaxed);
        let headers = self.head.headers;
        let caller = (self.subject.audit_name(), headers);
        let (run, trace) = (
            self.run_name(params),
            message::request_trace_id(headers, params),
        );
        audit.start_line(caller, server, (method, params), run, trace)
    }

    fn run_name(&self, params: &Params) -> Option<String> {
        if let Some(name) = self.named_run(Some(params)).ok().flatten() {
            return Some(name.into_owned());
        }
        let vault = self.shared.warmline.vault();
        let ticket = self.head.session?;
        Some(SessionTicket::open(vault, ticket.as_bytes())?.own_run_name())
    }
}

fn not_allowed(what: String, line: AuditLine) -> Box<Error> {
    line.finish_rejected("not-allowed");
    Box::new(Error::from(Diagnostic::new(Reason::NotAllowed, what)))
}

impl Admission {
    /// For one of several servers that are asked at once. No client cancelled what is dropped because
    /// another one answered.
    pub(crate) fn without_cancellation(mut self) -> Self {
        self.counters = None;
        self
    }

    pub(crate) fn finish_timed_out(mut self) {
        std::mem::take(&mut self.audit_line).finish_timed_out();
    }

    /// Audits how the request ended. Returns what the client may see of the result.
    pub(crate) fn finish(
        mut self,
        server: &ServerHandle,
        outcome: Result<Bytes, Error>,
    ) -> Result<Bytes, Error> {
        self.counters = None;
        std::mem::take(&mut self.audit_line).finish(&outcome);
        let Some((shared, subject)) = self.list_viewer.take() else {
            return outcome;
        };
        let terms = shared.access.policy.load();
        outcome.map(|list| {
            let shown = terms.rules.are_per_caller(server.name());
            rules::filter_tool_list(list, shown, |tool| {
                server.may_call(tool) && terms.rules.may_call(&subject, server.name(), tool)
            })
        })
    }
}
