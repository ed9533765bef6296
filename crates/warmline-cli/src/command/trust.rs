//! `warmline trust`: show what a file of this folder would do, and remember that it may.

use warmline::config::{ConfigFile, Declaration, Origin};
use warmline::core::code::Code;
use warmline::settings::Effective;
use warmline::trust::TrustStore;

use crate::args;
use crate::problem::{Outcome, Problem};
use crate::report::text::{count, one_line, padded};
use crate::report::{Fields, Report, style};
use crate::target::folders;

/// Shows each file and asks, unless `--yes` was given.
pub(super) async fn run(typed: &args::Trust, report: &Report) -> Outcome<u8> {
    let folders = folders()?;
    let store = TrustStore::in_state_folder(folders.state.as_deref());
    let paths = match &typed.file {
        Some(file) => vec![folders.working.join(file)],
        None => {
            let found = folders.files().into_iter();
            found
                .filter(|(_, origin)| *origin == Origin::Folder)
                .map(|(path, _)| path)
                .collect()
        },
    };
    if paths.is_empty() {
        return Err(Problem::usage("there is nothing to trust in this folder")
            .hint("`warmline.toml` and `.mcp.json` are looked for; or name a file"));
    }
    for path in paths {
        let file = ConfigFile::read(&path, Origin::Folder)?;
        if file.is_trusted(&store) {
            tell(&file, "already", report);
            continue;
        }
        show(&file, report);
        if !typed.yes && !accepted(&file, report).await? {
            tell(&file, "refused", report);
            return Ok(2);
        }
        store.trust(file.path(), file.digest()).map_err(|error| {
            Problem::new(
                Code::ConfigUnreadable,
                "what is trusted cannot be remembered",
            )
            .because(error.to_string())
            .hint("Warmline keeps it in the state folder (XDG_STATE_HOME)")
        })?;
        tell(&file, "trusted", report);
    }
    Ok(0)
}

async fn accepted(file: &ConfigFile, report: &Report) -> Outcome<bool> {
    if !report.can_ask() {
        return Err(
            Problem::new(Code::ConfigUntrusted, "there is no terminal to ask on")
                .at(file.path().display().to_string())
                .hint("look at the file, then accept it with `warmline trust --yes`"),
        );
    }
    let typed = report.ask(match file.decisions().is_empty() {
        true => "may this folder's servers be started and contacted? [y/N] ",
        false => {
            "may this folder's servers be started and contacted, and do these settings count? [y/N] "
        },
    });
    let typed = typed.await;
    Ok(matches!(
        typed.as_deref().map(str::trim),
        Some("y" | "Y" | "yes")
    ))
}

/// Commands, URLs and names of variables, values only of those that decide what is executed; and
/// every setting beside the servers, because each of them counts as soon as the file is trusted.
fn show(file: &ConfigFile, report: &Report) {
    if report.is_json() {
        for declaration in file.declarations() {
            report.object("declaration", &fields(file, declaration));
        }
        for Effective { key, value, .. } in file.decisions() {
            let fields = Fields::new().put("file", file.path().display().to_string());
            report.object("setting", &fields.put("key", key).put("value", value));
        }
        return;
    }
    let servers = count(file.declarations().len(), "server");
    report.say(&format!(
        "{} declares {servers}:",
        style::name(&one_line(&file.path().display().to_string()))
    ));
    for declaration in file.declarations() {
        let outline = declaration.outline();
        report.say(&format!(
            "  {}",
            style::bold(&one_line(&declaration.written))
        ));
        report.say(&format!("    reaches    {}", one_line(&outline.reaches)));
        let mut lines = std::iter::once(&outline.reaches).chain(&outline.runs);
        let is_struck = lines.any(|line| line.contains('…'));
        let rows = [
            ("runs", outline.runs),
            ("sets", outline.sets),
            ("reads", outline.reads),
            ("headers", outline.headers),
        ];
        for (word, names) in rows.into_iter().filter(|(_, names)| !names.is_empty()) {
            report.say(&format!("    {word:<9}  {}", one_line(&names.join(" "))));
        }
        if is_struck {
            report.say(&format!("    …          {STRUCK}"));
        }
        for path in outline.files {
            report.say(&format!(
                "    file       {}",
                one_line(&path.display().to_string())
            ));
        }
    }
    show_decisions(&file.decisions(), report);
}

fn show_decisions(decisions: &[Effective], report: &Report) {
    if decisions.is_empty() {
        return;
    }
    report.say("it decides for all servers, and for a gateway:");
    let widest = decisions.iter().map(|one| one.key.len()).max();
    for Effective { key, value, .. } in decisions {
        let key = padded(key, widest.unwrap_or_default());
        report.say(&format!("  {key}  {}", one_line(value)));
    }
    if decisions.iter().any(|one| one.value.contains('…')) {
        report.say(&format!("  …  {STRUCK}"));
    }
}

const STRUCK: &str = "is a value that looks like a secret: the file has it";

fn fields(file: &ConfigFile, declaration: &Declaration) -> Fields {
    let outline = declaration.outline();
    Fields::new()
        .put("file", file.path().display().to_string())
        .put("server", &declaration.written)
        .put("reaches", outline.reaches)
        .put("runs", outline.runs)
        .put("sets", outline.sets)
        .put("reads", outline.reads)
        .put("headers", outline.headers)
}

fn tell(file: &ConfigFile, word: &str, report: &Report) {
    let path = file.path().display().to_string();
    if report.is_json() {
        let fields = Fields::new().put("file", path).put("answer", word);
        return report.object("trust", &fields.put("sha256", file.digest().hex()));
    }
    report.note(&match word {
        "trusted" => format!("{} {path}", style::good("trusted")),
        "already" => format!("{path} is trusted already"),
        _ => format!("{path} stays untrusted"),
    });
}
