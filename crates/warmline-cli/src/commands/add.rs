//! `warmline add`: adds a server to a configuration file.

use std::ffi::OsString;
use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use warmline_config::{ConfigError, ConfigFile, FileOrigin, ServerToml, normalize_name, parse_url};
use warmline_core::error::code::Code;

use crate::commands::check;
use crate::output::{CliResult, JsonFields, Problem, Report, style};
use crate::target::{folders_and_trust, process_folders};

const USAGE: &str = "\
warmline add NAME URL [OPTIONS]
       warmline add NAME [OPTIONS] -- COMMAND…";

const EXAMPLES: &str = "\
Examples:
  warmline add github https://example.com/mcp --token-env GITHUB_TOKEN
  warmline add browser -- npx -y @playwright/mcp
  warmline add notes --here --env-pass NOTES_KEY -- npx -y notes-server";

/// Add a server to a configuration file
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, override_usage = USAGE)]
pub(crate) struct AddArgs {
    /// The name of the server
    name: String,
    /// Its URL
    url: Option<String>,
    /// A program that speaks MCP over stdio, with its arguments
    #[arg(last = true, value_name = "COMMAND", hide = true)]
    command: Vec<OsString>,
    /// The variable that holds the token for a URL
    #[arg(long, value_name = "VARIABLE")]
    token_env: Option<String>,
    /// Pass a variable of this environment to the program
    #[arg(long, value_name = "NAME")]
    env_pass: Vec<String>,
    /// Write into `warmline.toml` of the working folder instead of the user's
    #[arg(long)]
    here: bool,
    /// The file to write into
    #[arg(long, value_name = "FILE", conflicts_with = "here")]
    config: Option<PathBuf>,
}

const CONFIG_FILE_NAME: &str = "warmline.toml";

pub(super) fn run(args: &AddArgs, report: &Report) -> CliResult<u8> {
    let name = &args.name;
    let normalized = normalize_name(name);
    if normalized.as_ref() != Some(name) {
        let what = format!("`{}` is not a server name", name.escape_debug());
        return Err(Problem::usage(what).with_hint(match normalized {
            Some(near) => format!("`{near}` is one"),
            None => "names have 1 to 24 of `a` to `z`, `0` to `9` and `-`".to_owned(),
        }));
    }
    let place = config_file_path(args.here, args.config.as_deref())?;
    let before = read_existing(&place, name)?;
    let table = server_table(args)?;
    let separator = if before.is_empty() { "" } else { "\n" };
    let text = format!("{before}{separator}{}", table.toml);
    write_config(&place, &text, args.here, Some(name))?;
    let shown = place.display();
    if report.is_json() {
        let fields = JsonFields::with("name", name);
        report.print_object("add", &fields.put("file", shown.to_string()));
    } else {
        report.print(&format!("added {} to {shown}", style::name(name)));
        let config = args.config.as_ref();
        let config = config.map(|config| format!(" --config {}", config.display()));
        let config = config.unwrap_or_default();
        report.print_note(&format!("next: `warmline doctor {name}{config}`"));
    }
    if args.here {
        warn_if_untrusted(&place, report)?;
    }
    let written = ConfigFile::read(&place, FileOrigin::Explicit)?;
    let mut servers = written.declarations().iter();
    if let Some(declaration) = servers.find(|one| one.name == *name) {
        check::warn_about_secrets(declaration, report);
    }
    Ok(0)
}

/// Warns of a file of the working folder that is not trusted, and so not used.
pub(super) fn warn_if_untrusted(place: &Path, report: &Report) -> CliResult<()> {
    let (_, store) = folders_and_trust()?;
    if !ConfigFile::read(place, FileOrigin::WorkingFolder)?.is_trusted(&store) {
        let place = place.display();
        report.warn(&format!("{place} is not trusted: `warmline trust`"));
    }
    Ok(())
}

/// The file to write: a named one, or that of the working folder or the user.
pub(super) fn config_file_path(here: bool, named: Option<&Path>) -> CliResult<PathBuf> {
    let folders = process_folders()?;
    match (named, here) {
        (Some(named), _) => Ok(named.to_owned()),
        (None, true) => Ok(folders.working.join(CONFIG_FILE_NAME)),
        (None, false) => match folders.user {
            Some(user) => Ok(user.join(CONFIG_FILE_NAME)),
            None => Err(Problem::usage("this user has no configuration folder")
                .with_hint("--here writes into the working folder")),
        },
    }
}

fn read_existing(place: &Path, name: &str) -> CliResult<String> {
    if !place.exists() {
        return Ok(String::new());
    }
    let shown = place.display();
    if place.extension().is_some_and(|end| end == "json") {
        return Err(
            Problem::usage(format!("`{shown}` belongs to another program"))
                .with_hint("servers are added to a `warmline.toml`"),
        );
    }
    let file = ConfigFile::read(place, FileOrigin::Explicit)?;
    if file.declarations().iter().any(|known| known.name == name) {
        return Err(
            Problem::usage(format!("`{shown}` already declares `{name}`"))
                .with_hint("choose another name, or edit the file"),
        );
    }
    read_config_text(place)
}

pub(super) fn read_config_text(place: &Path) -> CliResult<String> {
    std::fs::read_to_string(place).map_err(|error| write_error(place, &error))
}

fn server_table(args: &AddArgs) -> CliResult<ServerToml> {
    let name = &args.name;
    let error = |what: &str, hint: &str| Err(Problem::usage(what).with_hint(hint));
    match (&args.url, args.command.as_slice()) {
        (Some(_), []) if !args.env_pass.is_empty() => error(
            "`--env-pass` is for a program, and this server is a URL",
            "`--token-env VARIABLE` names the variable that holds its token",
        ),
        (None, [_, ..]) if args.token_env.is_some() => error(
            "`--token-env` is for a URL, and this server is a program",
            "`--env-pass VARIABLE` passes a variable to it",
        ),
        (Some(url), []) => {
            let url = parse_url(url);
            let url = url.map_err(|why| Problem::usage("not a server URL").with_cause(why))?;
            let token = args.token_env.as_deref();
            Ok(ServerToml::from_url(name, url.as_str(), token))
        },
        (None, words @ [_, ..]) => {
            let words = words.iter().map(|word| word.to_str().map(str::to_owned));
            let words: Option<Vec<String>> = words.collect();
            let words =
                words.ok_or_else(|| Problem::usage("the command behind `--` is not UTF-8"))?;
            Ok(ServerToml::from_command(name, &words, &args.env_pass))
        },
        (None, []) => error(
            "no URL and no command given",
            "`warmline add NAME URL`, or `warmline add NAME -- COMMAND…`",
        ),
        (Some(_), _) => error(
            "there is a URL and a command behind `--`",
            "remove one of them",
        ),
    }
}

/// Writes the whole file, after reading it as its users do and checking the new server. A file of the
/// working folder stays trusted, and a new one becomes trusted: its author runs this.
pub(super) fn write_config(
    place: &Path,
    text: &str,
    here: bool,
    new: Option<&str>,
) -> CliResult<()> {
    // A link stays a link.
    let target = std::fs::canonicalize(place);
    let file = target.as_deref().unwrap_or(place);
    let (folders, store) = folders_and_trust()?;
    let was_trusted = match ConfigFile::read(place, FileOrigin::WorkingFolder) {
        Ok(file) => file.is_trusted(&store),
        Err(_) => !place.exists(),
    };
    ensure_folder(place, folders.user.as_deref())?;
    let draft = write_draft(file, text).map_err(|error| write_error(place, &error))?;
    let checked = ConfigFile::read(draft.path(), FileOrigin::Explicit).and_then(|read| {
        let declared = read.declarations().iter();
        for declaration in declared.filter(|one| Some(one.name.as_str()) == new) {
            let trusted = read.require_trusted(&store)?.server(declaration)?;
            trusted.to_server_with_environment()?;
        }
        Ok(read)
    });
    // The draft is at no place that the user knows.
    let read = checked.map_err(|error| ConfigError {
        location: None,
        ..error
    })?;
    let written = draft.persist(file);
    written.map_err(|error| write_error(place, &error.error))?;
    if here && was_trusted {
        // Without this the user is asked again.
        store.trust(place, read.digest()).ok();
    }
    Ok(())
}

/// Creates the user's configuration folder. Any other folder must exist.
fn ensure_folder(place: &Path, user: Option<&Path>) -> CliResult<()> {
    let folder = folder_of(place);
    if Some(folder) == user {
        return std::fs::create_dir_all(folder).map_err(|error| write_error(place, &error));
    }
    match folder.is_dir() {
        true => Ok(()),
        false => {
            let what = format!("the folder `{}` does not exist", folder.display());
            Err(Problem::usage(what).with_hint("check the path, or create the folder first"))
        },
    }
}

fn folder_of(place: &Path) -> &Path {
    let folder = place.parent();
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Writes the text to a new file beside its place, with the permissions of the old one.
fn write_draft(place: &Path, text: &str) -> io::Result<tempfile::NamedTempFile> {
    let old = std::fs::metadata(place).map(|old| old.permissions());
    let mut draft = tempfile::Builder::new()
        .suffix(".new")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder_of(place))?;
    if let Ok(permissions) = old {
        draft.as_file().set_permissions(permissions)?;
    }
    draft.write_all(text.as_bytes())?;
    Ok(draft)
}

fn write_error(place: &Path, error: &io::Error) -> Problem {
    let what = format!("cannot write `{}`", place.display());
    Problem::new(Code::ConfigUnreadable, what).with_cause(error.to_string())
}
