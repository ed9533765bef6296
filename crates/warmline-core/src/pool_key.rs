//! Keys: what a session belongs to. Two calls may share a session exactly if their keys are equal.
//!
//! Every digest here is keyed with the instance's secret: it cannot be computed from a name or a
//! token, and is no secret itself.

use std::fmt;
use std::sync::Arc;

use crate::era::Era;
use crate::word_enum::word_enum;

/// Sixteen bytes of a keyed digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 16]);

impl Digest {
    /// A digest that was made elsewhere.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The digest that [`Digest::to_hex`] wrote; none for anything else.
    pub fn from_hex(text: &str) -> Option<Self> {
        let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 32 || !text.bytes().all(is_digit) {
            return None;
        }
        let number = u128::from_str_radix(text, 16).ok()?;
        Some(Self::new(number.to_be_bytes()))
    }

    /// A short form for people and logs; nothing is compared by it.
    pub fn fingerprint(&self) -> String {
        let [a, b, c, d, ..] = self.0;
        format!("{a:02x}{b:02x}{c:02x}{d:02x}")
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fingerprint())
    }
}

/// The identity of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity(pub Digest);

/// How a server is reached: URL or command, arguments, environment names, static headers, TLS,
/// working folder. Neither policy nor the bytes of secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConfigRevision(pub Digest);

/// Which source of secrets speaks for us; never a token's bytes, unless the caller handed it in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CredentialId(pub Digest);

/// A run, inside its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(pub Digest);

/// What the client declared when a session was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientProfileId(pub Digest);

word_enum! {
    /// How the bytes of a session travel.
    pub enum Transport {
        /// Streamable HTTP.
        Http = "http",
        /// HTTP+SSE, the transport of 2024-11-05.
        HttpSse = "http+sse",
        /// A child's standard streams.
        Stdio = "stdio",
    }
}

/// The owner of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyOwner {
    /// This identity's alone.
    Identity(Identity),
    /// Every identity with the same credential: the server keeps nothing per session, or the
    /// operator said so.
    AnyIdentity,
}

/// How far a session is shared by its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyScope {
    /// By one run, whatever its clients declare.
    Run(RunId),
    /// By all calls of the owner with the same client profile.
    Shared(ClientProfileId),
}

/// Where a session leads, as detection found it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TargetKey {
    pub server: Arc<str>,
    pub revision: ConfigRevision,
    pub era: Era,
    pub transport: Transport,
}

/// Whose a kept session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerKind {
    /// The caller's identity's alone.
    Identity,
    /// Every identity with the same credential.
    AnyIdentity,
}

/// How far a kept session is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScopeKind {
    /// By the caller's run.
    Run,
    /// By all calls of its owner.
    Shared,
}

/// The caller that a key is made for.
#[derive(Clone, Copy, Debug)]
pub struct KeyCaller {
    pub identity: Identity,
    pub run: Option<RunId>,
    pub profile: ClientProfileId,
}

/// What a session belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PoolKey {
    pub target: TargetKey,
    /// The identity that it belongs to, or none.
    pub owner: KeyOwner,
    /// Which source of secrets speaks.
    pub credential: CredentialId,
    pub scope: KeyScope,
}

impl PoolKey {
    pub const fn new(
        target: TargetKey,
        owner: KeyOwner,
        credential: CredentialId,
        scope: KeyScope,
    ) -> Self {
        Self {
            target,
            owner,
            credential,
            scope,
        }
    }

    /// The key of a kept session: its server, its credential, and the identity, run or client that it
    /// is shared by.
    pub const fn for_caller(
        target: TargetKey,
        credential: CredentialId,
        (owner, scope): (OwnerKind, ScopeKind),
        caller: KeyCaller,
    ) -> Self {
        let owner = match owner {
            OwnerKind::Identity => KeyOwner::Identity(caller.identity),
            OwnerKind::AnyIdentity => KeyOwner::AnyIdentity,
        };
        let scope = match (scope, caller.run) {
            (ScopeKind::Run, Some(run)) => KeyScope::Run(run),
            (ScopeKind::Run | ScopeKind::Shared, _) => KeyScope::Shared(caller.profile),
        };
        Self::new(target, owner, credential, scope)
    }

    pub const fn run(&self) -> Option<RunId> {
        match self.scope {
            KeyScope::Run(run) => Some(run),
            KeyScope::Shared(_) => None,
        }
    }
}
