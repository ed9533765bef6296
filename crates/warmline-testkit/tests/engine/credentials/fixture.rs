//! What the stories share: a server, an engine in front of it, and a provider that can be told.

use crate::prelude::*;

use std::collections::BTreeSet;

use warmline_engine::credentials::{BoxFuture, CredentialProvider, Token, TokenRequest};
use warmline_testkit::LedgerEntry;

/// A legacy server that keeps a session for whoever comes.
pub(crate) fn stateful() -> LedgerServer {
    LedgerServer::start(Personality::legacy()).unwrap()
}

/// The same, for those who show a token.
pub(crate) fn guarded(token: &str) -> LedgerServer {
    LedgerServer::start(Personality::legacy().token(token)).unwrap()
}

pub(crate) fn engine(server: Server) -> Warmline {
    Warmline::builder().server(server).build().unwrap()
}

/// How it is declared, before anything is said of credentials.
pub(crate) fn declared(ledger: &LedgerServer) -> Server {
    Server::http("lamp", ledger.url())
}

/// Counts up in the session of whoever asks.
pub(crate) async fn count(server: &ServerHandle) -> i64 {
    let counted = server.call("counter", json!({})).await.unwrap();
    let counted: Value = counted.ok().unwrap().structured().unwrap();
    counted["count"].as_i64().unwrap()
}

pub(crate) async fn count_in(run: &Run) -> i64 {
    count(&run.server("lamp").unwrap()).await
}

/// What was executed of a tool, line by line.
pub(crate) fn executed(ledger: &LedgerServer, tool: &str) -> Vec<LedgerEntry> {
    let entries = ledger.ledger().entries();
    let is_it = |entry: &LedgerEntry| {
        entry.phase == ExecutionPhase::Commit && entry.tool.as_deref() == Some(tool)
    };
    entries.into_iter().filter(is_it).collect()
}

/// The credentials that were shown with a tool, each once.
pub(crate) fn shown(ledger: &LedgerServer, tool: &str) -> BTreeSet<String> {
    let lines = executed(ledger, tool);
    lines
        .into_iter()
        .filter_map(|line| line.credential)
        .collect()
}

/// Whether no request of any kind came with a credential.
pub(crate) fn saw_no_credential(ledger: &LedgerServer) -> bool {
    let entries = ledger.ledger().entries();
    entries.iter().all(|line| line.credential.is_none())
}

/// The sessions a tool was executed in, each once.
pub(crate) fn sessions(ledger: &LedgerServer, tool: &str) -> BTreeSet<String> {
    let lines = executed(ledger, tool);
    lines.into_iter().filter_map(|line| line.session).collect()
}

/// Gives out `token-1`, `token-2` and so on, one for each time it is asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counting {
    asked: Arc<AtomicUsize>,
    pub(crate) lasts: Option<Duration>,
}

impl Counting {
    pub(crate) fn lasting(time: Duration) -> Self {
        Self {
            lasts: Some(time),
            ..Self::default()
        }
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl CredentialProvider for Counting {
    fn fetch<'a>(&'a self, _asked: TokenRequest<'a>) -> BoxFuture<'a, Result<Token, Diagnostic>> {
        let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let token = Token::new(format!("token-{number}"));
        let token = match self.lasts {
            Some(time) => token.expires_in(time),
            None => token,
        };
        Box::pin(std::future::ready(Ok(token)))
    }

    fn label(&self) -> String {
        "counting".to_owned()
    }

    fn is_per_identity(&self) -> bool {
        false
    }
}
