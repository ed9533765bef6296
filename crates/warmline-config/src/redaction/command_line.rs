//! Secrets among the words of a command line, by the names of their options and by their looks.

use super::patterns::{is_secret_name, is_token_char, looks_secret};
use super::{PLACEHOLDER, REDACTED, redact_url, shell_quoted};
use crate::expand::{Expansion, variable_names};

/// A command line for people: words can be told apart, and values that look like secrets are struck
/// out.
pub fn redact_command<'w>(words: impl Iterator<Item = &'w str> + Clone) -> String {
    let guessed = words.clone().zip(guess_words(words));
    let shown = guessed.map(|(word, guess)| match guess {
        SecretGuess::Secret { redacted, .. } => {
            let rest = redacted.replace(REDACTED, "");
            match rest.is_empty() || shell_quoted(&rest) == rest {
                true => redacted,
                false => shell_quoted(&redacted),
            }
        },
        SecretGuess::NotSecret | SecretGuess::MaybeSecret => shell_quoted(word),
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// A guess about a word of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SecretGuess {
    NotSecret,
    /// It may hold a secret, but people must see what else it holds: it is shown, and not copied.
    MaybeSecret,
    /// It holds a secret.
    Secret {
        /// The word without it.
        redacted: String,
        /// The option or variable that it is the value of.
        name: Option<String>,
    },
}

impl SecretGuess {
    fn or_maybe(self, is_suspect: bool) -> Self {
        match self {
            Self::NotSecret if is_suspect => Self::MaybeSecret,
            Self::NotSecret | Self::MaybeSecret | Self::Secret { .. } => self,
        }
    }
}

/// Where a word stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GuessContext {
    CommandLine,
    /// What is struck out here could be executed, so only single plain words are.
    ShellScript,
}

/// A guess about each word of a command line.
pub(crate) fn guess_words<'w>(words: impl Iterator<Item = &'w str>) -> Vec<SecretGuess> {
    guess_words_in(words, GuessContext::CommandLine)
}

/// A guess about the value of a variable with this name.
pub(crate) fn guess_value(name: &str, value: &str) -> SecretGuess {
    guess_named("", value, name, GuessContext::CommandLine)
}

fn guess_words_in<'w>(
    words: impl Iterator<Item = &'w str>,
    context: GuessContext,
) -> Vec<SecretGuess> {
    let mut option: Option<&str> = None;
    let guesses = words.map(|word| {
        let guess = match option.take() {
            Some(name) if is_header_option(name) || is_short_option(name) => {
                guess_option_value(name, word, context)
            },
            Some(name) if !word.starts_with('-') => guess_named("", word, name, context),
            Some(_) | None => guess_option(word, context),
        };
        let is_option = word.starts_with('-') && !word.contains(['=', ' ']);
        let has_secret = is_secret_name(word) || is_header_option(word) || is_short_option(word);
        option = (is_option && has_secret).then_some(word);
        guess
    });
    guesses.collect()
}

/// Whether the value of an option is a header.
fn is_header_option(option: &str) -> bool {
    ["--header", "--headers", "-H"].contains(&option)
}

/// Whether some programs take the value of an option for a password or a key, and others do not.
fn is_short_option(option: &str) -> bool {
    ["-p", "-k", "-u", "--user"].contains(&option)
}

/// The value of one of those options. Each server decides which headers are secret; a port, a
/// version and a user without a password are no secrets.
fn guess_option_value(option: &str, word: &str, context: GuessContext) -> SecretGuess {
    let is_suspect = if is_header_option(option) {
        word.contains(':') && !has_variables(word)
    } else {
        let is_number = word.bytes().all(|byte| b"0123456789.:".contains(&byte));
        let is_path = word.starts_with(['/', '.', '~', '-']) || word.contains("://");
        let may_be_one = ["-p", "-k"].contains(&option) || word.contains(':');
        may_be_one && !is_number && !is_path
    };
    guess_word(word, context).or_maybe(is_suspect)
}

/// A word that may be an option with its value behind `=`.
fn guess_option(word: &str, context: GuessContext) -> SecretGuess {
    let (option, value) = word.split_once('=').unwrap_or_default();
    if !is_header_option(option) && !is_short_option(option) {
        return guess_word(word, context);
    }
    match guess_option_value(option, value, context) {
        SecretGuess::Secret { redacted, name } => SecretGuess::Secret {
            redacted: format!("{option}={redacted}"),
            name,
        },
        guess @ (SecretGuess::NotSecret | SecretGuess::MaybeSecret) => guess,
    }
}

fn guess_word(word: &str, context: GuessContext) -> SecretGuess {
    let sign = word.find(['=', ':']).filter(|at| {
        let rest = word.get(at + 1..).unwrap_or_default();
        !rest.is_empty() && !rest.starts_with("//")
    });
    let (before, value) = word.split_at(sign.map_or(word.len(), |at| at + 1));
    let name = before.trim_end_matches(['=', ':']);
    let is_named = !value.is_empty() && is_secret_name(name);
    if is_named && !name.contains(char::is_whitespace) {
        let guess = guess_named(before, value, name, context);
        if guess != SecretGuess::MaybeSecret {
            return guess;
        }
    }
    match word.contains(char::is_whitespace) {
        true => guess_script(word).or_maybe(is_named),
        false => guess_by_looks(word),
    }
}

/// The value of something whose name is that of a secret.
fn guess_named(before: &str, value: &str, name: &str, context: GuessContext) -> SecretGuess {
    let bare = strip_auth_scheme(value.trim_start());
    let is_path = ["/", "./", "../", "~"].iter().any(|p| bare.starts_with(p));
    let is_number = bare.bytes().all(|byte| byte.is_ascii_digit());
    let is_password = name.to_ascii_lowercase().contains("pass");
    let mut plain_values = NON_SECRET_VALUES.iter();
    let is_plain_value = plain_values.any(|word| bare.eq_ignore_ascii_case(word));
    let is_harmless = has_variables(value) || is_path || is_plain_value || bare == PLACEHOLDER;
    if is_harmless || (is_number && !is_password) {
        return SecretGuess::NotSecret;
    }
    if bare.contains("://") {
        return guess_by_looks(bare);
    }
    let is_one_word = match context {
        GuessContext::CommandLine => is_password || !bare.contains(char::is_whitespace),
        GuessContext::ShellScript => bare.chars().all(is_token_char),
    };
    if !is_one_word {
        return SecretGuess::MaybeSecret;
    }
    let kept = value.strip_suffix(bare).unwrap_or_default();
    SecretGuess::Secret {
        redacted: format!("{before}{kept}{REDACTED}"),
        name: Some(name.to_owned()),
    }
}

/// A text of several words, such as a script for a shell.
fn guess_script(script: &str) -> SecretGuess {
    let pieces = script.split_inclusive(char::is_whitespace);
    let guesses = guess_words_in(pieces.clone().map(str::trim_end), GuessContext::ShellScript);
    let (mut out, mut found) = (String::new(), None);
    for (piece, guess) in pieces.zip(guesses) {
        match guess {
            SecretGuess::Secret { redacted, name } => {
                found = Some(name);
                out.push_str(&redacted);
                out.push_str(piece.get(piece.trim_end().len()..).unwrap_or_default());
            },
            SecretGuess::NotSecret | SecretGuess::MaybeSecret => out.push_str(piece),
        }
    }
    match found {
        Some(name) => SecretGuess::Secret {
            redacted: out,
            name,
        },
        None => SecretGuess::NotSecret,
    }
}

/// A word without a name.
fn guess_by_looks(word: &str) -> SecretGuess {
    if !looks_secret(word) {
        return SecretGuess::NotSecret;
    }
    let redacted = match word.contains("://") {
        true => redact_url(word),
        false => REDACTED.to_owned(),
    };
    SecretGuess::Secret {
        redacted,
        name: None,
    }
}

fn has_variables(text: &str) -> bool {
    !variable_names(text, Expansion::Variables).is_empty()
}

/// The credential behind the scheme, as in `Bearer TOKEN`.
fn strip_auth_scheme(value: &str) -> &str {
    let (scheme, rest) = value.split_once(' ').unwrap_or_default();
    let mut schemes = ["bearer", "basic", "token"].iter();
    match schemes.any(|known| scheme.eq_ignore_ascii_case(known)) {
        true => rest.trim_start(),
        false => value,
    }
}

/// Values that are no secrets, whatever they are the value of.
const NON_SECRET_VALUES: &[&str] = &[
    "", "none", "true", "false", "yes", "no", "on", "off", "auto", "basic", "bearer", "oauth",
    "oauth2", "required", "optional",
];
