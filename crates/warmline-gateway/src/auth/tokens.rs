//! Bearer tokens, known by their digests, from files that may change at any time.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use smallvec::SmallVec;
use warmline_core::pool_key::Digest;
use warmline_engine::Warmline;
use warmline_platform::clock;
use warmline_store::keyring::{Keyring, Purpose};

use crate::auth::{AuthenticatedSubject, PresentedCredential};

/// A bearer token, known by its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BearerToken {
    /// The identity that it stands for.
    pub identity: String,
    /// The keyed digest of its text. The time of a comparison reveals nothing about the text.
    pub digest: Digest,
    /// When it expires, in seconds of the Unix epoch.
    pub expires_at: Option<u64>,
}

impl BearerToken {
    /// The token with this text.
    pub fn from_text(vault: &Keyring, identity: &str, text: &str) -> Self {
        Self {
            identity: identity.to_owned(),
            digest: token_digest(vault, text),
            expires_at: None,
        }
    }
}

pub(super) fn token_digest(vault: &Keyring, text: &str) -> Digest {
    vault.digest(Purpose::Token, &[text.as_bytes()])
}

type TokenReader = dyn Fn(&Keyring) -> Vec<BearerToken> + Send + Sync;

/// Tokens in files or folders. They are read again when those change.
#[derive(Clone)]
pub struct TokenSource {
    paths: Arc<[PathBuf]>,
    read: Arc<TokenReader>,
}

impl TokenSource {
    /// The tokens that `read` returns, with the vault of the engine for their digests. It is called
    /// again after one of these files or folders changed; a folder changes when a file is added or
    /// removed.
    pub fn watching(
        paths: impl IntoIterator<Item = PathBuf>,
        read: impl Fn(&Keyring) -> Vec<BearerToken> + Send + Sync + 'static,
    ) -> Self {
        Self {
            paths: paths.into_iter().collect(),
            read: Arc::new(read),
        }
    }

    fn file_stamps(&self) -> FileStamps {
        FileStamps::read(self.paths.iter())
    }
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenSource")
            .field("paths", &self.paths)
            .finish_non_exhaustive()
    }
}

/// Authenticates callers by the tokens of a source, as they were read last.
#[derive(Debug)]
pub(super) struct TokenSourceCache {
    source: TokenSource,
    snapshot: ArcSwapOption<TokenSnapshot>,
    /// One caller reads the source for all that wait.
    load_lock: Mutex<()>,
    loads_started: AtomicU64,
    reported_stamps: Mutex<FileStamps>,
}

#[derive(Debug)]
struct TokenSnapshot {
    file_stamps: FileStamps,
    is_settled: bool,
    subjects: HashMap<Digest, Arc<AuthenticatedSubject>>,
    load_number: u64,
}

impl TokenSnapshot {
    /// Whether the source is certain not to have changed since.
    fn is_current(&self, stamps: &FileStamps) -> bool {
        self.is_settled && self.file_stamps == *stamps
    }
}

impl TokenSourceCache {
    pub(super) fn new(source: TokenSource) -> Self {
        Self {
            reported_stamps: Mutex::new(source.file_stamps()),
            source,
            snapshot: ArcSwapOption::empty(),
            load_lock: Mutex::default(),
            loads_started: AtomicU64::default(),
        }
    }

    /// Whether the source changed since the last call, or may have kept its stamps and changed.
    pub(super) fn has_changed(&self) -> bool {
        let stamps = self.source.file_stamps();
        let mut reported = self.reported_stamps.lock();
        let may_have_changed = *reported != stamps || !stamps.is_settled();
        *reported = stamps;
        may_have_changed
    }

    pub(super) fn find(
        &self,
        digest: &Digest,
        warm: &Warmline,
    ) -> Option<Arc<AuthenticatedSubject>> {
        let started = self.loads_started.load(Ordering::Acquire);
        if let Some(snapshot) = &*self.snapshot.load()
            && snapshot.is_current(&self.source.file_stamps())
        {
            return snapshot.subjects.get(digest).cloned();
        }
        let loading = self.load_lock.lock();
        // Taken before the read: a change in between shows at the next request.
        let file_stamps = self.source.file_stamps();
        if let Some(snapshot) = &*self.snapshot.load()
            // Another caller read the source while this one waited.
            && (snapshot.load_number > started || snapshot.is_current(&file_stamps))
        {
            return snapshot.subjects.get(digest).cloned();
        }
        let load_number = self.loads_started.fetch_add(1, Ordering::AcqRel) + 1;
        let tokens = (self.source.read)(warm.vault()).into_iter();
        let subjects = tokens.map(|token| (token.digest, Arc::new(token.subject(warm))));
        let snapshot = TokenSnapshot {
            is_settled: file_stamps.is_settled(),
            file_stamps,
            subjects: subjects.collect(),
            load_number,
        };
        let found = snapshot.subjects.get(digest).cloned();
        self.snapshot.store(Some(Arc::new(snapshot)));
        drop(loading);
        found
    }
}

impl BearerToken {
    fn subject(&self, warm: &Warmline) -> AuthenticatedSubject {
        let credential = PresentedCredential::Token(self.digest);
        AuthenticatedSubject {
            expires_at: self.expires_at,
            ..AuthenticatedSubject::new(warm, &self.identity, credential)
        }
    }
}

/// The coarsest clock of a file system: a file that changed this recently may change again and
/// keep its stamp.
const COARSE_RESOLUTION: Duration = Duration::from_secs(2);
/// A file system that records parts of a second uses the ticks of the system.
const FINE_RESOLUTION: Duration = Duration::from_millis(100);

/// Change time, length and inode; `None` without a file.
type FileStamp = Option<(SystemTime, u64, u64)>;

/// The stamps of some files at one moment, to notice that they changed. Polling works on every file
/// system, and through links that are replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileStamps(SmallVec<[FileStamp; 2]>);

impl FileStamps {
    pub(crate) fn read<'p>(files: impl IntoIterator<Item = &'p PathBuf>) -> Self {
        Self(files.into_iter().map(read_stamp).collect())
    }

    /// Whether another change is certain to change the stamps.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled_at(clock::wall_time())
    }

    fn is_settled_at(&self, now: SystemTime) -> bool {
        self.0.iter().flatten().all(|(changed, ..)| {
            now.duration_since(*changed)
                .is_ok_and(|since| since > clock_resolution(*changed))
        })
    }
}

fn clock_resolution(changed: SystemTime) -> Duration {
    let parts = changed.duration_since(UNIX_EPOCH);
    match parts.is_ok_and(|since| since.subsec_millis() != 0) {
        true => FINE_RESOLUTION,
        false => COARSE_RESOLUTION,
    }
}

fn read_stamp(file: &PathBuf) -> FileStamp {
    let metadata = std::fs::metadata(file).ok()?;
    #[cfg(unix)]
    let inode = std::os::unix::fs::MetadataExt::ino(&metadata);
    #[cfg(not(unix))]
    let inode = 0;
    Some((metadata.modified().ok()?, metadata.len(), inode))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::{Duration, SystemTime};

    use super::*;

    /// P43: the source is read once for all that wait, whoever they are.
    #[test]
    fn one_caller_reads_for_all_that_wait() {
        const CALLERS: u64 = 8;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens");
        let written = File::create(&file).unwrap();
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        written.set_modified(long_ago).unwrap();
        let warm = Warmline::builder().build().unwrap();
        let token = BearerToken::from_text(warm.vault(), "alice", "secret");
        let (arrived, reads) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (known, counts) = (token.digest, (Arc::clone(&arrived), Arc::clone(&reads)));
        let cache = TokenSourceCache::new(TokenSource::watching([file], move |_| {
            counts.1.fetch_add(1, Ordering::Relaxed);
            while counts.0.load(Ordering::Relaxed) < CALLERS {
                std::thread::yield_now();
            }
            vec![token.clone()]
        }));
        let stranger = token_digest(warm.vault(), "guessed");
        std::thread::scope(|scope| {
            for number in 0..CALLERS {
                let (cache, warm, arrived) = (&cache, &warm, &arrived);
                scope.spawn(move || {
                    arrived.fetch_add(1, Ordering::Relaxed);
                    let is_known = number % 2 == 0;
                    let digest = if is_known { known } else { stranger };
                    assert_eq!(cache.find(&digest, warm).is_some(), is_known);
                });
            }
        });
        assert_eq!(reads.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn stamps_settle_once_the_clock_of_the_file_system_has_advanced() {
        let at = |millis: u64| UNIX_EPOCH + Duration::from_millis(millis);
        for (changed, now, expected) in [
            (1_000_500, 1_000_500, false),
            (1_000_500, 1_000_600, false),
            (1_000_500, 1_000_601, true),
            (1_000_000, 1_001_999, false),
            (1_000_000, 1_002_001, true),
            (1_000_500, 1_000_000, false),
        ] {
            let stamps = FileStamps(SmallVec::from_iter([Some((at(changed), 1, 1)), None]));
            assert_eq!(stamps.is_settled_at(at(now)), expected, "{changed} {now}");
        }
    }
}
