//! Reads Rust sources far enough to know which paths they name: comments, strings and inline tests
//! are left out, `use` trees are spread out, `self` and `super` are resolved.

use std::fs;
use std::path::{Path, PathBuf};

/// One source file of a crate.
#[derive(Debug)]
pub(crate) struct Source {
    /// Its path below `src`, with `/` between folders: `upstream/http.rs`.
    pub(crate) file: String,
    /// Its module path without `crate`: `["upstream", "http"]`.
    pub(crate) module: Vec<String>,
    /// What it says, without comments, strings and tests.
    pub(crate) code: String,
}

impl Source {
    /// Takes a file's text apart.
    pub(crate) fn new(file: &str, text: &str) -> Self {
        let module = module_of(file);
        Self {
            file: file.to_owned(),
            module,
            code: without_tests(&without_words(text)),
        }
    }

    /// The first module of its path: what a layer is made of. Empty for `lib.rs` and `main.rs`.
    pub(crate) fn top(&self) -> &str {
        self.module.first().map_or("", String::as_str)
    }

    /// Every path it names, with its line: in `use` trees, in code, and names of macros.
    pub(crate) fn paths(&self) -> Vec<(usize, Vec<String>)> {
        let mut paths = Vec::new();
        for (line, statement) in statements(&self.code) {
            match statement.trim_start().strip_prefix("use ") {
                Some(tree) => spread(tree, &mut Vec::new(), &mut |path| paths.push((line, path))),
                None => inline(&statement, line, &mut paths),
            }
        }
        for (_, path) in &mut paths {
            *path = self.resolve(path);
        }
        paths
    }

    /// `super::x` and `self::x` as seen from the root of the crate.
    fn resolve(&self, path: &[String]) -> Vec<String> {
        let mut place = self.module.clone();
        let mut rest = path;
        let mut relative = false;
        while let Some((first, tail)) = rest.split_first() {
            match first.as_str() {
                "self" => relative = true,
                "super" => {
                    relative = true;
                    place.pop();
                },
                _ => break,
            }
            rest = tail;
        }
        if !relative {
            return path.to_vec();
        }
        ["crate".to_owned()]
            .into_iter()
            .chain(place)
            .chain(rest.iter().cloned())
            .collect()
    }
}

/// Every source below a crate's `src`, tests left out.
pub(crate) fn sources(crate_folder: &Path) -> Vec<Source> {
    let root = crate_folder.join("src");
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    files
        .into_iter()
        .filter_map(|path| {
            let file = path.strip_prefix(&root).ok()?.to_str()?.to_owned();
            let is_test = file.ends_with("/tests.rs") || file.contains("/tests/");
            let text = fs::read_to_string(&path).unwrap();
            (!is_test).then(|| Source::new(&file, &text))
        })
        .collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            files.push(path);
        }
    }
}

fn module_of(file: &str) -> Vec<String> {
    let stem = file.trim_end_matches(".rs");
    if matches!(stem, "lib" | "main") {
        Vec::new()
    } else {
        stem.split('/').map(str::to_owned).collect()
    }
}

/// The text with comments, strings and character literals blanked out. Lines stay where they are.
fn without_words(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = word_end(bytes, at);
        if end > at {
            out.extend(
                bytes[at..end]
                    .iter()
                    .filter(|byte| **byte == b'\n')
                    .map(|_| '\n'),
            );
            out.push(' ');
            at = end;
        } else {
            out.push(char::from(bytes[at]));
            at += 1;
        }
    }
    out
}

/// Where the comment, string or character that begins here ends; here itself if none does.
fn word_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let after_name = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    if rest.starts_with(b"//") {
        at + rest
            .iter()
            .position(|byte| *byte == b'\n')
            .unwrap_or(rest.len())
    } else if rest.starts_with(b"/*") {
        at + find(rest, b"*/").map_or(rest.len(), |end| end + 2)
    } else if rest[0] == b'"' {
        at + 1 + closing_quote(&rest[1..])
    } else if rest[0] == b'r'
        && !after_name
        && (rest.get(1) == Some(&b'"') || rest.get(1) == Some(&b'#'))
    {
        at + raw_string(rest)
    } else if rest[0] == b'\'' {
        at + character(rest)
    } else {
        at
    }
}

fn closing_quote(rest: &[u8]) -> usize {
    let mut at = 0;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

fn raw_string(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 0; // A raw identifier.
    }
    let closing: Vec<u8> = [b'"']
        .into_iter()
        .chain(std::iter::repeat_n(b'#', hashes))
        .collect();
    let body = 2 + hashes;
    find(&rest[body..], &closing).map_or(rest.len(), |end| body + end + closing.len())
}

/// The length of a character literal; a lifetime has none.
fn character(rest: &[u8]) -> usize {
    match rest.get(1) {
        Some(b'\\') => rest[2..]
            .iter()
            .skip(1)
            .position(|b| *b == b'\'')
            .map_or(0, |end| end + 4),
        Some(_) if rest.get(2) == Some(&b'\'') => 3,
        _ => 0,
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

/// Inline tests stand at the end of a file, by habit: everything from there on is left out.
fn without_tests(code: &str) -> String {
    let mut kept = String::new();
    let mut lines = code.lines().peekable();
    while let Some(line) = lines.next() {
        let opens_tests = line.trim() == "#[cfg(test)]"
            && lines
                .peek()
                .is_some_and(|next| next.starts_with("mod ") && next.ends_with('{'));
        if opens_tests {
            break;
        }
        kept.push_str(line);
        kept.push('\n');
    }
    kept
}

/// Pieces between `;`, with the line each begins on. A `use` is one piece; blocks may be many.
fn statements(code: &str) -> Vec<(usize, String)> {
    let mut pieces = Vec::new();
    let (mut piece, mut begun) = (String::new(), 1);
    for (number, line) in code.lines().enumerate() {
        let in_use = piece.trim_start().starts_with("use ");
        if !in_use && !piece.trim().is_empty() {
            pieces.push((begun, std::mem::take(&mut piece)));
        }
        if !in_use {
            piece.clear();
            begun = number + 1;
        }
        let line = line.trim();
        let visible = line
            .strip_prefix("pub ")
            .or_else(|| line.strip_prefix("pub(crate) "));
        piece.push_str(
            visible
                .filter(|rest| rest.starts_with("use "))
                .unwrap_or(line),
        );
        piece.push(' ');
        if piece.starts_with("use ") && line.ends_with(';') {
            pieces.push((
                begun,
                std::mem::take(&mut piece)
                    .trim()
                    .trim_end_matches(';')
                    .to_owned(),
            ));
        }
    }
    pieces.push((begun, piece));
    pieces
}

/// Spreads `a::{b, c::{d, self}}` out into its paths.
fn spread(tree: &str, before: &mut Vec<String>, give: &mut impl FnMut(Vec<String>)) {
    let tree = tree.trim();
    let Some((head, tail)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or(tree);
        let mut whole = before.clone();
        whole.extend(names(path).filter(|name| before.is_empty() || name != "self"));
        return give(whole);
    };
    let depth = before.len();
    before.extend(names(head));
    for branch in branches(tail.rsplit_once('}').map_or("", |(inside, _)| inside)) {
        spread(&branch, before, give);
    }
    before.truncate(depth);
}

fn names(path: &str) -> impl Iterator<Item = String> {
    path.split("::")
        .map(|name| name.trim_matches([' ', ':']).to_owned())
        .filter(|n| !n.is_empty())
}

/// The parts between commas that stand outside braces.
fn branches(inside: &str) -> Vec<String> {
    let (mut depth, mut parts) = (0_i32, vec![String::new()]);
    for letter in inside.chars() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {},
        }
        match parts.last_mut() {
            Some(part) if letter != ',' || depth > 0 => part.push(letter),
            _ => parts.push(String::new()),
        }
    }
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// Paths of two names or more, and macros, in a line of code.
fn inline(line: &str, number: usize, paths: &mut Vec<(usize, Vec<String>)>) {
    let is_part =
        |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':' || letter == '!';
    for word in line.split(|letter| !is_part(letter)) {
        let names: Vec<String> = names(word).collect();
        let is_macro = word.ends_with('!') && word.len() > 1;
        if names.len() > 1 || is_macro {
            paths.push((number, names));
        }
    }
}
