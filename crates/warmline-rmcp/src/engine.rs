//! What stands behind a transport: a server as the engine calls it.
//!
//! A trait, so that the order of messages can be tested without a server.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use rmcp::ErrorData;
use rmcp::model::ErrorCode;
use serde_json::{Value, json};
use warmline::core::protocol::params::Params;

use warmline::upstream::{Declared, Facts, Listener, Notices};
use warmline::{Attending, Error, ServerHandle};

/// A server that can be asked anything.
pub(crate) trait Behind: Send + 'static {
    /// The name we call it by.
    fn name(&self) -> &str;

    /// The same, for a client that says this of itself.
    fn declaring(&self, declared: Declared) -> Self;

    /// What it said of itself.
    fn facts(&self) -> impl Future<Output = Result<Arc<Facts>, ErrorData>> + Send + 'static;

    /// Sends a request and waits for its raw result.
    fn request(
        &self,
        method: String,
        params: Params,
        listener: Arc<dyn Listener>,
    ) -> BoxFuture<'static, Result<Bytes, ErrorData>>;

    /// Tells it something, on the session that is held.
    fn notify(&self, method: String, params: Params) -> Telling;

    /// Hears what it says outside any call, until what is given back is dropped.
    fn attend(&self, ear: Arc<dyn Notices>) -> Option<Box<dyn Attended>>;
}

/// A notification on its way to a server.
pub(crate) type Telling = BoxFuture<'static, Result<(), Error>>;

/// Somebody hears what a server says outside any call.
pub(crate) trait Attended: Debug + Send {
    /// Whether there is nothing that could tell anything.
    fn is_over(&self) -> bool;
}

impl Attended for Attending {
    fn is_over(&self) -> bool {
        Self::is_over(self)
    }
}

impl Behind for ServerHandle {
    fn name(&self) -> &str {
        Self::name(self)
    }

    fn declaring(&self, declared: Declared) -> Self {
        self.clone().declaring(declared)
    }

    fn facts(&self) -> impl Future<Output = Result<Arc<Facts>, ErrorData>> + Send + 'static {
        let server = self.clone();
        async move { Self::facts(&server).await.map_err(|error| told(&error)) }
    }

    fn request(
        &self,
        method: String,
        params: Params,
        listener: Arc<dyn Listener>,
    ) -> BoxFuture<'static, Result<Bytes, ErrorData>> {
        let call = self.request_raw(method, params).listened_by(listener);
        Box::pin(async move { call.await.map_err(|error| told(&error)) })
    }

    fn notify(&self, method: String, params: Params) -> Telling {
        let server = self.clone();
        Box::pin(async move { Self::notify(&server, &method, params.raw()).await })
    }

    fn attend(&self, ear: Arc<dyn Notices>) -> Option<Box<dyn Attended>> {
        let attending = Self::attend(self, ear)?;
        Some(Box::new(attending))
    }
}

/// An error as the SDK passes it on: the server's own as it is, ours with what is known of the
/// call.
fn told(error: &Error) -> ErrorData {
    if let Some(theirs) = error.server_error() {
        let data = theirs.data.as_deref().map(serde_json::from_slice);
        return ErrorData {
            code: ErrorCode(i32::try_from(theirs.code).unwrap_or(OURS)),
            message: theirs.message.clone().into(),
            data: data.and_then(Result::ok),
        };
    }
    let message = match error.delivery().sentence() {
        Some(sentence) => format!("{error}: {sentence}"),
        None => error.to_string(),
    };
    ErrorData {
        code: ErrorCode(OURS),
        message: message.into(),
        data: Some(fields(error)),
    }
}

fn fields(error: &Error) -> Value {
    json!({
        "code": error.code().word(),
        "reason": error.reason().word(),
        "delivery": error.delivery().word(),
        "why": error.why(),
        "hint": error.hint(),
        "server": error.server(),
        "attempts": error.attempts(),
        "retryAfterMs": error.retry_after().map(|pause| pause.as_millis()),
    })
}

/// The code of errors that are ours: the first of those that the protocol leaves to programs.
const OURS: i32 = -32000;
