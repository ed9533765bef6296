use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::HeaderMap;
use warmline_core::error::code::Code;

use super::*;
use crate::credentials::{BoxFuture, CredentialHeader, CredentialProvider, Secret};
use warmline_platform::lock::Mutex;

mod renewing;
mod sources;

/// One instance for all tests, so that ids can be compared.
fn vault() -> &'static Keyring {
    static VAULT: std::sync::LazyLock<Keyring> =
        std::sync::LazyLock::new(|| Keyring::ephemeral().unwrap());
    &VAULT
}

fn credential_of(name: &str, source: &CredentialSource) -> Credential {
    let name = IdentityName::named(name);
    Credential::new(source.clone(), "github", Some(&name), vault())
}

fn credential(source: &CredentialSource) -> Credential {
    credential_of("alice", source)
}

fn bearer(secret: Secret) -> Credential {
    credential(&CredentialSource::bearer(secret))
}

/// What a server would be shown now.
fn shown(credential: &Credential) -> Option<String> {
    let (_, value) = credential.header()?;
    assert!(value.is_sensitive());
    Some(value.to_str().unwrap().to_owned())
}

/// Answers in order, the last for ever; counts how often it is asked.
#[derive(Debug, Default)]
struct Scripted {
    answers: Mutex<VecDeque<SourceReply>>,
    asked: AtomicU64,
    refreshes: AtomicU64,
}

#[derive(Clone, Debug)]
enum SourceReply {
    Token(&'static str),
    Lasting(&'static str, u64),
    Fails(&'static str),
    Hangs,
}

impl Scripted {
    fn new(steps: impl IntoIterator<Item = SourceReply>) -> Arc<Self> {
        let answers = Mutex::new(steps.into_iter().collect());
        Arc::new(Self {
            answers,
            ..Self::default()
        })
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }

    fn next(&self) -> SourceReply {
        let mut answers = self.answers.lock();
        match answers.len() {
            0 => SourceReply::Hangs,
            1 => answers[0].clone(),
            _ => answers.pop_front().unwrap(),
        }
    }
}

impl CredentialProvider for Scripted {
    fn fetch<'a>(&'a self, asked: TokenRequest<'a>) -> BoxFuture<'a, Result<Token, Diagnostic>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.refreshes
            .fetch_add(u64::from(asked.refresh), Ordering::SeqCst);
        let step = self.next();
        Box::pin(async move {
            tokio::task::yield_now().await;
            match step {
                SourceReply::Token(value) => Ok(Token::new(value)),
                SourceReply::Lasting(value, seconds) => {
                    Ok(Token::new(value).expires_in(Duration::from_secs(seconds)))
                },
                SourceReply::Fails(what) => Err(credential_unavailable(what)),
                SourceReply::Hangs => std::future::pending().await,
            }
        })
    }

    fn label(&self) -> String {
        "scripted".to_owned()
    }
}

fn provided(provider: &Arc<Scripted>) -> Credential {
    let provider: Arc<dyn CredentialProvider> = Arc::<Scripted>::clone(provider);
    credential(&CredentialSource::provider(provider))
}
