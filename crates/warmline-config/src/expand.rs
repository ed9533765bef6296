//! Variables in `mcpServers` files: `${NAME}`, `${NAME:-default}` and `${env:NAME}`.
//!
//! `warmline.toml` has none: it names variables where it needs them (`env_pass`, `credential`).

use warmline_engine::settings::VariableLookup;

/// Whether the language of a file has variables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Expansion {
    /// A dollar sign is a dollar sign.
    #[default]
    Disabled,
    /// `${NAME}` stands for the value of a variable.
    Variables,
}

/// The text with its variables filled in. The error names what is missing, never a value.
pub(crate) fn expand(
    text: &str,
    expansion: Expansion,
    lookup: VariableLookup<'_>,
) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    for piece in split_pieces(text, expansion) {
        match piece {
            TextPiece::Text(text) => out.push_str(text),
            TextPiece::Input(name) => {
                return Err(format!("only an editor can ask for `${{input:{name}}}`"));
            },
            TextPiece::Unclosed => return Err("a `${` is not closed by a `}`".to_owned()),
            TextPiece::Variable { name, default } => match (lookup.var(name), default) {
                (Ok(Some(value)), _) => out.push_str(&value),
                (Ok(None), Some(default)) => out.push_str(default),
                (Ok(None), None) => return Err(format!("`{name}` is not set")),
                (Err(_), _) => return Err(format!("`{name}` is no text: it is not UTF-8")),
            },
        }
    }
    Ok(out)
}

/// Whether a text can be the name of a variable.
pub fn is_variable_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The names of the variables in a text.
pub(crate) fn variable_names(text: &str, expansion: Expansion) -> Vec<String> {
    variables(text, expansion)
        .map(|(name, _)| name.to_owned())
        .collect()
}

/// The names of the variables in a text that have no default.
pub(crate) fn required_variables(text: &str, expansion: Expansion) -> Vec<String> {
    let required = variables(text, expansion).filter(|(_, default)| default.is_none());
    required.map(|(name, _)| name.to_owned()).collect()
}

/// Whether a variable begins in a text and does not end there.
pub(crate) fn has_unclosed_variable(text: &str) -> bool {
    split_pieces(text, Expansion::Variables).contains(&TextPiece::Unclosed)
}

fn variables(text: &str, expansion: Expansion) -> impl Iterator<Item = (&str, Option<&str>)> {
    let pieces = split_pieces(text, expansion).into_iter();
    pieces.filter_map(|piece| match piece {
        TextPiece::Variable { name, default } => Some((name, default)),
        TextPiece::Text(_) | TextPiece::Input(_) | TextPiece::Unclosed => None,
    })
}

#[derive(Debug, PartialEq, Eq)]
enum TextPiece<'a> {
    Text(&'a str),
    Variable {
        name: &'a str,
        default: Option<&'a str>,
    },
    Input(&'a str),
    /// `${` without a `}` behind it.
    Unclosed,
}

fn split_pieces(text: &str, expansion: Expansion) -> Vec<TextPiece<'_>> {
    if expansion == Expansion::Disabled {
        return vec![TextPiece::Text(text)];
    }
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("${") {
        out.push(TextPiece::Text(before));
        let Some((inside, after)) = behind.split_once('}') else {
            out.push(TextPiece::Unclosed);
            return out;
        };
        out.push(parse_variable(inside));
        rest = after;
    }
    out.push(TextPiece::Text(rest));
    out
}

fn parse_variable(inside: &str) -> TextPiece<'_> {
    if let Some(name) = inside.strip_prefix("input:") {
        return TextPiece::Input(name);
    }
    let inside = inside.strip_prefix("env:").unwrap_or(inside);
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    TextPiece::Variable { name, default }
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
            ("${input:key}",   Err("only an editor can ask for `${input:key}`")),
        ];
        for (text, expected) in table {
            let out = expand(text, Expansion::Variables, &lookup);
            assert_eq!(out.as_deref().map_err(String::as_str), expected, "{text}");
            assert_eq!(
                expand(text, Expansion::Disabled, &lookup).as_deref(),
                Ok(text)
            );
        }
        assert_eq!(
            variable_names("${A} ${env:B} ${C:-x} ${input:d}", Expansion::Variables),
            ["A", "B", "C"]
        );
    }
}
