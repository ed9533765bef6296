//! Who is calling: from what a request shows to an identity.
//!
//! Asked by: [`door`](crate::door), once per request, before its body is read. A session id is
//! never a proof; whatever a client sends to be let in goes no further than here.

mod fetching;
mod jwt;
mod keys;
mod proxies;
mod tokens;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::request::Parts;
use serde_json::Value;
use warmline::core::key::Digest;
use warmline::identity::IdentityName;
use warmline::{IdentityHandle, Warmline, clock};

pub use self::jwt::{Algorithm, Jwt};
pub use self::keys::KeySource;
pub use self::proxies::{Network, TrustedProxies};
pub use self::tokens::{Token, TokenSource};

use self::jwt::Verifier;
use self::tokens::{Kept, Table};
use crate::failure::Candour;
use crate::ticket::Ticket;

/// Whom the token of this machine stands for, and whoever comes by a socket of their own machine.
pub const LOCAL: &str = "local";

/// How somebody shows who they are.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Auth {
    /// Nobody is asked. Callers share nothing but a run that they name.
    #[default]
    None,
    /// In any of these ways, tried in order.
    AnyOf(Vec<Way>),
}

impl Auth {
    /// By one of these tokens.
    pub fn tokens(tokens: Vec<Token>) -> Self {
        Self::AnyOf(vec![Way::Tokens(tokens)])
    }
}

/// A way to show who one is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Way {
    /// Bearer tokens, each with the identity that it stands for.
    Tokens(Vec<Token>),
    /// Bearer tokens that are kept somewhere, and may be taken away at any time.
    Kept(TokenSource),
    /// Tokens that somebody else signed.
    Jwt(Jwt),
    /// A header of a proxy that authenticates for us.
    Proxies(TrustedProxies),
}

/// Where a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Over the network.
    Address(IpAddr),
    /// By a socket of this machine, whose other end belongs to our own user.
    SameUser,
}

impl Peer {
    /// The address, for the log; nothing of our own user.
    pub(crate) fn shown(self) -> Option<String> {
        match self {
            Self::Address(address) => Some(address.to_string()),
            Self::SameUser => None,
        }
    }
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
        Self::Known(Arc::new(Known::named(warm, LOCAL, Shown::Nothing)))
    }

    /// How long what they showed still counts; none where that has no end.
    pub(crate) fn left(&self) -> Option<Duration> {
        let end = match self {
            Self::Known(known) => known.expires_at?,
            Self::Anybody => return None,
        };
        Some(Duration::from_secs(
            end.saturating_sub(clock::wall_seconds()),
        ))
    }

    /// How much they are told of what goes on behind the gateway: all of it is for our own user,
    /// who came by a way that nobody else has, or with the token of this machine.
    pub(crate) fn candour(&self) -> Candour {
        match self {
            Self::Known(known) if known.is_our_user() => Candour::Full,
            Self::Known(_) | Self::Anybody => Candour::Reserved,
        }
    }

    /// Whose share of the door's room they take; none where nobody is asked who they are.
    pub(crate) fn whose(&self) -> Option<Digest> {
        match self {
            Self::Known(known) => Some(known.identity.digest()),
            Self::Anybody => None,
        }
    }

    /// The name that stands in the audit.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Known(known) => &known.name,
            Self::Anybody => "anybody",
        }
    }
}

/// Somebody who showed who they are.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) identity: IdentityHandle,
    /// What they are called: never what they showed.
    pub(crate) name: String,
    /// What a signed token says of them.
    pub(crate) claims: Option<Value>,
    /// When it stops to count, in seconds of the Unix epoch.
    expires_at: Option<u64>,
    shown: Shown,
}

/// What somebody showed, as far as one has to know it to see whether it still counts.
#[derive(Clone, Debug)]
enum Shown {
    /// Nothing: they came by a way that only our own user has.
    Nothing,
    /// A token of ours, by its digest.
    Token(Digest),
    /// A token that was found good by the key with this mark.
    Signed(Arc<Mark>),
    /// A name that a proxy at this address gave.
    ByProxy(IpAddr),
}

/// Tells one key of one verifier from all others.
#[derive(Debug, Default)]
struct Mark(());

impl Known {
    /// Somebody by their name alone.
    fn named(warm: &Warmline, name: &str, shown: Shown) -> Self {
        Self {
            identity: warm.identity(name),
            name: name.to_owned(),
            claims: None,
            expires_at: None,
            shown,
        }
    }

    #[cfg(test)]
    pub(crate) fn for_tests(warm: &Warmline, name: &str, claims: Option<Value>) -> Self {
        Self {
            claims,
            ..Self::named(warm, name, Shown::Nothing)
        }
    }

    fn is_our_user(&self) -> bool {
        match self.shown {
            Shown::Nothing => true,
            Shown::Token(_) => self.name == LOCAL,
            Shown::Signed(_) | Shown::ByProxy(_) => false,
        }
    }

    fn counts(&self) -> bool {
        self.expires_at
            .is_none_or(|end| clock::wall_seconds() < end)
    }
}

/// Why somebody was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnedAway {
    /// Nothing says who it is.
    Missing,
    /// What was shown is not known here, or not any more.
    Unknown,
}

/// The rules by which somebody is let in.
pub(crate) struct Doorman {
    warm: Warmline,
    ways: Ways,
    same_user: Arc<Known>,
}

/// Every way in, with what is remembered of each.
enum Ways {
    Open,
    AnyOf(Vec<Ready>),
}

/// A way that is ready to be asked.
enum Ready {
    Tokens(Table),
    Kept(Kept),
    Jwt(Arc<Verifier>),
    Proxies(TrustedProxies),
}

impl fmt::Debug for Doorman {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Doorman").finish_non_exhaustive()
    }
}

impl Doorman {
    /// One that goes by these rules. Signed tokens that were found good stay known where the same
    /// is asked of them as `before`.
    pub(crate) fn new(auth: Auth, warm: Warmline, before: Option<&Self>) -> Self {
        let same_user = Known::named(&warm, LOCAL, Shown::Nothing);
        Self {
            ways: Ways::of(auth, &warm, before.map(|before| &before.ways)),
            same_user: Arc::new(same_user),
            warm,
        }
    }

    /// Whether a token could let anybody in: where a proxy says who callers are, none does.
    pub(crate) fn takes_tokens(&self) -> bool {
        match &self.ways {
            Ways::Open => false,
            Ways::AnyOf(ways) => ways.iter().any(|way| !matches!(way, Ready::Proxies(_))),
        }
    }

    /// Whether tokens or keys were made or taken away since this was last asked.
    pub(crate) fn has_changed(&self) -> bool {
        // Each is asked, so that none tells of the same change later.
        let mut has_changed = false;
        for way in self.ways.all() {
            has_changed |= match way {
                Ready::Kept(kept) => kept.has_changed(),
                Ready::Jwt(verifier) => verifier.has_changed(),
                Ready::Tokens(_) | Ready::Proxies(_) => false,
            };
        }
        has_changed
    }

    /// Keys that others publish are looked for before any counts again.
    pub(crate) fn doubt_keys(&self) {
        for way in self.ways.all() {
            if let Ready::Jwt(verifier) = way {
                verifier.doubt_keys();
            }
        }
    }

    /// Whether somebody who was let in would be still.
    pub(crate) fn still_lets_in(&self, subject: &Subject) -> bool {
        let known = match (subject, &self.ways) {
            (Subject::Anybody, Ways::Open) => return true,
            (Subject::Anybody, Ways::AnyOf(_)) => return false,
            (Subject::Known(known), _) => known,
        };
        let counts = |found: &Known| found.counts() && found.name == known.name;
        let lets_in = |way: &Ready| match (&known.shown, way) {
            (Shown::Token(digest), Ready::Tokens(table)) => {
                table.find(digest).is_some_and(|found| counts(found))
            },
            (Shown::Token(digest), Ready::Kept(kept)) => {
                let found = kept.find(digest, &self.warm);
                found.is_some_and(|found| counts(&found))
            },
            (Shown::Signed(mark), Ready::Jwt(verifier)) => verifier.holds(mark),
            (Shown::ByProxy(address), Ready::Proxies(proxies)) => proxies.is_one(*address),
            _ => false,
        };
        let by_nothing = matches!(known.shown, Shown::Nothing);
        known.counts() && (by_nothing || self.ways.all().iter().any(lets_in))
    }

    /// Who it is that sends this. `effort` says whether what is not known yet may be looked at
    /// closely: signatures take time, and somebody who guesses at them shall not have it.
    pub(crate) async fn identify(
        &self,
        head: &Parts,
        peer: Peer,
        effort: Effort,
    ) -> Result<Subject, TurnedAway> {
        let address = match peer {
            Peer::SameUser => return Ok(Subject::Known(Arc::clone(&self.same_user))),
            Peer::Address(address) => address,
        };
        let ways = match &self.ways {
            Ways::Open => return Ok(Subject::Anybody),
            Ways::AnyOf(ways) => ways,
        };
        if let Some(name) = named_by_proxy(ways, head, address) {
            let known = Known::named(&self.warm, name, Shown::ByProxy(address));
            return Ok(Subject::Known(Arc::new(known)));
        }
        let shown = bearer(head).ok_or(TurnedAway::Missing)?;
        let digest = tokens::digest(self.warm.vault(), shown);
        for way in ways {
            let found = match way {
                Ready::Tokens(table) => table.find(&digest).cloned(),
                Ready::Kept(kept) => kept.find(&digest, &self.warm),
                Ready::Jwt(verifier) => verifier.find(digest, shown, &self.warm, effort).await,
                Ready::Proxies(_) => None,
            };
            if let Some(known) = found {
                let counts = known.counts();
                return counts
                    .then_some(Subject::Known(known))
                    .ok_or(TurnedAway::Unknown);
            }
        }
        Err(TurnedAway::Unknown)
    }
}

/// How closely something that is not known yet is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Keys that are not known are looked for.
    Full,
    /// Nothing is looked for. Signatures are checked all the same: behind one address there may be
    /// many, and a new token of somebody must not be refused for the guesses of another.
    Little,
}

impl Ways {
    fn of(auth: Auth, warm: &Warmline, before: Option<&Self>) -> Self {
        let before = before.map(Self::all).unwrap_or_default();
        let ways = match auth {
            Auth::None => return Self::Open,
            Auth::AnyOf(ways) => ways,
        };
        let ready = ways.into_iter().map(|way| match way {
            Way::Tokens(tokens) => Ready::Tokens(Table::of(&tokens, warm)),
            Way::Kept(source) => Ready::Kept(Kept::new(source)),
            Way::Jwt(jwt) => Ready::Jwt(verifier(jwt, before)),
            Way::Proxies(proxies) => Ready::Proxies(proxies),
        });
        Self::AnyOf(ready.collect())
    }

    fn all(&self) -> &[Ready] {
        match self {
            Self::Open => &[],
            Self::AnyOf(all) => all,
        }
    }
}

/// The verifier that asks for this: one of before, with all it knows, or a new one.
fn verifier(jwt: Jwt, before: &[Ready]) -> Arc<Verifier> {
    let same = before.iter().find_map(|way| match way {
        Ready::Jwt(verifier) if verifier.asks_for(&jwt) => Some(Arc::clone(verifier)),
        Ready::Jwt(_) | Ready::Tokens(_) | Ready::Kept(_) | Ready::Proxies(_) => None,
    });
    same.unwrap_or_else(|| Arc::new(Verifier::new(jwt)))
}

fn named_by_proxy<'a>(ways: &[Ready], head: &'a Parts, from: IpAddr) -> Option<&'a str> {
    ways.iter().find_map(|way| match way {
        Ready::Proxies(proxies) => proxies.named(head, from),
        Ready::Tokens(_) | Ready::Kept(_) | Ready::Jwt(_) => None,
    })
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
            return warm.identity_by(IdentityName::for_one_call());
        },
    };
    warm.identity(&name)
}
