//! What the processes of a program wrote down.

use std::time::SystemTime;

use serde_json::Value;

use super::stdio_program::Program;

impl Program {
    /// The lines of the ledgers of all its processes, first process first.
    pub(crate) fn lives(&self) -> Vec<Vec<Value>> {
        let files = std::fs::read_dir(self.place()).unwrap().flatten();
        let mut ledgers: Vec<(SystemTime, Option<u32>, String)> = files
            .filter(|file| file.file_name().to_string_lossy().ends_with(".ledger"))
            .map(|file| {
                let born = file.metadata().unwrap().created().unwrap();
                // The clock of files is coarse: of two of one moment the number of the process decides.
                let name = file.file_name().to_string_lossy().into_owned();
                let number = name.trim_end_matches(".ledger").parse().ok();
                (born, number, std::fs::read_to_string(file.path()).unwrap())
            })
            .collect();
        ledgers.sort();
        let read = |text: String| {
            text.lines()
                .filter_map(|line| serde_json::from_str(line).ok())
                .collect()
        };
        ledgers.into_iter().map(|(.., text)| read(text)).collect()
    }
}
