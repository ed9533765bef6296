//! The ledger server as a program: over HTTP on a port of 127.0.0.1, or over stdio.
//!
//! What a process can do wrong beyond its messages is told by [`ProcessBehavior`].

mod arguments;

use std::fs::OpenOptions;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

pub use self::arguments::HELP;
use crate::faults::fault::FaultRule;
use crate::faults::personality::Personality;
use crate::server::state::LedgerServerState;
use crate::server::stdio;
pub use crate::server::stdio::ExitReason;
use crate::server::{ServerControl, accept_connections};

/// How the program is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// HTTP on this port of 127.0.0.1; 0: any free one.
    Http(u16),
    /// Its standard input and output.
    Stdio,
}

/// What the program shall be.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DemoServerOptions {
    /// How it is reached.
    pub transport: Transport,
    /// What kind of server it is.
    pub personality: Personality,
    /// Where its ledger is written, one JSON object a line; an old file is replaced.
    pub ledger: Option<PathBuf>,
    /// What it does wrong from the start.
    pub rules: Vec<FaultRule>,
    /// How its process behaves.
    pub behavior: ProcessBehavior,
}

/// How a process behaves besides its messages. By default: well.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ProcessBehavior {
    /// Nothing is read or said for so long after the start.
    pub start_delay: Duration,
    /// Such lines are written to stdout before anything else.
    pub stdout_preamble: Vec<String>,
    /// So many bytes are written to stderr at the start.
    pub stderr_bytes: usize,
    /// Whether SIGTERM ends it.
    pub on_sigterm: SigtermAction,
    /// Whether the end of its input ends it.
    pub on_end_of_input: EndOfInputAction,
    /// So many processes are started, which outlive it if nobody ends them.
    pub grandchildren: usize,
    /// Whether these stay in its process group.
    pub grandchildren_group: ProcessGroup,
    /// After so many messages nothing is read any more.
    pub read_limit: Option<u64>,
}

/// What SIGTERM does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SigtermAction {
    /// It ends the process.
    #[default]
    End,
    /// Nothing.
    Ignore,
}

/// What the end of the input does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndOfInputAction {
    /// It ends the process.
    #[default]
    End,
    /// Nothing.
    Ignore,
}

/// Where grandchildren live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProcessGroup {
    /// In the group of the process.
    #[default]
    Same,
    /// Each in a group of its own.
    Own,
}

impl DemoServerOptions {
    /// A server of this kind, reached like this, without faults.
    pub fn new(transport: Transport, personality: Personality) -> Self {
        Self {
            transport,
            personality,
            ledger: None,
            rules: Vec::new(),
            behavior: ProcessBehavior::default(),
        }
    }
}

/// Runs the server until it ends, or for ever.
///
/// `ready` is told the URL (HTTP) and the means of control, before the first request is read.
pub async fn run(
    options: DemoServerOptions,
    ready: impl FnOnce(Option<&str>, ServerControl),
) -> io::Result<ExitReason> {
    let state = LedgerServerState::new(options.personality);
    if let Some(path) = &options.ledger {
        state.ledger.copy_to_file(
            OpenOptions::new()
                .create(true)
                .write(true)
                .truncate(true)
                .open(path)?,
        );
    }
    for rule in options.rules {
        state.rules().add(rule);
    }
    let _term = ignore_sigterm(&options.behavior)?;
    let grandchildren = start_grandchildren(&options.behavior)?;
    write_stderr_filler(options.behavior.stderr_bytes).await;
    tokio::time::sleep(options.behavior.start_delay).await;
    let control = ServerControl {
        state: Arc::clone(&state),
    };
    let ending = match options.transport {
        Transport::Http(port) => serve_over_http(&state, port, control, ready).await,
        Transport::Stdio => {
            ready(None, control);
            serve_over_stdio(&state, &options.behavior).await
        },
    };
    // They are left alone on purpose: whoever started this process has to end them.
    drop(grandchildren);
    ending
}

async fn serve_over_http(
    state: &Arc<LedgerServerState>,
    port: u16,
    control: ServerControl,
    ready: impl FnOnce(Option<&str>, ServerControl),
) -> io::Result<ExitReason> {
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let port = listener.local_addr()?.port();
    ready(
        Some(&format!(
            "http://127.0.0.1:{port}{}",
            state.personality.path
        )),
        control,
    );
    tokio::select! {
        () = accept_connections(Arc::clone(state), listener, None) => Ok(ExitReason::InputEnded),
        () = state.crash_signal.notified() => Ok(ExitReason::Crashed),
    }
}

async fn serve_over_stdio(
    state: &Arc<LedgerServerState>,
    manners: &ProcessBehavior,
) -> io::Result<ExitReason> {
    let mut output = ClosingStdout(tokio::io::stdout());
    for line in &manners.stdout_preamble {
        output.write_all(format!("{line}\n").as_bytes()).await?;
    }
    output.flush().await?;
    let input = tokio::io::stdin();
    let ending = stdio::serve_stdio(Arc::clone(state), input, output, manners.read_limit).await?;
    if ending == ExitReason::InputEnded && manners.on_end_of_input == EndOfInputAction::Ignore {
        std::future::pending::<()>().await;
    }
    Ok(ending)
}

/// Takes SIGTERM, and does nothing with it, if so told.
fn ignore_sigterm(manners: &ProcessBehavior) -> io::Result<Option<tokio::signal::unix::Signal>> {
    match manners.on_sigterm {
        SigtermAction::End => Ok(None),
        SigtermAction::Ignore => signal(SignalKind::terminate()).map(Some),
    }
}

fn start_grandchildren(manners: &ProcessBehavior) -> io::Result<Vec<Child>> {
    (0..manners.grandchildren)
        .map(|_| {
            let mut command = Command::new("sleep");
            command
                .arg("600")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            if manners.grandchildren_group == ProcessGroup::Own {
                std::os::unix::process::CommandExt::process_group(&mut command, 0);
            }
            command.spawn()
        })
        .collect()
}

async fn write_stderr_filler(bytes: usize) {
    let line = "this is a line on stderr, and there are many of them\n";
    let mut left = bytes;
    let mut stderr = tokio::io::stderr();
    while left > 0 {
        let part = line
            .as_bytes()
            .get(..left.min(line.len()))
            .unwrap_or_default();
        if stderr.write_all(part).await.is_err() {
            return;
        }
        left -= part.len();
    }
    drop(stderr.flush().await);
}

/// Standard output that is really closed when it is shut down: the pipe's other end sees it.
struct ClosingStdout(tokio::io::Stdout);

impl AsyncWrite for ClosingStdout {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(self.poll_flush(cx))?;
        let nowhere = OpenOptions::new().write(true).open("/dev/null")?;
        Poll::Ready(rustix::stdio::dup2_stdout(nowhere).map_err(io::Error::from))
    }
}
