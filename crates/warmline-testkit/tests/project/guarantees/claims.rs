//! What tests say of themselves: the numbers at the head of their comments.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::files_below;
use crate::guarantees::cases::{Case, Source};

/// One test, and what its comment says that it shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) test: Shown,
    pub(crate) cases: Vec<Case>,
    /// What is wrong with its comment.
    pub(crate) complaints: Vec<String>,
}

/// A test, by its file below `crates` and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shown {
    pub(crate) file: String,
    pub(crate) name: String,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: `{}`", self.file, self.name)
    }
}

/// Every test of every crate.
pub(crate) fn claims_below(crates: &Path) -> Vec<Claim> {
    let claims = |path: PathBuf| {
        let file = path.strip_prefix(crates).unwrap().to_str().unwrap();
        claims_in(file, &fs::read_to_string(&path).unwrap())
    };
    let files = files_below(crates, "rs");
    files.into_iter().flat_map(claims).collect()
}

/// The tests of one file: functions with `#[test]` or the like, and the stories of a file that
/// runs them itself (`const ALL: &[Story]`), whose comments begin with `//`.
pub(crate) fn claims_in(file: &str, text: &str) -> Vec<Claim> {
    let mut claims = Vec::new();
    let mut before = Before::default();
    let has_stories = text.contains(": &[Story] = ");
    for line in text.lines().map(str::trim) {
        if let Some(name) = function_named_in(line) {
            if before.is_test {
                claims.push(claim(file, name, &before.comment));
            }
            before = Before::default();
        } else if let Some(name) = story_named_in(line).filter(|_| has_stories) {
            claims.push(claim(file, name, &before.comment));
            before = Before::default();
        } else {
            before.read(line, has_stories);
        }
    }
    claims
}

/// What stands before a function.
#[derive(Default)]
struct Before {
    comment: String,
    is_test: bool,
    /// Brackets of an attribute that are still open.
    open: usize,
}

impl Before {
    fn read(&mut self, line: &str, has_stories: bool) {
        let said = line
            .strip_prefix("///")
            .or_else(|| line.strip_prefix("//").filter(|_| has_stories));
        if self.open > 0 {
            self.brackets(line);
        } else if let Some(words) = said {
            self.comment.push(' ');
            self.comment.push_str(words.trim());
        } else if line.starts_with("#[") {
            let attribute = line.trim_start_matches("#[");
            let starts = |word: &str| {
                attribute
                    .strip_prefix(word)
                    .is_some_and(|rest| rest.starts_with([']', '(']))
            };
            self.is_test |= starts("test") || starts("tokio::test");
            self.brackets(line);
        } else if !(line == "(" && has_stories) {
            *self = Self::default();
        }
    }

    fn brackets(&mut self, line: &str) {
        let opened = self.open + line.matches('[').count();
        self.open = opened.saturating_sub(line.matches(']').count());
    }
}

fn function_named_in(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub(crate) ").unwrap_or(line);
    let rest = rest.strip_prefix("async ").unwrap_or(rest);
    let rest = rest.strip_prefix("fn ")?;
    rest.split(['(', '<']).next()
}

/// `("a_stubborn_tree_is_gone", closed_tree),` or its first line.
fn story_named_in(line: &str) -> Option<&str> {
    let rest = line.strip_prefix('(').unwrap_or(line).strip_prefix('"')?;
    let (name, after) = rest.split_once('"')?;
    let is_name = name.contains('_')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    (is_name && after.starts_with(',')).then_some(name)
}

fn claim(file: &str, name: &str, comment: &str) -> Claim {
    let test = Shown {
        file: file.to_owned(),
        name: name.to_owned(),
    };
    let mut claim = Claim {
        cases: Vec::new(),
        complaints: Vec::new(),
        test,
    };
    // `A177: this; A178: that` has two heads.
    for part in comment.split("; ") {
        match head_of(part.trim()) {
            Ok(cases) => claim.cases.extend(cases),
            Err(complaint) => claim
                .complaints
                .push(format!("{}: {complaint}", claim.test)),
        }
    }
    claim
}

/// The numbers before the first colon; none, if something else stands there. A comment that begins
/// like one and cannot be read is a slip.
fn head_of(text: &str) -> Result<Vec<Case>, String> {
    let first = text.split([',', ':', ' ']).next().unwrap_or("");
    let looks_like_one = Case::read(first.trim_end_matches('.')).is_some_and(Case::exists);
    let head = text.split_once(':').map_or("", |(head, _)| head);
    match items_of(head) {
        Some(_) if head.contains("reliability ") && has_bare_promise_behind(head) => Err(format!(
            "a bare P behind `reliability` may be either page's: \"{head}\""
        )),
        Some(items) => cases_of(&items),
        None if looks_like_one => Err(format!("cannot read the numbers of \"{text}\"")),
        None => Ok(Vec::new()),
    }
}

/// `reliability T13, P32`: both pages have a P32, so the second must say which it means.
fn has_bare_promise_behind(head: &str) -> bool {
    let behind = head
        .split(", ")
        .skip_while(|item| !item.starts_with("reliability "));
    behind.skip(1).any(|item| item.starts_with('P'))
}

/// The items of a head; none if it is no head.
fn items_of(head: &str) -> Option<Vec<Item>> {
    head.split(", ")
        .map(|item| Item::read(item.trim()))
        .collect()
}

/// One item of a head.
enum Item {
    One(Case),
    /// `A24 to A26`.
    Range(Case, Case),
    /// A row of the reliability page that the map does not list, or a section of it.
    Elsewhere,
}

impl Item {
    fn read(text: &str) -> Option<Self> {
        if let Some((first, last)) = text.split_once(" to ") {
            let page = if text.starts_with("reliability ") {
                "reliability "
            } else {
                ""
            };
            let last = format!("{page}{last}");
            return match (Self::read(first)?, Self::read(&last)?) {
                (Self::One(first), Self::One(last)) => Some(Self::Range(first, last)),
                (Self::Elsewhere, Self::Elsewhere) => Some(Self::Elsewhere),
                _ => None,
            };
        }
        if let Some(section) = text.strip_prefix("reliability ")
            && section.starts_with(|letter: char| letter.is_ascii_digit())
        {
            return Some(Self::Elsewhere);
        }
        let case = Case::read(text.trim_end_matches(|letter: char| letter.is_ascii_lowercase()))?;
        let is_listed = match case.page {
            Source::Reliability => "PIT".contains(case.letter),
            Source::Acceptance => "APSEM".contains(case.letter),
        };
        Some(if is_listed {
            Self::One(case)
        } else {
            Self::Elsewhere
        })
    }
}

fn cases_of(items: &[Item]) -> Result<Vec<Case>, String> {
    let mut cases = Vec::new();
    for item in items {
        match item {
            Item::One(case) => cases.push(*case),
            Item::Range(first, last) => {
                cases.extend((first.number..=last.number).map(|number| Case { number, ..*first }));
            },
            Item::Elsewhere => {},
        }
    }
    let unknown = cases.iter().find(|case| !case.exists());
    unknown.map_or(Ok(()), |case| Err(format!("there is no case {case}")))?;
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::{Claim, claims_in};

    fn said(comment: &str) -> Claim {
        let text =
            format!("/// {comment}\n#[tokio::test(flavor = \"x\")]\nasync fn it_works() {{}}");
        claims_in("a/tests/b.rs", &text).pop().unwrap()
    }

    #[test]
    fn the_head_of_a_comment_names_the_cases_and_a_slip_is_found() {
        for (comment, cases) in [
            (
                "A1, reliability P8, reliability R3, E2: mixed.",
                "A1 reliability P8 E2",
            ),
            ("A24 to A26: a range.", "A24 A25 A26"),
            ("A177: the first; A178: none.", "A177 A178"),
            ("A128, reliability 4.5 to 4.8: sections.", "A128"),
            ("reliability D94: a row that is not listed.", ""),
            ("Nothing of that kind: A24 comes too late.", ""),
            ("S2.17 of the house: another page.", ""),
        ] {
            let claim = said(comment);
            let named: Vec<String> = claim.cases.iter().map(ToString::to_string).collect();
            assert_eq!(named.join(" "), cases, "{comment}");
            assert!(claim.complaints.is_empty(), "{claim:?}");
        }
        for slip in [
            "A24 P107: no comma.",
            "A24. A full stop.",
            "A24, A58: no such case.",
            "reliability T13, P32: which page?",
        ] {
            assert_eq!(said(slip).complaints.len(), 1, "{slip}");
        }
    }

    #[test]
    fn only_tests_and_stories_count() {
        let text = "/// A1: a helper.\nfn helper() {}\n\n/// A2: cut off by a line.\n\n#[test]\nfn first() {}\n    /// A3: with\n    /// two lines.\n    #[expect(\n        lint,\n        reason = \"x\"\n    )]\n    #[test]\n    fn second(values in any()) {}";
        let stories = "const ALL: &[Story] = &[\n    // A49: killed.\n    (\n        \"a_tree_is_gone\",\n        || killed(1),\n    ),\n    (\"another_tale\", other),\n];";
        for (text, expected) in [
            (text, [("first", 0), ("second", 1)]),
            (stories, [("a_tree_is_gone", 1), ("another_tale", 0)]),
        ] {
            let claims = claims_in("x.rs", text);
            let found = claims
                .iter()
                .map(|one| (one.test.name.as_str(), one.cases.len()));
            assert_eq!(found.collect::<Vec<_>>(), expected);
        }
    }
}
