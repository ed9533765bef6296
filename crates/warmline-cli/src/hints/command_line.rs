//! Problems of the command line: what clap reports in our own form, and the hint where `--` is missing
//! before a command.

use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use warmline_config::{Config, closest_match};
use warmline_core::error::code::Code;

use crate::hints::is_on_path;
use crate::output::Problem;
use crate::target::{folders_and_trust, redact_word};

pub(crate) fn problem_from_clap(error: &clap::Error) -> Problem {
    let option = context_text(error, ContextKind::InvalidArg);
    let value = context_text(error, ContextKind::InvalidValue);
    let command = context_text(error, ContextKind::InvalidSubcommand);
    let what = match (error.kind(), command, option, value) {
        (ErrorKind::MissingSubcommand, ..) => "no command given".to_owned(),
        (_, Some(command), ..) => format!("unknown command `{command}`"),
        (ErrorKind::UnknownArgument, _, Some(word), _) if !word.starts_with('-') => {
            format!("unexpected argument `{word}`")
        },
        (ErrorKind::UnknownArgument, _, Some(option), _) => format!("unknown option `{option}`"),
        (ErrorKind::InvalidValue | ErrorKind::ValueValidation, _, Some(option), Some(value)) => {
            match value.is_empty() {
                true => format!("`{option}` needs a value"),
                false => format!("`{option}` cannot be `{value}`"),
            }
        },
        (ErrorKind::MissingRequiredArgument, _, Some(argument), _) => {
            format!("{argument} is missing")
        },
        _ => {
            let text = error.render().to_string();
            let line = text.lines().next().unwrap_or_default();
            line.trim_start_matches("error: ").to_owned()
        },
    };
    let hint = hint_from_clap(error);
    Problem::usage(what).with_hint(hint.unwrap_or_else(|| {
        let command = command_path(error);
        format!("see `{command} --help`")
    }))
}

/// The command of the usage line, as far as clap knows it.
fn command_path(error: &clap::Error) -> String {
    let mut usage = String::new();
    if let Some(ContextValue::StyledStr(text)) = error.get(ContextKind::Usage) {
        usage = text.to_string();
    }
    let words = usage.split_whitespace();
    let words = words.skip_while(|word| *word != "warmline");
    let is_command = |word: &&str| word.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
    let words: Vec<&str> = words.take_while(is_command).collect();
    match words.is_empty() {
        true => "warmline".to_owned(),
        false => words.join(" "),
    }
}

fn hint_from_clap(error: &clap::Error) -> Option<String> {
    use ContextKind as K;

    let near = nearest_choice(error, K::InvalidSubcommand, K::SuggestedSubcommand)
        .or_else(|| context_text(error, K::SuggestedArg))
        .or_else(|| nearest_choice(error, K::InvalidValue, K::ValidValue));
    if let Some(near) = near {
        return Some(format!("did you mean `{near}`?"));
    }
    if let Some(choices) = context_text(error, K::ValidValue) {
        return Some(format!("it is one of {choices}"));
    }
    // The reason of our own value parsers.
    std::error::Error::source(error).map(ToString::to_string)
}

/// The choice that was probably meant; clap suggests too much.
fn nearest_choice(error: &clap::Error, typed: ContextKind, choices: ContextKind) -> Option<String> {
    let typed = context_text(error, typed)?;
    let choices = error.get(choices)?;
    if let ContextValue::Strings(choices) = choices {
        return closest_match(&typed, choices.iter().map(String::as_str)).map(str::to_owned);
    }
    if let ContextValue::String(choice) = choices {
        return Some(choice.clone());
    }
    None
}

fn context_text(error: &clap::Error, kind: ContextKind) -> Option<String> {
    let value = error.get(kind)?;
    if let ContextValue::String(text) = value {
        return Some(text.clone());
    }
    let ContextValue::Strings(texts) = value else {
        return None;
    };
    let quoted: Vec<String> = texts.iter().map(|text| format!("`{text}`")).collect();
    match texts.as_slice() {
        [] => None,
        [only] => Some(only.clone()),
        _ => Some(quoted.join(", ")),
    }
}

/// Adds a hint that shows where `--` belongs, if that is the mistake.
pub(crate) fn with_separator_hint(problem: Problem, parser: clap::Command) -> Problem {
    let words = std::env::args_os().skip(1);
    let words = words.map(|word| word.into_string().ok());
    let words: Option<Vec<String>> = words.collect();
    let code = problem.parts().code;
    let may_be =
        code == Code::UsageBadArgument || (code == Code::ServerUnknown && !problem.is_near_miss());
    let words = words.filter(|_| may_be);
    match words.and_then(|words| suggest_separator(parser, &words, &WORDS_OF_THIS_MACHINE)) {
        Some(meant) => problem.with_hint(format!("put `--` before the command: `{meant}`")),
        None => problem,
    }
}

/// What a word may name.
struct KnownWords {
    is_program: fn(&str) -> bool,
    is_file: fn(&str) -> bool,
    is_server: fn(&str, Option<&Path>) -> bool,
}

const WORDS_OF_THIS_MACHINE: KnownWords = KnownWords {
    is_program: is_on_path,
    is_file: |word| Path::new(word).is_file(),
    is_server: is_configured_server,
};

fn is_configured_server(word: &str, config: Option<&Path>) -> bool {
    let Ok((folders, store)) = folders_and_trust() else {
        return false;
    };
    let config = Config::read_skipping_untrusted(config, &folders, &store);
    config.is_ok_and(|config| config.find_server(word, &store).is_ok())
}

/// How the command line would look with `--`; none if that is not the mistake.
fn suggest_separator(
    parser: clap::Command,
    words: &[String],
    known: &KnownWords,
) -> Option<String> {
    if words.iter().any(|word| word == "--") {
        return None;
    }
    let parsed = CommandWords::parse(parser, words)?;
    let is_server = |word: &str| (known.is_server)(word, parsed.config.map(Path::new));
    let (name, named) = match parsed.subcommand {
        "tools" | "doctor" => ("", 0),
        "call" => (" TOOL", 0),
        "request" => (" METHOD", 0),
        "add" => ("", 1),
        "serve" | "stdio" | "run" => {
            let is_target = |word: &str| word.contains("://") || is_server(word);
            let mut others = parsed.positionals.iter();
            ("", others.position(|(_, word)| !is_target(word))?)
        },
        _ => return None,
    };
    let (at, program) = *parsed.positionals.get(named)?;
    let interpreter = program_interpreter(program, known)?;
    if parsed.subcommand != "add" && is_server(program) {
        return None;
    }
    let mut behind = parsed.positionals.iter().skip(named + 1);
    // A word and its values may be a tool whose server was forgotten.
    if ["call", "request"].contains(&parsed.subcommand)
        && !parsed.has_unknown_option
        && behind.all(|(_, word)| word.contains('='))
    {
        return None;
    }
    let mut meant = format!("warmline {}", parsed.subcommand);
    for (_, word) in parsed.positionals.iter().take(named) {
        meant.push(' ');
        meant.push_str(&redact_word(word));
    }
    if parsed.arguments_start + named < at {
        meant.push_str(" …");
    }
    Some(format!("{meant}{name} -- {interpreter}{program} …"))
}

fn program_interpreter(word: &str, known: &KnownWords) -> Option<&'static str> {
    if PROGRAM_STARTERS.contains(&word) || (known.is_program)(word) {
        return Some("");
    }
    let endings = [(".py", "python3 "), (".js", "node "), (".mjs", "node ")];
    let (_, interpreter) = endings.iter().find(|(ending, _)| word.ends_with(ending))?;
    (known.is_file)(word).then_some(interpreter)
}

/// The words of a command line as clap would take them, up to an unknown option.
struct CommandWords<'w> {
    subcommand: &'w str,
    /// Where the words of the subcommand begin.
    arguments_start: usize,
    positionals: Vec<(usize, &'w str)>,
    config: Option<&'w str>,
    has_unknown_option: bool,
}

impl<'w> CommandWords<'w> {
    fn parse(mut parser: clap::Command, words: &'w [String]) -> Option<Self> {
        parser.build();
        let mut numbered = (0..).zip(words.iter().map(String::as_str));
        let (at, subcommand) = numbered.find(|(_, word)| !word.starts_with('-'))?;
        let parser = parser.find_subcommand(subcommand)?;
        let mut parsed = Self {
            subcommand,
            arguments_start: at + 1,
            positionals: Vec::new(),
            config: None,
            has_unknown_option: false,
        };
        while let Some((at, word)) = numbered.next() {
            if !word.starts_with('-') || word == "-" {
                parsed.positionals.push((at, word));
                continue;
            }
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word, None),
            };
            let Some(option) = find_option(parser, name) else {
                parsed.has_unknown_option = true;
                break;
            };
            let value = match option.get_action().takes_values() && value.is_none() {
                true => numbered.next().map(|(_, value)| value),
                false => value,
            };
            if name == "--config" {
                parsed.config = value;
            }
        }
        Some(parsed)
    }
}

fn find_option<'p>(parser: &'p clap::Command, name: &str) -> Option<&'p clap::Arg> {
    let mut options = parser.get_arguments();
    options.find(|option| {
        let long = option.get_long().map(|long| format!("--{long}"));
        let short = option.get_short().map(|short| format!("-{short}"));
        [long, short].iter().flatten().any(|known| known == name)
    })
}

/// What starts most servers and agents, on this machine or not.
const PROGRAM_STARTERS: &[&str] = &[
    "npx", "bunx", "pnpx", "uvx", "uv", "node", "deno", "bun", "python", "python3", "docker",
];

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    const SOMEWHERE: KnownWords = KnownWords {
        is_program: |word| ["sort", "./agent.sh"].contains(&word),
        is_file: |word| ["srv.py", "./agent.sh"].contains(&word),
        is_server: |word, config| word == "github" || (word == "sort" && config.is_some()),
    };

    #[test]
    fn the_place_of_the_dashes_is_found() {
        #[rustfmt::skip]
        let table = [
            ("tools npx -y server",            Some("warmline tools -- npx …")),
            ("tools npx",                      Some("warmline tools -- npx …")),
            ("tools srv.py",                   Some("warmline tools -- python3 srv.py …")),
            ("doctor --timeout 5s npx -y foo", Some("warmline doctor … -- npx …")),
            ("serve github npx -y foo",        Some("warmline serve github -- npx …")),
            ("--json add x npx -y foo",        Some("warmline add x -- npx …")),
            ("add x npx --here foo --config=y", Some("warmline add x -- npx …")),
            ("run --name trip ./agent.sh",     Some("warmline run … -- ./agent.sh …")),
            ("call python3 srv.py tool",       Some("warmline call TOOL -- python3 …")),
            ("call npx -y foo pay a=canary",   Some("warmline call TOOL -- npx …")),
            ("request npx foo tools/list",     Some("warmline request METHOD -- npx …")),
            ("stdio npx -y foo",               Some("warmline stdio -- npx …")),
            ("tools github -y",                None),
            ("tools nobody",                   None),
            ("tools",                          None),
            ("call sort list=1",               None),
            ("call sort list=1 --json",        None),
            ("call sort --args {}",            None),
            ("call github sort a",             None),
            ("serve github",                   None),
            ("tools --nonsense npx",           None),
            ("tools --config x.toml sort",     None),
            ("token new npx",                  None),
            ("tools --run sort",               None),
            ("tools github -- npx",            None),
            ("add npx http://x/mcp",           None),
            ("nonsense npx",                   None),
        ];
        for (typed, expected) in table {
            let words: Vec<String> = typed.split(' ').map(str::to_owned).collect();
            let parser = crate::commands::Cli::command();
            let found = suggest_separator(parser, &words, &SOMEWHERE);
            assert_eq!(found.as_deref(), expected, "{typed}");
        }
    }
}
