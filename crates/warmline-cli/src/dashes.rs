//! A command that was typed without the `--` before it: what nobody understands then gets the same
//! words with `--` as its hint.
//!
//! Asked by: whoever is about to tell a problem with what was typed.  Told by: the words themselves,
//! the parser, which knows which options take a value, PATH, and the configuration.

use std::path::Path;

use clap::CommandFactory as _;
use warmline::config::Config;
use warmline::core::code::Code;
use warmline::trust::TrustStore;

use crate::args::Typed;
use crate::problem::Problem;
use crate::program;
use crate::target::{folders, shown};

/// The problem, with a hint that says where `--` belongs, if that is what is wrong.
pub(crate) fn pointed_out(problem: Problem) -> Problem {
    let words: Option<Vec<String>> = std::env::args_os()
        .skip(1)
        .map(|word| word.into_string().ok())
        .collect();
    let parts = problem.parts();
    let is_near = parts
        .hint
        .as_ref()
        .is_some_and(|hint| hint.starts_with("did you mean"));
    let may_be =
        parts.code == Code::UsageBadArgument || (parts.code == Code::ServerUnknown && !is_near);
    let meant = words
        .filter(|_| may_be)
        .and_then(|words| meant(&words, &Here));
    match meant {
        Some(meant) => problem.hint(format!("a command stands behind `--`: `{meant}`")),
        None => problem,
    }
}

/// What words can be on this machine.
trait Known {
    fn is_program(&self, word: &str) -> bool;
    fn is_file(&self, word: &str) -> bool;
    fn is_server(&self, word: &str, config: Option<&Path>) -> bool;
}

struct Here;

impl Known for Here {
    fn is_program(&self, word: &str) -> bool {
        program::is_on_path(word)
    }

    fn is_file(&self, word: &str) -> bool {
        Path::new(word).is_file()
    }

    fn is_server(&self, word: &str, config: Option<&Path>) -> bool {
        let Ok(folders) = folders() else {
            return false;
        };
        let store = TrustStore::in_state_folder(folders.state.as_deref());
        let config = Config::read_to_use(config, &folders, &store);
        config.is_ok_and(|config| {
            let mut declared = config.declarations();
            declared.any(|(_, one)| one.name == word || one.written == word)
        })
    }
}

/// The command line that was probably meant; none where it was something else.
fn meant(words: &[String], known: &impl Known) -> Option<String> {
    if words.iter().any(|word| word == "--") {
        return None;
    }
    let read = Words::read(words)?;
    let is_server = |word: &str| known.is_server(word, read.config.map(Path::new));
    let named = match read.verb {
        "tools" | "doctor" | "call" | "request" => 0,
        "add" => 1,
        "serve" | "stdio" | "run" => {
            let is_target = |word: &str| word.contains("://") || is_server(word);
            let mut others = read.plain.iter();
            others.position(|(_, word)| !is_target(word))?
        },
        _ => return None,
    };
    let (at, program) = *read.plain.get(named)?;
    let starter = starter(program, known)?;
    if read.verb != "add" && is_server(program) {
        return None;
    }
    let mut head = vec!["warmline".to_owned(), read.verb.to_owned()];
    let before = read.plain.iter().take(named);
    head.extend(before.map(|(_, word)| shown(word)));
    let (mut command, has_ours) = read.without_ours(words.get(at..)?);
    if read.options_before(at) || has_ours {
        head.push("…".to_owned());
    }
    if ["call", "request"].contains(&read.verb) {
        let (asked, values) = asked(&mut command, read.verb, known)?;
        head.push(asked);
        head.extend(values.iter().map(|value| shown(value)));
    }
    head.push("--".to_owned());
    head.extend(starter.map(str::to_owned));
    head.extend(command.iter().map(|word| shown(word)));
    Some(head.join(" "))
}

/// How a word is started: as it is, or by what its ending says; none if it is no program.
fn starter(word: &str, known: &impl Known) -> Option<Option<&'static str>> {
    if STARTERS.contains(&word) || known.is_program(word) {
        return Some(None);
    }
    let endings = [(".py", "python3"), (".js", "node"), (".mjs", "node")];
    let started = endings.iter().find(|(ending, _)| word.ends_with(ending))?;
    known.is_file(word).then_some(Some(started.1))
}

/// Takes what is asked for, and its values, off the end of a command.
fn asked<'w>(
    command: &mut Vec<&'w str>,
    verb: &str,
    known: &impl Known,
) -> Option<(String, Vec<&'w str>)> {
    let is_value = |word: &&str| word.contains('=') && !word.starts_with('-');
    let values = command
        .iter()
        .rev()
        .take_while(|word| is_value(word))
        .count();
    let values = command.split_off(command.len() - values);
    match command.as_slice() {
        // One word and its values may be a tool whose server was forgotten.
        [] | [_] => None,
        [.., last] if last.starts_with('-') || known.is_file(last) => {
            let asked = if verb == "call" { "TOOL" } else { "METHOD" };
            Some((asked.to_owned(), values))
        },
        [.., last] => {
            let asked = (*last).to_owned();
            command.pop();
            Some((asked, values))
        },
    }
}

/// The words of a command line as the parser would take them, up to one that it does not know.
struct Words<'w> {
    verb: &'w str,
    /// Where the words of the command begin.
    begins: usize,
    /// Words that are no options, with their places.
    plain: Vec<(usize, &'w str)>,
    config: Option<&'w str>,
    parser: clap::Command,
}

impl<'w> Words<'w> {
    fn read(words: &'w [String]) -> Option<Self> {
        let mut parser = Typed::command();
        parser.build();
        let mut numbered = (0..).zip(words.iter().map(String::as_str));
        let (at, verb) = numbered.find(|(_, word)| !word.starts_with('-'))?;
        let parser = parser.find_subcommand(verb)?.clone();
        let mut read = Self {
            verb,
            begins: at + 1,
            plain: Vec::new(),
            config: None,
            parser,
        };
        while let Some((at, word)) = numbered.next() {
            if !word.starts_with('-') || word == "-" {
                read.plain.push((at, word));
                continue;
            }
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word, None),
            };
            let Some(option) = option(&read.parser, name) else {
                break;
            };
            let takes_one = option.get_action().takes_values() && value.is_none();
            let value = match takes_one {
                true => numbered.next().map(|(_, value)| value),
                false => value,
            };
            if name == "--config" {
                read.config = value;
            }
        }
        Some(read)
    }

    /// The words of a command without options of ours that stand among them, and whether there were
    /// any: behind `--` they would be the program's. A letter alone is taken for the program's.
    fn without_ours(&self, words: &'w [String]) -> (Vec<&'w str>, bool) {
        let mut command = Vec::with_capacity(words.len());
        let mut words = words.iter().map(String::as_str);
        let mut has_ours = false;
        while let Some(word) = words.next() {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word, None),
            };
            let ours = name.starts_with("--").then(|| option(&self.parser, name));
            let Some(ours) = ours.flatten() else {
                command.push(word);
                continue;
            };
            has_ours = true;
            if ours.get_action().takes_values() && value.is_none() {
                words.next();
            }
        }
        (command, has_ours)
    }

    /// Whether an option of ours stands before this place.
    fn options_before(&self, at: usize) -> bool {
        let plain = self.plain.iter().filter(|(place, _)| *place < at);
        self.begins + plain.count() < at
    }
}

/// The option of this name.
fn option<'p>(parser: &'p clap::Command, name: &str) -> Option<&'p clap::Arg> {
    let mut options = parser.get_arguments();
    options.find(|option| {
        let long = option.get_long().map(|long| format!("--{long}"));
        let short = option.get_short().map(|short| format!("-{short}"));
        [long, short].iter().flatten().any(|known| known == name)
    })
}

/// What starts most servers and agents, whether it is on this machine or not.
const STARTERS: &[&str] = &[
    "npx", "bunx", "pnpx", "uvx", "uv", "node", "deno", "bun", "python", "python3", "docker",
];

#[cfg(test)]
mod tests {
    use super::*;

    struct Somewhere;

    impl Known for Somewhere {
        fn is_program(&self, word: &str) -> bool {
            ["sort", "./agent.sh"].contains(&word)
        }

        fn is_file(&self, word: &str) -> bool {
            ["srv.py", "./agent.sh"].contains(&word)
        }

        fn is_server(&self, word: &str, config: Option<&Path>) -> bool {
            word == "github" || (word == "sort" && config.is_some())
        }
    }

    #[test]
    fn the_place_of_the_dashes_is_found() {
        #[rustfmt::skip]
        let table = [
            ("tools npx -y server",            "warmline tools -- npx -y server"),
            ("tools npx",                      "warmline tools -- npx"),
            ("tools srv.py",                   "warmline tools -- python3 srv.py"),
            ("doctor --timeout 5s npx -y foo", "warmline doctor … -- npx -y foo"),
            ("serve npx -y foo",               "warmline serve -- npx -y foo"),
            ("serve github npx -y foo",        "warmline serve github -- npx -y foo"),
            ("--json add x npx -y foo",        "warmline add x -- npx -y foo"),
            ("add x npx",                      "warmline add x -- npx"),
            ("add x npx -y foo --env-pass KEY", "warmline add x … -- npx -y foo"),
            ("add x npx --here foo --config=y", "warmline add x … -- npx foo"),
            ("run python ag.py",               "warmline run -- python ag.py"),
            ("run --name trip ./agent.sh",     "warmline run … -- ./agent.sh"),
            ("call python3 srv.py tool",       "warmline call tool -- python3 srv.py"),
            ("call npx -y foo pay a=canary",   "warmline call pay a=… -- npx -y foo"),
            ("call python3 srv.py",            "warmline call TOOL -- python3 srv.py"),
            ("request npx foo tools/list",     "warmline request tools/list -- npx foo"),
            ("stdio npx -y foo",               "warmline stdio -- npx -y foo"),
        ];
        for (typed, expected) in table {
            let words: Vec<String> = typed.split(' ').map(str::to_owned).collect();
            assert_eq!(
                meant(&words, &Somewhere).as_deref(),
                Some(expected),
                "{typed}"
            );
        }
    }

    #[test]
    fn what_has_nothing_to_do_with_dashes_is_left_alone() {
        #[rustfmt::skip]
        let table = [
            "tools github -y", "tools nobody", "tools", "call sort list=1", "call github sort a",
            "serve github", "tools --nonsense npx", "tools --config x.toml sort", "token new npx",
            "tools --run sort", "tools github -- npx", "add npx http://x/mcp", "nonsense npx",
        ];
        for typed in table {
            let words: Vec<String> = typed.split(' ').map(str::to_owned).collect();
            assert_eq!(meant(&words, &Somewhere), None, "{typed}");
        }
    }
}
