//! Reading the configuration again because somebody who looks after the gateway asks for it.
//!
//! Asked by: the admin socket.  Answered by: whoever runs the gateway and knows its files. They are
//! told what came of it, as the log is.

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use warmline::Code;

/// More than these do not wait for one.
const MAX_WAITING: usize = 16;

/// Somebody waits for the configuration to be read again.
#[derive(Debug)]
pub struct AskedToReload(oneshot::Sender<Result<(), Unreloaded>>);

impl AskedToReload {
    /// Says what came of it.
    pub fn answer(self, came: Result<(), Unreloaded>) {
        // They may not wait any more.
        self.0.send(came).ok();
    }
}

/// Why a configuration was not taken; what runs goes on.
#[derive(Clone, Debug)]
pub struct Unreloaded {
    /// The code of what is wrong with it.
    pub code: Code,
    /// What is wrong with it.
    pub what: String,
    /// Where that stands.
    pub place: Option<String>,
    /// Why it is wrong.
    pub why: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
}

/// Why nobody answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unasked {
    /// Nobody here reads a configuration.
    Nobody,
    /// Too many ask.
    TooMany,
}

/// Whoever reads the configuration, if there is somebody.
#[derive(Debug, Default)]
pub(crate) struct Reader(Mutex<Option<mpsc::Sender<AskedToReload>>>);

impl Reader {
    /// From now on whoever holds this is asked.
    pub(crate) fn begin(&self) -> mpsc::Receiver<AskedToReload> {
        let (ask, asked) = mpsc::channel(MAX_WAITING);
        *self.0.lock() = Some(ask);
        asked
    }

    /// Has the configuration read again, and waits for what comes of it.
    pub(super) async fn ask(&self) -> Result<Result<(), Unreloaded>, Unasked> {
        let ask = self.0.lock().clone().ok_or(Unasked::Nobody)?;
        let (tell, told) = oneshot::channel();
        ask.try_send(AskedToReload(tell))
            .map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => Unasked::TooMany,
                mpsc::error::TrySendError::Closed(_) => Unasked::Nobody,
            })?;
        told.await.map_err(|_| Unasked::Nobody)
    }
}
