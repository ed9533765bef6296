use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::credentials::{Credential, CredentialSource, RefreshOutcome};
use warmline_platform::clock;
use warmline_platform::lock::Mutex;
use warmline_store::keyring::Keyring;

/// A register in which the place of a server can be changed.
#[derive(Debug, Default)]
struct Register {
    place: Mutex<Option<&'static str>>,
    asked: AtomicU64,
    gives: Gives,
}

/// What it gives with the place.
#[derive(Debug, Default, PartialEq, Eq)]
enum Gives {
    /// `token-1`, `token-2` and so on.
    #[default]
    Token,
    NoToken,
    NoAnswer,
}

impl ServerResolver for Register {
    fn resolve<'a>(
        &'a self,
        card: &'a ServerDescriptor,
    ) -> BoxFuture<'a, Result<ResolvedServer, Diagnostic>> {
        let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        Box::pin(async move {
            tokio::task::yield_now().await;
            let place = *self.place.lock();
            let token = HeaderValue::try_from(format!("Bearer token-{number}")).unwrap();
            match place {
                _ if self.gives == Gives::NoAnswer => std::future::pending().await,
                Some(place) if self.gives == Gives::NoToken => ResolvedServer::from_url(place),
                Some(place) => Ok(ResolvedServer::from_url(place)?.header(AUTHORIZATION, token)),
                None => Err(resolve_failed(format!("`{}` is not registered", card.name))),
            }
        })
    }
}

impl Register {
    fn at(place: &'static str) -> Arc<Self> {
        Arc::new(Self {
            place: Mutex::new(Some(place)),
            ..Self::default()
        })
    }

    fn lookup(self: &Arc<Self>) -> ServerLookup {
        let resolver: Arc<dyn ServerResolver> = Arc::<Self>::clone(self);
        ServerLookup::new(resolver, ServerDescriptor::new("late"))
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }
}

fn credential(register: &Arc<Register>) -> Credential {
    let source = CredentialSource::from_resolver(register.lookup());
    Credential::new(source, "late", None, &Keyring::ephemeral().unwrap())
}

/// A25: a failure reaches all who wait, and the next call asks again.
#[tokio::test]
async fn a_resolver_that_failed_is_asked_again_by_the_next_call() {
    let register = Arc::new(Register::default());
    let lookup = register.lookup();
    let callers = (0..100).map(|_| lookup.resolve());
    for resolved in futures_util::future::join_all(callers).await {
        let diagnostic = resolved.unwrap_err();
        assert_eq!(diagnostic.code, Code::ResolveFailed);
        assert_eq!(diagnostic.message, "`late` is not registered");
    }
    assert_eq!(register.asked(), 1);
    *register.place.lock() = Some("http://127.0.0.1/mcp");
    assert!(lookup.resolve().await.is_ok());
    assert_eq!(register.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_resolver_that_hangs_is_cut_off() {
    let register = Arc::new(Register {
        gives: Gives::NoAnswer,
        ..Register::default()
    });
    let began = clock::now();
    let diagnostic = register.lookup().resolve().await.unwrap_err();
    assert_eq!(clock::now() - began, RESOLVE_TIMEOUT);
    assert_eq!(diagnostic.code, Code::ResolveFailed);
    assert_eq!(
        diagnostic.message,
        "the resolver of `late` gave no answer in 10s"
    );
}

/// A119: after a refusal the resolver gives another token, asked once for all who were refused.
#[tokio::test]
async fn after_a_refusal_the_resolver_is_asked_for_another_token_once() {
    let register = Register::at("https://one.example/mcp");
    let credential = credential(&register);
    credential.ensure_ready().await.unwrap();
    let token = |number: u64| {
        let (_, value) = credential.header().unwrap();
        assert_eq!(value, format!("Bearer token-{number}"));
    };
    token(1);
    let seen = credential.epoch();
    let callers = (0..100).map(|_| credential.refresh(seen));
    for refreshed in futures_util::future::join_all(callers).await {
        assert_eq!(refreshed.unwrap(), RefreshOutcome::NewToken);
    }
    token(2);
    assert_eq!(register.asked(), 2);
}

/// A token that is meant for another place is not sent to this one.
#[tokio::test]
async fn a_token_for_another_place_is_not_taken() {
    let register = Register::at("https://one.example/mcp");
    let credential = credential(&register);
    credential.ensure_ready().await.unwrap();
    *register.place.lock() = Some("https://two.example/mcp");
    let diagnostic = credential.refresh(credential.epoch()).await.unwrap_err();
    assert_eq!(diagnostic.code, Code::ResolveFailed);
    let (_, value) = credential.header().unwrap();
    assert_eq!(value, "Bearer token-1");
}

/// A178: a resolver that gives no token, no header.
#[tokio::test]
async fn a_resolver_without_a_token_sends_none() {
    let register = Arc::new(Register {
        place: Mutex::new(Some("https://one.example/mcp")),
        gives: Gives::NoToken,
        ..Register::default()
    });
    let credential = credential(&register);
    credential.ensure_ready().await.unwrap();
    assert_eq!(credential.header(), None);
}

#[test]
fn what_is_no_url_of_a_server_is_refused() {
    for url in ["", "canary", "ftp://canary/", "unix:/canary", "https://"] {
        let diagnostic = ResolvedServer::from_url(url).unwrap_err();
        assert_eq!(diagnostic.code, Code::ResolveFailed, "{url}");
        assert!(
            !format!("{diagnostic:?}").contains("canary"),
            "{diagnostic:?}"
        );
    }
}

/// A66: neither the headers nor the path of what was resolved are printed.
#[test]
fn what_was_resolved_is_not_printed() {
    let secret = HeaderValue::from_static("canary");
    let resolved = ResolvedServer::from_url("https://user:canary@one.example/canary?t=canary")
        .unwrap()
        .header(AUTHORIZATION, secret);
    let text = format!("{resolved:?} {resolved:#?} {:?}", resolved.headers());
    assert!(!text.contains("canary"), "{text}");
}
