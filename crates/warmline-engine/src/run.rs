//! Runs: begin, join, current, end.
//!
//! A run is known by its name inside its identity. What *began* it ends it when it is dropped;
//! what joined it closes nothing. Sub-agents join through a task-local that follows `.await`, and
//! through [`InCurrentRun::in_current_run`] where a future is handed to another task.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::pool::EndReason;

use crate::call::server_handle::{CallerContext, ExclusiveSession, ServerHandle};
use crate::credentials::CallerIdentity;
use crate::engine::{Engine, end_in_background, end_run, random_hex};
use crate::error::{Error, Result};
use crate::events::RunEnd;
use crate::run_state::RunState;

const MAX_NAME_LEN: usize = 128;

tokio::task_local! {
    static CURRENT: Run;
}

/// One piece of agent work, sub-agents included. Its sessions live as long.
///
/// A clone joins the run: dropping it closes nothing.
#[must_use = "what began a run ends it when it is dropped"]
pub struct Run {
    engine: Arc<Engine>,
    pub(crate) state: Arc<RunState>,
    role: RunRole,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunRole {
    /// It began the run and ends it.
    Owner,
    /// The scope that began the run lends it to its body, and ends the run after it.
    Scope,
    /// It joined the run and leaves it as it is.
    Joined,
}

impl Run {
    pub(crate) fn new(engine: Arc<Engine>, state: Arc<RunState>, role: RunRole) -> Self {
        Self {
            engine,
            state,
            role,
        }
    }

    /// The current run.
    ///
    /// ```
    /// # async fn example(run: warmline::Run) -> warmline::Result<()> {
    /// let run = warmline::Run::current()?;
    /// run.server("browser")?.call("snapshot", ()).await?.ok()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `run-unknown`, where there is none.
    pub fn current() -> Result<Self> {
        Self::try_current().ok_or_else(|| {
            Error::unsent(
                Diagnostic::new(Reason::RunUnknown, "this code belongs to no run").with_hint(
                    "begin one with `run(async |run| …)`, or hand a future over with `.in_current_run()`",
                ),
            )
        })
    }

    /// The current run, if there is one.
    ///
    /// ```
    /// # fn example() {
    /// let is_in_run = warmline::Run::try_current().is_some();
    /// # }
    /// ```
    pub fn try_current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    /// The name of the current run, if there is one.
    ///
    /// ```
    /// # fn example() {
    /// println!("run {:?}", warmline::Run::current_name());
    /// # }
    /// ```
    pub fn current_name() -> Option<String> {
        CURRENT.try_with(|run| run.name().to_owned()).ok()
    }

    /// Whether a run may have this name: 1 to 128 of `[A-Za-z0-9._~-]`, but not `.` or `..`.
    ///
    /// ```
    /// assert!(warmline::Run::check_name("chat-7").is_ok());
    /// assert!(warmline::Run::check_name("chat 7").is_err());
    /// ```
    ///
    /// # Errors
    /// `bad-message` with the rule.
    pub fn check_name(name: &str) -> Result<()> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._~-".contains(&byte);
        if (1..=MAX_NAME_LEN).contains(&name.len())
            && name.bytes().all(plain)
            && name != "."
            && name != ".."
        {
            return Ok(());
        }
        let shown: String = name.chars().take(40).collect();
        let diagnostic = Diagnostic::new(Reason::InvalidRequest, "a run cannot have this name")
            .with_cause(format!("`{}`", shown.escape_debug()))
            .with_hint(
                "a name has 1 to 128 of A-Z, a-z, 0-9, `.`, `_`, `~` and `-`, and is not `.` or `..`",
            );
        Err(Error::unsent(diagnostic))
    }

    /// Its name, which other processes get in `WARMLINE_RUN` or a header.
    ///
    /// ```
    /// # fn example(run: &warmline::Run, child: &mut std::process::Command) {
    /// child.env("WARMLINE_RUN", run.name());
    /// # }
    /// ```
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// Whether the run began with this handle, or with the scope that lent it to its body. All other
    /// handles joined the run and close nothing: clones, inner scopes, [`Run::current`] and
    /// [`Caller::join_run`](crate::Caller::join_run).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> warmline::Result<()> {
    /// # use warmline::{Run, Warmline};
    /// # let warm = Warmline::builder().build()?;
    /// warm.run(async |outer| {
    ///     assert!(outer.is_root());
    ///     assert!(!Run::current().unwrap().is_root());
    ///     warm.run(async |inner| assert!(!inner.is_root())).await;
    /// })
    /// .await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_root(&self) -> bool {
        matches!(self.role, RunRole::Owner | RunRole::Scope)
    }

    /// Whether calls are still admitted.
    ///
    /// ```
    /// # fn example(run: &warmline::Run) {
    /// if !run.is_live() {
    ///     println!("run {} has ended", run.name());
    /// }
    /// # }
    /// ```
    pub fn is_live(&self) -> bool {
        self.state.is_live()
    }

    /// A server as this run calls it.
    ///
    /// ```
    /// # async fn example(run: warmline::Run) -> warmline::Result<()> {
    /// let browser = run.server("browser")?;
    /// browser.call("snapshot", ()).await?.ok()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `server-unknown`, with the nearest name there is.
    pub fn server(&self, name: &str) -> Result<ServerHandle> {
        ServerHandle::for_server(self.context(), name)
    }

    /// A session of this run for one holder alone, until it is dropped: begin … commit.
    ///
    /// ```
    /// # async fn example(run: warmline::Run) -> warmline::Result<()> {
    /// let database = run.lease("database").await?;
    /// database.call("begin", ()).await?.ok()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As a call without a session.
    pub async fn lease(&self, server: &str) -> Result<ExclusiveSession> {
        self.server(server)?.lease().await
    }

    /// Makes this run the current one of a future.
    ///
    /// ```
    /// # async fn example(run: warmline::Run) -> warmline::Result<()> {
    /// run.scope(async { assert!(warmline::Run::try_current().is_some()) }).await;
    /// # Ok(()) }
    /// ```
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        CURRENT.scope(self.clone(), future).await
    }

    /// Makes this run the current one of a synchronous function.
    ///
    /// ```
    /// # fn example(run: &warmline::Run) {
    /// run.sync_scope(|| assert!(warmline::Run::try_current().is_some()));
    /// # }
    /// ```
    pub fn sync_scope<T>(&self, body: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(self.clone(), body)
    }

    /// Awaits a future until the run ends; none where the run ends first. It does not count as a call: the
    /// run may be idle, and its end does not wait.
    ///
    /// ```
    /// # async fn example(run: warmline::Run) -> warmline::Result<()> {
    /// let wait = std::future::pending::<()>();
    /// assert!(run.while_live(wait).await.is_none()); // the run has ended
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// That of the future.
    pub async fn while_live<F: Future>(&self, doing: F) -> Option<F::Output> {
        self.state.cancel.run_until_set(doing).await
    }

    /// Leaves a named run to its record and its idle limit, instead of ending it.
    ///
    /// ```
    /// # async fn example(warm: warmline::Warmline) -> warmline::Result<()> {
    /// warm.named_run("chat-7")?.detach(); // it ends when it is idle for too long
    /// # Ok(()) }
    /// ```
    pub fn detach(mut self) {
        self.role = RunRole::Joined;
    }

    /// Ends the run for all handles: no new call, a grace for calls in flight, then its sessions are
    /// closed.
    ///
    /// ```
    /// # async fn example(run: warmline::Run) -> warmline::Result<()> {
    /// run.end().await; // its sessions are closed
    /// # Ok(()) }
    /// ```
    pub async fn end(mut self) {
        self.role = RunRole::Joined;
        let grace = self.engine.context.limits.grace;
        let (engine, run) = (Arc::clone(&self.engine), Arc::clone(&self.state));
        end_run(engine, run, (RunEnd::Ended, EndReason::RunEnded), grace).await;
    }

    /// Ends the run without a grace: calls in flight are cancelled now with delivery `unknown`.
    ///
    /// ```
    /// # async fn example(run: warmline::Run) -> warmline::Result<()> {
    /// run.end_now().await;
    /// # Ok(()) }
    /// ```
    pub async fn end_now(self) {
        self.state.cancel.set();
        self.end().await;
    }

    pub(crate) fn context(&self) -> CallerContext {
        CallerContext::new(
            Arc::clone(&self.engine),
            Arc::clone(&self.state.identity),
            Some(Arc::clone(&self.state)),
        )
    }

    /// The handle for the body of the scope that began the run.
    pub(crate) fn lend(&self) -> Self {
        Self::new(
            Arc::clone(&self.engine),
            Arc::clone(&self.state),
            RunRole::Scope,
        )
    }

    pub(crate) fn belongs_to(&self, engine: &Arc<Engine>, who: &CallerIdentity) -> bool {
        Arc::ptr_eq(&self.engine, engine) && self.state.identity.id == who.id
    }
}

/// Joins the run: dropping the clone closes nothing.
impl Clone for Run {
    fn clone(&self) -> Self {
        Self::new(
            Arc::clone(&self.engine),
            Arc::clone(&self.state),
            RunRole::Joined,
        )
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("name", &self.state.name)
            .field("role", &self.role)
            .field("life", &self.state.life())
            .finish_non_exhaustive()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.role == RunRole::Owner {
            end_in_background(&self.engine, &self.state, RunEnd::Dropped);
        }
    }
}

pub(crate) fn new_run_name() -> String {
    format!("run_{}", random_hex())
}

/// Runs a future in a run, for futures of other tasks.
pub trait InCurrentRun: Future + Sized {
    /// The future in the current run, if there is one.
    fn in_current_run(self) -> impl Future<Output = Self::Output>;

    /// The future in this run.
    fn in_run(self, run: &Run) -> impl Future<Output = Self::Output> + use<Self>;
}

impl<F: Future> InCurrentRun for F {
    fn in_current_run(self) -> impl Future<Output = F::Output> {
        // Looked up when the future is made, not when it is first polled.
        let run = Run::try_current();
        async move {
            match run {
                Some(run) => CURRENT.scope(run, self).await,
                None => self.await,
            }
        }
    }

    fn in_run(self, run: &Run) -> impl Future<Output = F::Output> + use<F> {
        CURRENT.scope(run.clone(), self)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// A3: a million names of runs differ, begin alike, and each bit of them is as often set as not.
    #[test]
    fn a_million_names_differ_in_128_even_bits() {
        const NAMES: usize = 1_000_000;
        const LOOKED_INTO: usize = 10_000;
        let mut seen = HashSet::with_capacity(NAMES);
        let mut set = [0_usize; 128];
        for number in 0..NAMES {
            let name = new_run_name();
            let digits = name.strip_prefix("run_").unwrap();
            assert_eq!(digits.len(), 32);
            let bits = u128::from_str_radix(digits, 16).unwrap();
            assert!(seen.insert(bits), "{name} was there before");
            if number < LOOKED_INTO {
                for (at, times) in set.iter_mut().enumerate() {
                    *times += usize::from(bits >> at & 1 == 1);
                }
            }
        }
        // Ten standard deviations: it never happens by chance, and always where a bit is fixed.
        let even = LOOKED_INTO / 2 - 500..=LOOKED_INTO / 2 + 500;
        for (at, times) in set.iter().enumerate() {
            assert!(even.contains(times), "bit {at} was set {times} times");
        }
    }
}
