//! Links between the pages of the project lead somewhere.

use std::path::{Path, PathBuf};

use crate::{files_below, root};

/// All pages of the root, of `docs/` and of the folders of tests.
fn pages() -> Vec<PathBuf> {
    let at_root = std::fs::read_dir(root()).unwrap();
    let at_root = at_root.map(|entry| entry.unwrap().path());
    let is_page = |page: &PathBuf| page.extension().is_some_and(|ending| ending == "md");
    let mut pages: Vec<PathBuf> = at_root.filter(is_page).collect();
    for folder in ["docs", "tests/house"] {
        pages.extend(files_below(&root().join(folder), "md"));
    }
    pages
}

/// Targets of `[text](target)` outside of code.
fn links(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    let mut in_block = false;
    for line in text.lines() {
        if line.starts_with("```") {
            in_block = !in_block;
        }
        // Every other part is code between backticks.
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        if !in_block {
            let targets = prose.split("](").skip(1);
            links.extend(targets.filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())));
        }
    }
    links
}

/// The anchor that a reader of Markdown makes of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept
        .chars()
        .filter(|c| c.is_alphanumeric() || "- _".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn has_anchor(page: &Path, wanted: &str) -> bool {
    let text = std::fs::read_to_string(page).unwrap();
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| anchor(line.trim_start_matches('#')))
        .any(|found| found == wanted)
}

#[test]
fn every_link_between_pages_leads_somewhere() {
    let pages = pages();
    let mut broken = Vec::new();
    let mut checked = 0;
    for page in &pages {
        for link in links(&std::fs::read_to_string(page).unwrap()) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            checked += 1;
            let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() {
                page.clone()
            } else {
                page.parent().unwrap().join(file)
            };
            if !target.exists() || !heading.is_empty() && !has_anchor(&target, heading) {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(
        checked > 40,
        "only {checked} links were found in {} pages",
        pages.len()
    );
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Files that pages for contributors name exist.
#[test]
fn every_source_file_that_a_page_names_exists() {
    let sources = files_below(&root().join("crates"), "rs");
    // A pattern, and a file name that is not used here.
    let no_files = ["warmline-cli/src/commands/NAME.rs", "mod.rs"];
    let mut missing = Vec::new();
    for page in ["docs/ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = std::fs::read_to_string(root().join(page)).unwrap();
        let code = text.split('`').skip(1).step_by(2);
        let is_file = |code: &&str| code.ends_with(".rs") && !no_files.contains(code);
        let named: Vec<&str> = code.filter(is_file).collect();
        assert!(named.len() > 5, "{page} names {named:?}");
        let exists = |name: &str| sources.iter().any(|source| source.ends_with(name));
        for name in named {
            if !exists(name) {
                missing.push(format!("{page}: {name}"));
            }
        }
    }
    assert!(missing.is_empty(), "no such file: {missing:?}");
}
