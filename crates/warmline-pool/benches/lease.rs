//! What a lease costs: finding the cell of a key, leasing its held session, settling it.
//!
//! Goal (DESIGN 11): below 2 µs at the median, with random keys, whether 100 or 100 000 sessions
//! are held. `cargo bench -p warmline-pool --bench lease`; `WARMLINE_KEYS` says another large number.
//!
//! The connector opens nothing.

#![expect(
    clippy::expect_used,
    reason = "a benchmark ends when its setting fails"
)]

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use warmline_core::era::Era;
use warmline_core::exchange::Diagnostic;
use warmline_core::policy::EngineLimits;
use warmline_core::pool::{HealthCheckResult, LeaseOutcome, QueuePosition, StabilityCriterion};
use warmline_core::pool_key::{
    ClientProfileId, ConfigRevision, CredentialId, Digest, Identity, KeyOwner, KeyScope, PoolKey,
    RunId, TargetKey, Transport,
};
use warmline_platform::clock;
use warmline_pool::{
    Connector, EndCondition, EndReason, EntryPolicy, LeaseMode, OpenRequest, Pool, PoolEvent,
    Sharing,
};

const ROUNDS: usize = 400_000;
const GOAL: Duration = Duration::from_micros(2);

struct Nothing;

impl Connector for Nothing {
    type Session = u32;
    type Setup = ();

    async fn open(&self, order: &OpenRequest<Self>) -> Result<Arc<u32>, Diagnostic> {
        Ok(Arc::new(order.generation.number()))
    }

    async fn check(&self, _: &Arc<u32>, _: &Arc<()>) -> HealthCheckResult {
        HealthCheckResult::Alive
    }

    async fn close(&self, _: Arc<u32>, _: &Arc<()>, _: Option<&PoolKey>, _: EndReason) {}

    fn is_usable(&self, _: &u32) -> bool {
        true
    }

    fn report(&self, (): &(), _: &PoolEvent<'_>) {}

    fn client_profile_id(&self, (): &()) -> ClientProfileId {
        ClientProfileId(Digest::new([0; 16]))
    }

    fn wanted_spares(&self, (): &()) -> u32 {
        0
    }
}

/// The session of one run, as the default is for legacy servers.
const POLICY: EntryPolicy = EntryPolicy {
    sharing: Sharing::SideBySide,
    max_sessions: 1,
    max_age: None,
    max_idle: None,
    check_after: Duration::from_secs(3_600),
    keep_alive: Some(Duration::from_secs(120)),
    max_waiters: 1_024,
    stability: StabilityCriterion::FirstReply,
    end_condition: EndCondition::WithRunEnd,
};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let large = std::env::var("WARMLINE_KEYS").ok();
    let large = large.and_then(|keys| keys.parse().ok()).unwrap_or(100_000);
    for keys in [100, large] {
        measure(keys).await;
    }
}

async fn measure(count: usize) {
    let ceilings = EngineLimits {
        sessions: u32::MAX,
        sessions_per_identity: u32::MAX,
        ..EngineLimits::default()
    };
    let pool = Pool::new(Arc::new(Nothing), ceilings);
    // Keys of one server share its name, as those of the engine do.
    let server = Arc::from("server");
    let keys: Vec<PoolKey> = (0..count).map(|number| key(&server, number)).collect();
    let before = resident();
    for key in &keys {
        lease(&pool, key).await;
    }
    let bytes = resident().saturating_sub(before) / count.max(1);
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let key = &keys[fastrand::usize(..count)];
        let began = clock::now();
        lease(&pool, key).await;
        times.push(clock::now() - began);
    }
    times.sort_unstable();
    let [p50, p99] = [times[ROUNDS / 2], times[ROUNDS * 99 / 100]];
    let verdict = if p50 < GOAL {
        "goal met"
    } else {
        "GOAL MISSED"
    };
    let mut out = std::io::stdout();
    let line = format!(
        "{count:>9} keys: lease and settle p50 {p50:?}, p99 {p99:?} ({verdict}: {GOAL:?}), \
         {bytes} bytes resident per key"
    );
    drop(writeln!(out, "{line}"));
}

async fn lease(pool: &Pool<Nothing>, key: &PoolKey) {
    let cell = pool.entry(key, || POLICY, || ());
    let by = clock::after(Duration::from_secs(30));
    let lease = pool
        .lease(&cell, LeaseMode::Shared, QueuePosition::Back, by)
        .await;
    lease
        .expect("a lease of a held session")
        .settle(LeaseOutcome::Answered { stateful: true });
}

fn key(server: &Arc<str>, number: usize) -> PoolKey {
    let mut digest = [0; 16];
    digest[..8].copy_from_slice(&number.to_be_bytes());
    let digest = Digest::new(digest);
    let place = TargetKey {
        server: Arc::clone(server),
        revision: ConfigRevision(Digest::new([1; 16])),
        era: Era::Legacy,
        transport: Transport::Http,
    };
    let owner = KeyOwner::Identity(Identity(digest));
    let scope = KeyScope::Run(RunId(digest));
    PoolKey::new(place, owner, CredentialId(Digest::new([2; 16])), scope)
}

/// Bytes of memory this process has; zero where that cannot be read.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let resident = pages
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<usize>().ok());
    resident.unwrap_or(0) * 4_096
}
