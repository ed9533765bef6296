//! The words of a command line, split into target, what is asked for, and the rest.

use std::ffi::OsString;

use warmline::config::public_url;

use super::Aim;
use crate::problem::{Outcome, Problem};

/// What a command names besides its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    Tool,
    Method,
    Nothing,
}

/// Splits `TARGET NAME REST…`, or `NAME REST…` with a command behind `--`.
///
/// What is not named is none, the target and what is asked for alike; whether that is an error is
/// the caller's to say.
pub(crate) fn split<'w>(
    words: &'w [String],
    command: &[OsString],
    named: Named,
) -> Outcome<(Option<Aim>, Option<&'w str>, &'w [String])> {
    if command.is_empty()
        && std::env::args_os()
            .next_back()
            .is_some_and(|last| last == "--")
    {
        return Err(Problem::usage("no command stands behind `--`")
            .hint("a target is a URL, a name, or a command behind `--`"));
    }
    let (aim, words) = match (command, words) {
        ([], []) => (None, words),
        ([], [target, rest @ ..]) => (Some(aim_of(target)?), rest),
        (command, words) => {
            refuse_two_targets(words)?;
            (Some(Aim::Command(command.to_vec())), words)
        },
    };
    match (named, words) {
        (Named::Nothing, []) => Ok((aim, None, words)),
        (Named::Nothing, [extra, ..]) => Err(too_many(extra, command)),
        (Named::Tool | Named::Method, [name, rest @ ..]) if !name.contains('=') => {
            Ok((aim, Some(name.as_str()), rest))
        },
        (Named::Tool | Named::Method, _) => Ok((aim, None, words)),
    }
}

/// A word that nobody knows what to do with.
pub(crate) fn too_many(extra: &str, command: &[OsString]) -> Problem {
    Problem::usage(format!("`{}` is one word too many", shown(extra))).hint(match command {
        [] => "give one target: a URL, a name, or a command behind `--`",
        _ => "with a command behind `--` there is no other target",
    })
}

/// What a first word aims at.
pub(crate) fn aim_of(word: &str) -> Outcome<Aim> {
    if word.contains("://") {
        return Ok(Aim::Url(word.to_owned()));
    }
    if word.contains('=') {
        return Err(
            Problem::usage(format!("`{}` stands where a target should", shown(word)))
                .hint("the target comes first: a URL or a name; or a command last, behind `--`"),
        );
    }
    Ok(Aim::Name(word.to_owned()))
}

/// A word as it may be repeated: values and what follows the path of a URL may be secret.
pub(crate) fn shown(word: &str) -> String {
    let shown = match word.split_once('=') {
        _ if word.contains("://") => public_url(word),
        Some((key, _)) => format!("{key}=…"),
        None => word.to_owned(),
    };
    shown.escape_debug().to_string()
}

fn refuse_two_targets(words: &[String]) -> Outcome<()> {
    match words.first() {
        Some(first) if first.contains("://") => Err(Problem::usage(
            "there are two targets: a URL and a command behind `--`",
        )
        .hint("leave one of them out")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(words: &[&str], command: &[&str], named: Named) -> String {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let command: Vec<OsString> = command.iter().map(OsString::from).collect();
        match split(&words, &command, named) {
            Ok((aim, name, rest)) => {
                let aim = match aim {
                    Some(Aim::Url(url)) => url,
                    Some(Aim::Name(name)) => format!("name {name}"),
                    Some(Aim::Command(words)) => format!("command of {}", words.len()),
                    None => "nothing".to_owned(),
                };
                format!("{aim} | {} | {}", name.unwrap_or("-"), rest.join(" "))
            },
            Err(problem) => problem.parts().what.clone(),
        }
    }

    #[test]
    fn words_are_split_by_where_the_target_stands() {
        use Named::{Method, Nothing, Tool};
        #[rustfmt::skip]
        let table: [(&[&str], &[&str], Named, &str); 15] = [
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
            (&["a=1"],                         &[],           Tool,    "`a=…` stands where a target should"),
            (&["http://x", "add"],             &["npx"],      Tool,    "there are two targets: a URL and a command behind `--`"),
            (&["github", "more"],              &[],           Nothing, "`more` is one word too many"),
            (&["github", "http://x/mcp?key=canary"], &[],     Nothing, "`http://x/mcp?…` is one word too many"),
            (&["x/mcp?key=canary"],            &[],           Tool,    "`x/mcp?key=…` stands where a target should"),
        ];
        for (words, command, named, expected) in table {
            assert_eq!(told(words, command, named), expected);
        }
    }
}
