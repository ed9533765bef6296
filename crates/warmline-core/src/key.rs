//! Keys: what a session belongs to. Built in one place, compared whole.
//!
//! Asked by: the pool, before any session is handed out.  Two calls may share a session exactly
//! if their keys are equal; no session is found by anything else.
//!
//! Every digest here is keyed with the instance's secret (made in the shell): nobody can compute
//! one from a name or a token, and none of them is a secret itself.

use std::fmt;
use std::sync::Arc;

use crate::era::Era;

/// Sixteen bytes of a keyed digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 16]);

impl Digest {
    /// A digest that was made elsewhere.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// All of it, in hexadecimal.
    pub fn hex(&self) -> String {
        let mut text = String::with_capacity(2 * self.0.len());
        for byte in self.0 {
            text.push(hex_digit(byte >> 4));
            text.push(hex_digit(byte & 0xf));
        }
        text
    }

    /// A short form for people and logs; nothing is compared by it.
    pub fn fingerprint(&self) -> String {
        let [a, b, c, d, ..] = self.0;
        format!("{a:02x}{b:02x}{c:02x}{d:02x}")
    }
}

/// The digit for the lower half of a byte.
fn hex_digit(half: u8) -> char {
    char::from_digit(u32::from(half & 0xf), 16).unwrap_or('0')
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fingerprint())
    }
}

/// Who is asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity(pub Digest);

/// How a server is reached: URL or command, arguments, environment names, static headers, TLS,
/// working folder. Neither policy nor the bytes of secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Revision(pub Digest);

/// Which source of secrets speaks for us; never a token's bytes, unless the caller handed it in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CredentialId(pub Digest);

/// A run, inside its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(pub Digest);

/// What was said of ourselves when a session was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeclaredId(pub Digest);

/// How the bytes of a session travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transport {
    /// Streamable HTTP.
    Http,
    /// HTTP+SSE, the transport of 2024-11-05.
    HttpSse,
    /// A child's standard streams.
    Stdio,
}

impl Transport {
    /// The word used in output.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::HttpSse => "http+sse",
            Self::Stdio => "stdio",
        }
    }
}

/// Whose session it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// This identity's alone.
    Identity(Identity),
    /// Everybody's with the same credential: nothing is kept per session, or the operator said so.
    Everybody,
}

/// How far a session is shared by its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// By one run, whatever its clients declare.
    Run(RunId),
    /// By everything of the owner that declares the same.
    Shared(DeclaredId),
}

/// Where a session leads, as detection found it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The server's name.
    pub server: Arc<str>,
    /// How it is reached.
    pub revision: Revision,
    /// The era that is spoken.
    pub era: Era,
    /// How the bytes travel.
    pub transport: Transport,
}

/// What a session belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    place: Place,
    owner: Owner,
    credential: CredentialId,
    scope: Scope,
}

impl Key {
    /// The key of a session: the only way to make one.
    pub const fn of(place: Place, owner: Owner, credential: CredentialId, scope: Scope) -> Self {
        Self {
            place,
            owner,
            credential,
            scope,
        }
    }

    /// Where it leads.
    pub const fn place(&self) -> &Place {
        &self.place
    }

    /// Whose it is.
    pub const fn owner(&self) -> Owner {
        self.owner
    }

    /// Which source of secrets speaks.
    pub const fn credential(&self) -> CredentialId {
        self.credential
    }

    /// How far it is shared.
    pub const fn scope(&self) -> Scope {
        self.scope
    }

    /// The run it belongs to, if it belongs to one.
    pub const fn run(&self) -> Option<RunId> {
        match self.scope {
            Scope::Run(run) => Some(run),
            Scope::Shared(_) => None,
        }
    }
}
