//! The keys of a token issuer (JWKS), from a file or a URL.
//!
//! An issuer rotates keys while tokens of old and new ones are in use. A file is read again when it
//! changes. A URL is fetched again once an hour, and, at most once a minute, when no key fits a
//! token. A reload of the configuration has both read again.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::{ACCEPT, HOST};
use http::uri::Scheme;
use http::{Request, StatusCode, Uri};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use warmline_platform::clock::{self, Instant};
use warmline_platform::private_file;

use crate::auth::tokens::FileStamps;
use crate::endpoint;
use crate::response::{ReadBodyError, ResponseBody, read_body};

const MIN_REFRESH_INTERVAL: Duration = Duration::from_mins(1);
/// Keys of a URL that are older are fetched again, so that revoked ones go.
const MAX_KEY_AGE: Duration = Duration::from_hours(1);
/// Keys of this age are fetched in the background.
const REFRESH_AHEAD_AGE: Duration = Duration::from_mins(55);
/// How long a token waits for a refresh while older keys are known.
const MAX_REFRESH_WAIT: Duration = Duration::from_secs(1);
/// The disk of a file may be remote.
const FILE_READ_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_JWKS_BYTES: usize = 1 << 20;
const EMPTY_JWKS: &[u8] = b"{\"keys\":[]}";
const MAX_KEYS: usize = 100;
/// How many keys are tried with one token: it bounds the cost of a guess.
const MAX_KEYS_TRIED: usize = 8;

/// Where keys are found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeySource {
    /// A file.
    File(PathBuf),
    /// A URL: `https`, or `http` of this machine.
    Url(String),
}

/// The signature algorithms that may be allowed. None uses a shared secret.
pub const JWT_ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// Whether keys may be fetched to check a signed token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyLookup {
    Fetch,
    /// After too many failures of one address. Signatures are checked with cached keys all the
    /// same: callers may share an address, and the guesses of one must not reject the others.
    CachedOnly,
}

pub(super) struct JwksCache {
    source: KeySource,
    snapshot: ArcSwap<JwksSnapshot>,
    invalidations: AtomicU64,
    reported_changes: AtomicU64,
    /// Held while keys are loaded, for all callers that wait.
    load_lock: Arc<tokio::sync::Mutex<()>>,
    background_load_started_at: Mutex<Option<Instant>>,
}

#[derive(Clone, Default)]
struct JwksSnapshot {
    keys: Vec<Arc<VerificationKey>>,
    changes: u64,
    /// The number of invalidations before the load.
    invalidations: u64,
    checked_at: Option<Instant>,
    /// The last successful load.
    loaded_at: Option<Instant>,
    /// The stamps of the file before it was read, if a later change is certain to change them.
    file_stamps: Option<FileStamps>,
    /// Why the last load failed. Logged once.
    load_error: Option<String>,
}

/// A key that verifies signatures; the same one while it is in the set.
#[derive(Debug)]
pub(super) struct VerificationKey {
    jwk: Jwk,
    algorithms: Vec<Algorithm>,
    pub(super) decoding_key: DecodingKey,
}

impl JwksCache {
    pub(super) fn new(source: KeySource) -> Self {
        Self {
            source,
            snapshot: ArcSwap::default(),
            invalidations: AtomicU64::default(),
            reported_changes: AtomicU64::default(),
            load_lock: Arc::default(),
            background_load_started_at: Mutex::default(),
        }
    }

    /// The first key with this id and algorithm that passes `verify`. Fetches keys if none has the
    /// id, or if none fits a token without an id.
    pub(super) async fn find<T>(
        &self,
        (key_id, algorithm): (Option<&str>, Algorithm),
        lookup: KeyLookup,
        verify: impl Fn(&VerificationKey) -> Option<T>,
    ) -> Option<(Arc<VerificationKey>, T)> {
        let try_keys = |snapshot: &JwksSnapshot| {
            let mut keys = snapshot.candidates(key_id, algorithm);
            keys.find_map(|key| verify(key).map(|verified| (Arc::clone(key), verified)))
        };
        let before = self.snapshot.load_full();
        let found = try_keys(&before);
        let is_known = key_id.is_some() && before.candidates(key_id, algorithm).next().is_some();
        if found.is_some() || is_known || self.is_file() || lookup == KeyLookup::CachedOnly {
            return found;
        }
        self.load_if(|| is_older(self.snapshot.load().checked_at, MIN_REFRESH_INTERVAL))
            .await;
        let now = self.snapshot.load_full();
        if now.changes == before.changes {
            return None;
        }
        try_keys(&now)
    }

    /// Whether keys come from a file, which is cheap to read for any request.
    pub(super) const fn is_file(&self) -> bool {
        matches!(self.source, KeySource::File(_))
    }

    pub(super) fn contains(&self, key: &Arc<VerificationKey>) -> bool {
        let snapshot = self.snapshot.load();
        snapshot.keys.iter().any(|known| Arc::ptr_eq(known, key))
    }

    /// Whether the keys may not count any more.
    pub(super) fn is_stale(&self) -> bool {
        let snapshot = self.snapshot.load();
        let is_changed = match &self.source {
            KeySource::File(file) => {
                snapshot.checked_at.is_none()
                    || snapshot.file_stamps != Some(FileStamps::read([file]))
            },
            KeySource::Url(_) => is_older(snapshot.checked_at, MAX_KEY_AGE),
        };
        is_changed || self.invalidations.load(Ordering::Acquire) != snapshot.invalidations
    }

    /// Whether the keys count, and should be loaded soon.
    fn is_aging(&self) -> bool {
        let snapshot = self.snapshot.load();
        !self.is_file()
            && snapshot.loaded_at.is_some()
            && is_older(snapshot.loaded_at, REFRESH_AHEAD_AGE)
            && is_older(snapshot.checked_at, MIN_REFRESH_INTERVAL)
    }

    /// Loads stale keys. While keys of a URL are known, it waits only a moment: they count until
    /// others are found, and a URL may hang.
    pub(super) async fn refresh(self: &Arc<Self>) {
        if self.is_file() || self.snapshot.load().keys.is_empty() {
            return self.load_if(|| self.is_stale()).await;
        }
        self.refresh_in_background();
        let started_at = *self.background_load_started_at.lock();
        if let Some(started_at) = started_at {
            let loaded = self.load_lock.lock();
            clock::timeout_at(started_at + MAX_REFRESH_WAIT, loaded)
                .await
                .ok();
        }
    }

    /// Has keys loaded before they count again.
    pub(super) fn invalidate(&self) {
        self.invalidations.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether the keys changed since the last call. Loads aging keys in the background.
    pub(super) fn has_changed(self: &Arc<Self>) -> bool {
        self.refresh_in_background();
        let changes = self.snapshot.load().changes;
        self.reported_changes.swap(changes, Ordering::AcqRel) != changes
    }

    /// Loads keys that are aging or stale, unless a load is running or they were never needed.
    fn refresh_in_background(self: &Arc<Self>) {
        let is_used = self.snapshot.load().checked_at.is_some();
        if !is_used || !(self.is_stale() || self.is_aging()) {
            return;
        }
        if let Ok(guard) = Arc::clone(&self.load_lock).try_lock_owned() {
            *self.background_load_started_at.lock() = Some(clock::now());
            let this = Arc::clone(self);
            drop(clock::spawn("jwks-refresh", async move {
                this.load().await;
                drop(guard);
            }));
        }
    }

    async fn load_if(&self, is_due: impl Fn() -> bool) {
        if is_due() {
            let guard = self.load_lock.lock().await;
            if is_due() {
                self.load().await;
            }
            drop(guard);
        }
    }

    /// Loads the keys. If that fails, the old ones still count; an empty set replaces them.
    async fn load(&self) {
        let invalidations = self.invalidations.load(Ordering::Acquire);
        let before = self.snapshot.load_full();
        let (file_stamps, found) = match &self.source {
            KeySource::File(file) => {
                // Taken before the read: a change in between shows later.
                let stamps = FileStamps::read([file]);
                let stamps = stamps.is_settled().then_some(stamps);
                (stamps, read_jwks_file(file.clone()).await)
            },
            KeySource::Url(url) => {
                let fetching = Box::pin(fetch_jwks(url));
                let fetched = clock::timeout(FETCH_TIMEOUT, fetching).await;
                (
                    None,
                    fetched.unwrap_or_else(|_| Err("timed out".to_owned())),
                )
            },
        };
        let now = Some(clock::now());
        let mut snapshot = JwksSnapshot {
            invalidations,
            checked_at: now,
            file_stamps,
            load_error: None,
            ..(*before).clone()
        };
        match found.and_then(|bytes| parse_jwks(&bytes, &before.keys)) {
            Ok(keys) => {
                snapshot.load_error = keys.is_empty().then(|| "it holds no usable key".to_owned());
                let old = before.keys.iter().map(Arc::as_ptr);
                let are_same = keys.iter().map(Arc::as_ptr).eq(old);
                snapshot.changes += u64::from(!are_same);
                snapshot.keys = keys;
                snapshot.loaded_at = now;
            },
            Err(error) => snapshot.load_error = Some(error),
        }
        if let Some(error) = &snapshot.load_error
            && snapshot.load_error != before.load_error
        {
            let source = &self.source;
            tracing::warn!(?source, why = %error, "failed to load the keys of signed tokens");
        }
        self.snapshot.store(Arc::new(snapshot));
    }
}

impl JwksSnapshot {
    /// The keys that may have signed a token. Its key id is a hint, and optional (RFC 7515, 4.1.4).
    fn candidates(
        &self,
        key_id: Option<&str>,
        algorithm: Algorithm,
    ) -> impl Iterator<Item = &Arc<VerificationKey>> {
        let matches = move |key: &&Arc<VerificationKey>| {
            let has_id = key_id.is_none() || key.jwk.common.key_id.as_deref() == key_id;
            has_id && key.algorithms.contains(&algorithm)
        };
        self.keys.iter().filter(matches).take(MAX_KEYS_TRIED)
    }
}

/// Whether `at` is at least this long ago, or never was.
fn is_older(at: Option<Instant>, age: Duration) -> bool {
    at.is_none_or(|at| clock::now().saturating_duration_since(at) >= age)
}

impl VerificationKey {
    /// `None` for a key of another use or kind.
    fn from_jwk(jwk: Jwk) -> Option<Self> {
        let key_use = jwk.common.public_key_use.as_ref();
        if key_use.is_some_and(|key_use| *key_use != PublicKeyUse::Signature) {
            return None;
        }
        let decoding_key = DecodingKey::from_jwk(&jwk).ok()?;
        let stated = jwk.common.key_algorithm.map(|stated| stated.to_string());
        let fits = |algorithm: &Algorithm| {
            algorithm.family() == decoding_key.family()
                && has_curve(&jwk, *algorithm)
                && stated
                    .as_ref()
                    .is_none_or(|stated| *stated == format!("{algorithm:?}"))
        };
        let algorithms: Vec<_> = JWT_ALGORITHMS.into_iter().filter(fits).collect();
        (!algorithms.is_empty()).then(|| Self {
            jwk,
            algorithms,
            decoding_key,
        })
    }
}

/// Whether a key is on the curve of an algorithm, or on none.
fn has_curve(key: &Jwk, algorithm: Algorithm) -> bool {
    let curve = if let AlgorithmParameters::EllipticCurve(key) = &key.algorithm {
        &key.curve
    } else if let AlgorithmParameters::OctetKeyPair(key) = &key.algorithm {
        &key.curve
    } else {
        return true;
    };
    let wanted = if algorithm == Algorithm::ES384 {
        EllipticCurve::P384
    } else if algorithm == Algorithm::EdDSA {
        EllipticCurve::Ed25519
    } else {
        EllipticCurve::P256
    };
    *curve == wanted
}

#[derive(Deserialize)]
struct JwksDocument {
    keys: Vec<Value>,
}

/// The usable keys of a set. Keys that were in it `before` stay the same ones.
fn parse_jwks(
    bytes: &[u8],
    before: &[Arc<VerificationKey>],
) -> Result<Vec<Arc<VerificationKey>>, String> {
    let set: JwksDocument = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let keys = set.keys.into_iter().filter_map(|key| {
        let jwk: Jwk = serde_json::from_value(key).ok()?;
        let same = before.iter().find(|key| key.jwk == jwk).map(Arc::clone);
        same.or_else(|| VerificationKey::from_jwk(jwk).map(Arc::new))
    });
    Ok(keys.take(MAX_KEYS).collect())
}

async fn read_jwks_file(file: PathBuf) -> Result<Bytes, String> {
    let reading = clock::spawn_blocking("keys", move || {
        let limit = u64::try_from(MAX_JWKS_BYTES).unwrap_or(u64::MAX);
        match private_file::read_limited(&file, limit) {
            // Removing the file removes its keys.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(EMPTY_JWKS.to_vec()),
            read => read,
        }
    });
    match clock::timeout(FILE_READ_TIMEOUT, reading).await {
        Ok(Ok(read)) => read.map(Bytes::from).map_err(|error| error.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("timed out".to_owned()),
    }
}

const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// Fetches the keys: no redirects, no proxies, bounded.
async fn fetch_jwks(url: &str) -> Result<Bytes, String> {
    let uri: Uri = url.parse().map_err(error_text)?;
    let host = uri.host().ok_or("the URL has no host")?;
    let host = host.trim_matches(['[', ']']);
    let is_secure = uri.scheme() == Some(&Scheme::HTTPS);
    if !is_secure && !endpoint::is_loopback_name(host) {
        return Err("plain http is allowed on this machine only".to_owned());
    }
    let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
    let socket = TcpStream::connect((host, port)).await.map_err(error_text)?;
    if !is_secure {
        return send_get(socket, &uri).await;
    }
    let name = ServerName::try_from(host.to_owned()).map_err(error_text)?;
    let connector = TlsConnector::from(warmline_upstream::client_config(None).map_err(error_text)?);
    let socket = connector.connect(name, socket).await.map_err(error_text)?;
    send_get(socket, &uri).await
}

async fn send_get(
    socket: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    uri: &Uri,
) -> Result<Bytes, String> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(socket))
        .await
        .map_err(error_text)?;
    let driving = clock::spawn("jwks-connection", connection);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let host = uri.authority().map_or("", |authority| authority.as_str());
    let request = Request::get(path)
        .header(HOST, host)
        .header(ACCEPT, "application/json")
        .body(ResponseBody::Empty)
        .map_err(error_text)?;
    let response = sender.send_request(request).await.map_err(error_text)?;
    let fetched = match response.status() {
        StatusCode::OK => {
            let read = read_body(&mut response.into_body(), MAX_JWKS_BYTES, FETCH_TIMEOUT).await;
            read.map_err(|error| match error {
                ReadBodyError::TooLarge => format!("it is larger than {MAX_JWKS_BYTES} bytes"),
                ReadBodyError::TooSlow | ReadBodyError::Broken => "it is incomplete".to_owned(),
            })
        },
        status => Err(format!("the response has status {status}")),
    };
    driving.abort();
    fetched
}

#[expect(clippy::needless_pass_by_value, reason = "it is given to `map_err`")]
fn error_text(error: impl ToString) -> String {
    error.to_string()
}
