//! `warmline ps`: what the background gateway holds, and runs that commands left.

use clap::Args;
use serde_json::Value;
use warmline_platform::clock;

use crate::backend::selected_run::enclosing_run;
use crate::background::{BackgroundGateway, GatewayInfo, GatewayLocationArgs, check_version};
use crate::leftover_runs::{LeftoverRun, ResumableRun};
use crate::output::{CliResult, Column, JsonFields, Report, pluralize, style};

const LONG_HELP: &str = "\
Show servers, runs and sessions of the background gateway, and runs that commands left.

Runs over HTTP are kept without a gateway too: they are shown with server, age and idle time. On a
terminal as tables; with --json one object per line, whose `kind` is `gateway`, `server`, `run`,
`session` or `kept`.";

const EXAMPLES: &str = "\
Examples:
  warmline ps
  warmline ps --json | jq -r 'select(.kind == \"run\").name'";

/// Show what the background gateway holds, and runs that commands left
#[derive(Debug, Args)]
#[command(long_about = LONG_HELP, after_long_help = EXAMPLES)]
pub(crate) struct PsArgs {
    #[command(flatten)]
    location: GatewayLocationArgs,
}

struct GatewayStatus {
    info: GatewayInfo,
    servers: Vec<Row>,
    runs: Vec<Row>,
    sessions: Vec<Row>,
}

struct Row(Value);

impl Row {
    fn str(&self, member: &str) -> Option<&str> {
        self.0.get(member).and_then(Value::as_str)
    }

    fn number(&self, member: &str) -> u64 {
        let number = self.0.get(member).and_then(Value::as_u64);
        number.unwrap_or_default()
    }

    /// The run by name, or by fingerprint if it belongs to another user.
    fn run(&self) -> Option<&str> {
        self.str("run_name").or_else(|| self.str("run"))
    }

    fn failure(&self) -> Option<String> {
        let last = Self(self.0.get("last_failure")?.clone());
        let count = last.number("in_a_row");
        let code = last.str("code").unwrap_or_default();
        (count > 0).then(|| format!("{code} ({count}x)"))
    }

    fn eras(&self) -> String {
        let eras = self.0.get("eras").and_then(Value::as_array);
        let eras = eras.into_iter().flatten().filter_map(Value::as_str);
        eras.collect::<Vec<_>>().join("+")
    }

    /// Its members as fields for programs: each under its name, from a JSON pointer.
    fn to_fields(&self, members: &[(&'static str, &str)]) -> JsonFields {
        let members = members.iter();
        members.fold(JsonFields::new(), |fields, (name, pointer)| {
            fields.put(name, self.0.pointer(pointer))
        })
    }
}

const RUN_COLUMNS: [Column<Row>; 5] = [
    ("RUN", |row| cell(row.run())),
    ("SESSIONS", |row| row.number("sessions").to_string()),
    ("CALLS NOW", |row| row.number("calls").to_string()),
    ("AGE", |row| format_age(row.number("began_at"))),
    ("IDLE", |row| format_age(row.number("used_at"))),
];

const KEPT_COLUMNS: [Column<ResumableRun>; 4] = [
    ("KEPT RUN", |run| run.leftover.run.clone()),
    ("SESSION OF", |run| run.leftover.display_name.clone()),
    ("AGE", |run| format_age(run.opened_at)),
    ("IDLE", |run| format_age(run.used_at)),
];

const SESSION_COLUMNS: [Column<Row>; 7] = [
    ("SESSION OF", |row| cell(row.str("server"))),
    ("RUN", |row| cell(row.run())),
    ("STATE", |row| cell(row.str("state"))),
    ("BY", |row| cell(row.str("transport"))),
    ("RESTARTS", |row| {
        row.number("generation").saturating_sub(1).to_string()
    }),
    ("AGE", |row| format_age(row.number("opened_at"))),
    ("IDLE", |row| format_age(row.number("used_at"))),
];

/// The last one is shown only if a server is left out of `/mcp`.
const SERVER_COLUMNS: [Column<Row>; 8] = [
    ("SERVER", |row| cell(row.str("server"))),
    ("STATE", |row| cell(row.str("state").map(state_text))),
    ("BY", |row| cell(row.str("transport"))),
    ("ERA", |row| cell(Some(&row.eras()))),
    ("SESSIONS", |row| row.number("sessions").to_string()),
    ("CALLS NOW", |row| row.number("calls").to_string()),
    ("FAILS WITH", |row| cell(row.failure().as_deref())),
    ("NOT IN /mcp", |row| {
        cell(row.str("left_out").map(state_text))
    }),
];

pub(super) async fn run(args: &PsArgs, report: &Report) -> CliResult<u8> {
    let gateway = BackgroundGateway::from_args(&args.location)?;
    let status = fetch_status(&gateway).await?;
    match &status {
        None => {
            gateway.check_absence_allowed()?;
            report.print_outcome(
                "gateway",
                &JsonFields::with("up", false),
                "no background gateway is up: `warmline up` starts one\n\
                 to look into a `warmline serve --admin FILE`: `warmline ps --socket FILE`",
            );
        },
        Some(status) if report.is_json() => status.print_json(report),
        Some(status) => status.print_tables(report),
    }
    let mut resumable = match gateway.leftover_runs()? {
        Some(notes) => notes.list_resumable().await?,
        None => Vec::new(),
    };
    if let Some(status) = &status {
        resumable.retain(|run| !status.has_session(&run.leftover));
        if !resumable.is_empty() && !report.is_json() {
            report.print("");
        }
    }
    print_resumable(&resumable, report);
    if let Some(run) = enclosing_run()? {
        let text = format!(
            "run `{run}` belongs to the enclosing `warmline run`: its sessions are not shown"
        );
        let fields = JsonFields::with("run", &run).put("what", &text);
        report.print_notice_to_stderr(&text, &fields);
    }
    Ok(0)
}

/// Prints runs that nothing holds now: the next command that names one resumes it.
fn print_resumable(runs: &[ResumableRun], report: &Report) {
    if report.is_json() {
        for run in runs {
            let fields = JsonFields::with("run", &run.leftover.run)
                .put("server", &run.leftover.display_name)
                .put("opened_at", run.opened_at)
                .put("used_at", run.used_at);
            report.print_object("kept", &fields);
        }
    } else if !runs.is_empty() {
        report.print_table(&KEPT_COLUMNS, runs);
    }
}

async fn fetch_status(gateway: &BackgroundGateway) -> CliResult<Option<GatewayStatus>> {
    let Some(info) = gateway.info().await? else {
        return Ok(None);
    };
    check_version(Some(&info.version))?;
    let mut lists = [const { Vec::new() }; 3];
    for (name, rows) in ["servers", "runs", "sessions"].into_iter().zip(&mut lists) {
        let Some(mut all) = gateway.get_json(&format!("/admin/{name}")).await? else {
            return Ok(None);
        };
        let list = all.get_mut(name).and_then(Value::as_array_mut);
        *rows = list.into_iter().flat_map(std::mem::take).map(Row).collect();
    }
    let [servers, runs, sessions] = lists;
    Ok(Some(GatewayStatus {
        info,
        servers,
        runs,
        sessions,
    }))
}

impl GatewayStatus {
    /// Whether it holds the session of a note: another session of the same run may be left over.
    fn has_session(&self, note: &LeftoverRun) -> bool {
        self.sessions.iter().any(|row| {
            row.str("server") == Some(&note.server) && row.str("run_name") == Some(&note.run)
        })
    }

    fn print_tables(&self, report: &Report) {
        let up = format!("up {}", format_seconds(self.info.up_seconds));
        report.print(&format!(
            "{} · pid {} · {}, {}, {}",
            style::bold(&up),
            self.info.pid,
            pluralize(self.servers.len(), "server"),
            pluralize(self.runs.len(), "run"),
            pluralize(self.sessions.len(), "session"),
        ));
        let print = |columns: &[Column<Row>], rows: &[Row]| {
            if !rows.is_empty() {
                report.print("");
                report.print_table(columns, rows);
            }
        };
        print(&RUN_COLUMNS, &self.runs);
        print(&SESSION_COLUMNS, &self.sessions);
        let is_any_left_out = self.servers.iter().any(|row| row.str("left_out").is_some());
        let shown = SERVER_COLUMNS.len() - usize::from(!is_any_left_out);
        print(&SERVER_COLUMNS[..shown], &self.servers);
    }

    fn print_json(&self, report: &Report) {
        let gateway = JsonFields::with("up", true)
            .put("pid", self.info.pid)
            .put("version", &self.info.version)
            .put("up_seconds", self.info.up_seconds);
        report.print_object("gateway", &gateway);
        for row in &self.servers {
            let fields = row.to_fields(&[
                ("name", "/server"),
                ("state", "/state"),
                ("transport", "/transport"),
                ("eras", "/eras"),
                ("sessions", "/sessions"),
                ("calls", "/calls"),
                ("fails_with", "/last_failure/code"),
                ("left_out", "/left_out"),
            ]);
            report.print_object("server", &fields);
        }
        for row in &self.runs {
            let fields = row.to_fields(&[
                ("name", "/run_name"),
                ("fingerprint", "/run"),
                ("sessions", "/sessions"),
                ("calls", "/calls"),
                ("began_at", "/began_at"),
                ("used_at", "/used_at"),
            ]);
            report.print_object("run", &fields);
        }
        for row in &self.sessions {
            let (key, generation) = (row.number("key"), row.number("generation"));
            let fields = JsonFields::with("server", row.str("server"))
                .put("run", row.run())
                .put("session", format!("{key}.{generation}"))
                .put("state", row.str("state"))
                .put("transport", row.str("transport"))
                .put("restarts", generation.saturating_sub(1))
                .put("opened_at", row.0.get("opened_at"))
                .put("used_at", row.0.get("used_at"))
                .put("calls", row.0.get("calls"));
            report.print_object("session", &fields);
        }
    }
}

fn cell(text: Option<&str>) -> String {
    text.filter(|text| !text.is_empty())
        .unwrap_or("-")
        .to_owned()
}

/// The state of a server, or why it is left out of `/mcp`, for people. `--json` has the words of the
/// gateway.
fn state_text(word: &str) -> &str {
    match word {
        "untried" => "not called yet",
        "trying" => "first call",
        "degraded" | "failed" => "failing",
        "breaker-open" => "pausing",
        "late" => "too slow",
        "other-era" => "other era",
        other => other,
    }
}

fn format_age(since: u64) -> String {
    format_seconds(clock::wall_seconds().saturating_sub(since))
}

fn format_seconds(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}
