//! The transport as the SDK sees it.

use std::future::Future;

use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use warmline::ServerHandle;
use warmline::events::Subscription;

use crate::conversation::Conversation;
use crate::lists::ListNews;

/// A transport of the official SDK over a session that Warmline keeps.
///
/// Calls move while the SDK waits for messages; what the server says outside of them is heard by a
/// task. Dropping it cancels the calls under way, and nothing is heard any more.
#[derive(Debug)]
pub struct WarmTransport(Conversation<ServerHandle>);

impl WarmTransport {
    /// A transport to a server: inside a run over the session of that run, outside over a session
    /// for each call.
    pub fn over(server: ServerHandle) -> Self {
        Self(Conversation::with(server))
    }

    /// The same for a client that wants to hear of lists that change between its calls also where
    /// no session is held for it that could tell: from what
    /// [`Warmline::events`](warmline::Warmline::events) tells.
    #[must_use]
    pub fn hearing(self, events: Subscription) -> Self {
        Self(self.0.hearing(ListNews::of(events)))
    }
}

/// A message that the SDK handed over was not sent: it is not one of the protocol, or its server
/// could not be told.
#[derive(Debug)]
pub struct NotSent(Cause);

#[derive(Debug)]
enum Cause {
    Malformed(serde_json::Error),
    NotTold(Box<warmline::Error>),
}

impl NotSent {
    pub(crate) fn malformed(error: serde_json::Error) -> Self {
        Self(Cause::Malformed(error))
    }

    fn not_told(error: warmline::Error) -> Self {
        Self(Cause::NotTold(Box::new(error)))
    }
}

impl std::fmt::Display for NotSent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Cause::Malformed(error) => {
                write!(f, "the message is not one of the protocol: {error}")
            },
            Cause::NotTold(error) => write!(f, "the server was not told: {error}"),
        }
    }
}

impl std::error::Error for NotSent {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0 {
            Cause::Malformed(error) => Some(error),
            Cause::NotTold(error) => Some(&**error),
        }
    }
}

impl Transport<RoleClient> for WarmTransport {
    type Error = NotSent;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), NotSent>> + Send + 'static {
        let taken = self.0.take(item);
        async move {
            match taken? {
                Some(telling) => telling.await.map_err(NotSent::not_told),
                None => Ok(()),
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.0.next().await
    }

    async fn close(&mut self) -> Result<(), NotSent> {
        self.0.end();
        Ok(())
    }
}
