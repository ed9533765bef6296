//! The census after a test: nothing of it runs any more.
//!
//! Tests of one binary run side by side in one process, so each counts what is its own: the tasks
//! of its runtime, the connections of its server, the processes that carry its mark.

use std::path::Path;
use std::time::Duration;

/// Longer than anything here may take, on a machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until a condition holds; the words say what did not come true.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "it must come true that {what}");
}

/// The processes whose environment holds this mark, as their command lines.
pub(crate) fn marked(mark: &str) -> Vec<String> {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let folders = processes.flatten().map(|entry| entry.path());
    folders
        .filter(|folder| holds(&folder.join("environ"), mark))
        .map(|folder| std::fs::read_to_string(folder.join("cmdline")).unwrap_or_default())
        .collect()
}

fn holds(file: &Path, mark: &str) -> bool {
    let bytes = std::fs::read(file).unwrap_or_default();
    bytes
        .split(|byte| *byte == 0)
        .any(|variable| variable == mark.as_bytes())
}
