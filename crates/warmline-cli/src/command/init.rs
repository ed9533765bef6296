//! `warmline init`: a commented file to begin with, and what desktop clients have already.

use std::path::{Path, PathBuf};

use warmline::config::{ConfigError, ConfigFile, Declaration, Origin, process_variable};

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

/// What a file has already.
struct Before {
    text: String,
    /// Its servers, each by its name and as it would be written anew.
    servers: Vec<(String, String)>,
}

/// Writes the file. To one that is there, what desktop clients have besides is added.
pub(super) fn run(typed: &args::Init, report: &Report) -> Outcome<u8> {
    let place = add::file(typed.here, None)?;
    let before = before(&place, typed.no_import)?;
    let mut missed = Vec::new();
    let found = match typed.no_import {
        true => Vec::new(),
        false => clients(&mut missed),
    };
    let (text, taken) = written(before.as_ref(), &found, &mut missed);
    if before.is_none() || !taken.is_empty() {
        add::write(&place, &text, typed.here, None)?;
    }
    tell(&place, before.is_some(), &taken, report);
    missed.iter().for_each(|one| one.tell(report));
    if typed.here {
        add::caution_of_trust(&place, report)?;
    }
    report.note(match (taken.is_empty(), missed.is_empty()) {
        (true, _) => "next: `warmline add NAME URL`, or `warmline add NAME -- COMMAND`",
        (false, true) => "next: `warmline doctor`, then `warmline serve`",
        (false, false) => {
            "next: `warmline add NAME …` for what is missing, `warmline doctor`, then `warmline serve`"
        },
    });
    Ok(0)
}

/// What stands in the file; none where there is none.
fn before(place: &Path, no_import: bool) -> Outcome<Option<Before>> {
    if !place.exists() {
        return Ok(None);
    }
    if no_import {
        return Err(
            Problem::usage(format!("there is a `{}` already", place.display()))
                .hint("`warmline add NAME …` adds a server to it"),
        );
    }
    let read = ConfigFile::read(place, Origin::Given)?;
    let declared = read.declarations().iter();
    let servers = declared.map(|one| (one.name.clone(), one.anew().toml));
    Ok(Some(Before {
        text: add::text_of(place)?,
        servers: servers.collect(),
    }))
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
                missed.extend(of_projects(client, &path));
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

/// Servers that a client keeps for single folders of a user. Which of them are meant for all folders
/// is not for us to say.
fn of_projects(client: &str, path: &Path) -> Option<Missed> {
    let text = std::fs::read(path).ok()?;
    let all: serde_json::Value = serde_json::from_slice(&text).ok()?;
    let projects = all.get("projects")?.as_object()?.values();
    let servers = projects.filter_map(|project| project.get("mcpServers")?.as_object());
    let mut names: Vec<&str> = servers.flatten().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let listed: Vec<String> = { names.iter().take(5) }
        .map(|name| format!("`{}`", name.escape_debug()))
        .collect();
    let more = if names.len() > listed.len() {
        ", …"
    } else {
        ""
    };
    (!listed.is_empty()).then(|| Missed {
        what: format!(
            "not taken over from {client}: what it has for single folders ({}{more})",
            listed.join(", ")
        ),
        error: None,
    })
}

/// The whole file. Of two servers of one name the first is taken.
fn written(
    before: Option<&Before>,
    found: &[Found],
    missed: &mut Vec<Missed>,
) -> (String, Vec<Taken>) {
    let mut text = before.map_or_else(|| BEGINNING.to_owned(), |before| before.text.clone());
    let here = before.map(|before| before.servers.as_slice());
    let here = here.unwrap_or_default();
    let mut taken: Vec<Taken> = Vec::new();
    for Found { client, file } in found {
        for declaration in file.declarations() {
            let (name, anew) = (&declaration.name, declaration.anew());
            if let Some((_, known)) = here.iter().find(|(known, _)| known == name) {
                if *known != anew.toml {
                    missed.push(Missed::in_the_file(declaration, client));
                }
                continue;
            }
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
    fn in_the_file(other: &Declaration, client: &str) -> Self {
        let what = format!(
            "not taken over from {client}: `{}`, {}; the file has another one of that name",
            other.name,
            other.outline().reaches,
        );
        Self { what, error: None }
    }

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

fn tell(place: &Path, was_there: bool, taken: &[Taken], report: &Report) {
    if report.is_json() {
        let servers: Vec<_> = taken.iter().map(|one| one.name.as_str()).collect();
        let fields = Fields::new()
            .put("file", place.display().to_string())
            .put("servers", servers);
        return report.object("init", &fields);
    }
    let file = style::bold(&place.display().to_string());
    report.data(&match (was_there, taken.len()) {
        (true, 0) => format!("{file} stays as it is: desktop clients have nothing more"),
        (true, more) => format!("added to {file} · {} taken over", count(more, "server")),
        (false, all) => format!("wrote {file} · {} taken over", count(all, "server")),
    });
    let widest = taken.iter().map(|one| one.name.chars().count()).max();
    for one in taken {
        let name = padded(&one.name, widest.unwrap_or_default());
        report.data(&format!("  {}  from {}", style::name(&name), one.client));
        for what in &one.left_out {
            report.data(&format!("    {} {what}", style::look("to do:")));
        }
    }
}
