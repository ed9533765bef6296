//! A request that may go on: what the rules say to it, and what the audit notes of its end.
//!
//! Asked by: the faces, before a request goes to its server and when it came back. Every way to a
//! server leads through here; where there are neither rules nor an audit it costs nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::Response;
use warmline::core::code::{Code, Reason};
use warmline::core::exchange::Trouble;
use warmline::core::protocol::params::Params;
use warmline::{Error, ServerHandle};

use crate::Shared;
use crate::audit::Line;
use crate::body::Body;
use crate::face::Visit;
use crate::metrics::{Counts, LeftCall};
use crate::reply;
use crate::rules;
use crate::who::Subject;

/// What stands in the audit where a server has its name, and all are meant.
const EVERY_SERVER: &str = "*";

/// A request that may go on.
pub(crate) struct Pass {
    /// Who wants to see a list.
    sees: Option<(Arc<Shared>, Subject)>,
    line: Option<Line>,
    /// Counts it where nobody waits for its end.
    left: Leaving,
}

/// A request under way: dropped before its end, it was given up.
struct Leaving(Option<Arc<Counts>>);

impl Drop for Leaving {
    fn drop(&mut self) {
        if let Some(counts) = &self.0 {
            counts.left.one_more(LeftCall::Cancelled);
        }
    }
}

impl Visit<'_> {
    /// Whether a request to a server may go on.
    ///
    /// # Errors
    /// `not-allowed`: the rules say no.
    pub(crate) fn pass(
        &self,
        server: &str,
        method: &str,
        params: &Params,
    ) -> Result<Pass, Box<Error>> {
        let line = self.audit_line(server, method, params);
        if let Some(what) = self.forbidden(server, method, params) {
            return Err(not_allowed(what, line));
        }
        let is_list = method == "tools/list";
        let sees = is_list.then(|| (Arc::clone(self.shared), self.subject.clone()));
        let left = Leaving(Some(Arc::clone(&self.shared.counts)));
        Ok(Pass { sees, line, left })
    }

    /// Whether a server may be told something. Only a refusal is in the audit: a notice does nothing.
    ///
    /// # Errors
    /// As [`Visit::pass`].
    pub(crate) fn may_tell(
        &self,
        server: &str,
        method: &str,
        params: &Params,
    ) -> Result<(), Box<Error>> {
        match self.forbidden(server, method, params) {
            Some(what) => Err(not_allowed(what, self.audit_line(server, method, params))),
            None => Ok(()),
        }
    }

    /// What the rules forbid, in words.
    fn forbidden(&self, server: &str, method: &str, params: &Params) -> Option<String> {
        let terms = self.shared.terms.load();
        let rules = &terms.rules;
        let is_call = method == "tools/call";
        if !rules.may_use(&self.subject, server) {
            return Some(format!("`{}` may not be used", server.escape_debug()));
        }
        if !is_call || rules.may_call_named(&self.subject, server, params) {
            return None;
        }
        let server = server.escape_debug();
        Some(match params.name() {
            Some(tool) => format!("`{}` of `{server}` may not be called", tool.escape_debug()),
            None => format!("a call of `{server}` has to name its tool by a text"),
        })
    }

    /// What the audit notes of a request that no rule is about, or that is for all servers.
    pub(crate) fn noted(&self, method: &str, params: &Params) -> Option<Line> {
        let server = self.target.server.unwrap_or(EVERY_SERVER);
        self.audit_line(server, method, params)
    }

    /// Notes a request that goes to no server, and why.
    pub(crate) fn turned_down(&self, method: &str, params: &Params, why: &str) {
        if let Some(line) = self.noted(method, params) {
            line.refused(why);
        }
    }

    /// Notes a refusal, unless there is a line of this request already: the last word on every
    /// request, so that none is refused without one. `said` is its method with its parameters.
    pub(crate) fn note_refusal(&self, said: Option<(&str, &Params)>, response: &Response<Body>) {
        let (Some(told), Some(noted)) = (reply::told(response), &self.noted) else {
            return;
        };
        if noted.load(Ordering::Relaxed) {
            return;
        }
        match said {
            Some((method, params)) => self.turned_down(method, params, told.why),
            None => self.sent_away(told.why),
        }
    }

    /// The same where the engine said why.
    pub(crate) fn failed(&self, method: &str, params: &Params, error: &Error) {
        // What the rules forbid was noted when they were asked.
        if error.code() != Code::NotAllowed
            && let Some(line) = self.noted(method, params)
        {
            line.ended(&Err(error.clone()));
        }
    }

    /// The same of a request without a message.
    pub(crate) fn sent_away(&self, why: &'static str) {
        if let (Some(audit), Some(noted)) = (&self.shared.audit, &self.noted) {
            noted.store(true, Ordering::Relaxed);
            let whose = (self.subject.name(), why);
            audit.turned_away(self.head, self.target.server, whose);
        }
    }

    fn audit_line(&self, server: &str, method: &str, params: &Params) -> Option<Line> {
        let (audit, noted) = (self.shared.audit.as_ref()?, self.noted.as_ref()?);
        noted.store(true, Ordering::Relaxed);
        Some(audit.line(self, server, method, params))
    }
}

fn not_allowed(what: String, line: Option<Line>) -> Box<Error> {
    if let Some(line) = line {
        line.refused("not-allowed");
    }
    Box::new(Error::unsent(Trouble::new(Reason::NotAllowed, what)))
}

impl Pass {
    /// The same for one of several servers that are asked at once: what is given up because another
    /// answered was left by no client.
    pub(crate) fn of_several(mut self) -> Self {
        self.left.0 = None;
        self
    }

    /// Its server did not answer within its share of the time.
    pub(crate) fn late(self) {
        if let Some(line) = self.line {
            line.late();
        }
    }

    /// A request came back from its server: what its client may see of that.
    pub(crate) fn ended(
        mut self,
        server: &ServerHandle,
        outcome: Result<Bytes, Error>,
    ) -> Result<Bytes, Error> {
        self.left.0 = None;
        if let Some(line) = self.line {
            line.ended(&outcome);
        }
        let Some((shared, subject)) = self.sees else {
            return outcome;
        };
        let terms = shared.terms.load();
        outcome.map(|list| {
            let shown = terms.rules.shown(server.name());
            rules::strike(list, shown, |tool| {
                server.may_call(tool) && terms.rules.may_call(&subject, server.name(), tool)
            })
        })
    }
}
