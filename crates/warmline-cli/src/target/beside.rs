//! What was typed beside a target: headers for a URL, variables and a folder for a program.

use warmline::config::header;
use warmline::settings::process_text;
use warmline::upstream::{HttpReach, StdioReach};

use crate::args::Connect;
use crate::problem::{Outcome, Problem};

/// What was typed beside a URL, and where the token comes from then.
pub(super) fn apply_http(
    http: &mut HttpReach,
    connect: &Connect,
    name: &str,
    token_from: &mut Option<String>,
) -> Outcome<()> {
    let mut comes_from = |header: &str, from: String| {
        if token_from.is_none() || header.trim().eq_ignore_ascii_case("authorization") {
            *token_from = Some(from);
        }
    };
    let program_only = [
        (!connect.env.is_empty(), "--env"),
        (!connect.env_pass.is_empty(), "--env-pass"),
        (connect.cwd.is_some(), "--cwd"),
    ];
    if let Some((_, option)) = program_only.iter().find(|(given, _)| *given) {
        return Err(Problem::usage(format!(
            "`{option}` is for a program, and `{name}` is a URL"
        )));
    }
    for written in &connect.header {
        let Some((header_name, value)) = written.split_once(':') else {
            return Err(
                Problem::usage("a --header has no `:`").hint("write --header 'Name: value'")
            );
        };
        set_header(http, header_name, value)?;
        comes_from(header_name, "`--header`".to_owned());
    }
    for written in &connect.header_env {
        let Some((header_name, variable)) = written.split_once('=') else {
            return Err(Problem::usage("a --header-env has no `=`")
                .hint("write --header-env Authorization=MY_VARIABLE"));
        };
        // What is no name may be the secret itself: it is not repeated.
        if !is_variable_name(variable) {
            return Err(Problem::usage(
                "what stands after `=` in a --header-env is not the name of a variable",
            )
            .hint("put the value into a variable, and name that: --header-env Authorization=MY_VARIABLE"));
        }
        let value = process_text(variable)?.ok_or_else(|| {
            Problem::usage(format!(
                "`{variable}` is not set, and `{header_name}` takes its value from it"
            ))
            .hint(format!(
                "set `{variable}` in the environment of this command"
            ))
        })?;
        set_header(http, header_name, &value)?;
        comes_from(header_name, format!("variable `{variable}`"));
    }
    if let Some(file) = &connect.ca_file {
        // Over TLS it is read when it is needed; without TLS nobody would say that it is not there.
        if let (Err(error), "http") = (std::fs::read(file), http.url.scheme()) {
            return Err(Problem::usage("the file of `--ca-file` cannot be read")
                .because(format!("{}: {error}", file.display()))
                .hint("name a file that holds certificates, in the form PEM"));
        }
        http.ca_file = Some(file.clone());
    }
    Ok(())
}

fn is_variable_name(text: &str) -> bool {
    let mut letters = text.chars();
    letters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

fn set_header(http: &mut HttpReach, name: &str, value: &str) -> Outcome<()> {
    let (name, value) = header(name, value).map_err(Problem::usage)?;
    http.headers.retain(|(other, _)| *other != name);
    http.headers.push((name, value));
    Ok(())
}

/// What was typed beside a program.
pub(super) fn apply_stdio(stdio: &mut StdioReach, connect: &Connect, name: &str) -> Outcome<()> {
    let url_only = [
        (!connect.header.is_empty(), "--header"),
        (!connect.header_env.is_empty(), "--header-env"),
        (connect.ca_file.is_some(), "--ca-file"),
    ];
    if let Some((_, option)) = url_only.iter().find(|(given, _)| *given) {
        return Err(Problem::usage(format!(
            "`{option}` is for a URL, and `{name}` is a program"
        ))
        .hint("a program gets its settings by --env NAME=VALUE or --env-pass NAME"));
    }
    for written in &connect.env {
        let Some((variable, value)) = written.split_once('=') else {
            return Err(Problem::usage("an --env has no `=`")
                .hint("write --env NAME=VALUE, or --env-pass NAME to pass on a variable of ours"));
        };
        stdio.env.insert(variable.to_owned(), value.to_owned());
    }
    stdio.env_pass.extend(connect.env_pass.iter().cloned());
    if let Some(folder) = &connect.cwd {
        stdio.cwd = Some(folder.clone());
    }
    Ok(())
}
