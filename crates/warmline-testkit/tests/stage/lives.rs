//! What the processes of a program wrote down.

use std::time::SystemTime;

use serde_json::Value;

use super::program::Program;

impl Program {
    /// The lines of the ledgers of all its processes, first process first.
    pub(crate) fn lives(&self) -> Vec<Vec<Value>> {
        let files = std::fs::read_dir(self.place()).unwrap().flatten();
        let mut ledgers: Vec<(SystemTime, String)> = files
            .filter(|file| file.file_name().to_string_lossy().ends_with(".ledger"))
            .map(|file| {
                let born = file.metadata().unwrap().created().unwrap();
                (born, std::fs::read_to_string(file.path()).unwrap())
            })
            .collect();
        ledgers.sort();
        let read = |text: String| {
            text.lines()
                .filter_map(|line| serde_json::from_str(line).ok())
                .collect()
        };
        ledgers.into_iter().map(|(_, text)| read(text)).collect()
    }
}
