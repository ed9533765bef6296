//! The server behind a transport: a trait, so that the order of messages can be tested without one.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use rmcp::ErrorData;
use warmline_core::message::params::Params;
use warmline_engine::relay::RelayCall as _;
use warmline_engine::relay::RelayHandle as _;

use warmline_engine::{Error, ServerHandle, Subscription};
use warmline_upstream::{ClientProfile, Listener, ServerFacts, UnsolicitedListener};

use crate::error::to_error_data;

/// A server.
pub(crate) trait Backend: Send + 'static {
    fn name(&self) -> &str;

    /// The same server for a client with this profile.
    fn with_client_profile(&self, declared: ClientProfile) -> Self;

    /// Opens a session if there is none.
    fn facts(&self) -> impl Future<Output = Result<Arc<ServerFacts>, ErrorData>> + Send + 'static;

    /// Sends a request and waits for its raw result.
    fn request(
        &self,
        method: String,
        params: Params,
        listener: Arc<dyn Listener>,
    ) -> BoxFuture<'static, Result<Bytes, ErrorData>>;

    /// Sends a notification on the held session.
    fn notify(&self, method: String, params: Params) -> PendingNotification;

    /// Receives what the server sends outside calls, until the subscription is dropped.
    fn subscribe(
        &self,
        listener: Arc<dyn UnsolicitedListener>,
    ) -> Option<Box<dyn ActiveSubscription>>;
}

pub(crate) type PendingNotification = BoxFuture<'static, Result<(), Error>>;

/// A subscription to what a server sends outside calls.
pub(crate) trait ActiveSubscription: Debug + Send {
    /// Whether no session is left that could send anything.
    fn is_ended(&self) -> bool;
}

impl ActiveSubscription for Subscription {
    fn is_ended(&self) -> bool {
        Self::is_finished(self)
    }
}

impl Backend for ServerHandle {
    fn name(&self) -> &str {
        Self::name(self)
    }

    fn with_client_profile(&self, declared: ClientProfile) -> Self {
        self.clone().with_client_profile(declared)
    }

    fn facts(&self) -> impl Future<Output = Result<Arc<ServerFacts>, ErrorData>> + Send + 'static {
        let server = self.clone();
        async move {
            let facts = Self::info(&server).await;
            facts.map_err(|error| to_error_data(&error))
        }
    }

    fn request(
        &self,
        method: String,
        params: Params,
        listener: Arc<dyn Listener>,
    ) -> BoxFuture<'static, Result<Bytes, ErrorData>> {
        let call = self.request_raw(method, params).shared_listener(listener);
        Box::pin(async move { call.await.map_err(|error| to_error_data(&error)) })
    }

    fn notify(&self, method: String, params: Params) -> PendingNotification {
        let server = self.clone();
        Box::pin(async move { Self::notify(&server, &method, params.raw()).await })
    }

    fn subscribe(
        &self,
        listener: Arc<dyn UnsolicitedListener>,
    ) -> Option<Box<dyn ActiveSubscription>> {
        let subscription = self.subscribe_shared(listener, None)?;
        Some(Box::new(subscription))
    }
}
