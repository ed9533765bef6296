//! For whoever builds agents from definitions: a client that costs nothing until its first call,
//! finds its server by slug and folder only then, survives a server that forgets its session, and
//! goes on with the same session after a restart, as in a debugger that reloads at every change.
//!
//! ```text
//! cargo run -p warmline-testkit --example lazy_client
//! ```
//!
//! It brings its own stateful server, a directory that knows where the server is, and a folder in
//! which sessions outlive the process.

#![expect(clippy::print_stdout, reason = "an example shows what it got")]

use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::try_join_all;
use http::{HeaderValue, header};
use serde_json::{Value, json};
use warmline::{Run, Server, ServerHandle, ServerResolver, ToolOutput, Warmline};
use warmline_core::exchange::Diagnostic;
use warmline_engine::relay::RelayHandle as _;
use warmline_engine::server_resolver::{ResolvedServer, resolve_failed};
use warmline_store::keyring::Keyring;
use warmline_store::{BoxFuture, FileStore, ServerDescriptor, SessionStore, store_factory_fn};
use warmline_testkit::{LedgerServer, Personality};

type Failure = Box<dyn Error + Send + Sync>;

const TOKEN: &str = "of-the-platform";

/// Knows where servers are. What it says may change until somebody asks.
#[derive(Clone, Debug, Default)]
struct Directory(Arc<Inside>);

#[derive(Debug, Default)]
struct Inside {
    asked: AtomicU64,
    bound_to: Mutex<Option<String>>,
}

impl Directory {
    fn bind(&self, url: &str) {
        let mut bound_to = self
            .0
            .bound_to
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *bound_to = Some(url.to_owned());
    }

    fn asked(&self) -> u64 {
        self.0.asked.load(Ordering::Relaxed)
    }
}

impl ServerResolver for Directory {
    fn resolve<'a>(
        &'a self,
        card: &'a ServerDescriptor,
    ) -> BoxFuture<'a, Result<ResolvedServer, Diagnostic>> {
        self.0.asked.fetch_add(1, Ordering::Relaxed);
        let bound_to = self
            .0
            .bound_to
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let url = bound_to.clone();
        let wanted = (card.folder.as_deref(), card.slug.as_deref());
        Box::pin(async move {
            let url = url.filter(|_| wanted == (Some("Shared"), Some("orders")));
            let url = url.ok_or_else(|| resolve_failed("no such server is in that folder"))?;
            let bearer = HeaderValue::from_str(&format!("Bearer {TOKEN}"));
            let bearer = bearer.map_err(|error| resolve_failed(error.to_string()))?;
            Ok(ResolvedServer::from_url(url)?.header(header::AUTHORIZATION, bearer))
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let server = LedgerServer::start(Personality::legacy().token(TOKEN))?;
    let (directory, folder) = (Directory::default(), tempfile::tempdir()?);

    let before = first_life(&server, &directory, folder.path()).await?;
    let after = second_life(&server, &directory, folder.path()).await?;
    assert_eq!(before, after, "it is the same session");

    assert_eq!(server.violations(), Vec::<String>::new());
    assert_eq!(server.counts().open_sessions, 0);
    println!("ended:    the session is gone from the server, and its record from the folder");
    Ok(())
}

/// A client as a program makes it at its start.
fn client(directory: &Directory, folder: &Path) -> Result<Warmline, Failure> {
    let orders = Server::resolved("orders", directory.clone()).card(|card| {
        card.folder = Some("Shared".to_owned());
        card.slug = Some("orders".to_owned());
        card.labels
            .insert("execution".to_owned(), "playground".to_owned());
    });
    let store: Arc<dyn SessionStore> = Arc::new(FileStore::in_folder(folder.join("records")));
    // The factory sees the whole description: only what is played with outlives the process.
    let stores = store_factory_fn(move |card: &ServerDescriptor| {
        let is_playground = card.label("execution") == Some("playground");
        is_playground.then(|| Arc::clone(&store))
    });
    let warm = Warmline::builder()
        .server(orders)
        .store(stores)
        .vault(Keyring::in_folder(&folder.join("keys"))?)
        .build()?;
    Ok(warm)
}

async fn first_life(
    server: &LedgerServer,
    directory: &Directory,
    folder: &Path,
) -> Result<Option<String>, Failure> {
    directory.bind("http://127.0.0.1:9/where-it-was-once");
    let warm = client(directory, folder)?;
    let run = warm.named_run("debug-42")?;
    let orders = run.server("orders")?;
    assert_eq!((directory.asked(), orders.current_session()), (0, None));
    println!("built:    nothing is looked up, nothing is connected");

    // The binding changes after the client was made: its first call sees the new one.
    directory.bind(&server.url());
    let calls = (0..20).map(|_| orders.call("counter", json!({})).into_future());
    try_join_all(calls).await?;
    let seen = server.counts();
    assert_eq!((directory.asked(), seen.initializes), (1, 1));
    println!("first:    20 calls at once, looked up once, one handshake");

    let lost = heals_on_404(server, &orders).await?;
    assert_eq!(directory.asked(), 1, "only the session is made anew");
    println!(
        "the text: {}",
        lost.text().lines().next().unwrap_or_default()
    );

    let left = orders.current_session().and_then(|session| session.id);
    assert_eq!(count(&orders).await?, 2);
    // Left to its record: the next life goes on with it.
    warm.close().await;
    Ok(left)
}

/// The server forgets the session. The call gets its result all the same, and says what is gone.
async fn heals_on_404(server: &LedgerServer, orders: &ServerHandle) -> Result<ToolOutput, Failure> {
    let before = server.ledger().methods().len();
    let connections = server.counts().connections;
    server.control().forget_sessions();
    let result = orders.call("counter", json!({})).await?.ok()?;
    let methods = server.ledger().methods();
    let sent = methods.get(before..).unwrap_or_default().join(", ");
    assert_eq!(
        sent,
        "tools/call, initialize, notifications/initialized, tools/call"
    );
    assert!(result.state_lost() && result.attempts() == 2);
    assert_eq!(
        server.counts().connections,
        connections,
        "over the connections there are"
    );
    println!("healed:   {sent}");
    Ok(result)
}

/// The program starts again: another client, the same folder.
async fn second_life(
    server: &LedgerServer,
    directory: &Directory,
    folder: &Path,
) -> Result<Option<String>, Failure> {
    let (before, asked) = (server.counts(), directory.asked());
    let warm = client(directory, folder)?;
    let run: Run = warm.named_run("debug-42")?;
    let orders = run.server("orders")?;
    let now = server.counts();
    assert_eq!(
        (now.connections, now.requests, directory.asked()),
        (before.connections, before.requests, asked),
        "nothing before the first call"
    );

    assert_eq!(
        count(&orders).await?,
        3,
        "it goes on where the first life ended"
    );
    let after = server.counts();
    assert_eq!(after.initializes, before.initializes);
    assert_eq!(
        after.requests,
        before.requests + 1,
        "one request, and that is the call"
    );
    println!("restart:  the first call is the first request, and its count is 3");

    let session = orders.current_session().and_then(|session| session.id);
    run.end().await;
    warm.close().await;
    let left = FileStore::in_folder(folder.join("records")).scan().await?;
    // What is left says what the server is, and nothing of a session.
    assert_eq!(left.len(), 1, "what has ended leaves no record");
    Ok(session)
}

/// One more order in the session of the server, which counts them.
async fn count(orders: &ServerHandle) -> Result<u64, Failure> {
    let counted: Value = orders
        .call("counter", json!({}))
        .await?
        .ok()?
        .structured()?;
    counted["count"].as_u64().ok_or_else(|| "no count".into())
}
