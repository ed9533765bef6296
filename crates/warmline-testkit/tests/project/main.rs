//! The project itself: the testkit, the layers of the code, the links of its pages, and the map of guarantees.
#![cfg(test)]

mod guarantees;
mod kit;
mod links;
mod public_api;
mod shape;

use std::path::{Path, PathBuf};

/// The folder of the project.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files in and below a folder whose names end like this, in order.
fn files_below(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let (mut folders, mut files) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|known| known == ending) {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}
