//! What a file looks like from outside: enough to tell one content from the next.
//!
//! Asked by: whoever holds what stands in files that change while we run: the configuration,
//! tokens, keys. Files are looked at and not listened to: that works on every file system, and
//! through links that are exchanged as a whole.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use smallvec::SmallVec;
use warmline::clock;

/// The clock of a file system is this coarse at worst: a file that changed so lately may change
/// again without looking different.
const COARSE: Duration = Duration::from_secs(2);
/// One that knows parts of a second goes by the ticks of its system, and those are shorter.
const FINE: Duration = Duration::from_millis(100);

/// When a file changed, its length, and its number on its disk; none where there is no file.
type Stamp = Option<(SystemTime, u64, u64)>;

/// What files look like at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Look(SmallVec<[Stamp; 2]>);

impl Look {
    /// What these look like now.
    pub(crate) fn at(files: &[PathBuf]) -> Self {
        Self(files.iter().map(|file| stamp(file)).collect())
    }

    /// What one looks like now.
    pub(crate) fn at_one(file: &Path) -> Self {
        Self(SmallVec::from_iter([stamp(file)]))
    }

    /// Whether another change would be seen for sure.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled_at(clock::wall_time())
    }

    fn is_settled_at(&self, now: SystemTime) -> bool {
        self.0.iter().flatten().all(|(changed, ..)| {
            now.duration_since(*changed)
                .is_ok_and(|since| since > tick(*changed))
        })
    }
}

/// How close two changes may be that cannot be told apart, by what the first one looks like.
fn tick(changed: SystemTime) -> Duration {
    let parts = changed.duration_since(UNIX_EPOCH);
    match parts.is_ok_and(|since| since.subsec_millis() != 0) {
        true => FINE,
        false => COARSE,
    }
}

fn stamp(file: &Path) -> Stamp {
    let seen = std::fs::metadata(file).ok()?;
    #[cfg(unix)]
    let number = std::os::unix::fs::MetadataExt::ino(&seen);
    #[cfg(not(unix))]
    let number = 0;
    Some((seen.modified().ok()?, seen.len(), number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_seen_for_sure_once_the_clock_of_its_disk_went_on() {
        let at = |millis: u64| UNIX_EPOCH + Duration::from_millis(millis);
        for (changed, now, expected) in [
            (1_000_500, 1_000_500, false),
            (1_000_500, 1_000_600, false),
            (1_000_500, 1_000_601, true),
            (1_000_000, 1_001_999, false),
            (1_000_000, 1_002_001, true),
            (1_000_500, 1_000_000, false),
        ] {
            let look = Look(SmallVec::from_iter([Some((at(changed), 1, 1)), None]));
            assert_eq!(look.is_settled_at(at(now)), expected, "{changed} {now}");
        }
    }
}
