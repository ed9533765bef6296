//! What goes on under a schedule: callers who lease, settle, leave and give up, servers that
//! forget, runs that end, a keeper that sweeps.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use shuttle::future::{JoinHandle, block_on, spawn};
use shuttle::rand::{Rng, thread_rng};
use warmline_core::policy::EngineLimits;
use warmline_core::pool::spares::SpareKey;
use warmline_core::pool::{
    EndCondition, EndReason, LeaseMode, LeaseOutcome, QueuePosition, Sharing,
};
use warmline_core::pool_key::{KeyOwner, PoolKey, Transport};

use crate::clock;
use crate::fake::{Fake, key, key_at, policy, turns};
use crate::pool_files::{Connector, FirstContactInfo, Lease, Pool, PoolEntry};

type Cell = Arc<PoolEntry<Fake>>;

/// A pool in which things go wrong.
#[derive(Clone)]
struct World {
    fake: Arc<Fake>,
    pool: Pool<Fake>,
}

impl World {
    fn new(trouble: f64, spares: u32, sessions: u32) -> Self {
        clock::begin();
        let fake = Fake::new(trouble, spares);
        let ceilings = EngineLimits {
            sessions,
            processes: sessions,
            max_spares: 2,
            ..EngineLimits::default()
        };
        let pool = Pool::new(Arc::clone(&fake), ceilings);
        Self { fake, pool }
    }

    fn cell(&self, number: u8, sharing: Sharing, ends: EndCondition) -> Cell {
        self.cell_at(Transport::Http, number, sharing, ends)
    }

    fn cell_at(&self, at: Transport, number: u8, sharing: Sharing, ends: EndCondition) -> Cell {
        let key = key_at(at, number, ends);
        self.pool.entry(&key, || policy(sharing, ends, 2), || ())
    }

    /// Runs a task beside the others.
    fn beside<F>(&self, task: impl FnOnce(Self) -> F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        spawn(task(self.clone()))
    }

    /// One call: maybe given up on the way, maybe with a loss, however it ends.
    async fn call(&self, cell: &Cell) {
        let want = if thread_rng().gen_bool(0.2) {
            LeaseMode::Exclusive
        } else {
            LeaseMode::Shared
        };
        let patience = Duration::from_millis(thread_rng().gen_range(0..60));
        let lease = self
            .pool
            .lease(cell, want, QueuePosition::Back, clock::after(patience));
        if let Some(Ok(lease)) = give_up_after(some_polls(), lease).await {
            self.send(lease, want == LeaseMode::Exclusive).await;
        }
    }

    async fn send(&self, mut lease: Lease<Fake>, alone: bool) {
        let session = Arc::clone(&lease.session);
        session.enter();
        turns(3).await;
        let callers = session.callers.load(Ordering::Relaxed);
        assert!(!alone || callers == 1, "not alone: {callers}");
        session.leave();
        if lease.unreported_loss().is_some() && thread_rng().gen_bool(0.5) {
            lease.mark_loss_reported();
        }
        let left_state = thread_rng().gen_bool(0.5);
        match thread_rng().gen_range(0..8) {
            0 => {
                self.fake.gone(&session);
                lease.settle(LeaseOutcome::SessionEnded(EndReason::Gone));
            },
            1 => lease.settle(LeaseOutcome::ConnectionFailed),
            2 => drop(lease),
            3 => {
                self.fake.gone(&session);
                session.die();
                lease.settle(LeaseOutcome::Answered {
                    stateful: left_state,
                });
            },
            _ => lease.settle(LeaseOutcome::Answered {
                stateful: left_state,
            }),
        }
    }

    /// The keeper's round, with time gone by.
    async fn keep(&self) {
        clock::advance(Duration::from_secs(thread_rng().gen_range(0..400)));
        for due in self.pool.sweep().await {
            due.run().await;
        }
    }

    /// Waits for all of them, drains, and looks what is left.
    fn finish(&self, tasks: Vec<JoinHandle<()>>) {
        block_on(async {
            for task in tasks {
                task.await.expect("a task that ends");
            }
            let by = clock::after(Duration::from_secs(7_200));
            self.pool.drain(by).await;
        });
        let census = self.pool.count();
        assert_eq!(census.invalid_events, 0, "{census:?}");
        assert_eq!(census.gauges.counts.sessions(), 0, "{census:?}");
        assert_eq!(census.gauges.counts.waiting, 0, "{census:?}");
        assert_eq!((census.gauges.closing, census.gauges.spares), (0, 0));
        let found = (census.session_permits, census.running_tasks);
        assert_eq!(found, (0, 0), "{census:?}");
        assert_eq!(self.fake.live.load(Ordering::Relaxed), 0, "left open");
        let (opened, ended) = (&self.fake.opened, &self.fake.ended);
        let found = opened.load(Ordering::Relaxed);
        assert_eq!(found, ended.load(Ordering::Relaxed));
    }
}

/// Polls a future so many times and drops it then; none lets it end.
async fn give_up_after<F: Future>(polls: Option<u32>, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut polled = 0;
    poll_fn(|context| {
        if polls == Some(polled) {
            return Poll::Ready(None);
        }
        polled += 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

fn some_polls() -> Option<u32> {
    thread_rng()
        .gen_bool(0.25)
        .then(|| thread_rng().gen_range(0..4))
}

pub(crate) fn everything_at_once() {
    let world = World::new(0.15, 0, 3);
    let mut tasks = Vec::new();
    for number in 0..4_u8 {
        tasks.push(world.beside(|world| async move {
            let run = world.cell(number % 2, Sharing::SideBySide, EndCondition::WithRunEnd);
            let shared = world.cell(7, Sharing::OnePerCaller, EndCondition::AtLimits);
            for _ in 0..3 {
                let cell = if thread_rng().gen_bool(0.5) {
                    &run
                } else {
                    &shared
                };
                world.call(cell).await;
            }
        }));
    }
    tasks.push(world.beside(|world| async move {
        turns(8).await;
        let run = world.cell(1, Sharing::SideBySide, EndCondition::WithRunEnd);
        if thread_rng().gen_bool(0.5) {
            world.pool.end_entry(&run, EndReason::RunEnded);
        } else {
            let by = clock::after(Duration::from_millis(20));
            let ends = world
                .pool
                .end_entries(std::slice::from_ref(&run), EndReason::RunEnded, by);
            give_up_after(some_polls(), ends).await;
        }
    }));
    tasks.push(world.beside(|world| async move {
        world.keep().await;
        world.keep().await;
    }));
    world.finish(tasks);
}

pub(crate) fn one_key_many_callers() {
    let sharing = [Sharing::SideBySide, Sharing::Serial, Sharing::OnePerCaller];
    let sharing = sharing[thread_rng().gen_range(0..sharing.len())];
    let world = World::new(0.1, 0, 100);
    let tasks = (0..6).map(|_| {
        world.beside(move |world| async move {
            let cell = world.cell(1, sharing, EndCondition::WithRunEnd);
            world.call(&cell).await;
            world.call(&cell).await;
        })
    });
    let tasks = tasks.collect();
    world.finish(tasks);
}

pub(crate) fn little_room() {
    let world = World::new(0.05, 0, 2);
    let tasks = (0..6_u8).map(|number| {
        world.beside(move |world| async move {
            let cell = world.cell(number % 4, Sharing::SideBySide, EndCondition::AtLimits);
            for _ in 0..2 {
                world.call(&cell).await;
            }
        })
    });
    let tasks = tasks.collect();
    world.finish(tasks);
    let most = world.fake.most_live.load(Ordering::Relaxed);
    assert!(most <= 2, "{most} sessions were open at once");
}

/// reliability I22: a lost session keeps its room until it is closed, and then its replacement has
/// it. What a server forgot by its own word takes up nothing any more.
pub(crate) fn replaced_in_little_room() {
    let transport = [Transport::Stdio, Transport::Http];
    let transport = transport[thread_rng().gen_range(0..transport.len())];
    let world = World::new(0.05, 0, 2);
    let tasks = (0..5_u8).map(|number| {
        world.beside(move |world| async move {
            let (sharing, ends) = (Sharing::SideBySide, EndCondition::WithRunEnd);
            let cell = world.cell_at(transport, number % 2, sharing, ends);
            for _ in 0..3 {
                world.call(&cell).await;
            }
        })
    });
    let mut tasks: Vec<_> = tasks.collect();
    tasks.push(world.beside(|world| async move { world.keep().await }));
    world.finish(tasks);
    let most = world.fake.most_live.load(Ordering::Relaxed);
    assert!(most <= 2, "{most} of {transport:?} where two have room");
}

pub(crate) fn few_spares() {
    let world = World::new(0.1, 2, 100);
    let shelf = SpareKey::for_key(
        &key(0, EndCondition::AtLimits),
        world.fake.client_profile_id(&()),
    );
    let calls = (0..5_u8).map(|number| {
        let shelf = shelf.clone();
        world.beside(move |world| async move {
            let patience = Duration::from_millis(thread_rng().gen_range(0..60));
            let owner = key(number, EndCondition::AtLimits).owner;
            let setup = Arc::new(());
            let once =
                world
                    .pool
                    .lease_for_single_call(&shelf, &setup, owner, clock::after(patience));
            if let Some(Ok(lease)) = give_up_after(some_polls(), once).await {
                assert!(lease.session.enter(), "used by somebody before");
                assert!(!lease.session.is_closed());
                turns(3).await;
                lease.session.leave();
                lease.settle(LeaseOutcome::Answered { stateful: true });
            }
        })
    });
    let mut tasks: Vec<_> = calls.collect();
    tasks.push(world.beside(|world| async move { world.keep().await }));
    world.finish(tasks);
}

pub(crate) fn first_contacts() {
    let world = World::new(0.05, 0, 2);
    let shelf = SpareKey::for_key(
        &key(0, EndCondition::AtLimits),
        world.fake.client_profile_id(&()),
    );
    let tasks = (0..4_u8).map(|number| {
        let shelf = shelf.clone();
        world.beside(move |world| async move {
            let cell = world.cell(number, Sharing::SideBySide, EndCondition::AtLimits);
            let run = key(number, EndCondition::WithRunEnd).run();
            let nobodys = nobodys();
            let by = clock::after(Duration::from_millis(40));
            let room = world.pool.permit_for_first_contact(&nobodys, None, by);
            if let Some(Ok(room)) = give_up_after(some_polls(), room).await {
                turns(2).await;
                let took = Duration::ZERO;
                let (setup, contact) = (Arc::new(()), world.fake.contact());
                let met = FirstContactInfo {
                    took,
                    run,
                    permit: room,
                };
                world
                    .pool
                    .spares()
                    .add_first_contact(&shelf, &setup, contact, met);
            }
            world.call(&cell).await;
            world.pool.end_entry(&cell, EndReason::RunEnded);
            if let Some(run) = run {
                world.pool.spares().end_first_contacts_of_run(run);
            }
        })
    });
    world.finish(tasks.collect());
    let most = world.fake.most_live.load(Ordering::Relaxed);
    assert!(most <= 2, "{most} sessions where two have room");
}

/// A key that has room for nobody yet.
fn nobodys() -> Arc<PoolKey> {
    let some = key(0, EndCondition::AtLimits);
    let (place, scope) = (some.target.clone(), some.scope);
    Arc::new(PoolKey::new(
        place,
        KeyOwner::AnyIdentity,
        some.credential,
        scope,
    ))
}

pub(crate) fn a_drain_at_any_time() {
    let world = World::new(0.05, 1, 3);
    let shelf = SpareKey::for_key(
        &key(0, EndCondition::AtLimits),
        world.fake.client_profile_id(&()),
    );
    let mut tasks: Vec<_> = (0..3_u8)
        .map(|number| {
            let shelf = shelf.clone();
            world.beside(move |world| async move {
                let cell = world.cell(number, Sharing::SideBySide, EndCondition::AtLimits);
                world.call(&cell).await;
                let (setup, contact) = (Arc::new(()), world.fake.contact());
                world.pool.spares().add_first_contact(
                    &shelf,
                    &setup,
                    contact,
                    FirstContactInfo::default(),
                );
                world.call(&cell).await;
            })
        })
        .collect();
    tasks.push(world.beside(|world| async move {
        turns(12).await;
        let drain = world.pool.drain(clock::after(Duration::from_millis(80)));
        give_up_after(some_polls(), drain).await;
    }));
    world.finish(tasks);
}
