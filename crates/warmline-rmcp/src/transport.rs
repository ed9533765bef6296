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
/// It starts no task of its own: calls move while the SDK waits for messages. Dropping it cancels
/// the calls under way.
#[derive(Debug)]
pub struct WarmTransport(Conversation<ServerHandle>);

impl WarmTransport {
    /// A transport to a server: inside a run over the session of that run, outside over a session
    /// for each call.
    pub fn over(server: ServerHandle) -> Self {
        Self(Conversation::with(server))
    }

    /// The same for a client that wants to hear of lists that change between its calls, from what
    /// [`Warmline::events`](warmline::Warmline::events) tells.
    #[must_use]
    pub fn hearing(self, events: Subscription) -> Self {
        Self(self.0.hearing(ListNews::of(events)))
    }
}

/// The SDK handed over a message that is not one of the protocol.
#[derive(Debug)]
pub struct NotSent(pub(crate) serde_json::Error);

impl std::fmt::Display for NotSent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the message is not one of the protocol: {}", self.0)
    }
}

impl std::error::Error for NotSent {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

impl Transport<RoleClient> for WarmTransport {
    type Error = NotSent;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), NotSent>> + Send + 'static {
        std::future::ready(self.0.take(item))
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.0.next().await
    }

    async fn close(&mut self) -> Result<(), NotSent> {
        self.0.end();
        Ok(())
    }
}
