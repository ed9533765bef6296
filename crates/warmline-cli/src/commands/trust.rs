//! `warmline trust`: shows what a file of this folder would do, and remembers that it may.

use std::path::PathBuf;

use clap::Args;
use warmline_config::{ConfigFile, Declaration, FileOrigin};
use warmline_core::error::code::Code;
use warmline_engine::settings::EffectiveSetting;

use crate::output::{
    CliResult, JsonFields, Problem, Report, one_line, pad_first, pluralize, style,
};
use crate::target::folders_and_trust;

const LONG_HELP: &str = "\
Review a configuration file of this folder and trust it.

A configuration file can start programs. A file of the working folder may come from somebody else,
so nothing in it is used until you have seen its commands, URLs and variables here and accepted
them. You accept the exact bytes: a changed file must be accepted again.";

const EXAMPLES: &str = "\
Examples:
  warmline trust
  warmline trust .mcp.json --yes";

/// Review a configuration file of this folder and trust it
#[derive(Debug, Args)]
#[command(long_about = LONG_HELP, after_long_help = EXAMPLES)]
pub(crate) struct TrustArgs {
    /// The file; default is every file of the working folder
    file: Option<PathBuf>,
    /// Accept without asking
    #[arg(long)]
    yes: bool,
}

pub(super) async fn run(args: &TrustArgs, report: &Report) -> CliResult<u8> {
    let (folders, store) = folders_and_trust()?;
    let paths = match &args.file {
        Some(file) => vec![folders.working.join(file)],
        None => {
            let mut found = folders.existing_files();
            found.retain(|(_, origin)| *origin == FileOrigin::WorkingFolder);
            found.into_iter().map(|(path, _)| path).collect()
        },
    };
    if paths.is_empty() {
        return Err(Problem::usage("there is nothing to trust in this folder")
            .with_hint("it has no `warmline.toml` and no `.mcp.json`; or name a file"));
    }
    for path in paths {
        let file = ConfigFile::read(&path, FileOrigin::WorkingFolder)?;
        let shown = path.display();
        if file.is_trusted(&store) {
            let text = format!("{shown} is trusted already");
            print_result(&file, "already", &text, report);
            continue;
        }
        print_file(&file, report);
        if !args.yes && !ask_to_trust(&file, report).await? {
            let text = format!("{shown} stays untrusted");
            print_result(&file, "refused", &text, report);
            return Ok(2);
        }
        store.trust(file.path(), file.digest()).map_err(|error| {
            let what = "cannot remember what is trusted";
            Problem::new(Code::ConfigUnreadable, what)
                .with_cause(error.to_string())
                .with_hint("Warmline keeps it in the state folder (XDG_STATE_HOME)")
        })?;
        let text = format!("{} {shown}", style::success("trusted"));
        print_result(&file, "trusted", &text, report);
    }
    Ok(0)
}

async fn ask_to_trust(file: &ConfigFile, report: &Report) -> CliResult<bool> {
    if !report.can_ask() {
        let what = "there is no terminal to ask on";
        return Err(Problem::new(Code::ConfigUntrusted, what)
            .with_location(file.path().display().to_string())
            .with_hint("review the file, then accept it with `warmline trust --yes`"));
    }
    let settings = match file.explicit_settings().is_empty() {
        true => "",
        false => ", and use these settings",
    };
    let question = format!("start and contact the servers of this file{settings}? [y/N] ");
    Ok(report.confirm(&question).await == Some(true))
}

/// Prints commands, URLs and names of variables, with values only of those that decide what is
/// executed; and every setting beside the servers.
fn print_file(file: &ConfigFile, report: &Report) {
    let path = file.path().display().to_string();
    let settings = file.explicit_settings();
    if report.is_json() {
        for declaration in file.declarations() {
            let summary = declaration.summary();
            let fields = JsonFields::with("file", &path)
                .put("server", &declaration.original_name)
                .put("reaches", summary.target)
                .put("runs", summary.credential_commands)
                .put("sets", summary.variables_set)
                .put("reads", summary.variables_read)
                .put("headers", summary.headers);
            report.print_object("declaration", &fields);
        }
        for EffectiveSetting { key, value, .. } in settings {
            let fields = JsonFields::with("file", &path);
            report.print_object("setting", &fields.put("key", key).put("value", value));
        }
        return;
    }
    let servers = pluralize(file.declarations().len(), "server");
    let path = style::name(&one_line(&path));
    report.print_to_stderr(&format!("{path} declares {servers}:"));
    for declaration in file.declarations() {
        print_declaration(declaration, report);
    }
    if settings.is_empty() {
        return;
    }
    report.print_to_stderr("it sets for all servers, and for a gateway:");
    let rows = settings.iter().map(|one| (one.key.to_owned(), &one.value));
    for (key, value) in pad_first(rows.collect()) {
        report.print_to_stderr(&format!("  {key}  {}", one_line(value)));
    }
    if settings.iter().any(|one| one.value.contains('…')) {
        report.print_to_stderr(&format!("  …  {REDACTED_NOTE}"));
    }
}

fn print_declaration(declaration: &Declaration, report: &Report) {
    let summary = declaration.summary();
    let name = style::bold(&one_line(&declaration.original_name));
    report.print_to_stderr(&format!("  {name}"));
    let print = |word: &str, text: &str| {
        report.print_to_stderr(&format!("    {word:<9}  {}", one_line(text)));
    };
    print("reaches", &summary.target);
    let mut lines = std::iter::once(&summary.target).chain(&summary.credential_commands);
    let is_redacted = lines.any(|line| line.contains('…'));
    let rows = [
        ("runs", summary.credential_commands),
        ("sets", summary.variables_set),
        ("reads", summary.variables_read),
        ("headers", summary.headers),
    ];
    for (word, names) in rows.into_iter().filter(|(_, names)| !names.is_empty()) {
        print(word, &names.join(" "));
    }
    if is_redacted {
        print("…", REDACTED_NOTE);
    }
    for path in summary.files {
        print("file", &path.display().to_string());
    }
}

const REDACTED_NOTE: &str = "is a value that looks like a secret: see the file";

fn print_result(file: &ConfigFile, answer: &str, text: &str, report: &Report) {
    let fields = JsonFields::with("file", file.path().display().to_string())
        .put("answer", answer)
        .put("sha256", file.digest());
    report.print_outcome("trust", &fields, text);
}
