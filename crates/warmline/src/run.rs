//! Runs: begin, join, current, end.
//!
//! Asked by: embedding programs, and every call that belongs to a run.  Told by: whoever ends one,
//! and the keeper, when one rests too long.
//!
//! A run is known by its name inside its identity. What *began* it ends it when it is dropped;
//! what joined it closes nothing. Sub-agents join through a task-local that follows `.await`, and
//! through [`InCurrentRun::in_current_run`] where a future is handed to another task.

mod ending;
mod losses;
pub(crate) mod places;
mod presence;
pub(crate) mod routes;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;
use warmline_core::code::Reason;
use warmline_core::delivery::Delivery;
use warmline_core::exchange::Trouble;
use warmline_core::key::RunId;
use warmline_core::pool::Why;
use warmline_core::run::{Phase, RunLife};
use warmline_core::tick::Tick;

use crate::connect::Connect;
use crate::engine::{Caller, Engine, Who, random_hex};
use crate::error::{Error, Result};
use crate::events::RunEnd;
use crate::handle::ServerHandle;
use crate::lease::Leased;
use crate::pool::CellOf;
use crate::sync::Mutex;
use ending::end;
pub(crate) use ending::{LeftOver, end_closed, end_if_idle, end_in_background, end_left_over};
use losses::LostAt;
pub(crate) use presence::{Presence, Stay};
use routes::Routes;

/// Longer names are not taken.
const MAX_NAME: usize = 128;

tokio::task_local! {
    static CURRENT: Run;
}

/// One piece of agent work, sub-agents included: what its sessions live for.
///
/// A clone is a way to join: it closes nothing when it is dropped.
#[must_use = "what began a run ends it when it is dropped"]
pub struct Run {
    engine: Arc<Engine>,
    pub(crate) shared: Arc<RunShared>,
    role: Role,
}

/// What a handle of a run owes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It began the run and ends it.
    Began,
    /// The scope that began the run lends it to its body, and ends the run after it.
    Lent,
    /// It joined the run and leaves it as it is.
    Joined,
}

/// What all handles of a run share.
pub(crate) struct RunShared {
    /// What its sessions belong to.
    pub(crate) id: RunId,
    /// What its name alone comes to: two runs of one name, one of them closing, share it.
    pub(crate) named: RunId,
    /// Whether it is counted among the runs of its identity. Written while `life` is locked.
    has_place: AtomicBool,
    pub(crate) coming: Coming,
    pub(crate) name: Arc<str>,
    pub(crate) who: Arc<Who>,
    pub(crate) began: Tick,
    life: Mutex<RunLife>,
    /// Told when the last call of a run that ends is over.
    quiet: Notify,
    cut: Cut,
    /// Which cell serves which server, so that a call finds its session without building a key.
    pub(crate) routes: Routes,
    /// What was lost with keys and servers, and is told wherever the run goes next.
    lost_at: LostAt,
    /// Told when everything is closed.
    over: Arc<Cut>,
    /// The end of the run that had the same id before: nothing is opened until then.
    after: Option<Arc<Cut>>,
}

/// What is known of a run that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coming {
    /// No run had its name before.
    New,
    /// An earlier process may have known it by its name.
    ByName,
    /// Somebody comes back to it, and found it over.
    Back,
}

/// A flag that can be waited for.
#[derive(Default)]
pub(crate) struct Cut {
    is_cut: AtomicBool,
    told: Notify,
}

impl Cut {
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        self.told.notify_waiters();
    }

    async fn wait(&self) {
        let told = self.told.notified();
        let mut told = std::pin::pin!(told);
        told.as_mut().enable();
        if !self.is_cut.load(Ordering::Acquire) {
            told.await;
        }
    }

    /// Runs a call until it ends or is cut.
    pub(crate) async fn until<F: Future>(&self, call: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            output = call => Some(output),
            () = self.wait() => None,
        }
    }
}

impl RunShared {
    pub(crate) fn new(
        (named, id, after): (RunId, RunId, Option<Arc<Cut>>),
        name: Arc<str>,
        who: Arc<Who>,
        (has_place, coming): (bool, Coming),
        engine: &Engine,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            named,
            has_place: AtomicBool::new(has_place),
            coming,
            name,
            who,
            began: engine.tick(),
            life: Mutex::new(RunLife::begin(engine.tick())),
            quiet: Notify::new(),
            cut: Cut::default(),
            routes: Routes::default(),
            lost_at: LostAt::default(),
            over: Arc::default(),
            after,
        })
    }

    /// What is told when everything of this run is closed.
    pub(crate) fn over(&self) -> Arc<Cut> {
        Arc::clone(&self.over)
    }

    /// Waits until nothing is left of the run that had the same id before, if there was one.
    pub(crate) async fn has_its_id(&self) {
        if let Some(after) = &self.after {
            after.wait().await;
        }
    }

    /// Runs a call until it ends or the run cuts it.
    pub(crate) async fn until_cut<F: Future>(&self, call: F) -> Option<F::Output> {
        self.cut.until(call).await
    }

    /// Ends its calls that are still under way.
    pub(crate) fn cut_calls(&self) {
        self.cut.cut();
    }

    pub(crate) fn life(&self) -> RunLife {
        *self.life.lock()
    }

    pub(crate) fn is_live(&self) -> bool {
        self.life().phase() == Phase::Live
    }

    /// Whether calls under way were told to stop.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.is_cut.load(Ordering::SeqCst)
    }

    /// The cells that belong to this run alone, each once: several ways may lead to one.
    pub(crate) fn own_cells(&self) -> Vec<Arc<CellOf<Connect>>> {
        let mut cells = self.routes.cells().into_vec();
        cells.retain(|cell| cell.key().run() == Some(self.id));
        cells.sort_by_key(|cell| cell.number());
        cells.dedup_by_key(|cell| cell.number());
        cells
    }
}

impl fmt::Debug for RunShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("name", &self.name)
            .field("identity", &self.who.id)
            .field("life", &self.life())
            .finish_non_exhaustive()
    }
}

/// The trouble of a call whose run is over.
pub(crate) fn ended(name: &str) -> Trouble {
    Trouble::new(Reason::RunEnded, format!("run `{name}` has ended"))
}

impl Run {
    pub(crate) fn new(engine: Arc<Engine>, shared: Arc<RunShared>, role: Role) -> Self {
        Self {
            engine,
            shared,
            role,
        }
    }

    /// The run this code belongs to.
    ///
    /// # Errors
    /// `run-unknown`, where there is none.
    pub fn current() -> Result<Self> {
        Self::try_current().ok_or_else(|| {
            Error::unsent(
                Trouble::new(Reason::RunUnknown, "this code belongs to no run").hint(
                    "begin one with `run(async |run| …)`, or hand a future over with `.in_current_run()`",
                ),
            )
        })
    }

    /// The run this code belongs to, if it belongs to one.
    pub fn try_current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    /// The name of the current run, if there is one.
    pub fn current_name() -> Option<String> {
        CURRENT.try_with(|run| run.name().to_owned()).ok()
    }

    /// Whether a run may have this name: 1 to 128 of `[A-Za-z0-9._~-]`, but not `.` or `..`.
    ///
    /// # Errors
    /// `bad-message`, saying what a name looks like.
    pub fn check_name(name: &str) -> Result<()> {
        check_name(name)
    }

    /// Its name: what is handed to other processes, in `WARMLINE_RUN` or a header.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Whether the run began here: with this handle, which ends it when it is dropped, or with
    /// the scope that gave it to its body, which ends it after the body. Whoever came to a run
    /// that was there already has joined it, and closes nothing: an inner scope, a clone,
    /// [`Run::current`], [`IdentityHandle::join`](crate::IdentityHandle::join).
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
        matches!(self.role, Role::Began | Role::Lent)
    }

    /// Whether calls are still let in.
    pub fn is_live(&self) -> bool {
        self.shared.is_live()
    }

    /// A server, as this run calls it.
    ///
    /// # Errors
    /// `server-unknown`, with the nearest name there is.
    pub fn server(&self, name: &str) -> Result<ServerHandle> {
        ServerHandle::of(self.caller(), name)
    }

    /// A session of this run for one holder alone, until it is dropped: begin … commit.
    ///
    /// # Errors
    /// As a call on a session that cannot be had.
    pub async fn lease(&self, server: &str) -> Result<Leased> {
        self.server(server)?.lease().await
    }

    /// Makes this run the current one of a future.
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        CURRENT.scope(self.clone(), future).await
    }

    /// Makes this run the current one of a function that does not wait.
    pub fn sync_scope<T>(&self, body: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(self.clone(), body)
    }

    /// Does something for as long as the run lasts; none where the run is over before. It is no call:
    /// it keeps no run from resting, and no end of one waits for it.
    ///
    /// # Cancel safety
    /// As that of what is done.
    pub async fn while_live<F: Future>(&self, doing: F) -> Option<F::Output> {
        self.shared.until_cut(doing).await
    }

    /// Leaves a named run to its record and its idle limit, instead of ending it.
    pub fn detach(mut self) {
        self.role = Role::Joined;
    }

    /// Ends the run: no new call, a grace for those under way, then every session is closed.
    ///
    /// Any handle may, from any task, any number of times; the others find it ended.
    pub async fn end(mut self) {
        self.role = Role::Joined;
        let grace = self.engine.ceilings().grace;
        let (engine, run) = (Arc::clone(&self.engine), Arc::clone(&self.shared));
        end(engine, run, (RunEnd::Ended, Why::RunEnded), grace).await;
    }

    /// The same without a grace: calls under way are cut now, and told that nobody knows what
    /// became of them.
    pub async fn end_now(self) {
        self.shared.cut_calls();
        self.end().await;
    }

    pub(crate) fn caller(&self) -> Caller {
        Caller::new(
            Arc::clone(&self.engine),
            Arc::clone(&self.shared.who),
            Some(Arc::clone(&self.shared)),
        )
    }

    /// The same run, for the body of the scope that began it.
    pub(crate) fn lent(&self) -> Self {
        Self::new(
            Arc::clone(&self.engine),
            Arc::clone(&self.shared),
            Role::Lent,
        )
    }

    pub(crate) fn belongs_to(&self, engine: &Arc<Engine>, who: &Who) -> bool {
        Arc::ptr_eq(&self.engine, engine) && self.shared.who.id == who.id
    }
}

/// Joins the run: dropping the clone closes nothing.
impl Clone for Run {
    fn clone(&self) -> Self {
        Self::new(
            Arc::clone(&self.engine),
            Arc::clone(&self.shared),
            Role::Joined,
        )
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("name", &self.shared.name)
            .field("role", &self.role)
            .field("life", &self.shared.life())
            .finish_non_exhaustive()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.role == Role::Began {
            end_in_background(&self.engine, &self.shared, RunEnd::Dropped);
        }
    }
}

/// A name that no other run has: a prefix that is recognised, and 128 random bits.
pub(crate) fn fresh_name() -> String {
    format!("run_{}", random_hex())
}

/// Checks the name of a run: 1 to 128 of `[A-Za-z0-9._~-]`, but not `.` or `..`.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._~-".contains(&byte);
    if (1..=MAX_NAME).contains(&name.len())
        && name.bytes().all(plain)
        && name != "."
        && name != ".."
    {
        return Ok(());
    }
    let shown: String = name.chars().take(40).collect();
    let trouble = Trouble::new(Reason::InvalidRequest, "a run cannot have this name")
        .because(format!("`{}`", shown.escape_debug()))
        .hint(
            "a name has 1 to 128 of A-Z, a-z, 0-9, `.`, `_`, `~` and `-`, and is not `.` or `..`",
        );
    Err(Error::new(trouble, Delivery::Unsent))
}

/// Hands the current run on to a future that another task will run.
pub trait InCurrentRun: Future + Sized {
    /// The same future, in the run that is current here. Where there is none, nothing changes.
    fn in_current_run(self) -> impl Future<Output = Self::Output>;

    /// The same future, in this run.
    fn in_run(self, run: &Run) -> impl Future<Output = Self::Output> + use<Self>;
}

impl<F: Future> InCurrentRun for F {
    fn in_current_run(self) -> impl Future<Output = F::Output> {
        // Looked up here, where the future is made, not where it is polled first.
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
            let name = fresh_name();
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
