//! A server as somebody calls it.
//!
//! Runs and identities hand it out. The call as it is built is in `building`, its result in `result`.

mod building;
mod leaving;
mod listening;
mod lists;
mod result;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde_json::json;
use warmline_core::code::Reason;
use warmline_core::era::Era;
use warmline_core::exchange::Trouble;
use warmline_core::policy::SessionPer;
use warmline_core::protocol::params::Params;

use crate::attend::{self, Attending};
use crate::call::{self, Fresh};
use crate::clock::Instant;
use crate::engine::{Caller, Undeclared};
use crate::entry::{Entry, Said, governing};
use crate::error::{Error, Result};
use crate::lease::Leased;
use crate::route;
use crate::server::Server;
use crate::tools::{Tool, ToolList};
use crate::upstream::{Declared, Facts, HeaderSource as _, List, Listener, Notices};

pub(crate) use building::named_params;
pub use building::{Call, Outcome};
pub use listening::{CallEvent, CallEvents, Responder};
pub use lists::ListsOf;
pub use result::{ToolOutput, ToolResult};

/// A server, as one identity calls it, inside a run or outside.
#[derive(Clone)]
pub struct ServerHandle {
    caller: Caller,
    entry: Entered,
    /// Held by all handles of a server that is declared nowhere.
    kept: Option<Arc<Undeclared>>,
    listener: Option<Arc<dyn Listener>>,
}

/// The entry of the server, or why there is none: told at the first call.
#[derive(Clone, Debug)]
enum Entered {
    Known(Arc<Entry>),
    Bad(Box<Trouble>),
}

impl ServerHandle {
    pub(crate) fn of(caller: Caller, name: &str) -> Result<Self> {
        // A run keeps the server it began with, also when its name is gone.
        let kept = caller.run.as_ref().and_then(|run| run.routes.kept(name));
        let entry = match kept {
            Some(kept) => kept.may_be_used(&caller.engine).map(|()| kept),
            None => caller.engine.entry(name),
        };
        let entry = entry.map_err(Error::unsent)?;
        Ok(Self {
            caller,
            entry: Entered::Known(entry),
            kept: None,
            listener: None,
        })
    }

    pub(crate) fn undeclared(mut caller: Caller, server: Server) -> Self {
        let (entry, kept) = match Undeclared::enter(&caller, server) {
            Ok(kept) => {
                caller.said = caller.said.kept_by(kept.sign());
                (Entered::Known(Arc::clone(kept.entry())), Some(kept))
            },
            Err(error) => (Entered::Bad(Box::new(error.trouble().clone())), None),
        };
        Self {
            caller,
            entry,
            kept,
            listener: None,
        }
    }

    /// The name of the server.
    pub fn name(&self) -> &str {
        match &self.entry {
            Entered::Known(entry) => &entry.name,
            Entered::Bad(_) => "",
        }
    }

    /// Whether a gateway is of no use without it, and does not start.
    pub fn is_required(&self) -> bool {
        match &self.entry {
            Entered::Known(entry) => entry.policy().required,
            Entered::Bad(_) => false,
        }
    }

    /// Whether its credential is declared as a header of the caller's request.
    pub fn is_of_caller(&self) -> bool {
        match &self.entry {
            Entered::Known(entry) => entry.is_of_caller(),
            Entered::Bad(_) => false,
        }
    }

    /// The same server, for the request of a caller: a credential that is declared as a header of
    /// theirs ([`Secret::header`](crate::Secret::header)) is taken from there.
    #[must_use]
    pub fn of_caller(mut self, headers: &http::HeaderMap) -> Self {
        if let Entered::Known(entry) = &self.entry {
            let vault = &self.caller.engine.shared().vault;
            if let Some(who) = entry.handed(&self.caller.who, headers, vault) {
                self.caller.who = Arc::new(who);
            }
        }
        self
    }

    /// Whether what was decided about the server lets a tool be listed and called.
    pub fn may_call(&self, tool: &str) -> bool {
        match &self.entry {
            Entered::Known(entry) => entry.may_call(&self.caller.engine, tool),
            Entered::Bad(_) => true,
        }
    }

    /// Whether its sessions are held for runs, unless it turns out to keep none: nothing else is
    /// decided.
    pub fn is_held_for_runs(&self) -> bool {
        match &self.entry {
            Entered::Known(entry) => {
                let decided = entry.policy().session_per;
                matches!(decided, None | Some(SessionPer::Run))
            },
            Entered::Bad(_) => false,
        }
    }

    /// The same server, for a client that says something else of itself than the engine does.
    /// Sessions that are shared are kept apart by it; in a run the first client's word counts.
    #[must_use]
    pub fn declaring(mut self, declared: Declared) -> Self {
        let vault = &self.caller.engine.shared().vault;
        let said = Said::new(declared, vault);
        self.caller.said = match &self.kept {
            Some(kept) => said.kept_by(kept.sign()),
            None => said,
        };
        self
    }

    /// The same server, spoken to in this era alone: for a client of that era, whose words are
    /// passed on.
    #[must_use]
    pub fn in_era(mut self, era: Era) -> Self {
        self.caller.era = Some(era);
        self
    }

    /// The same server, with somebody who hears news and answers questions of every call.
    #[must_use]
    pub fn listener(mut self, listener: impl Listener + 'static) -> Self {
        self.listener = Some(Arc::new(listener));
        self
    }

    /// Calls a tool. `arguments` is anything that serializes to an object.
    pub fn call(&self, tool: impl Into<String>, arguments: impl Serialize) -> Call<ToolResult> {
        self.build("tools/call", named_params(&tool.into(), arguments))
    }

    /// Sends any request and hands out its raw result.
    pub fn request(
        &self,
        method: impl Into<Cow<'static, str>>,
        params: impl Serialize,
    ) -> Call<Bytes> {
        self.build(method, Params::of(&params))
    }

    /// As [`ServerHandle::request`], with parameters that are checked already.
    pub fn request_raw(&self, method: impl Into<Cow<'static, str>>, params: Params) -> Call<Bytes> {
        self.build(method, Ok::<_, &str>(params))
    }

    /// Calls a tool by the name that models know it by.
    ///
    /// # Errors
    /// `tool-unknown`, where no tool has that name; the others as [`ServerHandle::tools`].
    pub async fn call_exposed(&self, name: &str, arguments: impl Serialize) -> Result<ToolResult> {
        let tools = self.tools().await?;
        let original = tools.find(name).map_err(Error::unsent)?.name().to_owned();
        self.call(original, arguments).await
    }

    /// The tools of this server that may be called: from the cache, where it holds.
    ///
    /// # Errors
    /// As a call that fails.
    pub async fn tools(&self) -> Result<Arc<ToolList>> {
        call::tools(&self.caller, &self.entry()?, Fresh::UntilHorizon).await
    }

    /// The same for whoever asks for the list itself: where a session of a run may list something
    /// else after a call, and nobody would say so, it is read again after each, and where the server
    /// says how long it is good, then.
    ///
    /// # Errors
    /// As a call that fails.
    pub async fn listed_tools(&self) -> Result<Arc<ToolList>> {
        call::tools(&self.caller, &self.entry()?, Fresh::Now).await
    }

    /// One tool, by its own name or the one that models know it by.
    ///
    /// # Errors
    /// `tool-unknown`, naming the tool, the server and the nearest; nothing is called.
    pub async fn tool(&self, name: &str) -> Result<Tool> {
        let tools = self.tools().await?;
        tools.find(name).cloned().map_err(Error::unsent)
    }

    /// Forgets the cached tools: the next list is read from the server.
    pub fn forget_tools(&self) {
        if let Ok(entry) = self.entry() {
            entry.tools.forget_all();
        }
    }

    /// A list of the server with all its pages; each item is raw JSON.
    ///
    /// # Errors
    /// As a call that fails.
    pub async fn list(&self, list: List) -> Result<Vec<Bytes>> {
        call::list(&self.caller, &self.entry()?, list).await
    }

    /// The same from the cache where it holds: until its horizon, or until the server says that the
    /// list changed, and for as long as it says that the list is good. In a run where nobody would
    /// say so it does not outlive a call.
    ///
    /// # Errors
    /// As a call that fails.
    pub async fn listed(&self, list: List) -> Result<Arc<[Bytes]>> {
        call::listed(&self.caller, &self.entry()?, (list, Fresh::Now)).await
    }

    /// The same for whoever looks for something that is likely to be there, and can do without:
    /// also beyond the time for which the server says that the list is good.
    ///
    /// # Errors
    /// As a call that fails.
    pub async fn listed_lately(&self, list: List) -> Result<Arc<[Bytes]>> {
        call::listed(&self.caller, &self.entry()?, (list, Fresh::SinceCalls)).await
    }

    /// Reads a resource.
    pub fn read_resource(&self, uri: &str) -> Call<Bytes> {
        self.request("resources/read", json!({ "uri": uri }))
    }

    /// Gets a prompt, filled in.
    pub fn prompt(&self, name: &str, arguments: impl Serialize) -> Call<Bytes> {
        self.build("prompts/get", named_params(name, arguments))
    }

    /// Asks for completions; `params` as the protocol has them.
    pub fn complete(&self, params: impl Serialize) -> Call<Bytes> {
        self.request("completion/complete", params)
    }

    /// Asks whether the server answers.
    pub fn ping(&self) -> Call<Bytes> {
        self.request_raw("ping", Params::empty())
    }

    /// From which level on log lines are wanted. In a session that is held it is said again when
    /// the session has to be replaced.
    pub fn log_level(&self, level: &str) -> Call<Bytes> {
        self.request("logging/setLevel", json!({ "level": level }))
    }

    /// Asks to be told when a resource changes; said again as the log level is.
    pub fn subscribe(&self, uri: &str) -> Call<Bytes> {
        self.request("resources/subscribe", json!({ "uri": uri }))
    }

    /// The reverse of [`ServerHandle::subscribe`].
    pub fn unsubscribe(&self, uri: &str) -> Call<Bytes> {
        self.request("resources/unsubscribe", json!({ "uri": uri }))
    }

    /// A session for one holder alone, until it is dropped: begin … commit.
    ///
    /// # Errors
    /// As a call on a session that cannot be had.
    pub async fn lease(&self) -> Result<Leased> {
        Leased::take(&self.caller, &self.entry()?).await
    }

    /// What the server said of itself when a session was opened. Opens one where there is none.
    ///
    /// # Errors
    /// As a call on a session that cannot be had.
    pub async fn facts(&self) -> Result<Arc<Facts>> {
        call::facts(&self.caller, &self.entry()?).await
    }

    /// What the server says of itself to a client, as it was heard last by the same identity; opens
    /// a session where nothing was.
    ///
    /// # Errors
    /// As a call on a session that cannot be had.
    pub async fn greeting(&self) -> Result<Arc<Facts>> {
        call::greeting(&self.caller, &self.entry()?).await
    }

    /// What the server said of itself in this era when it was last asked by the same credential,
    /// if that is remembered. Asks nobody.
    pub async fn remembered(&self, era: Era) -> Option<Arc<Facts>> {
        let entry = self.entry().ok()?;
        let speaking = route::speaking(&self.caller, &entry).await.ok()?;
        let connector = self.caller.engine.connector();
        let known = connector.remembered(&entry, &speaking, &self.caller.said)?;
        known.leg(era).cloned()
    }

    /// Whether the last that was heard of the server is that it could not be met, or did not
    /// answer. Asks nobody.
    pub fn seems_absent(&self) -> bool {
        self.entry().is_ok_and(|entry| entry.seems_absent())
    }

    /// Whether the server is decided, or remembered, not to speak an era. Asks nobody.
    pub async fn lacks(&self, era: Era) -> bool {
        let Ok(entry) = self.entry() else {
            return false;
        };
        match route::speaking(&self.caller, &entry).await {
            Ok(speaking) => route::lacks(&self.caller, &entry, &speaking, era),
            Err(_) => false,
        }
    }

    /// Tells the server something, on the session that is held for this caller; `params` is a raw
    /// JSON object. Where none is held there is nobody to tell: none is opened for it.
    ///
    /// # Errors
    /// With what kept it from being delivered.
    pub async fn notify(&self, method: &str, params: &[u8]) -> Result<()> {
        let entry = self.entry()?;
        let Some(line) = call::line(&self.caller, &entry) else {
            return Ok(());
        };
        let vault = &self.caller.engine.shared().vault;
        let credential = entry.credential(&self.caller.who, vault);
        let shown = credential
            .as_ref()
            .map_or(0, |credential| credential.epoch());
        let mut told = line.tell(method, params).await;
        // As with every other request: once more with a fresh token.
        if let (Err(lost), Some(credential)) = (&told, credential)
            && lost.trouble.reason == Reason::Unauthorized
            && credential.renewed(shown).await
        {
            told = line.tell(method, params).await;
        }
        told.map_err(|lost| Error::new(lost.trouble, lost.delivery))
    }

    /// Hears what the session of this caller says outside any call, and answers what it asks
    /// there, until what is given back is dropped. Where the server tells such things on a stream,
    /// that is held meanwhile. No first session is opened for it; one that is lost while something
    /// was subscribed to on it, or that somebody comes back to, is opened again, and the next call
    /// is told what was lost.
    pub fn attend(&self, ear: Arc<dyn Notices>) -> Option<Attending> {
        self.attends(ear, None)
    }

    /// The same for somebody who attended before and was away since then: what was said meanwhile
    /// of lists is told at once.
    pub fn attend_again(&self, ear: Arc<dyn Notices>, since: Instant) -> Option<Attending> {
        self.attends(ear, Some(since))
    }

    fn attends(&self, ear: Arc<dyn Notices>, away: Option<Instant>) -> Option<Attending> {
        let entry = self.entry().ok()?;
        Some(attend::attend(self.caller.clone(), entry, (ear, away)))
    }

    /// Whether a session is held for this caller, and its id where the server issued one. Asking
    /// changes nothing.
    pub fn session(&self) -> Option<HeldSession> {
        call::held(&self.caller, &self.entry().ok()?)
    }

    /// The entry that governs what is called now.
    pub(crate) fn entry(&self) -> Result<Arc<Entry>> {
        match &self.entry {
            Entered::Known(entry) => governing(&self.caller, entry).map_err(Error::unsent),
            Entered::Bad(trouble) => Err(Error::unsent(Trouble::clone(trouble))),
        }
    }

    fn build<T: Outcome>(
        &self,
        method: impl Into<Cow<'static, str>>,
        params: Result<Params, impl std::fmt::Display>,
    ) -> Call<T> {
        let params = params.map_err(|malformed| malformed.to_string());
        Call::on_server(self.clone(), method.into(), params)
    }
}

impl std::fmt::Debug for ServerHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerHandle")
            .field("server", &self.name())
            .field("run", &self.caller.run)
            .finish_non_exhaustive()
    }
}

/// A session that is held, seen from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldSession {
    /// The server's id for it, where it issued one.
    pub id: Option<String>,
    /// Which one of its key it is.
    pub generation: u32,
}
