//! `warmline add`: one more server in a configuration file.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use warmline::config::{Anew, ConfigError, ConfigFile, Origin, parse_url, plain_name};
use warmline::core::code::Code;
use warmline::core::key::Digest;
use warmline::seal::random_bytes;
use warmline::settings::ProcessVariables;
use warmline::trust::TrustStore;

use crate::args;
use crate::command::check;
use crate::problem::{Outcome, Problem};
use crate::report::{Fields, Report, style};
use crate::target::folders;

/// Adds the server behind what the file has.
pub(super) fn run(typed: &args::Add, report: &Report) -> Outcome<u8> {
    let name = &typed.name;
    if plain_name(name).as_deref() != Some(name) {
        let problem = Problem::usage(format!(
            "`{}` cannot be the name of a server",
            name.escape_debug()
        ));
        let near = plain_name(name).map(|near| format!("`{near}` can"));
        let rule = "names have 1 to 24 of `a` to `z`, `0` to `9` and `-`".to_owned();
        return Err(problem.hint(near.unwrap_or(rule)));
    }
    let place = file(typed.here, typed.config.as_deref())?;
    let before = before(&place, name)?;
    let table = table(typed)?;
    let between = if before.is_empty() { "" } else { "\n" };
    let text = format!("{before}{between}{}", table.toml);
    write(&place, &text, typed.here, Some(name))?;
    let written = ConfigFile::read(&place, Origin::Given)?;
    let mut added = written.declarations().iter();
    let added = added.find(|one| one.name == *name);
    let fields = Fields::new()
        .put("name", name)
        .put("file", place.display().to_string());
    if report.is_json() {
        report.object("add", &fields);
    } else {
        report.data(&format!(
            "added {} to {}",
            style::name(name),
            place.display()
        ));
        let with = match &typed.config {
            Some(config) => format!(" --config {}", config.display()),
            None => String::new(),
        };
        report.note(&format!("next: `warmline doctor {name}{with}`"));
    }
    if typed.here {
        caution_of_trust(&place, report)?;
    }
    if let Some(declaration) = added {
        check::caution_of_secrets(declaration, report);
    }
    Ok(0)
}

/// Cautions of a file of this folder that nobody trusts: it does not count.
pub(super) fn caution_of_trust(place: &Path, report: &Report) -> Outcome<()> {
    if !is_trusted(place)? {
        let place = place.display();
        report.caution(&format!("{place} is not trusted: `warmline trust`"));
    }
    Ok(())
}

/// Whether a file of this folder counts as it is now.
fn is_trusted(place: &Path) -> Outcome<bool> {
    let store = TrustStore::in_state_folder(folders()?.state.as_deref());
    Ok(ConfigFile::read(place, Origin::Folder)?.is_trusted(&store))
}

/// The file that is written: one that was named, that of this folder, or that of the user.
pub(super) fn file(here: bool, named: Option<&Path>) -> Outcome<PathBuf> {
    let folders = folders()?;
    match (named, here) {
        (Some(named), _) => Ok(named.to_owned()),
        (None, true) => Ok(folders.working.join(FILE)),
        (None, false) => match folders.user {
            Some(user) => Ok(user.join(FILE)),
            None => Err(Problem::usage("this user has no configuration folder")
                .hint("--here writes into the working folder")),
        },
    }
}

/// What stands in the file; nothing where there is none. The name must be free there.
fn before(place: &Path, name: &str) -> Outcome<String> {
    if !place.exists() {
        return Ok(String::new());
    }
    if place.extension().is_some_and(|end| end == "json") {
        return Err(
            Problem::usage(format!("`{}` belongs to another program", place.display()))
                .hint("servers are added to a `warmline.toml`"),
        );
    }
    let read = ConfigFile::read(place, Origin::Given)?;
    if read.declarations().iter().any(|known| known.name == name) {
        let what = format!("`{name}` is declared in `{}` already", place.display());
        return Err(Problem::usage(what).hint("take another name, or edit the file"));
    }
    text_of(place)
}

/// What stands in a file that is there.
pub(super) fn text_of(place: &Path) -> Outcome<String> {
    std::fs::read_to_string(place).map_err(|error| unwritten(place, &error))
}

fn table(typed: &args::Add) -> Outcome<Anew> {
    match (&typed.url, typed.command.as_slice()) {
        (Some(_), []) if !typed.env_pass.is_empty() => Err(Problem::usage(
            "`--env-pass` is for a program, and this server is a URL",
        )
        .hint("`--token-env VARIABLE` names the variable that holds its token")),
        (None, [_, ..]) if typed.token_env.is_some() => Err(Problem::usage(
            "`--token-env` is for a URL, and this server is a program",
        )
        .hint("`--env-pass VARIABLE` passes a variable on to it")),
        (Some(url), []) => {
            let parsed = parse_url(url)
                .map_err(|why| Problem::usage("that is not the URL of a server").because(why))?;
            Ok(Anew::of_url(
                &typed.name,
                parsed.as_str(),
                typed.token_env.as_deref(),
            ))
        },
        (None, words @ [_, ..]) => {
            let words: Option<Vec<String>> = words
                .iter()
                .map(|word| word.to_str().map(str::to_owned))
                .collect();
            let words =
                words.ok_or_else(|| Problem::usage("the command behind `--` is not text"))?;
            Ok(Anew::of_command(&typed.name, &words, &typed.env_pass))
        },
        (None, []) => Err(Problem::usage("neither a URL nor a command is given")
            .hint("`warmline add NAME URL`, or `warmline add NAME -- COMMAND…`")),
        (Some(_), _) => Err(Problem::usage("there is a URL and a command behind `--`")
            .hint("leave one of them out")),
    }
}

/// Writes the file whole, after it was read as whoever uses it would, and the new server was looked
/// at, if there is one. A file of the working folder is trusted by that, if it was before or is
/// new: who wrote it is who runs this.
pub(super) fn write(place: &Path, text: &str, here: bool, new: Option<&str>) -> Outcome<()> {
    // Where a link leads, the file is written: whoever keeps it elsewhere finds it there.
    let led_to = std::fs::canonicalize(place);
    let file = led_to.as_deref().unwrap_or(place);
    let folders = folders()?;
    let store = TrustStore::in_state_folder(folders.state.as_deref());
    let was_trusted = match ConfigFile::read(place, Origin::Folder) {
        Ok(file) => file.is_trusted(&store),
        Err(_) => !place.exists(),
    };
    folder_of(place, folders.user.as_deref())?;
    let draft = draft(file, text).map_err(|error| unwritten(place, &error))?;
    let looked = ConfigFile::read(&draft, Origin::Given).and_then(|read| {
        let declared = read.declarations().iter();
        for declaration in declared.filter(|one| Some(one.name.as_str()) == new) {
            let trusted = read.trusted(&store)?;
            trusted.served(declaration, &ProcessVariables, &None)?;
        }
        Ok(read)
    });
    // What stood there before was right, and what is new stands nowhere yet.
    let looked = looked.map_err(|error| {
        Problem::from(ConfigError {
            place: None,
            ..error
        })
    });
    let written = looked.and_then(|read| {
        std::fs::rename(&draft, file).map_err(|error| unwritten(place, &error))?;
        Ok(read)
    });
    if written.is_err() {
        // It is of no use to anybody; the error that matters is the first one.
        std::fs::remove_file(&draft).ok();
    }
    let read = written?;
    if here && was_trusted {
        // What is not remembered is asked for again: nothing is lost.
        store.trust(place, read.digest()).ok();
    }
    Ok(())
}

/// Sees to it that there is a folder for the file. Only that of the user is made: any other that
/// is not there is a slip.
fn folder_of(place: &Path, user: Option<&Path>) -> Outcome<()> {
    let folder = place
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    if Some(folder) == user {
        return std::fs::create_dir_all(folder).map_err(|error| unwritten(place, &error));
    }
    match folder.is_dir() {
        true => Ok(()),
        false => Err(
            Problem::usage(format!("the folder `{}` does not exist", folder.display()))
                .hint("look at the path, or make the folder first"),
        ),
    }
}

/// Writes the text beside its place, into a file that was not there and that nobody could have
/// put a link in the stead of. Whoever may not read the old file may not read this one.
fn draft(place: &Path, text: &str) -> std::io::Result<PathBuf> {
    let unique = Digest::new(random_bytes()).hex();
    let draft = place.with_extension(format!("toml.{unique}.new"));
    let mut file = File::options().write(true).create_new(true).open(&draft)?;
    let written = match std::fs::metadata(place) {
        Ok(old) => file.set_permissions(old.permissions()),
        Err(_) => Ok(()),
    };
    match written.and_then(|()| file.write_all(text.as_bytes())) {
        Ok(()) => Ok(draft),
        Err(error) => {
            // It is of no use to anybody; the error that matters is the first one.
            std::fs::remove_file(&draft).ok();
            Err(error)
        },
    }
}

fn unwritten(place: &Path, error: &std::io::Error) -> Problem {
    let what = format!("`{}` cannot be written", place.display());
    Problem::new(Code::ConfigUnreadable, what).because(error.to_string())
}

const FILE: &str = "warmline.toml";
