//! For a platform team between many tenants and their servers: sessions are pooled per identity
//! and never cross over, limits hold under load, one dead server or one bad token costs nobody
//! else anything, and what happened can be counted.
//!
//! ```text
//! cargo run -p warmline-testkit --example identity_pool
//! ```
//!
//! It brings two servers: `reports`, which asks for a token, and `archive`, which is down for a
//! while. Both keep a ledger of what reached them, and that is what the numbers are held against.

#![expect(clippy::print_stdout, reason = "an example shows what it got")]

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use http::{HeaderMap, HeaderValue};
use serde_json::json;
use warmline::{Caller, Server, ToolOutput, Warmline};
use warmline_core::exchange::Diagnostic;
use warmline_core::policy::{BreakerPolicy, SessionScope};
use warmline_engine::credentials::{BoxFuture, CredentialProvider, Token, TokenRequest};
use warmline_engine::events::{Event, EventItem, EventSubscription};
use warmline_engine::identity::{IdentityExtractor, IdentityName};
use warmline_testkit::{ExecutionPhase, LedgerEntry, LedgerServer, Personality};

type Failure = Box<dyn Error + Send + Sync>;

const TENANTS: usize = 6;
const CALLS_OF_EACH: usize = 200;
const CALM: usize = 60;
const MOST_SESSIONS: usize = 4;
const TRIES: u32 = 3;
const GOOD_TOKEN: &str = "canary-token";

/// Who is asking: the tenant that the proxy in front of us has authenticated. Tokens come and go,
/// so they are no part of it, and a tenant keeps its sessions over all of them.
#[derive(Debug)]
struct Tenant;

impl IdentityExtractor for Tenant {
    fn identity(&self, headers: &HeaderMap) -> Result<Option<IdentityName>, Diagnostic> {
        let tenant = headers.get("x-tenant-id");
        let tenant = tenant.and_then(|value| value.to_str().ok());
        Ok(tenant.map(IdentityName::named))
    }
}

/// A token for each tenant, asked for when it is needed. The one of `careless` has expired.
#[derive(Debug)]
struct Tokens;

impl CredentialProvider for Tokens {
    fn fetch<'a>(&'a self, asked: TokenRequest<'a>) -> BoxFuture<'a, Result<Token, Diagnostic>> {
        let is_careless = asked.identity.and_then(IdentityName::name) == Some("careless");
        let token = if is_careless { "expired" } else { GOOD_TOKEN };
        Box::pin(async move { Ok(Token::new(token)) })
    }

    fn label(&self) -> String {
        "a token per tenant".to_owned()
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let reports = LedgerServer::start(Personality::legacy().token(GOOD_TOKEN))?;
    let archive = LedgerServer::start(Personality::legacy())?;
    archive.stop();
    let warm = Warmline::builder()
        .identity_extractor(Tenant)
        .server(pooled("reports", &reports).provider(Tokens))
        .server(pooled("archive", &archive))
        .build()?;
    let events = warm.events();

    under_load(&warm).await?;
    nobody_met_anybody_else(&reports);
    the_numbers_agree(&warm, &reports)?;
    a_bad_token_blocks_its_owner_only(&warm).await?;
    a_dead_server_is_left_alone_and_found_again(&warm, &archive).await?;
    warm.close().await;
    drop(warm);
    breakers_were_told(events).await;

    assert_eq!(reports.violations(), Vec::<String>::new());
    let left = [&reports, &archive].map(|server| server.counts().open_sessions);
    assert_eq!(left, [0, 0]);
    println!("closed:  every session was ended at its server");
    Ok(())
}

/// One tenant has up to four sessions, with one call at a time on each.
fn pooled(name: &str, server: &LedgerServer) -> Server {
    let most = u32::try_from(MOST_SESSIONS).unwrap_or(u32::MAX);
    Server::http(name, server.url())
        .session_per(SessionScope::Identity)
        .max_per_key(most)
        .with_policy(|policy| {
            policy.breaker = BreakerPolicy {
                threshold: TRIES,
                reset: Duration::from_millis(200),
                longest: Duration::from_secs(2),
            };
        })
}

/// Somebody who asks, as a request's headers say. The token is another one each time.
fn tenant(warm: &Warmline, name: &str, request: usize) -> Result<Caller, Failure> {
    let mut headers = HeaderMap::new();
    headers.insert("x-tenant-id", HeaderValue::from_str(name)?);
    headers.insert(
        "authorization",
        HeaderValue::from_str(&format!("Bearer {request}"))?,
    );
    Ok(warm.identity_from_headers(&headers)?)
}

/// A storm of all tenants at once, and then one call after the other.
async fn under_load(warm: &Warmline) -> Result<(), Failure> {
    let storm = (0..TENANTS * CALLS_OF_EACH).map(|number| report(warm, number));
    let answered = try_join_all(storm).await?.len();
    println!("load:    {answered} calls of {TENANTS} tenants at once, all answered");
    for number in 0..CALM {
        report(warm, number).await?;
    }
    println!("load:    {CALM} more, one after the other");
    Ok(())
}

/// One call of one tenant, with a correlation id of its own.
async fn report(warm: &Warmline, number: usize) -> Result<ToolOutput, Failure> {
    let name = format!("tenant-{}", number % TENANTS);
    let reports = tenant(warm, &name, number)?.server("reports")?;
    let call = reports.call("echo", json!({ "tenant": name, "call": number }));
    let call = call.header("x-correlation-id", &number.to_string());
    Ok(call.await?.ok()?)
}

/// By the server's own ledger: every session served one tenant, and no tenant had too many.
fn nobody_met_anybody_else(reports: &LedgerServer) {
    let (mut tenant_of, mut sessions_of) = (BTreeMap::new(), BTreeMap::new());
    for LedgerEntry {
        session,
        arguments,
        extra_headers: extra,
        ..
    } in executed(reports)
    {
        let tenant = arguments["tenant"].to_string();
        let first = tenant_of
            .entry(session.clone())
            .or_insert_with(|| tenant.clone());
        assert_eq!(*first, tenant, "a session served two tenants");
        sessions_of
            .entry(tenant)
            .or_insert_with(BTreeSet::new)
            .insert(session);
        // What belongs to one request stays with it, although its session is shared.
        assert_eq!(extra["x-correlation-id"], arguments["call"].to_string());
    }
    assert_eq!(sessions_of.len(), TENANTS);
    let most = sessions_of.values().map(BTreeSet::len).max();
    assert_eq!(most, Some(MOST_SESSIONS));
    println!(
        "pool:    {} sessions, at most {MOST_SESSIONS} of a tenant, none shared by two",
        tenant_of.len()
    );
}

fn executed(server: &LedgerServer) -> impl Iterator<Item = LedgerEntry> {
    let entries = server.ledger().entries().into_iter();
    entries.filter(|entry| entry.phase == ExecutionPhase::Commit && entry.tool.is_some())
}

/// What the engine counted is what the server saw; and no number tells who anybody is.
fn the_numbers_agree(warm: &Warmline, reports: &LedgerServer) -> Result<(), Failure> {
    let snapshot = warm.snapshot();
    let numbers = snapshot.server("reports").ok_or("nothing was counted")?;
    let of = |outcome| numbers.count("acquires_total", &[outcome]);
    let (hit, miss, wait) = (of("hit"), of("miss"), of("wait"));
    assert_eq!(hit + miss + wait, executed(reports).count() as u64);
    let found = numbers.count("calls_total", &["answered"]);
    assert_eq!(found, hit + miss + wait);
    let found = numbers.count("sessions", &["idle"]);
    assert_eq!(found, snapshot.sessions.len() as u64);
    assert_eq!(numbers.count("isolation_violation_total", &[]), 0);
    assert!(miss <= numbers.count("opens_total", &["opened"]));
    let holds = hit >= CALM as u64;
    assert!(holds, "whoever finds a session at rest does not wait");
    let opened = numbers.count("opens_total", &["opened"]);
    println!("metrics: {hit} hits, {miss} misses, {wait} waited for a session; {opened} opened");
    let shown = serde_json::to_string(&snapshot)?;
    assert!(!shown.contains(GOOD_TOKEN) && !shown.contains("tenant-"));
    Ok(())
}

/// A token that the server refuses stops the openings of its owner, and of nobody else.
async fn a_bad_token_blocks_its_owner_only(warm: &Warmline) -> Result<(), Failure> {
    let careless = tenant(warm, "careless", 0)?.server("reports")?;
    let mut told = Vec::new();
    for _ in 0..=TRIES {
        let Err(error) = careless.call("echo", json!({})).await else {
            return Err("an expired token was taken".into());
        };
        assert!(error.delivery().is_safe_to_retry());
        told.push(error.code().as_str());
    }
    println!("token:   careless is told {}", told.join(", "));
    assert_eq!(told.pop(), Some("breaker-open"));
    let careful = tenant(warm, "careful", 0)?.server("reports")?;
    careful.call("echo", json!({})).await?.ok()?;
    println!("token:   careful opens a session and is served");
    Ok(())
}

/// After a few failures nothing is sent to a dead server; when it is back, one call finds out.
async fn a_dead_server_is_left_alone_and_found_again(
    warm: &Warmline,
    archive: &LedgerServer,
) -> Result<(), Failure> {
    let handle = tenant(warm, "tenant-0", 0)?.server("archive")?;
    for _ in 0..TRIES {
        let failed = handle.call("echo", json!({})).await;
        assert!(failed.is_err_and(|error| error.delivery().is_safe_to_retry()));
    }
    let Err(blocked) = handle.call("echo", json!({})).await else {
        return Err("a dead server answered".into());
    };
    assert_eq!(blocked.code().as_str(), "breaker-open");
    let stopped = |state| {
        warm.snapshot()
            .server("archive")
            .map(|n| n.count("breaker_state", &["server", state]))
    };
    assert_eq!(stopped("tripped"), Some(1));
    let pause = blocked
        .retry_after()
        .ok_or("it does not say when to come back")?;
    println!("breaker: {blocked}; again in {} ms", pause.as_millis());

    archive.start_again()?;
    tokio::time::sleep(pause).await;
    let calls = (0..8).map(|_| handle.call("echo", json!({})).into_future());
    let answered = join_all(calls)
        .await
        .into_iter()
        .filter(Result::is_ok)
        .count();
    assert!(
        answered > 0,
        "one of them is let through and finds out for all"
    );
    handle.call("echo", json!({})).await?.ok()?;
    println!("breaker: the server is back, and calls pass");
    Ok(())
}

/// Each change of a breaker was told once, with whose it is.
async fn breakers_were_told(mut events: EventSubscription) {
    let mut told = Vec::new();
    while let Some(heard) = events.next().await {
        if let EventItem::Event(Event::BreakerChanged {
            server,
            scope,
            state,
            ..
        }) = heard
        {
            told.push(format!("{server} {scope:?} {state:?}"));
        }
    }
    println!("events:  {}", told.join(", "));
    let expected = [
        "reports Identity Open",
        "archive Server Open",
        "archive Server HalfOpen",
        "archive Server Closed",
    ];
    assert_eq!(told, expected);
}
