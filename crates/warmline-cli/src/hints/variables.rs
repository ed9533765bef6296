//! Environment variables that a program misses, and variables that are set for nothing.

use warmline_config::{Declaration, ignored_variables};
use warmline_engine::settings::{RETIRED_VARIABLES, process_variable};
use warmline_upstream::{StdioConfig, withheld_variables};

use crate::target::URL_VARIABLE;

pub(crate) fn missing_variable_hint(
    stdio: &StdioConfig,
    output: &str,
    declared_in: Option<&str>,
) -> Option<String> {
    let withheld = withheld_variables(stdio);
    let mentioned = find_mentioned_variables(&withheld, output);
    if !mentioned.is_empty() {
        let what = match mentioned.as_slice() {
            [one] => format!("`{one}` is set here, but not passed to the program"),
            many => format!(
                "`{}` are set here, but not passed to the program",
                many.join("`, `")
            ),
        };
        let options: Vec<String> = mentioned
            .iter()
            .map(|one| format!("--env-pass {one}"))
            .collect();
        let options = options.join(" ");
        return Some(match declared_in {
            None => format!("{what}: `{options}`"),
            Some(place) => format!(
                "{what}: `env_pass = [\"{}\"]` at {place}, or `{options}` for one command",
                mentioned.join("\", \"")
            ),
        });
    }
    let wanted = find_requested_variable(output)
        .filter(|name| !stdio.env.contains_key(*name) && process_variable(name).is_none())?;
    let is_passed = stdio.env_pass.iter().any(|name| name == wanted);
    Some(match (is_passed, declared_in) {
        (true, _) => format!("set `{wanted}`: it is passed on, but not set"),
        (false, None) => format!("set `{wanted}`, and pass it on: `--env-pass {wanted}`"),
        (false, Some(place)) => {
            format!("set `{wanted}`, and pass it on: `env_pass = [\"{wanted}\"]` at {place}")
        },
    })
}

/// The variables that a text names as whole words; at most three.
fn find_mentioned_variables<'n>(names: &'n [String], text: &str) -> Vec<&'n str> {
    let names = names.iter().map(String::as_str);
    let named =
        names.filter(|name| is_variable_name(name) && split_words(text).any(|word| word == *name));
    named.take(3).collect()
}

fn find_requested_variable(text: &str) -> Option<&str> {
    let is_about_variable = |line: &&str| {
        let line = line.to_ascii_lowercase();
        ["environment variable", "env var", "env variable"]
            .iter()
            .any(|words| line.contains(words))
    };
    let line = text.lines().find(is_about_variable)?;
    split_words(line).find(|word| is_variable_name(word) && word.contains('_'))
}

/// Whether a word can only be the name of a variable: upper case, and not a short word.
fn is_variable_name(word: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    word.len() >= 4
        && word.bytes().all(is_letter)
        && word.starts_with(|c: char| c.is_ascii_uppercase())
}

fn split_words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

/// Variables that look like ours and are not read, each as a message and a hint.
pub(crate) fn unused_variables(servers: &[&Declaration]) -> Vec<(String, String)> {
    let strays = ignored_variables().into_iter().map(|stray| {
        let message = format!("{} is set, but nothing reads it", stray.variable);
        let hint = match stray.suggestion {
            Some(meant) => format!("did you mean `{meant}`?"),
            None if stray.variable == RETIRED_VARIABLES[0] => {
                "name the variable for its server: `credential = { env = \"…\" }`".to_owned()
            },
            None if RETIRED_VARIABLES.contains(&stray.variable.as_str()) => {
                "set it for the server that needs it: `sessions = \"always\"`".to_owned()
            },
            None => "remove it: no setting has this name".to_owned(),
        };
        (message, hint)
    });
    strays.chain(unused_generic_url(servers)).collect()
}

fn unused_generic_url(servers: &[&Declaration]) -> Option<(String, String)> {
    process_variable(URL_VARIABLE).filter(|url| !url.is_empty())?;
    let is_named = |server: &&Declaration| server.url_env.as_deref() == Some(URL_VARIABLE);
    if servers.len() < 2 || servers.iter().any(is_named) {
        return None;
    }
    Some((
        format!(
            "{URL_VARIABLE} is set, but applies to none of {} servers",
            servers.len()
        ),
        format!("name it for its server: `url_env = \"{URL_VARIABLE}\"`"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_named_by_a_word_of_its_own() {
        let names = ["BRAVE_API_KEY", "PWD", "Path", "HOSTNAME"].map(str::to_owned);
        #[rustfmt::skip]
        let table: [(&str, &[&str]); 5] = [
            ("Error: BRAVE_API_KEY environment variable is required", &["BRAVE_API_KEY"]),
            ("KeyError: 'BRAVE_API_KEY'\n  at HOSTNAME",              &["BRAVE_API_KEY", "HOSTNAME"]),
            ("MY_BRAVE_API_KEY is missing",                           &[]),
            ("PWD and Path are no news",                              &[]),
            ("",                                                      &[]),
        ];
        for (said, expected) in table {
            assert_eq!(find_mentioned_variables(&names, said), expected, "{said}");
        }
    }

    #[test]
    fn a_line_that_speaks_of_a_variable_names_one() {
        #[rustfmt::skip]
        let table = [
            ("Error: SLACK_BOT_TOKEN environment variable is required", Some("SLACK_BOT_TOKEN")),
            ("boom\nplease set the env var `A_KEY` first",              Some("A_KEY")),
            ("an environment variable is missing",                      None),
            ("SLACK_BOT_TOKEN is no good",                              None),
        ];
        for (said, expected) in table {
            assert_eq!(find_requested_variable(said), expected, "{said}");
        }
    }
}
