//! A call as it is built, and how it is sent.
//!
//! The short and the long form of a call are one thing: a builder that is awaited. A handle or a
//! lease begins it; awaited, it becomes a job of the data path.

use std::borrow::Cow;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use warmline_core::code::Reason;
use warmline_core::delivery::Delivery;
use warmline_core::exchange::{Patience, Trouble, Words};
use warmline_core::policy::Policy;
use warmline_core::protocol::methods;
use warmline_core::protocol::params::Params;
use warmline_core::repeat::Said as SaidOfRepeat;

use super::listening::Functions;
use super::{ServerHandle, ToolResult};
use crate::call::{self, Answered, Job, ToolName};
use crate::error::{Error, Result};
use crate::lease::Leased;
use crate::upstream::Listener;

/// The parameters of a call by name. Arguments are an object; what is nothing becomes an empty one.
pub(crate) fn named_params(name: &str, arguments: impl Serialize) -> Result<Params, String> {
    #[derive(Serialize)]
    struct Named<'a> {
        name: &'a str,
        arguments: &'a RawValue,
    }
    let written = to_raw_value(&arguments).map_err(|error| error.to_string())?;
    let arguments = match written.get() {
        "null" => RawValue::from_string("{}".to_owned()).map_err(|error| error.to_string())?,
        text if text.starts_with('{') => written,
        other => {
            let shown: String = other.chars().take(40).collect();
            return Err(format!("the arguments are no object: {shown}"));
        },
    };
    let params = Params::of(&Named {
        name,
        arguments: &arguments,
    });
    params.map_err(|malformed| malformed.to_string())
}

/// A call that is being built: awaited, it is sent.
///
/// Dropping the future cancels the call; what became of it is unknown then.
#[must_use = "a call is sent when it is awaited"]
pub struct Call<T> {
    target: Target,
    method: Cow<'static, str>,
    params: Result<Params, String>,
    options: Options,
    output: PhantomData<fn() -> T>,
}

/// Where a call goes.
#[derive(Clone)]
enum Target {
    Server(ServerHandle),
    Leased(Leased),
}

/// What a caller says of one call.
#[derive(Clone, Default)]
struct Options {
    idle: Option<Duration>,
    total: Option<Duration>,
    said: Option<SaidOfRepeat>,
    call_id: Option<String>,
    headers: Vec<(HeaderName, HeaderValue)>,
    bad_header: Option<String>,
    listener: Option<Arc<dyn Listener>>,
    functions: Option<Functions>,
    words: Words,
}

impl<T> Call<T> {
    /// The functions that hear this call; there are none until one is set.
    pub(super) fn functions(&mut self) -> &mut Functions {
        self.options.functions.get_or_insert_default()
    }

    pub(super) fn on_server(
        handle: ServerHandle,
        method: Cow<'static, str>,
        params: Result<Params, String>,
    ) -> Self {
        let listener = handle.listener.clone();
        Self {
            target: Target::Server(handle),
            method,
            params,
            options: Options {
                listener,
                ..Options::default()
            },
            output: PhantomData,
        }
    }

    pub(crate) fn on_lease(
        lease: Leased,
        method: Cow<'static, str>,
        params: Result<Params, String>,
    ) -> Self {
        Self {
            target: Target::Leased(lease),
            method,
            params,
            options: Options::default(),
            output: PhantomData,
        }
    }

    /// How long the call may take in all, over all attempts.
    pub fn timeout(mut self, total: Duration) -> Self {
        self.options.total = Some(total);
        self
    }

    /// How long the server may show no sign of life; progress starts it anew.
    pub fn idle_timeout(mut self, idle: Duration) -> Self {
        self.options.idle = Some(idle);
        self
    }

    /// It may run twice: it is sent again where it is not known whether it ran.
    pub fn repeatable(mut self) -> Self {
        self.options.said = Some(SaidOfRepeat::Repeatable);
        self
    }

    /// It must not run twice, whatever the tool says of itself.
    pub fn not_repeatable(mut self) -> Self {
        self.options.said = Some(SaidOfRepeat::Once);
        self
    }

    /// A key of the caller that travels with every attempt, for servers that tell repeats by it.
    /// Nothing is kept by it here: two equal calls are two executions.
    pub fn call_id(mut self, id: impl Into<String>) -> Self {
        self.options.call_id = Some(id.into());
        self
    }

    /// An HTTP header of this call alone: trace, correlation. A program gets those of a trace in
    /// `_meta`, and no others.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        match (
            HeaderName::try_from(name.to_ascii_lowercase()),
            HeaderValue::from_str(value),
        ) {
            (Ok(name), Ok(value)) => self.options.headers.push((name, value)),
            _ => self.options.bad_header = Some(name.to_owned()),
        }
        self
    }

    /// HTTP headers of this call alone, checked already. What they say of a trace (`traceparent`,
    /// `tracestate`, `baggage`) a program gets in `_meta`, unless it stands there.
    pub fn headers(mut self, more: impl IntoIterator<Item = (HeaderName, HeaderValue)>) -> Self {
        self.options.headers.extend(more);
        self
    }

    /// The words of a client, passed on as they are: what it says of itself in a modern request
    /// stands, and what it is asked comes back as the result.
    pub fn relayed(mut self) -> Self {
        self.options.words = Words::Passed;
        self
    }

    /// As [`Call::relayed`], for a client that says some of its arguments in headers as well: they
    /// are passed on, and checked where its tool is known.
    pub fn relayed_with(
        mut self,
        more: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
    ) -> Self {
        self.options.words = Words::PassedWithHeaders;
        self.options.headers.extend(more);
        self
    }

    /// Who hears the news of this call and answers its questions.
    pub fn listener(mut self, listener: impl Listener + 'static) -> Self {
        self.options.listener = Some(Arc::new(listener));
        self
    }

    /// As [`Call::listener`], for one that is shared already.
    pub fn listened_by(mut self, listener: Arc<dyn Listener>) -> Self {
        self.options.listener = Some(listener);
        self.options.functions = None;
        self
    }

    /// The job as the data path takes it, and the target it goes to.
    fn ready(self, policy: &Policy) -> Result<(Target, Job)> {
        let server = match &self.target {
            Target::Server(handle) => handle.name(),
            Target::Leased(lease) => lease.server(),
        };
        let bad = |what: String, why: String| {
            let trouble = Trouble::new(Reason::InvalidRequest, what).because(why);
            Error::new(trouble, Delivery::Unsent)
        };
        if !methods::is_asked_on_held(&self.method) {
            let what = format!(
                "`{}` is not asked of `{server}` by its callers",
                self.method
            );
            let why = "sessions are opened and greeted for them, and notifications have no answer";
            return Err(bad(what, why.to_owned()));
        }
        let params = self.params.map_err(|why| {
            bad(
                format!(
                    "the parameters of `{}` for `{server}` are no JSON object",
                    self.method
                ),
                why,
            )
        })?;
        if let Some(name) = self.options.bad_header {
            let what = format!("a header of a call to `{server}` cannot be sent");
            return Err(bad(what, format!("`{}`", name.escape_debug())));
        }
        // Whoever calls a tool calls it by its name, however the call was built.
        let tool = ToolName::of(&self.method, &params);
        let decided = tool.as_ref().and_then(|tool| policy.tools.get(&**tool));
        let patience = Patience {
            idle: self
                .options
                .idle
                .or(decided.and_then(|tool| tool.idle))
                .unwrap_or(policy.patience.idle),
            total: self
                .options
                .total
                .or(decided.and_then(|tool| tool.total))
                .unwrap_or(policy.patience.total),
        };
        let job = Job {
            method: self.method,
            params,
            patience,
            headers: self.options.headers,
            said: self.options.said,
            call_id: self.options.call_id,
            tool,
            listener: match self.options.functions {
                Some(functions) => Some(Arc::new(functions)),
                None => self.options.listener,
            },
            words: self.options.words,
            takes_back: false,
        };
        Ok((self.target, job))
    }

    /// Sends it, as awaiting it does, without a box for its future: for whoever has one already.
    ///
    /// # Errors
    /// As awaiting it.
    #[doc(hidden)]
    pub async fn unboxed(self) -> Result<T>
    where
        T: Outcome,
    {
        self.send().await.map(T::of)
    }

    async fn send(self) -> Result<Answered> {
        let entry = match &self.target {
            Target::Server(handle) => handle.entry()?,
            Target::Leased(lease) => Arc::clone(lease.entry()),
        };
        let (target, job) = self.ready(&entry.policy())?;
        match &target {
            Target::Server(handle) => call::carry(&handle.caller, &entry, None, job).await,
            Target::Leased(lease) => lease.carry(job).await,
        }
    }
}

impl<T> std::fmt::Debug for Call<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let params = self.params.as_ref().ok();
        f.debug_struct("Call")
            .field("method", &self.method)
            .field(
                "tool",
                &params.and_then(|params| ToolName::of(&self.method, params)),
            )
            .finish_non_exhaustive()
    }
}

/// What a call can end with.
pub trait Outcome: Sized + Send + 'static {
    #[doc(hidden)]
    fn of(answered: Answered) -> Self;
}

impl Outcome for Bytes {
    fn of(answered: Answered) -> Self {
        answered.result
    }
}

impl Outcome for ToolResult {
    fn of(answered: Answered) -> Self {
        Self(answered)
    }
}

impl<T: Outcome> IntoFuture for Call<T> {
    type Output = Result<T>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.unboxed())
    }
}
