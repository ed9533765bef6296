//! Variables in `mcpServers` files: `${NAME}`, `${NAME:-default}` and `${env:NAME}`.
//!
//! `warmline.toml` has none: it names variables where it wants them (`env_pass`, `credential`).

use crate::settings::Lookup;

/// Whether a file's form knows variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expand {
    /// A dollar sign is a dollar sign.
    Nothing,
    /// `${NAME}` stands for the value of a variable.
    Variables,
}

/// The text with its variables filled in. The error names what is missing, never a value.
pub(crate) fn expand(text: &str, how: Expand, lookup: Lookup<'_>) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    for piece in pieces(text, how) {
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Input(name) => {
                return Err(format!(
                    "`${{input:{name}}}` is asked for by an editor, and there is none here"
                ));
            },
            Piece::Open => return Err("a `${` is not closed by a `}`".to_owned()),
            Piece::Variable { name, default } => match (lookup.text(name), default) {
                (Ok(Some(value)), _) => out.push_str(&value),
                (Ok(None), Some(default)) => out.push_str(default),
                (Ok(None), None) => return Err(format!("`{name}` is not set")),
                (Err(_), _) => return Err(format!("`{name}` is no text: it is not UTF-8")),
            },
        }
    }
    Ok(out)
}

/// The names of the variables in a text.
pub(crate) fn names(text: &str, how: Expand) -> Vec<String> {
    pieces(text, how)
        .into_iter()
        .filter_map(|piece| match piece {
            Piece::Variable { name, .. } => Some(name.to_owned()),
            Piece::Text(_) | Piece::Input(_) | Piece::Open => None,
        })
        .collect()
}

/// Whether a variable begins in a text that does not end there.
pub(crate) fn is_open(text: &str, how: Expand) -> bool {
    pieces(text, how).contains(&Piece::Open)
}

/// The names of those that have no value to fall back on.
pub(crate) fn needed(text: &str, how: Expand) -> Vec<String> {
    pieces(text, how)
        .into_iter()
        .filter_map(|piece| match piece {
            Piece::Variable {
                name,
                default: None,
            } => Some(name.to_owned()),
            Piece::Variable { .. } | Piece::Text(_) | Piece::Input(_) | Piece::Open => None,
        })
        .collect()
}

#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    Text(&'a str),
    Variable {
        name: &'a str,
        default: Option<&'a str>,
    },
    Input(&'a str),
    /// `${` without a `}` behind it.
    Open,
}

fn pieces(text: &str, how: Expand) -> Vec<Piece<'_>> {
    if how == Expand::Nothing {
        return vec![Piece::Text(text)];
    }
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((before, inside, after)) = next(rest) {
        out.push(Piece::Text(before));
        out.push(piece(inside));
        rest = after;
    }
    out.push(if rest.contains("${") {
        Piece::Open
    } else {
        Piece::Text(rest)
    });
    out
}

/// Text before, inside and after the first `${…}`.
fn next(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once("${")?;
    let (inside, after) = rest.split_once('}')?;
    Some((before, inside, after))
}

fn piece(inside: &str) -> Piece<'_> {
    if let Some(name) = inside.strip_prefix("input:") {
        return Piece::Input(name);
    }
    let inside = inside.strip_prefix("env:").unwrap_or(inside);
    match inside.split_once(":-") {
        Some((name, default)) => Piece::Variable {
            name,
            default: Some(default),
        },
        None => Piece::Variable {
            name: inside,
            default: None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_in_and_missing_ones_are_named() {
        let lookup = |name: &str| (name == "A").then(|| "1".to_owned());
        #[rustfmt::skip]
        let table = [
            ("plain",          Ok("plain")),
            ("x${A}y${A}",     Ok("x1y1")),
            ("${env:A}",       Ok("1")),
            ("${B:-two}",      Ok("two")),
            ("${A:-two}",      Ok("1")),
            ("$A {A} $",       Ok("$A {A} $")),
            ("${A} ${A",       Err("a `${` is not closed by a `}`")),
            ("${B}",           Err("`B` is not set")),
            ("${input:key}",   Err("`${input:key}` is asked for by an editor, and there is none here")),
        ];
        for (text, expected) in table {
            let out = expand(text, Expand::Variables, &lookup);
            assert_eq!(out.as_deref().map_err(String::as_str), expected, "{text}");
            assert_eq!(expand(text, Expand::Nothing, &lookup).as_deref(), Ok(text));
        }
        assert_eq!(
            names("${A} ${env:B} ${C:-x} ${input:d}", Expand::Variables),
            ["A", "B", "C"]
        );
    }
}
