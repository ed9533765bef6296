//! Tool names that model providers accept, patterns of names, and the nearest known name.
//!
//! A provider refuses a whole request because one name in it has a dot or 65 characters. A name
//! that is accepted stays; any other is cleaned, and ends in a digest of the original: `files.read`
//! becomes `files_read_059c287d`. No two tools of a list get the same name; equal lists get equal
//! names, in any order; and one tool's name does not depend on the others, unless they collide.

use std::collections::BTreeMap;

mod closest_match;

pub use closest_match::closest_match;

/// The longest name that the usual model providers accept.
pub const MAX_NAME_LENGTH: usize = 64;

/// No limit is taken below this: a digest and something to recognise the tool by must fit.
const MIN_LENGTH_LIMIT: usize = 24;

/// The names of a list of tools: as the server has them, and as models see them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolNames {
    exposed_by_original: BTreeMap<String, String>,
    original_by_exposed: BTreeMap<String, String>,
}

impl ToolNames {
    /// Gives each name an exposed one of at most `longest` characters.
    pub fn from_originals<'a>(
        originals: impl IntoIterator<Item = &'a str>,
        longest: usize,
    ) -> Self {
        let longest = longest.max(MIN_LENGTH_LIMIT);
        let (fine, mut odd): (Vec<&str>, Vec<&str>) = originals
            .into_iter()
            .partition(|name| is_valid_name(name, longest));
        let mut names = Self::default();
        for name in fine {
            names.insert(name, name.to_owned());
        }
        // In an order that does not depend on the list's.
        odd.sort_unstable();
        odd.dedup();
        for name in odd {
            let free = (0..).map(|turn| sanitize_name(name, longest, turn));
            if let Some(exposed) =
                { free }.find(|exposed| !names.original_by_exposed.contains_key(exposed))
            {
                names.insert(name, exposed);
            }
        }
        names
    }

    /// The name that models see.
    pub fn exposed(&self, original: &str) -> Option<&str> {
        self.exposed_by_original.get(original).map(String::as_str)
    }

    /// The server's own name of the tool that models see under this one.
    pub fn original(&self, exposed: &str) -> Option<&str> {
        self.original_by_exposed.get(exposed).map(String::as_str)
    }

    pub fn len(&self) -> usize {
        self.exposed_by_original.len()
    }

    pub fn is_empty(&self) -> bool {
        self.exposed_by_original.is_empty()
    }

    fn insert(&mut self, original: &str, exposed: String) {
        self.original_by_exposed
            .insert(exposed.clone(), original.to_owned());
        self.exposed_by_original
            .insert(original.to_owned(), exposed);
    }
}

/// Whether a name may be an exposed one, so that the list has to be read to resolve it.
pub fn may_be_exposed_name(name: &str) -> bool {
    let ends = |suffix: &str| suffix.len() == DIGEST_DIGITS && suffix.bytes().all(is_hex_digit);
    let is_ours = |(head, tail): (&str, &str)| {
        // A second turn adds its number behind the digest.
        ends(tail) || (tail.parse::<u32>().is_ok() && head.rsplit('_').next().is_some_and(ends))
    };
    name.rsplit_once('_').is_some_and(is_ours)
}

/// The hexadecimal digits of a digest in a name.
const DIGEST_DIGITS: usize = 8;

const fn is_hex_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

fn is_valid_name(name: &str, longest: usize) -> bool {
    (1..=longest).contains(&name.len()) && name.bytes().all(is_allowed_byte)
}

const fn is_allowed_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// A name made fine. Every turn gives another one.
fn sanitize_name(name: &str, longest: usize, turn: u32) -> String {
    let mut suffix = format!("_{:08x}", name_digest(name));
    if turn > 0 {
        suffix.push_str(&format!("_{turn}"));
    }
    let plain = |letter: char| u8::try_from(letter).is_ok_and(is_allowed_byte);
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

/// FNV-1a, folded to half its length. It must never change; names that collide get a number.
fn name_digest(name: &str) -> u32 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let folded = (hash >> 32) ^ (hash & 0xffff_ffff);
    u32::try_from(folded).unwrap_or(u32::MAX)
}

/// Whether a name matches a pattern, in which `*` stands for any characters.
pub fn matches_pattern(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    // The last star and how much it matches: more, if the rest does not match.
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

pub fn matches_any_pattern(patterns: &[String], name: &str) -> bool {
    patterns
        .iter()
        .any(|pattern| matches_pattern(pattern, name))
}

#[cfg(test)]
mod tests;
