//! `warmline ps`: what the background gateway holds, and what commands left for the next one.

use serde::Deserialize;
use serde_json::Value;

use crate::args;
use crate::background::{Hello, Home, VERSION, of_another_version};
use crate::kept::{Kept, Note};
use crate::problem::Outcome;
use crate::report::text::count;
use crate::report::{Fields, Report, style, table};
use crate::run::run_around;

/// What a gateway holds.
#[derive(Debug, Deserialize)]
struct Held {
    servers: Vec<ServerLine>,
    runs: Vec<RunLine>,
    sessions: Vec<SessionLine>,
}

#[derive(Debug, Deserialize)]
struct ServerLine {
    server: String,
    state: String,
    transport: Option<String>,
    eras: Vec<String>,
    sessions: u64,
    calls: u64,
    last_failure: Option<Failure>,
    /// Why it was left out of the list of all servers lately.
    left_out: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Failure {
    code: String,
    in_a_row: u64,
}

#[derive(Debug, Deserialize)]
struct RunLine {
    run: String,
    run_name: Option<String>,
    sessions: u64,
    calls: u64,
    began_at: u64,
    used_at: u64,
}

#[derive(Debug, Deserialize)]
struct SessionLine {
    server: String,
    run: Option<String>,
    run_name: Option<String>,
    key: u64,
    generation: u64,
    state: String,
    transport: String,
    opened_at: u64,
    used_at: u64,
    calls: u64,
}

/// Shows servers, runs and sessions.
pub(super) async fn run(typed: &args::Ps, report: &Report) -> Outcome<u8> {
    let home = Home::typed(typed.state_dir.as_deref(), typed.socket.as_deref())?;
    let looked = look(&home).await?;
    match &looked {
        None => {
            home.absent()?;
            match report.is_json() {
                true => report.object("gateway", &Fields::new().put("up", false)),
                false => {
                    report.note("no background gateway is up: `warmline up` starts one");
                    report.note(
                        "what a `warmline serve` holds is shown by the socket of its `--admin FILE`: \
                         `warmline ps --socket FILE`",
                    );
                },
            }
        },
        Some((hello, held)) if report.is_json() => tell_programs(hello, held, report),
        Some((hello, held)) => tell_people(hello, held, report),
    }
    let mut kept = match home.notes()? {
        Some(notes) => notes.kept().await?,
        None => Vec::new(),
    };
    if let Some((_, held)) = &looked {
        kept.retain(|one| !held.has(&one.note));
    }
    if looked.is_some() && !kept.is_empty() && !report.is_json() {
        report.data("");
    }
    tell_kept(&kept, report);
    if let Some(run) = run_around()? {
        let text = format!(
            "run `{run}` is that of the program around this command: what it called by its gateway \
             is not shown"
        );
        report.aside(&text, &Fields::new().put("run", &run).put("what", &text));
    }
    Ok(0)
}

/// Runs that nobody holds now: the next command that names one goes on with it.
fn tell_kept(kept: &[Kept], report: &Report) {
    if report.is_json() {
        for one in kept {
            let fields = Fields::new()
                .put("run", &one.note.run)
                .put("server", &one.note.shown)
                .put("opened_at", one.opened_at)
                .put("used_at", one.used_at);
            report.object("kept", &fields);
        }
        return;
    }
    let now = warmline::clock::wall_seconds();
    let row = |one: &Kept| {
        vec![
            one.note.run.clone(),
            one.note.shown.clone(),
            whole(now.saturating_sub(one.opened_at)),
            whole(now.saturating_sub(one.used_at)),
        ]
    };
    let rows: Rows = kept.iter().map(row).collect();
    if !rows.is_empty() {
        let head = ["KEPT RUN", "SESSION OF", "AGE", "IDLE"];
        for line in table::lines(&head, &rows, report.width()) {
            report.data(&line);
        }
    }
}

impl Held {
    /// Whether it holds the session that is noted: one of the same run with another server may be
    /// kept still.
    fn has(&self, note: &Note) -> bool {
        self.sessions
            .iter()
            .any(|line| line.server == note.server() && line.run_name.as_deref() == Some(&note.run))
    }
}

async fn look(home: &Home) -> Outcome<Option<(Hello, Held)>> {
    let Some(hello) = home.hello().await? else {
        return Ok(None);
    };
    if hello.version != VERSION {
        return Err(of_another_version(Some(&hello.version)));
    }
    let mut all = serde_json::Map::new();
    for list in ["servers", "runs", "sessions"] {
        match home.look(&format!("/admin/{list}")).await? {
            Some(Value::Object(more)) => all.extend(more),
            Some(_) | None => return Ok(None),
        }
    }
    let held = serde_json::from_value(Value::Object(all));
    held.map(|held| Some((hello, held))).map_err(|error| {
        let what = "what the background gateway holds cannot be read";
        crate::problem::Problem::new(warmline::core::code::Code::Bug, what)
            .because(error.to_string())
    })
}

fn tell_people(hello: &Hello, held: &Held, report: &Report) {
    report.data(&format!(
        "{} · pid {} · {}, {}, {}",
        style::bold(&format!("up {}", whole(hello.up_seconds))),
        hello.pid,
        count(held.servers.len(), "server"),
        count(held.runs.len(), "run"),
        count(held.sessions.len(), "session"),
    ));
    let now = warmline::clock::wall_seconds();
    let mut servers: Rows = held.servers.iter().map(ServerLine::row).collect();
    let mut head = ServerLine::HEAD;
    if held.servers.iter().all(|line| line.left_out.is_none()) {
        // Most are never left out, and the column is of no use then.
        head = &head[..head.len() - 1];
        servers.iter_mut().for_each(|row| row.truncate(head.len()));
    }
    let runs: Rows = held.runs.iter().map(|line| line.row(now)).collect();
    let sessions: Rows = held.sessions.iter().map(|line| line.row(now)).collect();
    let tables: [(&[&str], Rows); 3] = [
        (RunLine::HEAD, runs),
        (SessionLine::HEAD, sessions),
        (head, servers),
    ];
    for (head, rows) in tables.iter().filter(|(_, rows)| !rows.is_empty()) {
        report.data("");
        for line in table::lines(head, rows, report.width()) {
            report.data(&line);
        }
    }
}

type Rows = Vec<Vec<String>>;

impl ServerLine {
    const HEAD: &[&str] = &[
        "SERVER",
        "STATE",
        "BY",
        "ERA",
        "SESSIONS",
        "CALLS NOW",
        "FAILS WITH",
        "NOT IN /mcp",
    ];

    fn row(&self) -> Vec<String> {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let fails = self.last_failure.as_ref().filter(|last| last.in_a_row > 0);
        vec![
            self.server.clone(),
            plainly(&self.state).to_owned(),
            or_none(self.transport.clone()),
            or_none(Some(self.eras.join("+")).filter(|eras| !eras.is_empty())),
            self.sessions.to_string(),
            self.calls.to_string(),
            or_none(fails.map(|last| format!("{} ({}x)", last.code, last.in_a_row))),
            or_none(self.left_out.as_deref().map(|why| plainly(why).to_owned())),
        ]
    }
}

/// How a server stands, or why it is left out of all servers in one, in words of people. Machines
/// read those of the gateway (`--json`).
fn plainly(word: &str) -> &str {
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

impl RunLine {
    const HEAD: &[&str] = &["RUN", "SESSIONS", "CALLS NOW", "AGE", "IDLE"];

    fn row(&self, now: u64) -> Vec<String> {
        vec![
            self.run_name.as_ref().unwrap_or(&self.run).clone(),
            self.sessions.to_string(),
            self.calls.to_string(),
            whole(now.saturating_sub(self.began_at)),
            whole(now.saturating_sub(self.used_at)),
        ]
    }
}

impl SessionLine {
    const HEAD: &[&str] = &[
        "SESSION OF",
        "RUN",
        "STATE",
        "BY",
        "RESTARTS",
        "AGE",
        "IDLE",
    ];

    fn row(&self, now: u64) -> Vec<String> {
        let run = self.run_name.as_ref().or(self.run.as_ref());
        vec![
            self.server.clone(),
            run.map_or_else(|| "-".to_owned(), Clone::clone),
            self.state.clone(),
            self.transport.clone(),
            self.generation.saturating_sub(1).to_string(),
            whole(now.saturating_sub(self.opened_at)),
            whole(now.saturating_sub(self.used_at)),
        ]
    }
}

/// A time in whole seconds, as people say it.
fn whole(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

fn tell_programs(hello: &Hello, held: &Held, report: &Report) {
    let gateway = Fields::new()
        .put("up", true)
        .put("pid", hello.pid)
        .put("version", &hello.version)
        .put("up_seconds", hello.up_seconds);
    report.object("gateway", &gateway);
    for line in &held.servers {
        let fields = Fields::new()
            .put("name", &line.server)
            .put("state", &line.state)
            .put("transport", &line.transport)
            .put("eras", &line.eras)
            .put("sessions", line.sessions)
            .put("calls", line.calls)
            .put(
                "fails_with",
                line.last_failure.as_ref().map(|last| &last.code),
            )
            .put("left_out", &line.left_out);
        report.object("server", &fields);
    }
    for line in &held.runs {
        let fields = Fields::new()
            .put("name", &line.run_name)
            .put("fingerprint", &line.run)
            .put("sessions", line.sessions)
            .put("calls", line.calls)
            .put("began_at", line.began_at)
            .put("used_at", line.used_at);
        report.object("run", &fields);
    }
    for line in &held.sessions {
        let fields = Fields::new()
            .put("server", &line.server)
            .put("run", line.run_name.as_ref().or(line.run.as_ref()))
            .put("session", format!("{}.{}", line.key, line.generation))
            .put("state", &line.state)
            .put("transport", &line.transport)
            .put("restarts", line.generation.saturating_sub(1))
            .put("opened_at", line.opened_at)
            .put("used_at", line.used_at)
            .put("calls", line.calls);
        report.object("session", &fields);
    }
}
