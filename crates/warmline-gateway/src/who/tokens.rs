//! Bearer tokens: known by digests, some of them kept in files that change while we run.
//!
//! Asked by: the doorman, at every request that shows a token. A token that was taken away, or
//! whose time is over, counts no longer at the next request.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use warmline::core::key::Digest;
use warmline::seal::Purpose;
use warmline::{Vault, Warmline};

use super::{Known, Shown};
use crate::look::Look;

/// A bearer token, known by its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Whom it stands for.
    pub identity: String,
    /// The digest of its text, by the instance's secret. Whoever guesses at texts learns nothing
    /// from how long a comparison takes.
    pub digest: Digest,
    /// When its time is over, in seconds of the Unix epoch.
    pub expires_at: Option<u64>,
}

impl Token {
    /// The token with this text.
    pub fn of(vault: &Vault, identity: &str, text: &str) -> Self {
        Self {
            identity: identity.to_owned(),
            digest: digest(vault, text),
            expires_at: None,
        }
    }

    /// The same, until that second of the Unix epoch.
    #[must_use]
    pub fn until(mut self, second: u64) -> Self {
        self.expires_at = Some(second);
        self
    }
}

pub(super) fn digest(vault: &Vault, text: &str) -> Digest {
    vault.digest(Purpose::Token, &[text.as_bytes()])
}

/// Reads the tokens that count now.
type ReadTokens = dyn Fn(&Vault) -> Vec<Token> + Send + Sync;

/// Tokens that are kept in files or folders, and read again when those changed.
#[derive(Clone)]
pub struct TokenSource {
    watched: Arc<[PathBuf]>,
    read: Arc<ReadTokens>,
}

impl TokenSource {
    /// Those that `read` finds. It is asked again after any of these files or folders changed; a
    /// folder changes when a file comes to it or leaves it.
    pub fn watching(
        files: impl IntoIterator<Item = PathBuf>,
        read: impl Fn() -> Vec<Token> + Send + Sync + 'static,
    ) -> Self {
        Self::digesting(files, move |_| read())
    }

    /// The same, where some are kept as texts.
    pub(crate) fn digesting(
        files: impl IntoIterator<Item = PathBuf>,
        read: impl Fn(&Vault) -> Vec<Token> + Send + Sync + 'static,
    ) -> Self {
        Self {
            watched: files.into_iter().collect(),
            read: Arc::new(read),
        }
    }

    fn look(&self) -> Look {
        Look::at(&self.watched)
    }
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenSource")
            .field("watched", &self.watched)
            .finish_non_exhaustive()
    }
}

/// Whom tokens stand for, ready to be asked.
#[derive(Debug, Default)]
pub(super) struct Table(HashMap<Digest, Arc<Known>>);

impl Table {
    pub(super) fn of(tokens: &[Token], warm: &Warmline) -> Self {
        let known = |token: &Token| {
            let known = Known {
                identity: warm.identity(&token.identity),
                name: token.identity.clone(),
                claims: None,
                expires_at: token.expires_at,
                shown: Shown::Token(token.digest),
            };
            (token.digest, Arc::new(known))
        };
        Self(tokens.iter().map(known).collect())
    }

    pub(super) fn find(&self, digest: &Digest) -> Option<&Arc<Known>> {
        self.0.get(digest)
    }
}

/// Tokens of a source, as they were when they were last read.
#[derive(Debug)]
pub(super) struct Kept {
    source: TokenSource,
    held: ArcSwapOption<Held>,
    /// What it looked like when it was last asked whether it changed.
    told: Mutex<Look>,
}

#[derive(Debug)]
struct Held {
    look: Look,
    is_settled: bool,
    table: Table,
}

impl Kept {
    pub(super) fn new(source: TokenSource) -> Self {
        Self {
            told: Mutex::new(source.look()),
            source,
            held: ArcSwapOption::empty(),
        }
    }

    /// Whether it changed since this was last asked, or may have without looking different.
    pub(super) fn has_changed(&self) -> bool {
        let look = self.source.look();
        let mut told = self.told.lock();
        let may_have = *told != look || !look.is_settled();
        *told = look;
        may_have
    }

    /// Whom a token stands for now.
    pub(super) fn find(&self, digest: &Digest, warm: &Warmline) -> Option<Arc<Known>> {
        let look = self.source.look();
        if let Some(held) = &*self.held.load()
            && held.is_settled
            && held.look == look
        {
            return held.table.find(digest).cloned();
        }
        // The look is older than what is read: a change in between shows at the next request.
        let table = Table::of(&(self.source.read)(warm.vault()), warm);
        let found = table.find(digest).cloned();
        self.held.store(Some(Arc::new(Held {
            is_settled: look.is_settled(),
            look,
            table,
        })));
        found
    }
}
