//! What a command line says about a target: its positional words, and the options beside them: headers
//! for a URL, variables and a folder for a program; and `MCP_SERVER_URL` and `MCP_AUTH_TOKEN`, variables
//! that name no server. They apply to the target of the command line, or to the only configured server.
//! Options win.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use http::header::AUTHORIZATION;
use warmline_config::{
    Declaration, bearer_value, is_cleartext, is_variable_name, parse_header, parse_url, redact_url,
};
use warmline_core::error::code::Code;
use warmline_engine::settings::{parse_duration, try_process_variable};
use warmline_upstream::{HttpConfig, StdioConfig, TransportConfig};

use super::{Target, TargetNote, TargetSpec};
use crate::output::{CliResult, Problem};

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

/// Options that override how a server is reached.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Reaching the server")]
pub(crate) struct ConnectArgs {
    /// A configuration file, instead of those in the default places
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// A header for every HTTP request; other users can read it in the process list
    #[arg(long, value_name = "NAME: VALUE")]
    pub(crate) header: Vec<String>,
    /// A header whose value is in an environment variable
    #[arg(long, value_name = "NAME=VARIABLE")]
    pub(crate) header_env: Vec<String>,
    /// Speak this era instead of detecting it
    #[arg(long, value_name = "ERA", default_value = "auto")]
    pub(crate) era: EraChoice,
    /// A PEM file of certificate authorities, instead of the system's
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// A variable for the program
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// Pass a variable of this environment to the program
    #[arg(long, value_name = "NAME")]
    pub(crate) env_pass: Vec<String>,
    /// The working folder of the program
    #[arg(long, value_name = "FOLDER")]
    pub(crate) cwd: Option<PathBuf>,
    /// The limit of each step: 500ms, 30s, 2min. By default 10s to connect, 60s to start a program,
    /// 30s for the handshake; a call may be silent for 300s and take 1h in all
    #[arg(long, value_name = "TIME", value_parser = positive_duration, allow_hyphen_values = true)]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum EraChoice {
    #[default]
    Auto,
    Legacy,
    Modern,
}

pub(crate) fn positive_duration(written: &str) -> Result<Duration, String> {
    parse_duration(written)
        .ok_or_else(|| "write a number above 0 and a unit: 500ms, 30s, 2min, 1h".to_owned())
}

/// Applies the options of a URL. `token_from` is set if they include a token.
pub(super) fn apply_http_args(
    http: &mut HttpConfig,
    connect: &ConnectArgs,
    name: &str,
    token_from: &mut Option<String>,
) -> CliResult<()> {
    let program_only = [
        (!connect.env.is_empty(), "--env"),
        (!connect.env_pass.is_empty(), "--env-pass"),
        (connect.cwd.is_some(), "--cwd"),
    ];
    if let Some((_, option)) = program_only.iter().find(|(given, _)| *given) {
        let what = format!("`{option}` is for a program, and `{name}` is a URL");
        return Err(Problem::usage(what));
    }
    let mut set_header = |header: &str, value: &str, origin: String| {
        let (name, value) = parse_header(header, value).map_err(Problem::usage)?;
        if token_from.is_none() || name == AUTHORIZATION {
            *token_from = Some(origin);
        }
        http.headers.retain(|(other, _)| *other != name);
        http.headers.push((name, value));
        Ok::<(), Problem>(())
    };
    for written in &connect.header {
        let Some((header, value)) = written.split_once(':') else {
            return Err(
                Problem::usage("a --header has no `:`").with_hint("write --header 'Name: value'")
            );
        };
        set_header(header, value, "`--header`".to_owned())?;
    }
    for written in &connect.header_env {
        let (header, variable) = split_header_env(written)?;
        let value = try_process_variable(variable)?.ok_or_else(|| {
            let what = format!("`{header}` takes its value from `{variable}`, which is not set");
            let hint = format!("set `{variable}` in the environment of this command");
            Problem::usage(what).with_hint(hint)
        })?;
        set_header(header, &value, format!("variable `{variable}`"))?;
    }
    if let Some(file) = &connect.ca_file {
        // Without TLS it is never read, so a missing file is reported here.
        if let (Err(error), "http") = (std::fs::read(file), http.url.scheme()) {
            return Err(Problem::usage("cannot read the file of `--ca-file`")
                .with_cause(format!("{}: {error}", file.display()))
                .with_hint("name a file of certificates in PEM format"));
        }
        http.ca_file = Some(file.clone());
    }
    Ok(())
}

fn split_header_env(written: &str) -> CliResult<(&str, &str)> {
    let Some((header, variable)) = written.split_once('=') else {
        return Err(Problem::usage("a --header-env has no `=`")
            .with_hint("write --header-env Authorization=MY_VARIABLE"));
    };
    // It may be the secret itself, so it is not repeated.
    if !is_variable_name(variable) {
        let what = "the text after `=` in a --header-env is not the name of a variable";
        return Err(Problem::usage(what).with_hint(
            "put the value into a variable and name it: --header-env Authorization=MY_VARIABLE",
        ));
    }
    Ok((header, variable))
}

pub(super) fn apply_stdio_args(
    stdio: &mut StdioConfig,
    connect: &ConnectArgs,
    name: &str,
) -> CliResult<()> {
    let url_only = [
        (!connect.header.is_empty(), "--header"),
        (!connect.header_env.is_empty(), "--header-env"),
        (connect.ca_file.is_some(), "--ca-file"),
    ];
    if let Some((_, option)) = url_only.iter().find(|(given, _)| *given) {
        let what = format!("`{option}` is for a URL, and `{name}` is a program");
        return Err(Problem::usage(what)
            .with_hint("a program gets its settings by --env NAME=VALUE or --env-pass NAME"));
    }
    for written in &connect.env {
        let Some((variable, value)) = written.split_once('=') else {
            return Err(Problem::usage("an --env has no `=`").with_hint(
                "write --env NAME=VALUE, or --env-pass NAME to pass on a variable of ours",
            ));
        };
        stdio.env.insert(variable.to_owned(), value.to_owned());
    }
    stdio.env_pass.extend(connect.env_pass.iter().cloned());
    if let Some(folder) = &connect.cwd {
        stdio.cwd = Some(folder.clone());
    }
    Ok(())
}

impl Target {
    pub(super) fn apply_generic_url(&mut self, of: &Declaration) -> CliResult<()> {
        let TransportConfig::Http(http) = &mut self.server.transport else {
            return Ok(());
        };
        if of.url_env.is_some() {
            return Ok(());
        }
        let Some(url) = read_variable(URL_VARIABLE)? else {
            return Ok(());
        };
        http.url = parse_url(&url).map_err(|why| {
            Problem::new(
                Code::ConfigBadValue,
                format!("`{URL_VARIABLE}` is not a URL"),
            )
            .with_cause(why)
        })?;
        self.source.set_variable_url(URL_VARIABLE, &url);
        self.notes.push(TargetNote::Origin(format!(
            "the URL comes from {URL_VARIABLE}"
        )));
        Ok(())
    }

    /// Sends the token if there is no other, and never in cleartext.
    pub(super) fn apply_generic_token(&mut self) -> CliResult<()> {
        let TransportConfig::Http(http) = &mut self.server.transport else {
            return Ok(());
        };
        if http.headers.iter().any(|(name, _)| name == AUTHORIZATION) {
            return Ok(());
        }
        let Some(token) = read_variable(TOKEN_VARIABLE)? else {
            return Ok(());
        };
        if is_cleartext(&http.url) {
            let warning = format!("{TOKEN_VARIABLE} is set, but not sent over plain HTTP");
            self.notes.push(TargetNote::Warning(warning));
        } else if let Some(value) = bearer_value(&token) {
            http.headers.push((AUTHORIZATION, value));
            self.token_source = Some(format!("variable `{TOKEN_VARIABLE}`"));
            self.notes.push(TargetNote::Origin(format!(
                "the token comes from {TOKEN_VARIABLE}"
            )));
        }
        Ok(())
    }
}

fn read_variable(variable: &str) -> CliResult<Option<String>> {
    Ok(try_process_variable(variable)?.filter(|said| !said.is_empty()))
}

pub(crate) const URL_VARIABLE: &str = "MCP_SERVER_URL";
const TOKEN_VARIABLE: &str = "MCP_AUTH_TOKEN";

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
