//! The public API of the facade, listed in a file so that each change shows in review.
//!
//! `WARMLINE_BLESS=1 cargo test -p warmline-testkit --test project public_api` writes the file.

#![expect(
    clippy::string_slice,
    reason = "it cuts source at ASCII characters that it found"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use crate::{files_below, root};

/// One name that the facade re-exports.
struct Reexport {
    /// The module of the facade; empty for the root.
    module: String,
    name: String,
    /// The crate that defines it.
    source: String,
    has_example: bool,
}

/// What a crate says of one name.
struct Definition {
    kind: &'static str,
    /// Fields, variants and methods, each with whether it has an example.
    members: BTreeMap<String, bool>,
}

/// The paths of a `use` tree.
fn spread(tree: &str, before: &str, paths: &mut Vec<String>) {
    let tree = tree.trim();
    let Some(open) = tree.find('{') else {
        if !tree.is_empty() {
            paths.push(format!("{before}{tree}"));
        }
        return;
    };
    let before = format!("{before}{}", &tree[..open]);
    let inner = &tree[open + 1..tree.rfind('}').unwrap()];
    let (mut depth, mut start) = (0, 0);
    for (at, sign) in inner.char_indices().chain([(inner.len(), ',')]) {
        match sign {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                spread(&inner[start..at], &before, paths);
                start = at + 1;
            },
            _ => {},
        }
    }
}

/// The re-exports of one file, with the comment above each.
fn reexports_of(file_module: &str, text: &str) -> Vec<Reexport> {
    let mut found = Vec::new();
    let (mut module, mut has_example) = (file_module.to_owned(), false);
    let mut lines = text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        if let Some(inner) = line
            .strip_prefix("pub mod ")
            .and_then(|rest| rest.strip_suffix(" {"))
        {
            module = inner.to_owned();
        } else if line == "}" {
            file_module.clone_into(&mut module);
            has_example = false;
        } else if let Some(first) = line.strip_prefix("pub use ") {
            let mut tree = first.to_owned();
            while !tree.ends_with(';') {
                tree += lines.next().unwrap();
            }
            let mut paths = Vec::new();
            spread(tree.trim_end_matches(';'), "", &mut paths);
            found.extend(paths.into_iter().map(|path| Reexport {
                module: module.clone(),
                name: path.rsplit("::").next().unwrap().to_owned(),
                source: path.split("::").next().unwrap().replace('_', "-"),
                has_example,
            }));
            has_example = false;
        } else if line.starts_with("/// ```") {
            has_example = true;
        }
    }
    found
}

fn reexports() -> Vec<Reexport> {
    let files = files_below(&root().join("crates/warmline/src"), "rs");
    let of_file = |file: &PathBuf| {
        let stem = file.file_stem().unwrap().to_str().unwrap();
        let text = fs::read_to_string(file).unwrap();
        for hidden in ["doc(hidden)", "no_inline", "::*;"] {
            assert!(!text.contains(hidden), "{}: {hidden}", file.display());
        }
        reexports_of(if stem == "lib" { "" } else { stem }, &text)
    };
    files.iter().flat_map(of_file).collect()
}

/// The name that a line at the top of a module defines, and what it is.
fn defined_by(line: &str) -> Option<(&'static str, String)> {
    let rest = line.strip_prefix("pub ")?;
    let rest = rest
        .strip_prefix("const ")
        .or(rest.strip_prefix("async "))
        .unwrap_or(rest);
    let kinds = ["struct", "enum", "trait", "type", "fn"];
    let kind = kinds
        .into_iter()
        .find(|kind| rest.starts_with(&format!("{kind} ")))?;
    Some((kind, word(&rest[kind.len() + 1..])))
}

fn word(text: &str) -> String {
    text.chars()
        .take_while(|sign| sign.is_alphanumeric() || *sign == '_')
        .collect()
}

/// The type of an inherent `impl`.
fn implemented(line: &str) -> Option<String> {
    let rest = line.strip_prefix("impl")?;
    if !rest.starts_with([' ', '<']) || line.contains(" for ") {
        return None;
    }
    let rest = match rest.strip_prefix('<') {
        Some(generics) => &generics[generics.find("> ")? + 2..],
        None => rest.trim_start(),
    };
    Some(word(rest))
}

/// The field, variant or method that a line inside of an item declares.
fn member(kind: &str, line: &str) -> Option<String> {
    let inner = line
        .strip_prefix("    ")
        .filter(|inner| !inner.starts_with(' '))?;
    let public = inner.strip_prefix("pub ");
    let function = |text: &str| {
        let text = ["const ", "async "]
            .iter()
            .fold(text, |text, skip| text.strip_prefix(skip).unwrap_or(text));
        text.strip_prefix("fn ")
            .map(|rest| format!("fn {}", word(rest)))
    };
    match kind {
        "impl" => function(public?),
        "trait" => function(inner),
        "struct" => public.filter(|field| field.contains(": ")).map(word),
        "enum" => inner.starts_with(char::is_uppercase).then(|| word(inner)),
        _ => None,
    }
}

/// All public names of a crate with their members.
fn definitions(crate_name: &str) -> BTreeMap<String, Definition> {
    let files = files_below(&root().join("crates").join(crate_name).join("src"), "rs");
    let mut all = BTreeMap::<String, Definition>::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let (mut inside, mut has_example) = (None::<(&str, String)>, false);
        let mut in_macro = false;
        for line in text.lines() {
            // Macros declare enums with words, structs with defaults, and the kinds of events.
            in_macro = line.ends_with("! {") || (in_macro && line != "}");
            if line == "events! {" {
                let event = all.entry("Event".to_owned());
                event.or_insert(Definition {
                    kind: "enum",
                    members: BTreeMap::new(),
                });
                inside = Some(("enum", "Event".to_owned()));
            }
            let is_event = matches!(&inside, Some((_, of)) if of == "Event");
            let line = match line.strip_prefix("    ") {
                Some(inner) if in_macro && !is_event => inner,
                Some(_) | None => line,
            };
            if let Some(defined) = defined_by(line) {
                let definition = all.entry(defined.1.clone()).or_insert(Definition {
                    kind: defined.0,
                    members: BTreeMap::new(),
                });
                definition.kind = defined.0;
                inside = line.ends_with('{').then_some(defined);
            } else if let Some(of) = implemented(line) {
                inside = Some(("impl", of));
            } else if line.starts_with('}') {
                inside = None;
            } else if let Some((kind, of)) = &inside
                && let Some(name) = member(kind, line)
            {
                let definition = all.entry(of.clone()).or_insert(Definition {
                    kind: "words",
                    members: BTreeMap::new(),
                });
                definition.members.insert(name, has_example);
            }
            match line.trim_start() {
                text if text.starts_with("/// ```") => has_example = true,
                text if text.starts_with("///") || text.starts_with("#[") => {},
                _ => has_example = false,
            }
        }
    }
    all
}

/// A159: the list has every public name, so none of what carries bytes slips in unseen.
#[test]
fn the_public_api_is_the_one_that_is_listed() {
    let reexports = reexports();
    let sources: BTreeSet<&str> = reexports.iter().map(|one| &*one.source).collect();
    let known: BTreeMap<&str, _> = sources.iter().map(|one| (*one, definitions(one))).collect();
    let (mut lines, mut types, mut bare) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
    for one in &reexports {
        let between = if one.module.is_empty() { "" } else { "::" };
        let path = format!("warmline::{}{between}{}", one.module, one.name);
        let unknown = Definition {
            kind: "words",
            members: BTreeMap::new(),
        };
        let found = known[&*one.source].get(&one.name).unwrap_or(&unknown);
        let mut text = format!("{path} ({})\n", found.kind);
        for (member, has_example) in &found.members {
            writeln!(text, "    {member}").unwrap();
            let is_main = ["Warmline", "Run", "ServerHandle", "CallBuilder"].contains(&&*one.name);
            if is_main && member.starts_with("fn ") && !has_example {
                bare.push(format!("{path}::{member}"));
            }
        }
        if found.kind != "fn" {
            types.insert((one.source.clone(), one.name.clone()));
        }
        if !one.has_example && one.module != "warden" {
            bare.push(path.clone());
        }
        lines.insert(path, text);
    }
    assert!(bare.is_empty(), "without an example:\n{}", bare.join("\n"));
    let at_root = reexports.iter().filter(|one| one.module.is_empty()).count();
    assert!(at_root <= 35, "{at_root} names at the root");
    assert!(types.len() <= 90, "{} public types", types.len());
    let listed: String = lines.into_values().collect();
    let page = root().join("docs/reference/rust-api.txt");
    if std::env::var_os("WARMLINE_BLESS").is_some() {
        fs::write(&page, &listed).unwrap();
    }
    assert_eq!(
        fs::read_to_string(&page).unwrap_or_default(),
        listed,
        "the public API changed (WARMLINE_BLESS=1 writes {})",
        page.display()
    );
}
