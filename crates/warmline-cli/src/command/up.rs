//! `warmline up`: starts the gateway of this user in the background, and waits until it is there.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use warmline::clock;
use warmline::core::code::Code;

use crate::args;
use crate::background::{Hello, Home, VERSION, of_another_version};
use crate::gate::Source;
use crate::problem::{Outcome, Problem};
use crate::report::{Fields, Report, style};
use crate::target::state_folder;

mod staying;

/// A gateway is ready in a fraction of this.
const TO_START: Duration = Duration::from_secs(20);
/// How often it is asked whether it is there.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Starts the gateway, or is it.
pub(super) async fn run(typed: &args::Up, report: &Report) -> Outcome<u8> {
    let state = state_folder(typed.state_dir.as_deref())?;
    let state = std::path::absolute(&state).unwrap_or(state);
    let home = Home::of(&state);
    home.make()?;
    if typed.stay {
        return staying::stay(typed, &state, &home).await;
    }
    if let Some(hello) = home.hello().await? {
        return already(&hello, &home, report);
    }
    // What is wrong with a file is told here, where somebody reads it.
    let (_, cautions) = Source::of_user(typed.config.clone())?.read()?;
    for caution in cautions {
        report.caution_aside(&caution);
    }
    let started_at = fs::metadata(home.log()).map_or(0, |log| log.len());
    let start = || start(typed, &state, &home);
    let starting = wait(&home, start, started_at);
    let hello = report
        .while_waiting("starting the background gateway", starting)
        .await?;
    tell("up", &hello, &home, report);
    Ok(0)
}

/// One is up: it stays, if it is one that we can speak with.
fn already(hello: &Hello, home: &Home, report: &Report) -> Outcome<u8> {
    if hello.version != VERSION {
        return Err(of_another_version(Some(&hello.version)));
    }
    tell("up already", hello, home, report);
    Ok(0)
}

fn start(typed: &args::Up, state: &std::path::Path, home: &Home) -> Outcome<Child> {
    let failed = |error: std::io::Error| {
        Problem::new(Code::Bug, "the background gateway cannot be started")
            .because(error.to_string())
    };
    let log = home.open_log()?;
    let again = log.try_clone().map_err(failed)?;
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(["up", "--stay", "--state-dir"]).arg(state);
    if let Some(idle) = typed.idle {
        command.arg("--idle").arg(format!("{}ms", idle.as_millis()));
    }
    if let Some(config) = &typed.config {
        let config = std::path::absolute(config).unwrap_or_else(|_| config.clone());
        command.arg("--config").arg(config);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::from(log))
        .stderr(Stdio::from(again));
    command.spawn().map_err(failed)
}

/// Starts a gateway and waits until one answers: this one, or another that was faster.
async fn wait(home: &Home, start: impl Fn() -> Outcome<Child>, started_at: u64) -> Outcome<Hello> {
    let by = clock::after(TO_START);
    let mut child = start()?;
    loop {
        if let Ok(Some(hello)) = home.hello().await {
            return Ok(hello);
        }
        match child.try_wait().ok().flatten() {
            Some(ended) if !ended.success() => return Err(not_started(home, started_at)),
            // It saw another, which does not answer: one that was just going.
            Some(_) if home.claim()?.is_some() => child = start()?,
            Some(_) | None if clock::now() > by => return Err(not_started(home, started_at)),
            Some(_) | None => clock::sleep(LOOK_EVERY).await,
        }
    }
}

/// The last words of a gateway that did not start.
fn not_started(home: &Home, started_at: u64) -> Problem {
    let said = || {
        let mut log = fs::File::open(home.log()).ok()?;
        log.seek(SeekFrom::Start(started_at)).ok()?;
        let mut said = String::new();
        log.take(4096).read_to_string(&mut said).ok()?;
        Some(said).filter(|said| !said.trim().is_empty())
    };
    let problem = Problem::new(Code::OpenFailed, "the background gateway did not start")
        .at(home.log().display().to_string());
    match said() {
        Some(said) => problem.because(said.trim().to_owned()),
        None => problem.because("it said nothing"),
    }
}

fn tell(how: &str, hello: &Hello, home: &Home, report: &Report) {
    if report.is_json() {
        let fields = Fields::new()
            .put("pid", hello.pid)
            .put("version", &hello.version)
            .put("socket", home.socket().display().to_string())
            .put("log", home.log().display().to_string());
        return report.object("up", &fields);
    }
    let head = style::bold(how);
    report.data(&format!(
        "{head} · pid {} · log {}",
        hello.pid,
        home.log().display()
    ));
    let example = style::name("warmline call … --run NAME");
    report.note(&format!(
        "`{example}` goes through it; `{}` shows it, `{}` stops it",
        style::name("warmline ps"),
        style::name("warmline down")
    ));
}
