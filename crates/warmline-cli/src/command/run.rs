//! `warmline run`: a run around any program, through a gateway of its own.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::process::ExitStatus;

use tokio::process::{Child, Command};
use warmline::core::code::Code;
use warmline::core::key::Digest;
use warmline::seal::random_bytes;
use warmline::{Run, Warmline};
use warmline_gateway::tokens::{self, LOCAL};
use warmline_gateway::{Auth, Gateway, NotStarted, Options, Token};

use super::stdio::Left;
use crate::args;
use crate::gate::{Kept, Source};
use crate::interrupt::{Signal, Signals};
use crate::log;
use crate::problem::{Outcome, Problem};
use crate::report::text::{count, seconds};
use crate::report::{Fields, Report};
use crate::target::state_folder;

mod savings;

use savings::Savings;

/// Starts the program, waits for it, ends its run, and passes its exit code on.
pub(super) async fn run(typed: &args::Around, report: &Report) -> Outcome<u8> {
    let mut signals = Signals::hear();
    let (name, whose) = name(typed)?;
    let mut source = Source::of(&typed.served())?;
    let (wanted, cautions) = source.read()?;
    log::start_beside(&wanted.gateway);
    for caution in cautions {
        report.caution_aside(&caution);
    }
    let state = state_folder(typed.state_dir.as_deref())?;
    let kept = Kept::open(&state, wanted)?;
    let token = tokens::fresh();
    let gateway = listen(&kept, &token).await?;
    let surrounding = [
        (
            "WARMLINE_URL",
            format!("http://{}/runs/{name}", gateway.address()),
        ),
        ("WARMLINE_RUN", name.clone()),
        ("WARMLINE_SERVERS", kept.warm.servers().join(" ")),
        ("WARMLINE_TOKEN", token),
    ];
    let child = match start(&typed.command, &surrounding) {
        Ok(child) => child,
        Err(problem) => {
            gateway.drain();
            kept.warm.close().await;
            return Err(problem);
        },
    };
    let ended = wait(child, &mut signals).await;
    let saved = Savings::of(&kept.warm.snapshot());
    let failed = gateway.requests_failed();
    gateway.drain();
    match whose {
        Whose::Ours => end(&kept.warm, &name).await,
        // What is handed to us goes on after us: closing leaves its sessions to their records.
        Whose::Theirs => Left {
            run: Some(&name),
            config: typed.config.as_deref(),
            state: &state,
            source: &source,
            kept: &kept,
        }
        .note_down(),
    }
    kept.warm.close().await;
    tell(&name, &saved, failed, report);
    let ended = ended.map_err(|error| {
        Problem::new(Code::Bug, "nobody can say how the program ended").because(error.to_string())
    })?;
    Ok(exit_code(ended))
}

/// Whose run it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// It ends with the program.
    Ours,
    /// That of whoever started us, who ends it.
    Theirs,
}

/// The name of the run: the one that was typed, that of whoever started us, or a fresh one.
fn name(typed: &args::Around) -> Outcome<(String, Whose)> {
    let (name, whose) = match &typed.name {
        Some(name) => (Some(name.clone()), Whose::Ours),
        None => (warmline::settings::run_from_env()?, Whose::Theirs),
    };
    let Some(name) = name else {
        // The store outlives us, and in a container the next program has our number as well: one
        // that could be guessed would be given our session.
        let fresh = format!("run-{}", Digest::new(random_bytes()).hex());
        return Ok((fresh, Whose::Ours));
    };
    Run::check_name(&name).map_err(|error| {
        Problem::usage("that cannot be the name of a run").hint(error.hint().unwrap_or_default())
    })?;
    Ok((name, whose))
}

/// A gateway that only the program can use: it alone gets the token.
async fn listen(kept: &Kept, token: &str) -> Outcome<Gateway> {
    let options = Options {
        listen: ([127, 0, 0, 1], 0).into(),
        auth: Auth::tokens(vec![Token::of(kept.warm.vault(), LOCAL, token)]),
        ..Options::anywhere(&kept.settings, &kept.accesses)?
    };
    let started = Gateway::start(kept.warm.clone(), options).await;
    started.map_err(|error| {
        if let NotStarted::Required(error) = &error {
            return Problem::of_trouble(error.trouble(), error.delivery());
        }
        Problem::new(
            Code::OpenFailed,
            "no port of this machine can be listened on",
        )
        .because(error.to_string())
    })
}

fn start(words: &[OsString], surrounding: &[(&str, String)]) -> Outcome<Child> {
    let [program, args @ ..] = words else {
        return Err(Problem::usage("no program stands behind `--`")
            .hint("`warmline run -- python agent.py`"));
    };
    let mut command = Command::new(program);
    command.args(args);
    for (name, value) in surrounding {
        command.env(name, value);
    }
    command
        .spawn()
        .map_err(|error| not_started(program, &error))
}

/// Why a program could not be started, with the exit code that a shell would give.
fn not_started(program: &OsStr, error: &io::Error) -> Problem {
    let (is_path, shown) = (
        Path::new(program).components().count() > 1,
        program.display(),
    );
    let not_there = error.kind() == io::ErrorKind::NotFound;
    if not_there && !(is_path && Path::new(program).exists()) {
        return Problem::usage(format!("there is no program `{shown}`"))
            .because(match is_path {
                true => "there is no such file",
                false => "it is in no folder of PATH",
            })
            .hint("look at how it is spelt, or give its whole path")
            .exiting(NOT_FOUND);
    }
    let problem = Problem::usage(format!("the program `{shown}` cannot be executed"));
    let problem = match not_there {
        true => problem
            .because("what shall execute it is not there")
            .hint("look at its first line: it names the program that reads it"),
        false => problem
            .because(error.to_string())
            .hint("a program is a file that this user may execute: `chmod +x` makes it one"),
    };
    problem.exiting(NOT_EXECUTABLE)
}

/// What shells say of a program that is there and cannot be executed.
const NOT_EXECUTABLE: u8 = 126;

/// What shells say of a program that is not there.
const NOT_FOUND: u8 = 127;

/// Waits for the program. That we are told to stop is its to hear: once as it was told to us, and
/// the second time there is no more asking.
async fn wait(mut child: Child, signals: &mut Signals) -> io::Result<ExitStatus> {
    let mut told = 0;
    loop {
        tokio::select! {
            ended = child.wait() => return ended,
            heard = signals.heard() => {
                told += u8::from(heard != Signal::Hangup);
                match told {
                    0 | 1 => pass_on(heard, &child),
                    _ => child.start_kill()?,
                }
            },
        }
    }
}

/// Tells the program what we were told. Ctrl-C on a terminal reached it already; whatever else
/// reaches us was meant for us alone.
#[cfg(unix)]
fn pass_on(heard: Signal, child: &Child) {
    use std::io::IsTerminal as _;
    let signal = match heard {
        Signal::Interrupt if io::stdin().is_terminal() => return,
        Signal::Interrupt | Signal::Terminate => rustix::process::Signal::TERM,
        Signal::Hangup => rustix::process::Signal::HUP,
    };
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    if let Some(id) = id.and_then(rustix::process::Pid::from_raw) {
        // It may have ended meanwhile, and then there is nobody to ask.
        rustix::process::kill_process(id, signal).ok();
    }
}

#[cfg(not(unix))]
fn pass_on(_heard: Signal, _child: &Child) {}

/// Ends the run, if anything was called in it.
async fn end(warm: &Warmline, name: &str) {
    if let Ok(run) = warm.identity(LOCAL).join(name) {
        run.end().await;
    }
}

fn tell(name: &str, saved: &Savings, failed: u64, report: &Report) {
    let text = match (saved.requests, failed) {
        (0, 0) => format!("run `{name}`: nothing was called through `WARMLINE_URL`"),
        (0, _) => format!(
            "run `{name}`: {} failed, and no server got one",
            counted(failed, "request")
        ),
        _ => format!(
            "run `{name}`: {} in {}; a session per request would have taken {} more to open",
            counted(saved.requests, "request"),
            counted(saved.sessions, "session"),
            seconds(saved.time)
        ),
    };
    let fields = Fields::new()
        .put("run", name)
        .put("requests", saved.requests)
        .put("sessions", saved.sessions)
        .put("failed", Some(failed).filter(|failed| *failed > 0))
        .put("saved_ms", u64::try_from(saved.time.as_millis()).ok());
    report.aside(&text, &fields);
}

fn counted(number: u64, noun: &str) -> String {
    count(usize::try_from(number).unwrap_or(usize::MAX), noun)
}

/// The exit code of the program; of one that a signal ended, what a shell would say.
fn exit_code(ended: ExitStatus) -> u8 {
    #[cfg(unix)]
    let by_signal = std::os::unix::process::ExitStatusExt::signal(&ended);
    #[cfg(not(unix))]
    let by_signal: Option<i32> = None;
    let code = match by_signal {
        Some(signal) => signal.saturating_add(128),
        None => ended.code().unwrap_or(1),
    };
    u8::try_from(code & 0xff).unwrap_or(1)
}
