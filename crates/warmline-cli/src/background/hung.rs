//! A gateway that listens and does not answer: how that is noticed, told, and ended.
//!
//! Asked by: every command that speaks with the background gateway.  One that takes long for what
//! it was asked answers other questions meanwhile; one that answers nothing hangs.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use http::Method;
use rustix::process::{Pid, Signal, kill_process};
use warmline::clock;
use warmline::core::code::Code;
use warmline::core::delivery::Delivery;
use warmline_gateway::local::Unanswered;

use super::{Home, LOOK_EVERY};
use crate::problem::{Outcome, Problem};

/// So long a gateway may say nothing before it is asked whether it hears.
const PATIENCE: Duration = Duration::from_secs(2);
/// What a process that was killed takes to be gone.
const TO_DIE: Duration = Duration::from_secs(5);

/// Why there is no answer.
pub(super) enum Silence {
    Unanswered(Unanswered),
    /// It listens, and hears nothing.
    Hangs,
}

impl Home {
    /// Waits for an answer for as long as the gateway answers anything.
    pub(super) async fn unless_it_hangs<T>(
        &self,
        asking: impl Future<Output = Result<T, Unanswered>>,
    ) -> Result<T, Silence> {
        let mut asking = pin!(asking);
        loop {
            if let Ok(answered) = clock::timeout(PATIENCE, &mut asking).await {
                return answered.map_err(Silence::Unanswered);
            }
            let gateway = self.gateway();
            let hears = gateway.ask(Method::GET, "/admin", None);
            if clock::timeout(PATIENCE, hears).await.is_err() {
                return Err(Silence::Hangs);
            }
        }
    }

    /// What is told of a gateway that hangs.
    pub(super) async fn hangs(&self) -> Problem {
        let process = match self.gateway().process().await {
            Some(pid) => format!("process {pid}"),
            None => "a process".to_owned(),
        };
        let what = format!("the background gateway hangs: {process} listens and does not answer");
        Problem::new(Code::CannotReach, what)
            .at(self.socket().display().to_string())
            .delivered(Delivery::Unsent)
            .hint("`warmline down` ends it; `warmline down --now` does so without waiting for it")
    }

    /// Ends a gateway that hangs: asks it by a signal, and kills it after this time. The process
    /// is the one that listens on the socket, and looked up again before each signal.
    pub(crate) async fn end_hung(&self, grace: Duration) -> Outcome<()> {
        let Some(pid) = self.gateway().process().await else {
            return Ok(());
        };
        for (signal, time) in [(Signal::TERM, grace), (Signal::KILL, TO_DIE)] {
            if self.gateway().process().await != Some(pid) {
                return Ok(());
            }
            let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
            if let Some(process) = process {
                // One that has just ended cannot be told, and need not be.
                kill_process(process, signal).ok();
            }
            let by = clock::after(time);
            while clock::now() < by {
                if self.gateway().process().await != Some(pid) {
                    return Ok(());
                }
                clock::sleep(LOOK_EVERY).await;
            }
        }
        Err(self.hangs().await)
    }
}
