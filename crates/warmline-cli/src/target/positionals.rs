//! Positional words: target, tool or method, and the rest.

use std::ffi::OsString;

use clap::Args;
use warmline_config::redact_url;

use super::TargetSpec;
use crate::output::problem::{CliResult, Problem};

/// A target, with everything positional that a command takes.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TargetArgs {
    /// A URL or a name, and further words
    #[arg(value_name = "WORD", num_args = 0.., hide = true)]
    pub(crate) words: Vec<String>,
    /// A program that speaks MCP over stdio, with its arguments
    #[arg(last = true, value_name = "COMMAND", hide = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpectedName {
    Tool,
    Method,
    Nothing,
}

impl TargetArgs {
    /// Splits `TARGET NAME REST…`, or `NAME REST…` with a command behind `--`. A missing target or
    /// name is none: the caller decides whether that is an error.
    pub(crate) fn split(
        &self,
        expected: ExpectedName,
    ) -> CliResult<(Option<TargetSpec>, Option<&str>, &[String])> {
        let last = std::env::args_os().next_back();
        if self.command.is_empty() && last.is_some_and(|last| last == "--") {
            return Err(Problem::usage("no command behind `--`")
                .with_hint("a target is a URL, a name, or a command behind `--`"));
        }
        let (spec, words) = match (self.command.as_slice(), self.words.as_slice()) {
            ([], []) => (None, [].as_slice()),
            ([], [target, rest @ ..]) => (Some(parse_target(target)?), rest),
            (_, [first, ..]) if first.contains("://") => {
                let what = "there are two targets: a URL and a command behind `--`";
                return Err(Problem::usage(what).with_hint("remove one of them"));
            },
            (command, words) => (Some(TargetSpec::Command(command.to_vec())), words),
        };
        match (expected, words) {
            (ExpectedName::Nothing, []) => Ok((spec, None, words)),
            (ExpectedName::Nothing, [extra, ..]) => Err(extra_word_error(extra, &self.command)),
            (ExpectedName::Tool | ExpectedName::Method, [name, rest @ ..])
                if !name.contains('=') =>
            {
                Ok((spec, Some(name.as_str()), rest))
            },
            (ExpectedName::Tool | ExpectedName::Method, _) => Ok((spec, None, words)),
        }
    }
}

pub(crate) fn extra_word_error(extra: &str, command: &[OsString]) -> Problem {
    Problem::usage(format!("unexpected argument `{}`", redact_word(extra))).with_hint(match command
    {
        [] => "give one target: a URL, a name, or a command behind `--`",
        _ => "with a command behind `--` there is no other target",
    })
}

pub(crate) fn parse_target(word: &str) -> CliResult<TargetSpec> {
    if word.contains("://") {
        return Ok(TargetSpec::Url(word.to_owned()));
    }
    if word.contains('=') {
        let what = format!("expected a target, not `{}`", redact_word(word));
        return Err(Problem::usage(what)
            .with_hint("the target comes first: a URL or a name; or a command last, behind `--`"));
    }
    Ok(TargetSpec::Name(word.to_owned()))
}

/// A word as it may be printed: values, and the query of a URL, may be secret.
pub(crate) fn redact_word(word: &str) -> String {
    let shown = match word.split_once('=') {
        _ if word.contains("://") => redact_url(word),
        Some((key, _)) => format!("{key}=…"),
        None => word.to_owned(),
    };
    shown.escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(words: &[&str], command: &[&str], named: ExpectedName) -> String {
        let args = TargetArgs {
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            command: command.iter().map(OsString::from).collect(),
        };
        match args.split(named) {
            Ok((aim, name, rest)) => {
                let aim = match aim {
                    Some(TargetSpec::Url(url)) => url,
                    Some(TargetSpec::Name(name)) => format!("name {name}"),
                    Some(TargetSpec::Command(words)) => format!("command of {}", words.len()),
                    None => "nothing".to_owned(),
                };
                format!("{aim} | {} | {}", name.unwrap_or("-"), rest.join(" "))
            },
            Err(problem) => problem.parts().message.clone(),
        }
    }

    #[test]
    fn words_are_split_by_where_the_target_stands() {
        use ExpectedName::{Method, Nothing, Tool};
        #[rustfmt::skip]
        let table: [(&[&str], &[&str], ExpectedName, &str); 15] = [
            (&["http://x/mcp", "add", "a=1"],  &[],           Tool,    "http://x/mcp | add | a=1"),
            (&["github", "add"],               &[],           Tool,    "name github | add | "),
            (&["add", "a=1"],                  &["npx", "s"], Tool,    "command of 2 | add | a=1"),
            (&["github", "tools/list"],        &[],           Method,  "name github | tools/list | "),
            (&["github"],                      &[],           Nothing, "name github | - | "),
            (&[],                              &["npx"],      Nothing, "command of 1 | - | "),
            (&[],                              &[],           Nothing, "nothing | - | "),
            (&["github"],                      &[],           Tool,    "name github | - | "),
            (&["github", "a=1"],               &[],           Tool,    "name github | - | a=1"),
            (&[],                              &[],           Tool,    "nothing | - | "),
            (&["a=1"],                         &[],           Tool,    "expected a target, not `a=…`"),
            (&["http://x", "add"],             &["npx"],      Tool,    "there are two targets: a URL and a command behind `--`"),
            (&["github", "more"],              &[],           Nothing, "unexpected argument `more`"),
            (&["github", "http://x/mcp?key=canary"], &[],     Nothing, "unexpected argument `http://x/mcp?…`"),
            (&["x/mcp?key=canary"],            &[],           Tool,    "expected a target, not `x/mcp?key=…`"),
        ];
        for (words, command, named, expected) in table {
            assert_eq!(told(words, command, named), expected);
        }
    }
}
