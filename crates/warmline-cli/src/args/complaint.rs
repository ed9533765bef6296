//! What the parser of the command line complains about, in our own form.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use warmline::config::nearest;

use crate::problem::Problem;

/// What came of a command line that does not parse.
#[derive(Debug)]
pub(crate) enum Complaint {
    /// Help or the version was asked for: this text is the answer.
    Answer(String),
    /// Nothing was asked for: this text helps.
    Help(String),
    /// Something is wrong.
    Problem(Problem),
}

impl Complaint {
    pub(crate) fn of(error: &clap::Error) -> Self {
        let text = || error.render().ansi().to_string();
        if matches!(
            error.kind(),
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
        ) {
            Self::Answer(text())
        } else if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            Self::Help(text())
        } else {
            Self::Problem(problem(error))
        }
    }
}

fn problem(error: &clap::Error) -> Problem {
    let typed = text(error, ContextKind::InvalidArg);
    let value = text(error, ContextKind::InvalidValue);
    let command = text(error, ContextKind::InvalidSubcommand);
    let what = match (error.kind(), command, typed, value) {
        (ErrorKind::MissingSubcommand, _, _, _) => "no command is named".to_owned(),
        (_, Some(command), _, _) => format!("`{command}` is no command"),
        (ErrorKind::UnknownArgument, _, Some(typed), _) if !typed.starts_with('-') => {
            format!("`{typed}` is one word too many")
        },
        (ErrorKind::UnknownArgument, _, Some(typed), _) => {
            format!("`{typed}` is not an option here")
        },
        (ErrorKind::InvalidValue | ErrorKind::ValueValidation, _, Some(typed), Some(value)) => {
            match value.is_empty() {
                true => format!("`{typed}` needs a value"),
                false => format!("`{typed}` cannot be `{value}`"),
            }
        },
        (ErrorKind::MissingRequiredArgument, _, Some(typed), _) => format!("{typed} is missing"),
        _ => first_line(error),
    };
    let problem = Problem::usage(what);
    match hint(error) {
        Some(hint) => problem.hint(hint),
        None => problem.hint(format!("`{} --help` shows what can be typed", meant(error))),
    }
}

/// The command that somebody was typing, as far as it is known.
fn meant(error: &clap::Error) -> String {
    let mut usage = String::new();
    if let Some(ContextValue::StyledStr(said)) = error.get(ContextKind::Usage) {
        usage = said.to_string();
    }
    let words = usage
        .split_whitespace()
        .skip_while(|word| *word != "warmline");
    let is_command = |word: &&str| {
        word.bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'-')
    };
    let words: Vec<&str> = words.take_while(is_command).collect();
    match words.is_empty() {
        true => "warmline".to_owned(),
        false => words.join(" "),
    }
}

fn hint(error: &clap::Error) -> Option<String> {
    let near = nearest_of(
        error,
        ContextKind::InvalidSubcommand,
        ContextKind::SuggestedSubcommand,
    )
    .or_else(|| text(error, ContextKind::SuggestedArg))
    .or_else(|| nearest_of(error, ContextKind::InvalidValue, ContextKind::ValidValue));
    if let Some(near) = near {
        return Some(format!("did you mean `{near}`?"));
    }
    if let Some(choices) = text(error, ContextKind::ValidValue) {
        return Some(format!("it is one of {choices}"));
    }
    // The reason that our own parsers of values give.
    std::error::Error::source(error).map(ToString::to_string)
}

/// The choice that was probably meant; the parser's own idea of near is too wide.
fn nearest_of(error: &clap::Error, typed: ContextKind, choices: ContextKind) -> Option<String> {
    let typed = text(error, typed)?;
    let choices = error.get(choices)?;
    if let ContextValue::Strings(choices) = choices {
        return nearest(&typed, choices.iter().map(String::as_str)).map(str::to_owned);
    }
    if let ContextValue::String(choice) = choices {
        return Some(choice.clone());
    }
    None
}

fn text(error: &clap::Error, kind: ContextKind) -> Option<String> {
    let value = error.get(kind)?;
    if let ContextValue::Strings(texts) = value {
        let quoted: Vec<String> = texts.iter().map(|text| format!("`{text}`")).collect();
        return match texts.as_slice() {
            [] => None,
            [only] => Some(only.clone()),
            _ => Some(quoted.join(", ")),
        };
    }
    if let ContextValue::String(text) = value {
        Some(text.clone())
    } else {
        None
    }
}

fn first_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let line = text.lines().next().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}
