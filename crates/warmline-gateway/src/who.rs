//! Who is calling: from what a request shows to an identity.
//!
//! Asked by: [`door`](crate::door), once per request, before its body is read. A session id is
//! never a proof; whatever a client sends to be let in goes no further than here.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::header::AUTHORIZATION;
use http::request::Parts;
use papaya::HashMap;
use warmline::core::key::Digest;
use warmline::seal::Purpose;
use warmline::{IdentityHandle, Vault, Warmline};

use crate::ticket::Ticket;

/// How somebody shows who they are.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Auth {
    /// Nobody is asked. Callers share nothing but a run that they name.
    #[default]
    None,
    /// Bearer tokens, each with the identity that it stands for.
    Tokens(Vec<Token>),
}

/// A bearer token, known by its digest.
#[derive(Clone, Debug)]
pub struct Token {
    /// Whom it stands for.
    pub identity: String,
    /// The digest of its text, by the instance's secret.
    pub digest: Digest,
}

impl Token {
    /// The token with this text.
    pub fn of(vault: &Vault, identity: &str, text: &str) -> Self {
        Self {
            identity: identity.to_owned(),
            digest: digest(vault, text),
        }
    }
}

fn digest(vault: &Vault, text: &str) -> Digest {
    vault.digest(Purpose::Token, &[text.as_bytes()])
}

/// Somebody who was let in.
#[derive(Clone, Debug)]
pub(crate) enum Subject {
    /// Somebody known.
    Known(Arc<Known>),
    /// Anybody: what they call is kept apart by the run or the client session they name.
    Anybody,
}

impl Subject {
    /// The user of this machine, who needs to show nothing: a pipe leads to whoever started us.
    pub(crate) fn local(warm: &Warmline) -> Self {
        let identity = warm.identity(crate::tokens::LOCAL);
        Self::Known(Arc::new(Known { identity }))
    }
}

/// Somebody who showed who they are.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) identity: IdentityHandle,
}

/// Why somebody was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnedAway {
    /// Nothing says who it is.
    Missing,
    /// What was shown is not known here.
    Unknown,
}

/// The rules by which somebody is let in.
pub(crate) struct Doorman {
    rules: ArcSwap<Rules>,
    warm: Warmline,
}

/// How callers are let in, and who was: both are replaced together, so that nobody is known by
/// rules that no longer hold.
struct Rules {
    auth: Auth,
    /// Whom a token's text stands for, so that it is digested once.
    known: HashMap<Digest, Arc<Known>>,
}

impl Rules {
    fn new(auth: Auth) -> Self {
        Self {
            auth,
            known: HashMap::new(),
        }
    }
}

impl fmt::Debug for Doorman {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Doorman")
            .field("auth", &self.rules.load().auth)
            .finish_non_exhaustive()
    }
}

impl Doorman {
    pub(crate) fn new(auth: Auth, warm: Warmline) -> Self {
        Self {
            rules: ArcSwap::from_pointee(Rules::new(auth)),
            warm,
        }
    }

    /// Lets callers in by other rules from the next request on.
    pub(crate) fn go_by(&self, auth: Auth) {
        self.rules.store(Arc::new(Rules::new(auth)));
    }

    /// Who it is that sends this.
    pub(crate) fn identify(&self, head: &Parts) -> Result<Subject, TurnedAway> {
        let rules = self.rules.load();
        let tokens = match &rules.auth {
            Auth::None => return Ok(Subject::Anybody),
            Auth::Tokens(tokens) => tokens,
        };
        let shown = bearer(head).ok_or(TurnedAway::Missing)?;
        let digest = digest(self.warm.vault(), shown);
        let known = rules.known.pin();
        if let Some(known) = known.get(&digest) {
            return Ok(Subject::Known(Arc::clone(known)));
        }
        let token = tokens.iter().find(|token| token.digest == digest);
        let token = token.ok_or(TurnedAway::Unknown)?;
        let identity = self.warm.identity(&token.identity);
        let subject = Arc::new(Known { identity });
        known.insert(digest, Arc::clone(&subject));
        Ok(Subject::Known(subject))
    }
}

/// The token of `Authorization: Bearer …`, if there is exactly one.
fn bearer(head: &Parts) -> Option<&str> {
    let mut shown = head.headers.get_all(AUTHORIZATION).iter();
    let one = shown.next()?.to_str().ok()?;
    if shown.next().is_some() {
        return None;
    }
    let (scheme, token) = one.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// What keeps callers apart that nobody knows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Split<'a> {
    /// The run they name.
    Run(&'a str),
    /// The client session they opened.
    Ticket(&'a Ticket),
    /// Nothing: they share nothing.
    Once,
}

/// Whom a request speaks for.
pub(crate) fn identity(warm: &Warmline, subject: &Subject, split: Split<'_>) -> IdentityHandle {
    let name = match (subject, split) {
        (Subject::Known(known), _) => return known.identity.clone(),
        (Subject::Anybody, Split::Run(run)) => format!("anybody/run/{run}"),
        (Subject::Anybody, Split::Ticket(ticket)) => format!("anybody/{}", ticket.run_name()),
        (Subject::Anybody, Split::Once) => {
            let once = Digest::new(warmline::seal::random_bytes());
            format!("anybody/once/{}", once.hex())
        },
    };
    warm.identity(&name)
}
