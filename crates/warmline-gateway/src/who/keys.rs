//! The keys of whoever signs tokens (JWKS): from a file or a URL, read when they are needed.
//!
//! Asked by: [`jwt`](super::jwt). Keys change while tokens of old and new ones are about: a token
//! that names a key we do not have makes us look again, at most once a minute.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::jwk::{Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use warmline::clock::{self, Instant};

use super::fetching;

/// Keys are looked for again at most so often.
const LOOK_AGAIN_AFTER: Duration = Duration::from_mins(1);
/// Keys that are older are looked for again, so that those that were taken back go.
const OLD_AFTER: Duration = Duration::from_hours(1);
/// A set of keys has no more bytes.
pub(super) const MAX_SET: usize = 1 << 20;
/// A set has no more keys that count.
const MAX_KEYS: usize = 100;

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
    held: Mutex<Held>,
    /// One looks for any number that want to know.
    looking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Held {
    keys: Arc<[Key]>,
    looked_at: Option<Instant>,
}

struct Key {
    name: Option<String>,
    algorithm: Option<String>,
    key: DecodingKey,
}

impl Keys {
    pub(super) fn new(source: KeySource) -> Self {
        Self {
            source,
            held: Mutex::default(),
            looking: tokio::sync::Mutex::default(),
        }
    }

    /// The key of that name for that algorithm.
    pub(super) async fn find(
        &self,
        name: Option<&str>,
        algorithm: Algorithm,
    ) -> Option<DecodingKey> {
        if !self.is_due(OLD_AFTER)
            && let Some(key) = self.held_key(name, algorithm)
        {
            return Some(key);
        }
        let looking = self.looking.lock().await;
        if self.is_due(LOOK_AGAIN_AFTER) {
            self.look().await;
        }
        drop(looking);
        self.held_key(name, algorithm)
    }

    fn is_due(&self, after: Duration) -> bool {
        let looked_at = self.held.lock().looked_at;
        looked_at.is_none_or(|at| clock::now().saturating_duration_since(at) >= after)
    }

    fn held_key(&self, name: Option<&str>, algorithm: Algorithm) -> Option<DecodingKey> {
        let keys = Arc::clone(&self.held.lock().keys);
        let mut fitting = keys.iter().filter(|key| key.fits(name, algorithm));
        let one = fitting.next()?;
        // Without a name it must be clear which one is meant.
        (name.is_some() || fitting.next().is_none()).then(|| one.key.clone())
    }

    /// Looks for keys. Where none are found, those of before still count.
    async fn look(&self) {
        let found = match &self.source {
            KeySource::File(file) => read(file.clone()).await,
            KeySource::Url(url) => fetching::fetch(url, MAX_SET).await,
        };
        let found = found.and_then(|bytes| parse(&bytes));
        let mut held = self.held.lock();
        held.looked_at = Some(clock::now());
        match found {
            Ok(keys) => held.keys = keys,
            Err(why) => {
                let source = &self.source;
                tracing::warn!(?source, %why, "keys of signed tokens were not found");
            },
        }
    }
}

impl Key {
    fn of(jwk: &Jwk) -> Option<Self> {
        let use_ = jwk.common.public_key_use.as_ref();
        if use_.is_some_and(|meant| *meant != PublicKeyUse::Signature) {
            return None;
        }
        let key = DecodingKey::from_jwk(jwk).ok()?;
        // A shared secret in a public set is everybody's.
        if key.family() == AlgorithmFamily::Hmac {
            return None;
        }
        Some(Self {
            name: jwk.common.key_id.clone(),
            algorithm: jwk.common.key_algorithm.map(|known| known.to_string()),
            key,
        })
    }

    fn fits(&self, name: Option<&str>, algorithm: Algorithm) -> bool {
        let is_meant = name.is_none() || self.name.as_deref() == name;
        let stated = self.algorithm.as_deref();
        is_meant
            && self.key.family() == algorithm.family()
            && stated.is_none_or(|stated| stated == format!("{algorithm:?}"))
    }
}

/// A set as it is written, of keys of any kind.
#[derive(Deserialize)]
struct Set {
    keys: Vec<Value>,
}

fn parse(bytes: &[u8]) -> Result<Arc<[Key]>, String> {
    let set: Set = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    // A key that we cannot read hides none that we can.
    let keys: Arc<[Key]> = set
        .keys
        .into_iter()
        .filter_map(|key| Key::of(&serde_json::from_value(key).ok()?))
        .take(MAX_KEYS)
        .collect();
    if keys.is_empty() {
        return Err("it holds no key that can be used".to_owned());
    }
    Ok(keys)
}

async fn read(file: PathBuf) -> Result<Vec<u8>, String> {
    let reading = clock::spawn_blocking("keys", move || {
        use std::io::Read as _;
        let file = std::fs::File::open(file)?;
        let mut bytes = Vec::new();
        let most = u64::try_from(MAX_SET).unwrap_or(u64::MAX);
        file.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    match reading.await {
        Ok(read) => read.map_err(|error: std::io::Error| error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}
