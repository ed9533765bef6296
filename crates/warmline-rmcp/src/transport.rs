//! The transport for the SDK.

use std::future::Future;

use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use warmline_engine::ServerHandle;
use warmline_engine::events::EventSubscription;

use crate::client_task::ClientTask;
use crate::error::SendError;

/// A transport of the official SDK over a session that Warmline keeps.
///
/// Calls make progress while the SDK waits for messages; a task receives what the server sends
/// outside of calls. Dropping it cancels the calls in flight, and ends the task.
#[derive(Debug)]
pub struct WarmTransport(ClientTask<ServerHandle>);

impl WarmTransport {
    /// A transport to a server: over the session of a run, or over a session per call.
    pub fn new(server: ServerHandle) -> Self {
        Self(ClientTask::new(server))
    }

    /// Reports changed lists also while no session is held, from
    /// [`Warmline::events`](warmline_engine::Warmline::events).
    #[must_use]
    pub fn with_events(mut self, events: EventSubscription) -> Self {
        self.0.list_events = Some(events);
        self
    }
}

impl Transport<RoleClient> for WarmTransport {
    type Error = SendError;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), SendError>> + Send + 'static {
        let taken = self.0.handle_message(item);
        async move {
            match taken? {
                Some(telling) => telling.await.map_err(SendError::not_delivered),
                None => Ok(()),
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.0.next_message().await
    }

    async fn close(&mut self) -> Result<(), SendError> {
        self.0.close();
        Ok(())
    }
}
