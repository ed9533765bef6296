//! How a pipe ends: calls may end, the rest is cut, and whoever closes the engine has a hand on it.
//!
//! Asked by: the conversation, when its client is gone, and whoever closes the engine behind it.

use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join;
use tokio::sync::watch;
use warmline::{Run, clock};

use super::{Pipe, UnderWay, Within};
use crate::tokens::LOCAL;

/// What calls that somebody ends may take until they are answered.
const TO_BE_ENDED: Duration = Duration::from_secs(5);

/// A hand on a pipe that is being served.
#[derive(Debug)]
pub struct PipeHand {
    pub(super) left: watch::Receiver<bool>,
    pub(super) cut: watch::Sender<bool>,
    pub(super) late: watch::Receiver<bool>,
}

impl PipeHand {
    /// Ends when the client has closed its end, or broken it.
    pub async fn left(&mut self) {
        self.left.wait_for(|left| *left).await.ok();
    }

    /// Nothing more is read, and calls under way have had their time: those of a run that is the
    /// client's own are cut, and answered.
    pub fn stop(&self) {
        self.cut.send_replace(true);
    }

    /// Ends when the pipe is done, or when calls have had their time that it cannot end because
    /// their run goes on: whoever closes the engine does.
    pub async fn over(&mut self) {
        self.late.wait_for(|late| *late).await.ok();
    }
}

impl Pipe {
    /// A hand on it, for whoever has to end it.
    pub fn hand(&self) -> PipeHand {
        PipeHand {
            left: self.stop.subscribe(),
            cut: self.cut.clone(),
            late: self.late.subscribe(),
        }
    }

    /// Lets calls end for as long as they may, then sees to it that they do.
    pub(super) async fn await_rest(&self, mut under_way: UnderWay<'_>) {
        let rest = async { while under_way.next().await.is_some() {} };
        let mut rest = pin!(rest);
        tokio::select! {
            biased;
            () = &mut rest => return,
            () = self.is_cut() => {},
            () = clock::sleep(self.after_the_end) => {},
        }
        let ending = join(self.end_calls(), rest);
        clock::timeout(TO_BE_ENDED, ending).await.ok();
    }

    /// Ends when somebody wants calls to end now.
    pub(super) async fn is_cut(&self) {
        // The sender lives in us, so this ends only when it is true.
        drop(self.cut.subscribe().wait_for(|cut| *cut).await);
    }

    /// Ends the calls that are under way. Those of a run that goes on are not ours to end.
    async fn end_calls(&self) {
        match self.own_run() {
            Some(run) => run.end_now().await,
            None => {
                self.late.send_replace(true);
            },
        }
    }

    /// The run that ends with the client, if it has begun.
    pub(super) fn own_run(&self) -> Option<Run> {
        let identity = self.shared.warm.identity(LOCAL);
        match &self.run {
            Within::Own(name) => identity.join(name).ok(),
            Within::Named(_) => None,
        }
    }
}
