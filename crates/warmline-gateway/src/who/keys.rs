//! The keys of whoever signs tokens (JWKS): from a file or a URL, read when they are needed.
//!
//! Asked by: [`jwt`](super::jwt), at every request that shows a signed token. Keys change while
//! tokens of old and new ones are about. A file is read again when it looks otherwise than before;
//! a URL is asked again when no key we have fits a token, at most once a minute, and once an hour.
//! Both are, when the configuration was read again.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Notify;
use warmline::clock::{self, Instant};
use warmline::private;

use super::{Mark, fetching};
use crate::look::Look;

/// Keys are looked for again at most so often.
const LOOK_AGAIN_AFTER: Duration = Duration::from_mins(1);
/// Keys of a URL that are older are looked for again, so that those that were taken back go.
const OLD_AFTER: Duration = Duration::from_hours(1);
/// So old they are looked for by somebody whom nobody waits for.
const GROWING_OLD_AFTER: Duration = Duration::from_mins(55);
/// Nobody whose key is known waits longer for others.
const A_MOMENT: Duration = Duration::from_secs(1);
/// A file may take so long: its disk may be elsewhere, and not answer.
const READ_WITHIN: Duration = Duration::from_secs(10);
/// A set of keys has no more bytes.
pub(super) const MAX_SET: usize = 1 << 20;
/// A set of no keys.
const NONE: &[u8] = b"{\"keys\":[]}";
/// A set has no more keys that count.
const MAX_KEYS: usize = 100;
/// No more of them are tried with one token: guesses cost no more than that.
const MAX_TRIED: usize = 8;

/// Where keys are found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeySource {
    /// In a file.
    File(PathBuf),
    /// At a URL: `https`, or `http` of this machine.
    Url(String),
}

/// Keys of one source, as they were found last.
pub(super) struct Keys {
    source: KeySource,
    held: ArcSwap<Held>,
    /// How often somebody wanted them to be looked for before any counts again.
    doubts: AtomicU64,
    /// The change that was told of last.
    told: AtomicU64,
    /// One looks for any number that want to know.
    looking: tokio::sync::Mutex<()>,
    /// When somebody began to look for whom nobody has to wait.
    began: Mutex<Option<Instant>>,
    /// Tells that somebody has looked.
    looked: Notify,
}

/// What was found.
#[derive(Clone, Default)]
struct Held {
    keys: Vec<Arc<Key>>,
    /// How often other keys were found than before.
    changes: u64,
    /// How often they had been doubted.
    doubts: u64,
    looked_at: Option<Instant>,
    found_at: Option<Instant>,
    /// What the file looked like before it was read, if a change would have been seen since.
    look: Option<Look>,
    /// Why none were found last, told once.
    why: Option<String>,
}

/// A key that signs tokens.
pub(super) struct Key {
    /// As it is published.
    said: Value,
    name: Option<String>,
    algorithm: Option<String>,
    /// Of an elliptic key: it signs by the algorithm of this curve alone.
    curve: Option<EllipticCurve>,
    pub(super) key: DecodingKey,
    /// Stays the same as long as the key stands in the set.
    pub(super) mark: Arc<Mark>,
}

impl Keys {
    pub(super) fn new(source: KeySource) -> Self {
        Self {
            source,
            held: ArcSwap::default(),
            doubts: AtomicU64::default(),
            told: AtomicU64::default(),
            looking: tokio::sync::Mutex::default(),
            began: Mutex::default(),
            looked: Notify::new(),
        }
    }

    /// The key of that name for that algorithm that fits what is `tried` with it, and what came of
    /// it. Others are looked for if none has that name, or if none that is known fits: who names
    /// no key may mean one that is new.
    pub(super) async fn find<T>(
        &self,
        name: Option<&str>,
        algorithm: Algorithm,
        tried: impl Fn(&Key) -> Option<T>,
    ) -> Option<(Arc<Key>, T)> {
        let held = self.held.load_full();
        let found = held.try_each(name, algorithm, &tried);
        let is_meant = name.is_some() && held.meant(name, algorithm).next().is_some();
        if found.is_some() || is_meant {
            return found;
        }
        self.look_unless(|| self.are_of_a_file() || !self.is_due(LOOK_AGAIN_AFTER))
            .await;
        let now = self.held.load_full();
        if now.changes == held.changes {
            return None;
        }
        now.try_each(name, algorithm, &tried)
    }

    /// The same among those that are known already.
    pub(super) fn known<T>(
        &self,
        name: Option<&str>,
        algorithm: Algorithm,
        tried: impl Fn(&Key) -> Option<T>,
    ) -> Option<(Arc<Key>, T)> {
        self.held.load().try_each(name, algorithm, &tried)
    }

    /// Whether they stand in a file, which is read as soon as it changed, whoever asks.
    pub(super) const fn are_of_a_file(&self) -> bool {
        matches!(self.source, KeySource::File(_))
    }

    /// Whether a token may count that the key with this mark signed.
    pub(super) fn holds(&self, mark: &Arc<Mark>) -> bool {
        let held = self.held.load();
        held.keys.iter().any(|key| Arc::ptr_eq(&key.mark, mark))
    }

    /// Whether those that are held are known to count: a file looks as it did when it was read,
    /// and a URL was asked lately.
    pub(super) fn are_fresh(&self) -> bool {
        let held = self.held.load();
        if self.doubts.load(Ordering::Acquire) != held.doubts {
            return false;
        }
        match &self.source {
            KeySource::File(file) => {
                held.looked_at.is_some() && held.look == Some(Look::at_one(file))
            },
            KeySource::Url(_) => !self.is_due(OLD_AFTER),
        }
    }

    /// Looks for keys, if those that are held may not be the ones that count.
    pub(super) async fn renew(&self) {
        self.look_unless(|| self.are_fresh()).await;
    }

    /// Whether there are keys that count until others are found.
    pub(super) fn are_known(&self) -> bool {
        !self.held.load().keys.is_empty()
    }

    /// Waits until somebody has looked, but not beyond a moment after they began: those that are
    /// known count until others are found, and a URL may hang.
    pub(super) async fn wait_a_moment(&self) {
        let Some(began) = *self.began.lock() else {
            return;
        };
        let looked = self.looked.notified();
        if !self.are_fresh() {
            // Whether it came or not, what is known now counts.
            clock::timeout_at(began + A_MOMENT, looked).await.ok();
        }
    }

    /// They are looked for before any counts again, unless that takes longer than a moment.
    pub(super) fn doubt(&self) {
        self.doubts.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether other keys count since this was last asked.
    pub(super) fn have_changed(&self) -> bool {
        let changes = self.held.load().changes;
        self.told.swap(changes, Ordering::AcqRel) != changes
    }

    /// Whether they should be looked for before anybody has to wait for them, and nobody does yet:
    /// whoever asks begins to. A file is looked at; keys of a URL are wanted when they grow old.
    pub(super) fn want_a_look(&self) -> bool {
        let has_looked = self.held.load().looked_at.is_some();
        let wants = has_looked && !self.will_do() && self.looking.try_lock().is_ok();
        if wants {
            *self.began.lock() = Some(clock::now());
        }
        wants
    }

    /// Looks for them, if that is still wanted.
    pub(super) async fn look_ahead(&self) {
        self.look_unless(|| self.will_do()).await;
    }

    /// Whether they are known to count, and will for a while.
    fn will_do(&self) -> bool {
        let found_at = self.held.load().found_at;
        let found_at = found_at.filter(|_| !self.are_of_a_file());
        let is_growing_old = found_at.is_some_and(|at| since(at) >= GROWING_OLD_AFTER)
            && self.is_due(LOOK_AGAIN_AFTER);
        self.are_fresh() && !is_growing_old
    }

    fn is_due(&self, after: Duration) -> bool {
        let looked_at = self.held.load().looked_at;
        looked_at.is_none_or(|at| since(at) >= after)
    }

    async fn look_unless(&self, is_fine: impl Fn() -> bool) {
        if is_fine() {
            return;
        }
        let looking = self.looking.lock().await;
        if !is_fine() {
            self.look().await;
        }
        drop(looking);
    }

    /// Looks for keys. Where they cannot be read, those of before still count; where it is said
    /// that there are none, none does.
    async fn look(&self) {
        // What is doubted from here on is looked for again.
        let doubts = self.doubts.load(Ordering::Acquire);
        let before = self.held.load_full();
        let (look, found) = match &self.source {
            KeySource::File(file) => {
                // The look is older than what is read: a change in between shows later.
                let look = Look::at_one(file);
                (look.is_settled().then_some(look), read(file.clone()).await)
            },
            KeySource::Url(url) => (None, fetching::fetch(url, MAX_SET).await),
        };
        let now = clock::now();
        let mut held = Held {
            doubts,
            looked_at: Some(now),
            look,
            why: None,
            ..(*before).clone()
        };
        match found.and_then(|bytes| parse(&bytes, &before.keys)) {
            Ok(keys) => {
                held.why = keys.is_empty().then(|| "there is none in it".to_owned());
                let is_same = |(one, other): (&Arc<Key>, &Arc<Key>)| Arc::ptr_eq(one, other);
                let are_same =
                    keys.len() == before.keys.len() && keys.iter().zip(&before.keys).all(is_same);
                held.changes += u64::from(!are_same);
                held.keys = keys;
                held.found_at = Some(now);
            },
            Err(why) => held.why = Some(why),
        }
        if let Some(why) = held.why.as_ref().filter(|_| held.why != before.why) {
            let source = &self.source;
            tracing::warn!(?source, %why, "keys of signed tokens were not found");
        }
        self.held.store(Arc::new(held));
        self.looked.notify_waiters();
    }
}

impl Held {
    /// Keys that may be meant. A name is only a hint, and optional (RFC 7515, 4.1.4): without one
    /// every key of that algorithm may be, and while keys are changed there are two of them.
    fn meant(&self, name: Option<&str>, algorithm: Algorithm) -> impl Iterator<Item = &Arc<Key>> {
        let all = self.keys.iter();
        all.filter(move |key| key.fits(name, algorithm))
            .take(MAX_TRIED)
    }

    fn try_each<T>(
        &self,
        name: Option<&str>,
        algorithm: Algorithm,
        tried: &impl Fn(&Key) -> Option<T>,
    ) -> Option<(Arc<Key>, T)> {
        let mut meant = self.meant(name, algorithm);
        meant.find_map(|key| tried(key).map(|fitting| (Arc::clone(key), fitting)))
    }
}

fn since(at: Instant) -> Duration {
    clock::now().saturating_duration_since(at)
}

impl Key {
    fn of(said: Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(said.clone()).ok()?;
        let use_ = jwk.common.public_key_use.as_ref();
        if use_.is_some_and(|meant| *meant != PublicKeyUse::Signature) {
            return None;
        }
        let key = DecodingKey::from_jwk(&jwk).ok()?;
        // A shared secret in a public set is everybody's.
        if key.family() == AlgorithmFamily::Hmac {
            return None;
        }
        Some(Self {
            said,
            curve: curve_of(&jwk.algorithm),
            name: jwk.common.key_id,
            algorithm: jwk.common.key_algorithm.map(|known| known.to_string()),
            key,
            mark: Arc::default(),
        })
    }

    fn fits(&self, name: Option<&str>, algorithm: Algorithm) -> bool {
        let is_meant = name.is_none() || self.name.as_deref() == name;
        let stated = self.algorithm.as_deref();
        is_meant
            && self.key.family() == algorithm.family()
            && self
                .curve
                .as_ref()
                .is_none_or(|curve| *curve == curve_for(algorithm))
            && stated.is_none_or(|stated| stated == format!("{algorithm:?}"))
    }
}

/// The curve of an elliptic key.
fn curve_of(said: &AlgorithmParameters) -> Option<EllipticCurve> {
    if let AlgorithmParameters::EllipticCurve(key) = said {
        Some(key.curve.clone())
    } else if let AlgorithmParameters::OctetKeyPair(key) = said {
        Some(key.curve.clone())
    } else {
        None
    }
}

/// The curve that an algorithm of elliptic keys is about.
fn curve_for(algorithm: Algorithm) -> EllipticCurve {
    if algorithm == Algorithm::ES384 {
        EllipticCurve::P384
    } else if algorithm == Algorithm::EdDSA {
        EllipticCurve::Ed25519
    } else {
        EllipticCurve::P256
    }
}

/// A set as it is written, of keys of any kind.
#[derive(Deserialize)]
struct Set {
    keys: Vec<Value>,
}

/// The keys of a set; those that stood there `before` are the same ones.
fn parse(bytes: &[u8], before: &[Arc<Key>]) -> Result<Vec<Arc<Key>>, String> {
    let set: Set = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let key = |said: Value| {
        let same = before.iter().find(|key| key.said == said);
        let same = same.map(Arc::clone);
        same.or_else(|| Key::of(said).map(Arc::new))
    };
    // A key that we cannot read hides none that we can.
    Ok(set
        .keys
        .into_iter()
        .filter_map(key)
        .take(MAX_KEYS)
        .collect())
}

async fn read(file: PathBuf) -> Result<Vec<u8>, String> {
    let reading = clock::spawn_blocking("keys", move || {
        let most = u64::try_from(MAX_SET).unwrap_or(u64::MAX);
        match private::read_named(&file, most) {
            // Who took the file away took its keys away.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(NONE.to_vec()),
            read => read,
        }
    });
    match clock::timeout(READ_WITHIN, reading).await {
        Ok(Ok(read)) => read.map_err(|error| error.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("it did not come in time".to_owned()),
    }
}
