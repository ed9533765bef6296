//! Names: tool names that model providers accept, patterns of names, and what was probably meant.
//!
//! Asked by: tool lists, and the rules on which tools may be called.
//!
//! Why it exists: a provider refuses a whole request because one name in it has a dot or 65
//!   characters. Servers name their tools as they like.
//! What stays: a name that is fine already. Any other is cleaned, and ends in a digest of the
//!   original: `files.read` becomes `files_read_059c287d`.
//! What is promised: no two tools of a list get the same name; equal lists get equal names, in
//!   any order; and one tool's name does not depend on the others, unless they collide.

use std::collections::BTreeMap;

mod nearest;

pub use nearest::nearest;

/// The longest name that the usual model providers accept.
pub const LONGEST: usize = 64;

/// No limit is taken below this: a digest and something to recognise the tool by must fit.
const SHORTEST_LIMIT: usize = 24;

/// The names of a list of tools: as the server has them, and as models see them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    exposed: BTreeMap<String, String>,
    originals: BTreeMap<String, String>,
}

impl Names {
    /// Gives each name an exposed one of at most `longest` characters.
    pub fn of<'a>(originals: impl IntoIterator<Item = &'a str>, longest: usize) -> Self {
        let longest = longest.max(SHORTEST_LIMIT);
        let (fine, mut odd): (Vec<&str>, Vec<&str>) = originals
            .into_iter()
            .partition(|name| is_fine(name, longest));
        let mut names = Self::default();
        for name in fine {
            names.add(name, name.to_owned());
        }
        // In an order that does not depend on the list's.
        odd.sort_unstable();
        odd.dedup();
        for name in odd {
            let free = (0..).map(|turn| cleaned(name, longest, turn));
            if let Some(exposed) = { free }.find(|exposed| !names.originals.contains_key(exposed)) {
                names.add(name, exposed);
            }
        }
        names
    }

    /// The name that models see.
    pub fn exposed(&self, original: &str) -> Option<&str> {
        self.exposed.get(original).map(String::as_str)
    }

    /// The server's own name of the tool that models see under this one.
    pub fn original(&self, exposed: &str) -> Option<&str> {
        self.originals.get(exposed).map(String::as_str)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.exposed.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.exposed.is_empty()
    }

    fn add(&mut self, original: &str, exposed: String) {
        self.originals.insert(exposed.clone(), original.to_owned());
        self.exposed.insert(original.to_owned(), exposed);
    }
}

/// Whether a name may be one that was made here: whoever meets it without a list must read one.
pub fn may_be_exposed(name: &str) -> bool {
    let ends = |suffix: &str| suffix.len() == DIGITS && suffix.bytes().all(is_digit);
    let is_ours = |(head, tail): (&str, &str)| {
        // A second turn adds its number behind the digest.
        ends(tail) || (tail.parse::<u32>().is_ok() && head.rsplit('_').next().is_some_and(ends))
    };
    name.rsplit_once('_').is_some_and(is_ours)
}

/// The hexadecimal digits of a digest in a name.
const DIGITS: usize = 8;

const fn is_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

fn is_fine(name: &str, longest: usize) -> bool {
    (1..=longest).contains(&name.len()) && name.bytes().all(is_plain)
}

const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// A name made fine. Every turn gives another one.
fn cleaned(name: &str, longest: usize, turn: u32) -> String {
    let mut suffix = format!("_{:08x}", digest(name));
    if turn > 0 {
        suffix.push_str(&format!("_{turn}"));
    }
    let plain = |letter: char| u8::try_from(letter).is_ok_and(is_plain);
    let mut made: String = name
        .chars()
        .map(|letter| if plain(letter) { letter } else { '_' })
        .take(longest.saturating_sub(suffix.len()))
        .collect();
    if made.is_empty() {
        made.push_str("tool");
    }
    made.push_str(&suffix);
    made
}

/// FNV-1a, folded to half its length. It only has to be the same everywhere and for ever: names
/// that meet all the same take another turn.
fn digest(name: &str) -> u32 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let folded = (hash >> 32) ^ (hash & 0xffff_ffff);
    u32::try_from(folded).unwrap_or(u32::MAX)
}

/// Whether a name fits a pattern, in which `*` stands for any characters.
pub fn is_like(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    // Where the last star stands, and how far it reaches: it takes more if the rest does not fit.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match (pattern.get(p), star) {
            (Some(b'*'), _) => {
                star = Some((p, n));
                p += 1;
            },
            (Some(byte), _) if Some(byte) == name.get(n) => {
                p += 1;
                n += 1;
            },
            (_, Some((at, reach))) => {
                star = Some((at, reach + 1));
                p = at + 1;
                n = reach + 1;
            },
            (_, None) => return false,
        }
    }
    pattern.iter().skip(p).all(|byte| *byte == b'*')
}

/// Whether a name fits one of several patterns.
pub fn is_any(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| is_like(pattern, name))
}

/// Whether the rules let a tool of that name be listed and called: nothing denies it, and
/// something allows it, or there is no list of what is allowed.
pub fn is_allowed(allow: &[String], deny: &[String], name: &str) -> bool {
    !is_any(deny, name) && (allow.is_empty() || is_any(allow, name))
}

#[cfg(test)]
mod tests;
