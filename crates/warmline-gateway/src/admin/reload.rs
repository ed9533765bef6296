//! Reloads of the configuration that are requested at the admin socket.

use http::StatusCode;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use warmline_core::error::code::Code;

use super::AdminError;

const MAX_QUEUED: usize = 16;

/// A request to reload the configuration.
#[derive(Debug)]
pub struct ReloadRequest(oneshot::Sender<Result<(), ReloadFailure>>);

impl ReloadRequest {
    /// Answers the request.
    pub fn respond(self, result: Result<(), ReloadFailure>) {
        // The requester may have left.
        self.0.send(result).ok();
    }
}

/// Why a configuration was rejected. The running one stays.
#[derive(Clone, Debug)]
pub struct ReloadFailure {
    /// The error code.
    pub code: Code,
    /// What is wrong, where and why.
    pub what: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// Passes requests to the owner of the configuration, if there is one.
#[derive(Debug, Default)]
pub(crate) struct ReloadQueue(Mutex<Option<mpsc::Sender<ReloadRequest>>>);

impl ReloadQueue {
    pub(crate) fn open(&self) -> mpsc::Receiver<ReloadRequest> {
        let (sender, requests) = mpsc::channel(MAX_QUEUED);
        *self.0.lock() = Some(sender);
        requests
    }

    pub(super) async fn reload(&self) -> Result<(), AdminError> {
        let no_owner = || {
            let what = "this gateway has no configuration to reload";
            AdminError::new(StatusCode::NOT_FOUND, Code::NotAllowed, what)
        };
        let sender = self.0.lock().clone().ok_or_else(no_owner)?;
        let (respond, response) = oneshot::channel();
        sender
            .try_send(ReloadRequest(respond))
            .map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => {
                    let what = "too many reloads of the configuration are waiting";
                    AdminError::new(StatusCode::SERVICE_UNAVAILABLE, Code::Overloaded, what)
                },
                mpsc::error::TrySendError::Closed(_) => no_owner(),
            })?;
        let result = response.await.map_err(|_| no_owner())?;
        result.map_err(|failure| AdminError {
            hint: failure.hint,
            ..AdminError::new(StatusCode::CONFLICT, failure.code, failure.what)
        })
    }
}
