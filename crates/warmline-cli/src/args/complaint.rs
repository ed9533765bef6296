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
        None => problem.hint("`warmline --help` shows what can be typed"),
    }
}

fn hint(error: &clap::Error) -> Option<String> {
    let suggested = [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg];
    let near = suggested.into_iter().find_map(|kind| text(error, kind));
    if let Some(near) = near.or_else(|| nearest_value(error)) {
        return Some(format!("did you mean `{near}`?"));
    }
    if let Some(choices) = text(error, ContextKind::ValidValue) {
        return Some(format!("it is one of {choices}"));
    }
    // The reason that our own parsers of values give.
    std::error::Error::source(error).map(ToString::to_string)
}

/// The choice that was probably meant; the parser's own idea of near is too wide.
fn nearest_value(error: &clap::Error) -> Option<String> {
    let typed = text(error, ContextKind::InvalidValue)?;
    let Some(ContextValue::Strings(choices)) = error.get(ContextKind::ValidValue) else {
        return None;
    };
    nearest(&typed, choices.iter().map(String::as_str)).map(str::to_owned)
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
