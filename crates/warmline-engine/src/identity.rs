//! Identities of callers. A name has parts, because `("a", "bc")` and `("ab", "c")` are two callers:
//! its keyed digest takes each part with its length, after the kind of the name, so that no header can
//! spell another caller's name. Parts are never shown: one may be a token or a cookie.
//!
//! Events, snapshots and log lines show short one-way forms of identities, runs and session ids. They
//! tell two apart and open nothing. The engine never looks anything up by them.

use std::borrow::Cow;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;

use http::{HeaderMap, HeaderName};
use serde::{Serialize, Serializer};
use smallvec::SmallVec;
use warmline_core::error::code::{Code, Reason};
use warmline_core::exchange::Diagnostic;
use warmline_core::pool_key::{Digest, Identity, KeyOwner, RunId};
use zeroize::Zeroizing;

use warmline_store::keyring::{Keyring, Purpose, random_bytes};

/// The name of a caller. It cannot be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct IdentityName {
    kind: IdentityKind,
    parts: SmallVec<[Zeroizing<Vec<u8>>; 1]>,
}

/// The kind of a name. Names of two kinds are never equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdentityKind {
    /// This process, when nobody was named.
    Process,
    /// The embedding program said so.
    Named,
    /// A rule over headers.
    Headers,
    /// Another rule's parts, such as issuer and subject.
    Composed,
    /// Somebody that nobody will ever be again.
    OneCall,
}

impl IdentityKind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Named => "named",
            Self::Headers => "headers",
            Self::Composed => "composed",
            Self::OneCall => "once",
        }
    }
}

impl IdentityName {
    /// This process, for calls without a named caller.
    pub fn process() -> Self {
        Self::from_parts(IdentityKind::Process, [""; 0])
    }

    /// A caller by your program's name for it.
    pub fn named(name: impl AsRef<str>) -> Self {
        Self::from_parts(IdentityKind::Named, [name.as_ref()])
    }

    /// A caller by several parts, such as issuer and subject; the first part names the rule. In a token
    /// path with `{identity}` they read `jwt,https%3A%2F%2Fidp.example.com,alice`.
    pub fn composed(parts: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        Self::from_parts(IdentityKind::Composed, parts)
    }

    /// An unknown caller of one call, different from all others. Its sessions end with the call.
    pub fn for_one_call() -> Self {
        let number: [u8; 16] = random_bytes();
        Self::from_parts(IdentityKind::OneCall, [number])
    }

    /// Whether another call can have this name.
    pub(crate) fn is_reusable(&self) -> bool {
        self.kind != IdentityKind::OneCall
    }

    fn from_parts(kind: IdentityKind, parts: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        let parts = parts
            .into_iter()
            .map(|part| Zeroizing::new(part.as_ref().to_vec()))
            .collect();
        Self { kind, parts }
    }

    pub(crate) fn parts(&self) -> SmallVec<[&[u8]; 3]> {
        let mut all = SmallVec::new();
        all.push(self.kind.as_str().as_bytes());
        all.extend(self.parts.iter().map(|part| part.as_slice()));
        all
    }

    pub(crate) fn digest(&self, vault: &Keyring) -> Identity {
        Identity(vault.digest(Purpose::Identity, &self.parts()))
    }

    /// Your program's name for it; none where a rule found it, because that may be a secret.
    pub fn name(&self) -> Option<&str> {
        match (self.kind, self.parts.as_slice()) {
            (IdentityKind::Named, [name]) => std::str::from_utf8(name).ok(),
            _ => None,
        }
    }

    /// The name as one component of a path, different for each caller.
    pub(crate) fn as_file_name(&self) -> Option<Cow<'_, str>> {
        let name = match self.kind {
            IdentityKind::Named => {
                let name = self.name().filter(|name| name.bytes().all(is_plain))?;
                (name.len() <= MAX_NAME_LEN).then_some(Cow::Borrowed(name))
            },
            // At least one comma, which no plain name has.
            IdentityKind::Composed if self.parts.len() > 1 => {
                let parts: Vec<String> =
                    self.parts.iter().map(|part| percent_encode(part)).collect();
                Some(Cow::Owned(parts.join(",")))
            },
            IdentityKind::Composed
            | IdentityKind::Process
            | IdentityKind::Headers
            | IdentityKind::OneCall => None,
        };
        name.filter(|name| (1..=MAX_FILE_NAME_LEN).contains(&name.len()) && !name.starts_with('.'))
    }
}

const MAX_NAME_LEN: usize = 128;
/// No file system takes a longer name of a file.
const MAX_FILE_NAME_LEN: usize = 255;

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._@+-".contains(&byte)
}

/// A part with everything that is not plain as `%` and two digits.
fn percent_encode(part: &[u8]) -> String {
    let mut all = String::with_capacity(part.len());
    for byte in part {
        match is_plain(*byte) {
            true => all.push(char::from(*byte)),
            false => all.push_str(&format!("%{byte:02X}")),
        }
    }
    all
}

impl fmt::Debug for IdentityName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdentityName({}, hidden)", self.kind.as_str())
    }
}

/// Identifies a caller by its request headers. The same headers always give the same identity.
pub trait IdentityExtractor: Send + Sync + fmt::Debug {
    /// The caller; none if the headers name nobody.
    ///
    /// # Errors
    /// `identity-missing`, if a name is required.
    fn identity(&self, headers: &HeaderMap) -> Result<Option<IdentityName>, Diagnostic>;
}

/// Identifies a caller by this rule.
///
/// # Errors
/// `identity-missing`, if nothing says who it is.
pub(crate) fn identify(
    rule: &dyn IdentityExtractor,
    headers: &HeaderMap,
) -> Result<IdentityName, Diagnostic> {
    rule.identity(headers)?.ok_or_else(|| {
        let what = "nothing in the headers says who is asking";
        Diagnostic::new(Reason::IdentityMissing, what)
    })
}

/// The identity as a combination of headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderRule {
    names: Vec<HeaderName>,
    requirement: HeaderRequirement,
}

/// Which headers of a [`HeaderRule`] are required.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeaderRequirement {
    /// None: without the headers the caller has no name.
    #[default]
    Optional,
    /// At least one.
    Any,
    /// All.
    All,
}

impl Default for HeaderRule {
    /// The headers that usually tell callers apart.
    fn default() -> Self {
        Self {
            names: DEFAULT_HEADERS.to_vec(),
            requirement: HeaderRequirement::Optional,
        }
    }
}

impl HeaderRule {
    /// A rule over these headers. Case and order of the names make no difference.
    ///
    /// # Errors
    /// `config-bad-value`, for no name, an invalid one or too many.
    pub fn from_names(
        names: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, Diagnostic> {
        let mut parsed = Vec::new();
        for name in names {
            let name = name.as_ref().trim();
            let Ok(header) = HeaderName::try_from(name) else {
                return Err(bad_rule(format!(
                    "`{}` is not the name of a header",
                    name.escape_debug()
                )));
            };
            parsed.push(header);
        }
        parsed.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        parsed.dedup();
        match parsed.len() {
            0 => Err(bad_rule("it names no header")),
            1..=MAX_HEADERS => Ok(Self {
                names: parsed,
                requirement: HeaderRequirement::Optional,
            }),
            _ => Err(bad_rule(format!(
                "it names more than {MAX_HEADERS} headers"
            ))),
        }
    }

    /// The rule with other required headers.
    #[must_use]
    pub fn require(mut self, need: HeaderRequirement) -> Self {
        self.requirement = need;
        self
    }

    /// The headers it reads.
    pub fn names(&self) -> &[HeaderName] {
        &self.names
    }

    fn check(&self, headers: &HeaderMap) -> Result<(), Diagnostic> {
        let missing = |what: String| Diagnostic::new(Reason::IdentityMissing, what);
        match self.requirement {
            HeaderRequirement::Optional => Ok(()),
            HeaderRequirement::Any if self.names.iter().any(|name| has_value(headers, name)) => {
                Ok(())
            },
            HeaderRequirement::Any => {
                let names: Vec<&str> = self.names.iter().map(HeaderName::as_str).collect();
                let what = "no header says who is asking".to_owned();
                Err(missing(what).with_cause(format!("looked for {}", names.join(", "))))
            },
            HeaderRequirement::All => {
                match self.names.iter().find(|name| !has_value(headers, name)) {
                    Some(name) => Err(missing(format!("the header `{name}` is missing"))),
                    None => Ok(()),
                }
            },
        }
    }
}

impl IdentityExtractor for HeaderRule {
    fn identity(&self, headers: &HeaderMap) -> Result<Option<IdentityName>, Diagnostic> {
        self.check(headers)?;
        let mut parts: Vec<Vec<u8>> = Vec::new();
        for name in &self.names {
            let values: Vec<&[u8]> = header_values(headers, name).collect();
            if values.is_empty() {
                continue;
            }
            // Name, count, values: unambiguous for any values.
            parts.push(name.as_str().as_bytes().to_vec());
            parts.push(values.len().to_be_bytes().to_vec());
            parts.extend(values.into_iter().map(<[u8]>::to_vec));
        }
        Ok((!parts.is_empty()).then(|| IdentityName::from_parts(IdentityKind::Headers, parts)))
    }
}

fn header_values<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    headers
        .get_all(name)
        .into_iter()
        .map(|value| value.as_bytes().trim_ascii())
        .filter(|value| !value.is_empty())
}

fn has_value(headers: &HeaderMap, name: &HeaderName) -> bool {
    header_values(headers, name).next().is_some()
}

fn bad_rule(why: impl Into<String>) -> Diagnostic {
    Diagnostic::new(
        Reason::InvalidRequest,
        "the rule for the identity cannot be used",
    )
    .with_code(Code::ConfigBadValue)
    .with_cause(why)
}

/// Sorted, as every rule is.
static DEFAULT_HEADERS: [HeaderName; 5] = [
    http::header::AUTHORIZATION,
    http::header::COOKIE,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("x-tenant-id"),
    HeaderName::from_static("x-user-id"),
];

const MAX_HEADERS: usize = 32;

/// A short one-way form of an identity or a run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; 4]);

impl Fingerprint {
    /// The fingerprint of a keyed digest.
    pub const fn from_digest(digest: &Digest) -> Self {
        let [a, b, c, d, ..] = *digest.as_bytes();
        Self([a, b, c, d])
    }

    /// The fingerprint of an owner; everybody has none.
    pub const fn from_owner(owner: KeyOwner) -> Option<Self> {
        match owner {
            KeyOwner::Identity(Identity(digest)) => Some(Self::from_digest(&digest)),
            KeyOwner::AnyIdentity => None,
        }
    }
}

impl From<Identity> for Fingerprint {
    fn from(identity: Identity) -> Self {
        Self::from_digest(&identity.0)
    }
}

impl From<RunId> for Fingerprint {
    fn from(run: RunId) -> Self {
        Self::from_digest(&run.0)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = self.0;
        write!(f, "{a:02x}{b:02x}{c:02x}{d:02x}")
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Nobody outside of this process can make the short form of an id.
static HASH_STATE: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// A short one-way form of a server's session id, the same for the lifetime of this process: a
/// caller that knows an id, or the beginning of one, may use the session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct ShortId(Fingerprint);

impl ShortId {
    /// The short form of an id.
    pub fn from_session_id(session_id: &str) -> Self {
        let [a, b, c, d, ..] = HASH_STATE.hash_one(session_id).to_be_bytes();
        Self(Fingerprint([a, b, c, d]))
    }
}

impl fmt::Display for ShortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for ShortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests;
