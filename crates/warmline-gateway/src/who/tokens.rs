//! Bearer tokens: known by digests, some of them kept in files that change while we run.
//!
//! Asked by: the doorman, at every request that shows a token. A token that was taken away, or
//! whose time is over, counts no longer at the next request.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
    /// One reads for any number that want to know.
    reading: Mutex<()>,
    /// How often reading began.
    begun: AtomicU64,
    /// What it looked like when it was last asked whether it changed.
    told: Mutex<Look>,
}

#[derive(Debug)]
struct Held {
    look: Look,
    is_settled: bool,
    table: Table,
    /// Which reading it is of.
    number: u64,
}

impl Held {
    /// Whether it is known that nothing changed since it was read.
    fn holds(&self, look: &Look) -> bool {
        self.is_settled && self.look == *look
    }
}

impl Kept {
    pub(super) fn new(source: TokenSource) -> Self {
        Self {
            told: Mutex::new(source.look()),
            source,
            held: ArcSwapOption::empty(),
            reading: Mutex::default(),
            begun: AtomicU64::default(),
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
        let begun = self.begun.load(Ordering::Acquire);
        let look = self.source.look();
        if let Some(held) = &*self.held.load()
            && held.holds(&look)
        {
            return held.table.find(digest).cloned();
        }
        let reading = self.reading.lock();
        // The look is older than what is read: a change in between shows at the next request.
        let look = self.source.look();
        if let Some(held) = &*self.held.load()
            // Whoever waited here has what was read since they came.
            && (held.number > begun || held.holds(&look))
        {
            return held.table.find(digest).cloned();
        }
        let number = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        let table = Table::of(&(self.source.read)(warm.vault()), warm);
        let found = table.find(digest).cloned();
        self.held.store(Some(Arc::new(Held {
            is_settled: look.is_settled(),
            look,
            table,
            number,
        })));
        drop(reading);
        found
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::{Duration, SystemTime};

    use super::*;

    /// P43: tokens are read once for all who wait for it, whoever they are.
    #[test]
    fn one_reads_for_all_who_wait() {
        const CALLERS: u64 = 8;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens");
        let written = File::create(&file).unwrap();
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        written.set_modified(long_ago).unwrap();
        let warm = Warmline::builder().build().unwrap();
        let token = Token::of(warm.vault(), "alice", "secret");
        let (came, reads) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (known, all) = (token.digest, (Arc::clone(&came), Arc::clone(&reads)));
        let kept = Kept::new(TokenSource::watching([file], move || {
            all.1.fetch_add(1, Ordering::Relaxed);
            while all.0.load(Ordering::Relaxed) < CALLERS {
                std::thread::yield_now();
            }
            vec![token.clone()]
        }));
        let stranger = digest(warm.vault(), "guessed");
        std::thread::scope(|scope| {
            for number in 0..CALLERS {
                let (kept, warm, came) = (&kept, &warm, &came);
                scope.spawn(move || {
                    came.fetch_add(1, Ordering::Relaxed);
                    let is_known = number % 2 == 0;
                    let shown = if is_known { known } else { stranger };
                    assert_eq!(kept.find(&shown, warm).is_some(), is_known);
                });
            }
        });
        assert_eq!(reads.load(Ordering::Relaxed), 1);
    }
}
