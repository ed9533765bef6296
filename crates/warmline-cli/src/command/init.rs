//! `warmline init`: a commented file to begin with, and what desktop clients have already.

use std::path::{Path, PathBuf};

use warmline::config::{ConfigFile, Origin, process_variable};

use crate::args;
use crate::command::add;
use crate::problem::{Outcome, Problem};
use crate::report::text::count;
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

/// Servers that a client has.
struct Found {
    client: &'static str,
    file: ConfigFile,
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
    let found = match typed.no_import {
        true => Vec::new(),
        false => clients(report),
    };
    let (text, taken) = written(&found);
    add::write(&place, &text, typed.here, None)?;
    tell(&place, &taken, report);
    Ok(0)
}

/// What desktop clients have; a file that cannot be read is told and left out.
fn clients(report: &Report) -> Vec<Found> {
    let Some(home) = process_variable("HOME").map(PathBuf::from) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (client, path) in CLIENTS {
        let path = home.join(path);
        if !path.is_file() {
            continue;
        }
        match ConfigFile::read(&path, Origin::Given) {
            Ok(file) => found.push(Found { client, file }),
            // A file of theirs that says nothing of servers is no concern of ours.
            Err(error) => report.account(&format!("· {}: {error}", path.display())),
        }
    }
    found
}

/// A server that was taken over.
struct Taken {
    name: String,
    client: &'static str,
    left_out: Vec<String>,
}

/// The whole file. Of two servers of one name the first is taken.
fn written(found: &[Found]) -> (String, Vec<Taken>) {
    let mut text = BEGINNING.to_owned();
    let mut taken: Vec<Taken> = Vec::new();
    for Found { client, file } in found {
        for declaration in file.declarations() {
            if taken.iter().any(|known| known.name == declaration.name) {
                continue;
            }
            let anew = declaration.anew();
            text.push_str(&format!("\n# from {client}\n{}", anew.toml));
            taken.push(Taken {
                name: declaration.name.clone(),
                client,
                left_out: anew.left_out,
            });
        }
    }
    (text, taken)
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
    for one in taken {
        report.data(&format!(
            "  {}  from {}",
            style::name(&one.name),
            one.client
        ));
        for what in &one.left_out {
            report.data(&format!("    {} {what}", style::look("to do:")));
        }
    }
    report.note("next: `warmline doctor`, then `warmline serve`");
}
