//! A call while it is built, and what it returns. Awaiting the builder sends it.

use std::borrow::Cow;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use warmline_core::delivery::Idempotency;
use warmline_core::error::code::Reason;
use warmline_core::exchange::{Deadlines, Diagnostic, RequestOrigin};
use warmline_core::message::params::Params;
use warmline_core::policy::Policy;
use warmline_core::protocol::methods;
use warmline_core::session_plan::ServerProfile;

use super::execute;
use super::server_handle::ExclusiveSession;
use super::server_handle::ServerHandle;
use super::stream::CallbackListener;
use crate::error::{Error, ErrorContext, Result};
use crate::listener::{Listener, ListenerAdapter};

pub(crate) struct CallRequest {
    pub(super) method: Cow<'static, str>,
    pub(super) params: Params,
    /// The tool that the parameters name, if the request calls one.
    pub(super) tool: Option<ToolName>,
    idle_timeout: Option<Duration>,
    timeout: Option<Duration>,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) idempotency: Option<Idempotency>,
    pub(super) call_id: Option<String>,
    pub(crate) listener: Option<Arc<dyn warmline_upstream::Listener>>,
    pub(crate) origin: RequestOrigin,
    /// Unsubscribes on behalf of clients that left.
    pub(super) is_internal_unsubscribe: bool,
}

impl CallRequest {
    pub(super) fn new(method: Cow<'static, str>, params: Params) -> Self {
        Self {
            tool: ToolName::from_params(&method, &params),
            method,
            params,
            idle_timeout: None,
            timeout: None,
            headers: Vec::new(),
            idempotency: None,
            call_id: None,
            listener: None,
            origin: RequestOrigin::Own,
            is_internal_unsubscribe: false,
        }
    }

    /// Stands for the request where a lease is acquired and nothing is sent.
    pub(super) fn lease() -> Self {
        Self::new(Cow::Borrowed("lease"), Params::empty())
    }

    /// Whether it changes what clients want of a session.
    pub(super) fn changes_client_state(&self) -> bool {
        matches!(
            &*self.method,
            "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe"
        )
    }

    pub(super) fn is_tool_call(&self) -> bool {
        self.method == TOOL_CALL
    }

    /// The deadlines of the caller, else of the tool, else of the server.
    pub(super) fn deadlines(&self, policy: &Policy) -> Deadlines {
        let tool = self.tool.as_deref();
        let tool = tool.and_then(|tool| policy.tools.get(tool));
        let (idle, total) = tool.map_or((None, None), |tool| (tool.idle, tool.total));
        let default = policy.deadlines;
        Deadlines {
            idle: self.idle_timeout.or(idle).unwrap_or(default.idle),
            total: self.timeout.or(total).unwrap_or(default.total),
        }
    }
}

pub(super) const TOOL_CALL: &str = "tools/call";

/// The name of a tool, a slice of the parameters unless something in it is escaped.
#[derive(Clone, Debug)]
pub(crate) struct ToolName(Bytes);

impl ToolName {
    /// The tool that a request calls, if it calls one and its name is a text.
    fn from_params(method: &str, params: &Params) -> Option<Self> {
        if method != TOOL_CALL {
            return None;
        }
        Some(Self(match params.name()? {
            Cow::Borrowed(plain) => params.raw().slice_ref(plain.as_bytes()),
            Cow::Owned(unescaped) => unescaped.into(),
        }))
    }
}

impl Deref for ToolName {
    type Target = str;

    fn deref(&self) -> &str {
        // The bytes come from a text.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

/// The parameters of a request that names a tool or a prompt. Arguments are an object; missing ones
/// become an empty object.
pub(super) fn named_params(name: &str, arguments: impl Serialize) -> Result<Params, String> {
    #[derive(Serialize)]
    struct NamedParams<'a> {
        name: &'a str,
        arguments: &'a RawValue,
    }
    let written = to_raw_value(&arguments).map_err(|error| error.to_string())?;
    let arguments = match written.get() {
        "null" => RawValue::from_string("{}".to_owned()).map_err(|error| error.to_string())?,
        text if text.starts_with('{') => written,
        other => {
            let shown: String = other.chars().take(40).collect();
            return Err(format!("the arguments are not an object: {shown}"));
        },
    };
    let params = Params::from_serialize(&NamedParams {
        name,
        arguments: &arguments,
    });
    params.map_err(|malformed| malformed.to_string())
}

/// A call with its options. Awaiting it sends it.
///
/// Dropping the future cancels the call; whether it was executed is unknown then.
#[must_use = "a call is sent when it is awaited"]
pub struct CallBuilder<T> {
    target: CallTarget,
    pub(crate) request: CallRequest,
    /// The first mistake of the caller, which the call reports.
    problem: Option<Box<Diagnostic>>,
    pub(crate) callbacks: Option<CallbackListener>,
    output: PhantomData<fn() -> T>,
}

pub(super) enum CallTarget {
    Server(ServerHandle),
    Exclusive(ExclusiveSession),
}

impl CallTarget {
    fn server_name(&self) -> &str {
        match self {
            Self::Server(handle) => handle.name(),
            Self::Exclusive(session) => session.server(),
        }
    }
}

impl<T> CallBuilder<T> {
    pub(super) fn new(
        target: CallTarget,
        method: Cow<'static, str>,
        params: Result<Params, impl fmt::Display>,
    ) -> Self {
        let mut problem = None;
        if !methods::is_allowed_on_exclusive_session(&method) {
            let server = target.server_name();
            let what = format!("`{method}` cannot be sent to `{server}` as a call");
            let why = "Warmline opens sessions itself, and a notification has no reply";
            problem = Some(invalid_request(what, why));
        }
        let params = params.unwrap_or_else(|why| {
            let server = target.server_name();
            let what = format!("the parameters of `{method}` for `{server}` are not a JSON object");
            problem.get_or_insert_with(|| invalid_request(what, why.to_string()));
            Params::empty()
        });
        Self {
            target,
            request: CallRequest::new(method, params),
            problem,
            callbacks: None,
            output: PhantomData,
        }
    }

    /// Limits the time of the call, over all attempts.
    ///
    /// ```
    /// # async fn example(server: warmline::ServerHandle) -> warmline::Result<()> {
    /// let limit = std::time::Duration::from_secs(60);
    /// server.call("report", ()).timeout(limit).await?.ok()?;
    /// # Ok(()) }
    /// ```
    pub fn timeout(mut self, total: Duration) -> Self {
        self.request.timeout = Some(total);
        self
    }

    /// Limits the time without a sign of life from the server; progress restarts it.
    ///
    /// ```
    /// # async fn example(server: warmline::ServerHandle) -> warmline::Result<()> {
    /// let limit = std::time::Duration::from_secs(10);
    /// server.call("report", ()).idle_timeout(limit).await?.ok()?;
    /// # Ok(()) }
    /// ```
    pub fn idle_timeout(mut self, idle: Duration) -> Self {
        self.request.idle_timeout = Some(idle);
        self
    }

    /// Allows the call to run twice: it is sent again where it is unknown whether it ran.
    ///
    /// ```
    /// # async fn example(server: warmline::ServerHandle) -> warmline::Result<()> {
    /// server.call("search", serde_json::json!({ "q": "rust" })).repeatable().await?.ok()?;
    /// # Ok(()) }
    /// ```
    pub fn repeatable(mut self) -> Self {
        self.request.idempotency = Some(Idempotency::Idempotent);
        self
    }

    /// Forbids the call to run twice, whatever the tool's hints say.
    ///
    /// ```
    /// # async fn example(server: warmline::ServerHandle) -> warmline::Result<()> {
    /// server.call("pay", ()).not_repeatable().await?.ok()?;
    /// # Ok(()) }
    /// ```
    pub fn not_repeatable(mut self) -> Self {
        self.request.idempotency = Some(Idempotency::NotIdempotent);
        self
    }

    /// Sends an id of yours with every attempt, for servers that recognise repeats by it. Warmline
    /// itself does not: two calls with one id are two executions.
    ///
    /// ```
    /// # async fn example(server: warmline::ServerHandle) -> warmline::Result<()> {
    /// server.call("pay", ()).call_id("order-7").await?.ok()?;
    /// # Ok(()) }
    /// ```
    pub fn call_id(mut self, id: impl Into<String>) -> Self {
        self.request.call_id = Some(id.into());
        self
    }

    /// Adds an HTTP header to this call alone. A stdio server gets only trace headers, in `_meta`.
    ///
    /// ```
    /// # async fn example(server: warmline::ServerHandle) -> warmline::Result<()> {
    /// server.call("search", ()).header("x-request-id", "7").await?.ok()?;
    /// # Ok(()) }
    /// ```
    pub fn header(mut self, name: &str, value: &str) -> Self {
        match (
            HeaderName::try_from(name.to_ascii_lowercase()),
            HeaderValue::from_str(value),
        ) {
            (Ok(name), Ok(value)) => self.request.headers.push((name, value)),
            _ => {
                let server = self.target.server_name();
                let what = format!("a header of a call to `{server}` cannot be sent");
                let why = format!("`{}`", name.escape_debug());
                self.problem
                    .get_or_insert_with(|| invalid_request(what, why));
            },
        }
        self
    }

    /// Sends the notifications and server requests of this call to a listener.
    ///
    /// ```
    /// # async fn example(server: warmline::ServerHandle) -> warmline::Result<()> {
    /// struct Log;
    /// impl warmline::Listener for Log {}
    /// server.call("report", ()).listener(Log).await?.ok()?;
    /// # Ok(()) }
    /// ```
    pub fn listener(mut self, listener: impl Listener + 'static) -> Self {
        self.request.listener = Some(Arc::new(ListenerAdapter::new(listener)));
        self
    }

    pub(crate) async fn send(mut self) -> Result<CallResponse> {
        let (caller, server, exclusive) = match &self.target {
            CallTarget::Server(handle) => (&handle.caller, handle.server_state()?, None),
            CallTarget::Exclusive(held) => {
                (&held.caller, Arc::clone(&held.holder.server), Some(held))
            },
        };
        if let Some(problem) = self.problem {
            return Err(Error::unsent(*problem));
        }
        if let Some(callbacks) = self.callbacks {
            self.request.listener = Some(Arc::new(callbacks));
        }
        execute(caller, &server, exclusive, self.request).await
    }
}

/// The methods of a [`CallBuilder`] for programs that relay calls.
#[expect(
    async_fn_in_trait,
    reason = "implemented for one type, whose futures are Send"
)]
pub trait RelayCall<T: CallOutput>: Into<CallBuilder<T>> {
    /// Adds HTTP headers to this call alone. A stdio server gets the trace headers (`traceparent`,
    /// `tracestate`, `baggage`) in `_meta`, unless they are there.
    fn headers(self, more: impl IntoIterator<Item = (HeaderName, HeaderValue)>) -> CallBuilder<T> {
        let mut call = self.into();
        call.request.headers.extend(more);
        call
    }

    /// Relays a client's request as it is: its own `_meta` stays, and server requests become the
    /// result.
    fn relayed(self) -> CallBuilder<T> {
        let mut call = self.into();
        call.request.origin = RequestOrigin::Forwarded;
        call
    }

    /// The same for a client that also sends arguments in headers: they are checked and passed on.
    fn relayed_with_headers(
        self,
        more: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
    ) -> CallBuilder<T> {
        let mut call = self.headers(more);
        call.request.origin = RequestOrigin::ForwardedWithHeaders;
        call
    }

    /// Sets the listener of the sessions, which knows more than a user's.
    fn shared_listener(self, listener: Arc<dyn warmline_upstream::Listener>) -> CallBuilder<T> {
        let mut call = self.into();
        call.request.listener = Some(listener);
        call.callbacks = None;
        call
    }

    /// Sends the call as awaiting it does, without boxing the future.
    ///
    /// # Errors
    /// As awaiting it.
    async fn send_unboxed(self) -> Result<T> {
        self.into().send().await.map(T::from)
    }
}

impl<T: CallOutput> RelayCall<T> for CallBuilder<T> {}

fn invalid_request(what: String, why: impl Into<String>) -> Box<Diagnostic> {
    Box::new(Diagnostic::new(Reason::InvalidRequest, what).with_cause(why))
}

impl<T> fmt::Debug for CallBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallBuilder")
            .field("method", &self.request.method)
            .field("tool", &self.request.tool)
            .finish_non_exhaustive()
    }
}

impl<T: CallOutput> IntoFuture for CallBuilder<T> {
    type Output = Result<T>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async { self.send().await.map(T::from) })
    }
}

/// The result of a call, and how it came about.
#[derive(Clone, Debug)]
pub struct CallResponse {
    pub(crate) result: Bytes,
    pub(crate) server: Arc<str>,
    pub(crate) tool: Option<ToolName>,
    pub(crate) attempts: u32,
    pub(crate) generation: u32,
    pub(crate) state_lost: bool,
    pub(crate) server_profile: ServerProfile,
    /// Set where the server says that it has no such tool.
    pub(crate) unknown_tool: Option<Box<Diagnostic>>,
}

impl CallResponse {
    pub(crate) fn error_context(&self) -> ErrorContext {
        ErrorContext {
            server: Some(self.server.to_string()),
            method: None,
            tool: self.tool.as_ref().map(ToString::to_string),
            run: None,
            generation: Some(self.generation),
            location: None,
        }
    }
}

/// The type of a call's result: [`ToolResult`](crate::call::output::ToolResult) for a tool call, raw JSON for any other request.
pub trait CallOutput: From<CallResponse> + Send + 'static {}

impl CallOutput for Bytes {}

impl From<CallResponse> for Bytes {
    fn from(response: CallResponse) -> Self {
        response.result
    }
}
