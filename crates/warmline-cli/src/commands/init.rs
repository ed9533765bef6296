//! `warmline init`: a commented configuration file, with the servers of desktop clients.

use std::path::{Path, PathBuf};

use clap::Args;
use warmline_config::{ConfigFile, FileOrigin, ServerToml, process_variable};

use crate::commands::add;
use crate::output::{CliResult, JsonFields, Note, Problem, Report, pad_first, pluralize, style};

const LONG_HELP: &str = "\
Write a first configuration file, with the servers of desktop clients.

It imports the servers of Claude Desktop, Claude Code, Cursor, VS Code and Windsurf. No secret is
copied: values of variables and headers, and arguments that look like secrets, are left out, and
the file says what to fill in. Nothing is started or contacted.";

const EXAMPLES: &str = "\
Examples:
  warmline init
  warmline init --here --no-import";

/// Write a first configuration file, with the servers of desktop clients
#[derive(Debug, Args)]
#[command(long_about = LONG_HELP, after_long_help = EXAMPLES)]
pub(crate) struct InitArgs {
    /// Write `warmline.toml` into the working folder instead of the user's
    #[arg(long)]
    here: bool,
    /// Import nothing from desktop clients
    #[arg(long)]
    no_import: bool,
}

/// The files of desktop clients, in the home folder.
const DESKTOP_CLIENTS: &[(&str, &str)] = &[
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

const FILE_HEADER: &str = "\
# What Warmline stands in front of. `warmline check` looks at this file, `warmline doctor NAME` at
# a server, `warmline serve` serves them all. Every setting: docs/guide/configuration.md

[gateway]
# listen = \"127.0.0.1:8484\"

# [servers.browser]
# command = [\"npx\", \"-y\", \"@playwright/mcp\"]
# spares = 1                                  # one is opened ahead, for the next run

# [servers.github]
# url = \"https://api.example.com/mcp\"
# credential = { env = \"GITHUB_TOKEN\" }       # the value stays in the environment
";

struct ImportedServer {
    name: String,
    client: &'static str,
    target: String,
    table: ServerToml,
}

struct ExistingConfig {
    text: String,
    servers: Vec<(String, String)>,
}

pub(super) fn run(args: &InitArgs, report: &Report) -> CliResult<u8> {
    let place = add::config_file_path(args.here, None)?;
    let existing = read_existing(&place, args.no_import)?;
    let mut skipped = Vec::new();
    let found = match args.no_import {
        true => Vec::new(),
        false => read_client_configs(&mut skipped),
    };
    let imported = select_imports(existing.as_ref(), found, &mut skipped);
    if existing.is_none() || !imported.is_empty() {
        let text = existing.as_ref().map_or(FILE_HEADER, |file| &file.text);
        let servers = imported.iter();
        let servers = servers.map(|one| format!("\n# from {}\n{}", one.client, one.table.toml));
        let text = text.to_owned() + &servers.collect::<String>();
        add::write_config(&place, &text, args.here, None)?;
    }
    print_result(&place, existing.is_some(), &imported, report);
    let no_context = JsonFields::new();
    skipped
        .iter()
        .for_each(|one| one.print(&no_context, report));
    if args.here {
        add::warn_if_untrusted(&place, report)?;
    }
    report.print_note(match (imported.is_empty(), skipped.is_empty()) {
        (true, _) => "next: `warmline add NAME URL`, or `warmline add NAME -- COMMAND`",
        (false, true) => "next: `warmline doctor`, then `warmline serve`",
        (false, false) => {
            "next: `warmline add NAME …` for what is missing, `warmline doctor`, then `warmline serve`"
        },
    });
    Ok(0)
}

fn read_existing(place: &Path, no_import: bool) -> CliResult<Option<ExistingConfig>> {
    if !place.exists() {
        return Ok(None);
    }
    if no_import {
        let what = format!("`{}` exists already", place.display());
        return Err(Problem::usage(what).with_hint("`warmline add NAME …` adds a server to it"));
    }
    let file = ConfigFile::read(place, FileOrigin::Explicit)?;
    let declared = file.declarations().iter();
    let servers = declared.map(|one| (one.name.clone(), one.to_toml().toml));
    Ok(Some(ExistingConfig {
        servers: servers.collect(),
        text: add::read_config_text(place)?,
    }))
}

/// The servers of desktop clients. Files that cannot be read are skipped.
fn read_client_configs(skipped: &mut Vec<Note>) -> Vec<ImportedServer> {
    let Some(home) = process_variable("HOME").map(PathBuf::from) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (client, path) in DESKTOP_CLIENTS {
        let path = home.join(path);
        if !path.is_file() {
            continue;
        }
        let errors = match ConfigFile::read_foreign(&path) {
            Ok((file, errors)) => {
                found.extend(
                    file.declarations()
                        .iter()
                        .map(|declaration| ImportedServer {
                            name: declaration.name.clone(),
                            client,
                            target: declaration.summary().target,
                            table: declaration.to_toml(),
                        }),
                );
                skipped.extend(skipped_project_servers(client, &path));
                errors
            },
            Err(error) => vec![error],
        };
        skipped.extend(errors.into_iter().map(|error| Note {
            location: error.location.as_ref().map(ToString::to_string),
            cause: error.cause.clone(),
            hint: error.hint.clone(),
            ..Note::new(format!("not imported from {client}: {error}"))
        }));
    }
    found
}

/// Servers that a client has for single folders only.
fn skipped_project_servers(client: &str, path: &Path) -> Option<Note> {
    let text = std::fs::read(path).ok()?;
    let all: serde_json::Value = serde_json::from_slice(&text).ok()?;
    let projects = all.get("projects")?.as_object()?.values();
    let servers = projects.filter_map(|project| project.get("mcpServers")?.as_object());
    let mut names: Vec<&str> = servers.flatten().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let shown = names.iter().take(5);
    let shown = shown.map(|name| format!("`{}`", name.escape_debug()));
    let shown: Vec<String> = shown.collect();
    let more = if names.len() > 5 { ", …" } else { "" };
    let shown = shown.join(", ");
    (!names.is_empty()).then(|| {
        Note::new(format!(
            "not imported from {client}: its servers of single folders ({shown}{more})"
        ))
    })
}

/// Selects the servers that the file does not have. Of two with one name the first is taken.
fn select_imports(
    existing: Option<&ExistingConfig>,
    found: Vec<ImportedServer>,
    skipped: &mut Vec<Note>,
) -> Vec<ImportedServer> {
    let in_file = existing.map_or(&[][..], |file| file.servers.as_slice());
    let mut imported: Vec<ImportedServer> = Vec::new();
    for server in found {
        let (name, target, toml) = (&server.name, &server.target, &server.table.toml);
        let conflict = if let Some((_, known)) = in_file.iter().find(|(known, _)| known == name) {
            (known != toml)
                .then(|| format!("`{name}`, {target}; the file has another server of that name"))
        } else if let Some(known) = imported.iter().find(|known| known.name == *name) {
            let used = known.client;
            (known.table.toml != *toml)
                .then(|| format!("another `{name}`, {target}; the one of {used} is used"))
        } else {
            imported.push(server);
            continue;
        };
        // Many clients have the same servers: that is no conflict.
        let client = server.client;
        let skipping = |why| Note::new(format!("not imported from {client}: {why}"));
        skipped.extend(conflict.map(skipping));
    }
    imported
}

fn print_result(place: &Path, existed: bool, imported: &[ImportedServer], report: &Report) {
    let file = place.display().to_string();
    if report.is_json() {
        let servers: Vec<_> = imported.iter().map(|one| one.name.as_str()).collect();
        let fields = JsonFields::with("file", file).put("servers", servers);
        return report.print_object("init", &fields);
    }
    let (file, servers) = (style::bold(&file), pluralize(imported.len(), "server"));
    report.print(&match existed {
        true if imported.is_empty() => {
            format!("{file} is unchanged: desktop clients have no further servers")
        },
        true => format!("added to {file} · {servers} imported"),
        false => format!("wrote {file} · {servers} imported"),
    });
    let rows = imported.iter().map(|one| (one.name.clone(), one));
    for (name, one) in pad_first(rows.collect()) {
        report.print(&format!("  {}  from {}", style::name(&name), one.client));
        for what in &one.table.manual_steps {
            report.print(&format!("    {} {what}", style::warning("to do:")));
        }
    }
}
