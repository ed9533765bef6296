//! Identity: who is asking, as parts that only a keyed digest is ever made of.
//!
//! Asked by: the engine, before it builds a key.  Told by: the embedding program, which names an
//! identity, or an [`IdentityExtractor`] over the headers of a request.
//!
//! Why parts: `("a", "bc")` and `("ab", "c")` are two people. The parts are never joined to a
//!   text; the digest takes each with its length, and the first says what kind of name it is, so
//!   that a header can never spell the name of somebody else.
//! What it must not do: show anything. A part may be a token or a cookie.

use std::borrow::Cow;
use std::fmt;

use http::{HeaderMap, HeaderName};
use smallvec::SmallVec;
use warmline_core::code::{Code, Reason};
use warmline_core::exchange::Trouble;
use warmline_core::key::Identity;
use zeroize::Zeroizing;

use crate::seal::{Purpose, Vault, random_bytes};

/// Who is asking, before it becomes a digest. It cannot be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct IdentityName {
    kind: Kind,
    parts: SmallVec<[Zeroizing<Vec<u8>>; 1]>,
}

/// What kind of name it is. Names of two kinds are never equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// This process, when nobody was named.
    Process,
    /// The embedding program said so.
    Named,
    /// A rule over headers.
    Headers,
    /// Another rule's parts, such as issuer and subject.
    Composed,
    /// Somebody that nobody will ever be again.
    Once,
}

impl Kind {
    const fn word(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Named => "named",
            Self::Headers => "headers",
            Self::Composed => "composed",
            Self::Once => "once",
        }
    }
}

impl IdentityName {
    /// This process: who asks when nobody was named.
    pub fn process() -> Self {
        Self::of(Kind::Process, [""; 0])
    }

    /// An identity by the name the embedding program has for it.
    pub fn named(name: impl AsRef<str>) -> Self {
        Self::of(Kind::Named, [name.as_ref()])
    }

    /// An identity by several parts, such as issuer and subject. Which rule made them belongs
    /// into the first part. Where a token is read from a path with `{identity}` in it, they are
    /// part of that path: `jwt,https%3A%2F%2Fidp.example.com,alice`.
    pub fn composed(parts: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        Self::of(Kind::Composed, parts)
    }

    /// Whoever makes one call and is not known: another than everybody else, and never again the
    /// same. What is opened for them ends with their call.
    pub fn for_one_call() -> Self {
        let number: [u8; 16] = random_bytes();
        Self::of(Kind::Once, [number])
    }

    /// Whether somebody may ask under this name again.
    pub(crate) fn comes_back(&self) -> bool {
        self.kind != Kind::Once
    }

    fn of(kind: Kind, parts: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        let parts = parts
            .into_iter()
            .map(|part| Zeroizing::new(part.as_ref().to_vec()))
            .collect();
        Self { kind, parts }
    }

    /// What its digest is made of. Different names have different parts.
    pub(crate) fn parts(&self) -> SmallVec<[&[u8]; 3]> {
        let mut all = SmallVec::new();
        all.push(self.kind.word().as_bytes());
        all.extend(self.parts.iter().map(|part| part.as_slice()));
        all
    }

    /// The digest that keys are made of.
    pub(crate) fn digest(&self, vault: &Vault) -> Identity {
        Identity(vault.digest(Purpose::Identity, &self.parts()))
    }

    /// The name the embedding program gave; none where a rule found the identity, because what a
    /// rule finds may be a secret.
    pub fn name(&self) -> Option<&str> {
        match (self.kind, self.parts.as_slice()) {
            (Kind::Named, [name]) => std::str::from_utf8(name).ok(),
            _ => None,
        }
    }

    /// The name as one plain component of a file's path; never a path of its own, and never that
    /// of somebody else.
    pub(crate) fn as_file_name(&self) -> Option<Cow<'_, str>> {
        let name = match self.kind {
            Kind::Named => {
                let name = self.name().filter(|name| name.bytes().all(is_plain))?;
                (name.len() <= LONGEST_NAME).then_some(Cow::Borrowed(name))
            },
            // No name that the embedding program gives has a comma, so one part would be too few.
            Kind::Composed if self.parts.len() > 1 => {
                let parts: Vec<String> = self.parts.iter().map(|part| coded(part)).collect();
                Some(Cow::Owned(parts.join(",")))
            },
            Kind::Composed | Kind::Process | Kind::Headers | Kind::Once => None,
        };
        name.filter(|name| (1..=LONGEST_FILE).contains(&name.len()) && !name.starts_with('.'))
    }
}

/// The longest name that becomes part of a path as it is.
const LONGEST_NAME: usize = 128;
/// No file system takes a longer name of a file.
const LONGEST_FILE: usize = 255;

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._@+-".contains(&byte)
}

/// A part with everything that is not plain as `%` and two digits.
fn coded(part: &[u8]) -> String {
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
        write!(f, "IdentityName({}, hidden)", self.kind.word())
    }
}

/// Says from the headers of a request who is asking. A pure function: the same headers are the
/// same identity, always.
pub trait IdentityExtractor: Send + Sync + fmt::Debug {
    /// Who is asking; none if the headers do not say.
    ///
    /// # Errors
    /// `identity-missing`, if nobody may ask without saying who they are.
    fn identity(&self, headers: &HeaderMap) -> Result<Option<IdentityName>, Trouble>;
}

/// Who is asking by this rule.
///
/// # Errors
/// `identity-missing`, if nothing says who it is.
pub(crate) fn identify(
    rule: &dyn IdentityExtractor,
    headers: &HeaderMap,
) -> Result<IdentityName, Trouble> {
    rule.identity(headers)?.ok_or_else(|| {
        let what = "nothing in the headers says who is asking";
        Trouble::new(Reason::IdentityMissing, what)
    })
}

/// The identity as a combination of headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderRule {
    names: Vec<HeaderName>,
    need: Need,
}

/// How much of a [`HeaderRule`] must be there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Need {
    /// Nothing: without any of the headers nobody is named.
    #[default]
    Nothing,
    /// One of the headers at least.
    Any,
    /// Each of the headers.
    Each,
}

impl Default for HeaderRule {
    /// The headers that usually tell callers apart.
    fn default() -> Self {
        Self {
            names: STANDARD.to_vec(),
            need: Need::Nothing,
        }
    }
}

impl HeaderRule {
    /// A rule over these headers. Case and order of the names make no difference.
    ///
    /// # Errors
    /// `config-bad-value`, if there is no name, one that no header can have, or too many.
    pub fn of(names: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, Trouble> {
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
            1..=MOST_NAMES => Ok(Self {
                names: parsed,
                need: Need::Nothing,
            }),
            _ => Err(bad_rule(format!("it names more than {MOST_NAMES} headers"))),
        }
    }

    /// The same rule with other demands.
    #[must_use]
    pub fn needs(mut self, need: Need) -> Self {
        self.need = need;
        self
    }

    /// The headers it looks at.
    pub fn names(&self) -> &[HeaderName] {
        &self.names
    }

    fn check(&self, headers: &HeaderMap) -> Result<(), Trouble> {
        let missing = |what: String| Trouble::new(Reason::IdentityMissing, what);
        match self.need {
            Need::Nothing => Ok(()),
            Need::Any if self.names.iter().any(|name| says(headers, name)) => Ok(()),
            Need::Any => {
                let names: Vec<&str> = self.names.iter().map(HeaderName::as_str).collect();
                let what = "no header says who is asking".to_owned();
                Err(missing(what).because(format!("looked for {}", names.join(", "))))
            },
            Need::Each => match self.names.iter().find(|name| !says(headers, name)) {
                Some(name) => Err(missing(format!("the header `{name}` is missing"))),
                None => Ok(()),
            },
        }
    }
}

impl IdentityExtractor for HeaderRule {
    fn identity(&self, headers: &HeaderMap) -> Result<Option<IdentityName>, Trouble> {
        self.check(headers)?;
        let mut parts: Vec<Vec<u8>> = Vec::new();
        for name in &self.names {
            let values: Vec<&[u8]> = values(headers, name).collect();
            if values.is_empty() {
                continue;
            }
            // Name, number, values: what follows can be told apart whatever the values hold.
            parts.push(name.as_str().as_bytes().to_vec());
            parts.push(values.len().to_be_bytes().to_vec());
            parts.extend(values.into_iter().map(<[u8]>::to_vec));
        }
        Ok((!parts.is_empty()).then(|| IdentityName::of(Kind::Headers, parts)))
    }
}

/// The values of a header that say something: an empty one names nobody.
fn values<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    headers
        .get_all(name)
        .into_iter()
        .map(|value| value.as_bytes().trim_ascii())
        .filter(|value| !value.is_empty())
}

fn says(headers: &HeaderMap, name: &HeaderName) -> bool {
    values(headers, name).next().is_some()
}

fn bad_rule(why: impl Into<String>) -> Trouble {
    Trouble::new(
        Reason::InvalidRequest,
        "the rule for the identity cannot be used",
    )
    .coded(Code::ConfigBadValue)
    .because(why)
}

/// Sorted, as every rule is.
static STANDARD: [HeaderName; 5] = [
    http::header::AUTHORIZATION,
    http::header::COOKIE,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("x-tenant-id"),
    HeaderName::from_static("x-user-id"),
];

const MOST_NAMES: usize = 32;

#[cfg(test)]
mod tests;
