//! How things are said: options of every command.

use std::ffi::OsString;

use clap::{Args, ValueEnum};

/// How things are said. Works with every command.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct Look {
    /// Print one JSON object per line instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Use colours or not; the variable `NO_COLOR` is honoured too
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
    /// Print answers and errors, nothing else
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Tell on stderr what is sent and received; values are struck out
    #[arg(long, short, global = true)]
    pub(crate) verbose: bool,
}

impl Look {
    /// How things are said when the command line does not parse: as far as it can be told.
    pub(crate) fn guessed(words: impl Iterator<Item = OsString>) -> Self {
        let words: Vec<OsString> = words.take_while(|word| word != "--").collect();
        let has = |option: &str| words.iter().any(|word| word == option);
        Self {
            json: has("--json"),
            color: if has("--color=never") {
                Color::Never
            } else {
                Color::Auto
            },
            quiet: false,
            verbose: false,
        }
    }
}

/// When colours are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}
