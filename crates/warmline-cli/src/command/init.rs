//! `warmline init`: a commented file to begin with, and what desktop clients have already.

use std::path::{Path, PathBuf};

use warmline::config::{ConfigError, ConfigFile, Declaration, process_variable};

use crate::args;
use crate::command::add;
use crate::problem::{Outcome, Problem};
use crate::report::text::{count, note, padded};
use crate::report::{Fields, Report, style};

/// Where desktop clients keep their servers, from the home folder of a user.
const CLIENTS: &[(&str, &str)] = &[
    (
        "Claude Desktop",
        ".config/Claude/claude_desktop_config.json",
    ),
    (
        "Claude Desktop",
        "Library/Application Support/Claude/claude_desktop_config.json",
    ),
    ("Claude Code", ".claude.json"),
    ("Cursor", ".cursor/mcp.json"),
    ("VS Code", ".config/Code/User/mcp.json"),
    ("VS Code", "Library/Application Support/Code/User/mcp.json"),
    ("Windsurf", ".codeium/windsurf/mcp_config.json"),
];

const BEGINNING: &str = "\
# What Warmline stands in front of. `warmline check` looks at this file, `warmline doctor NAME` at
# a server, `warmline serve` serves them all. Every setting: docs/CONFIG.md

[gateway]
# listen = \"127.0.0.1:8484\"

# [servers.browser]
# command = [\"npx\", \"-y\", \"@playwright/mcp\"]
# spares = 1                                  # one is opened ahead, for the next run

# [servers.github]
# url = \"https://api.example.com/mcp\"
# credential = { env = \"GITHUB_TOKEN\" }       # the value stays in the environment
";

/// What a client has.
struct Found {
    client: &'static str,
    file: ConfigFile,
}

/// A server that was taken over.
struct Taken {
    name: String,
    client: &'static str,
    toml: String,
    left_out: Vec<String>,
}

/// Something of a client that was not taken over: in words, and as the error that it was.
struct Missed {
    what: String,
    error: Option<ConfigError>,
}

/// Writes the file, unless there is one.
pub(super) fn run(typed: &args::Init, report: &Report) -> Outcome<u8> {
    let place = add::file(typed.here, None)?;
    if place.exists() {
        return Err(
            Problem::usage(format!("there is a `{}` already", place.display()))
                .hint("`warmline add NAME …` adds a server to it"),
        );
    }
    let mut missed = Vec::new();
    let found = match typed.no_import {
        true => Vec::new(),
        false => clients(&mut missed),
    };
    let (text, taken) = written(&found, &mut missed);
    add::write(&place, &text, typed.here, None)?;
    tell(&place, &taken, report);
    missed.iter().for_each(|one| one.tell(report));
    report.note(match (taken.is_empty(), missed.is_empty()) {
        (true, _) => "next: `warmline add NAME URL`, or `warmline add NAME -- COMMAND`",
        (false, true) => "next: `warmline doctor`, then `warmline serve`",
        (false, false) => {
            "next: `warmline add NAME …` for what is missing, `warmline doctor`, then `warmline serve`"
        },
    });
    Ok(0)
}

/// What desktop clients have; what cannot be read is left out, and told.
fn clients(missed: &mut Vec<Missed>) -> Vec<Found> {
    let Some(home) = process_variable("HOME").map(PathBuf::from) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (client, path) in CLIENTS {
        let path = home.join(path);
        if !path.is_file() {
            continue;
        }
        let faults = match ConfigFile::of_another_program(&path) {
            Ok((file, faults)) => {
                found.push(Found { client, file });
                faults
            },
            Err(error) => vec![error],
        };
        missed.extend(faults.into_iter().map(|error| Missed {
            what: format!("not taken over from {client}: {error}"),
            error: Some(error),
        }));
    }
    found
}

/// The whole file. Of two servers of one name the first is taken.
fn written(found: &[Found], missed: &mut Vec<Missed>) -> (String, Vec<Taken>) {
    let mut text = BEGINNING.to_owned();
    let mut taken: Vec<Taken> = Vec::new();
    for Found { client, file } in found {
        for declaration in file.declarations() {
            let (name, anew) = (&declaration.name, declaration.anew());
            if let Some(known) = taken.iter().find(|known| known.name == *name) {
                // Many clients have the same servers: that is nothing to tell.
                if known.toml != anew.toml {
                    missed.push(Missed::of_the_same_name(declaration, client, known));
                }
                continue;
            }
            text.push_str(&format!("\n# from {client}\n{}", anew.toml));
            taken.push(Taken {
                name: name.clone(),
                client,
                toml: anew.toml,
                left_out: anew.left_out,
            });
        }
    }
    (text, taken)
}

impl Missed {
    fn of_the_same_name(other: &Declaration, client: &str, known: &Taken) -> Self {
        let what = format!(
            "not taken over from {client}: another `{}`, {}; the one of {} is taken",
            known.name,
            other.outline().reaches,
            known.client
        );
        Self { what, error: None }
    }

    fn tell(&self, report: &Report) {
        let error = self.error.as_ref();
        let place = error.and_then(|error| error.place.as_ref());
        let place = place.map(|place| place.to_string());
        let why = error.and_then(|error| error.why.as_deref());
        let hint = error.and_then(|error| error.hint.as_deref());
        let fields = Fields::new()
            .put("what", &self.what)
            .put("where", &place)
            .put("why", why)
            .put("hint", hint);
        let below = [("where", place.as_deref()), ("why", why), ("hint", hint)];
        report.remark(&note(None, &self.what, &below), &fields);
    }
}

fn tell(place: &Path, taken: &[Taken], report: &Report) {
    if report.is_json() {
        let servers: Vec<_> = taken.iter().map(|one| one.name.as_str()).collect();
        let fields = Fields::new()
            .put("file", place.display().to_string())
            .put("servers", servers);
        return report.object("init", &fields);
    }
    report.data(&format!(
        "wrote {} · {} taken over",
        style::bold(&place.display().to_string()),
        count(taken.len(), "server")
    ));
    let widest = taken.iter().map(|one| one.name.chars().count()).max();
    for one in taken {
        let name = padded(&one.name, widest.unwrap_or_default());
        report.data(&format!("  {}  from {}", style::name(&name), one.client));
        for what in &one.left_out {
            report.data(&format!("    {} {what}", style::look("to do:")));
        }
    }
}
