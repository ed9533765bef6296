//! Fingerprints of files, to notice that they changed.
//!
//! Files are polled: that works on every file system, and through links that are replaced.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use smallvec::SmallVec;
use warmline_platform::clock;

/// The coarsest clock of a file system: a file that changed this recently may change again and
/// keep its stamp.
const COARSE_RESOLUTION: Duration = Duration::from_secs(2);
/// A file system that records parts of a second uses the ticks of the system.
const FINE_RESOLUTION: Duration = Duration::from_millis(100);

/// Change time, length and inode; `None` without a file.
type FileStamp = Option<(SystemTime, u64, u64)>;

/// The stamps of some files at one moment.
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
    use super::*;

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
