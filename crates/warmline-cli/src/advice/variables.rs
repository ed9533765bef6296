//! Variables that a program asks for as it ends, and does not get.
//!
//! Asked by: advice, with what a program said.  A program gets a short list of our variables; whoever
//! set one in the shell and started a program counts on it all the same.

use warmline::config::process_variable;
use warmline::upstream::{StdioReach, withheld};

/// What to do about a variable that a program names: one of ours that it does not get, or one that
/// it calls a variable and that is not set.
pub(crate) fn missed(stdio: &StdioReach, said: &str, declared_in: Option<&str>) -> Option<String> {
    let withheld = withheld(stdio);
    let kept = named_among(&withheld, said);
    if !kept.is_empty() {
        let what = match kept.as_slice() {
            [one] => format!("`{one}` is set here, and not passed on to the program"),
            many => format!(
                "`{}` are set here, and not passed on to the program",
                many.join("`, `")
            ),
        };
        let options: Vec<String> = kept.iter().map(|one| format!("--env-pass {one}")).collect();
        let options = options.join(" ");
        return Some(match declared_in {
            None => format!("{what}: `{options}`"),
            Some(place) => format!(
                "{what}: `env_pass = [\"{}\"]` at {place}, or `{options}` for one command",
                kept.join("\", \"")
            ),
        });
    }
    let wanted = wanted(said)
        .filter(|name| !stdio.env.contains_key(*name) && process_variable(name).is_none())?;
    let is_passed = stdio.env_pass.iter().any(|name| name == wanted);
    Some(match (is_passed, declared_in) {
        (true, _) => format!("set `{wanted}`: it is to be passed on, and not set"),
        (false, None) => format!("set `{wanted}`, and pass it on: `--env-pass {wanted}`"),
        (false, Some(place)) => {
            format!("set `{wanted}`, and pass it on: `env_pass = [\"{wanted}\"]` at {place}")
        },
    })
}

/// Names of variables that stand in a text as words of their own; at most three.
fn named_among<'n>(names: &'n [String], text: &str) -> Vec<&'n str> {
    let names = names.iter().map(String::as_str);
    let named = names.filter(|name| is_telling(name) && words(text).any(|word| word == *name));
    named.take(3).collect()
}

/// The name that a line speaks of as a variable.
fn wanted(text: &str) -> Option<&str> {
    let speaks_of_one = |line: &&str| {
        let line = line.to_ascii_lowercase();
        ["environment variable", "env var", "env variable"]
            .iter()
            .any(|words| line.contains(words))
    };
    let line = text.lines().find(speaks_of_one)?;
    words(line).find(|word| is_telling(word) && word.contains('_'))
}

/// Whether a word can only be the name of a variable.
fn is_telling(word: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    word.len() >= 4
        && word.bytes().all(is_letter)
        && word.starts_with(|c: char| c.is_ascii_uppercase())
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
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
            assert_eq!(named_among(&names, said), expected, "{said}");
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
            assert_eq!(wanted(said), expected, "{said}");
        }
    }
}
