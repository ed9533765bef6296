//! The pipe: messages to and from one child, and what became of each.
//!
//! Asked by: the drivers of both eras, which write and read the messages.
//!
//! One owner task per child reads its output, writes its input and waits for its end; reading and
//! writing never wait for each other. Whose message it is decides [`routing`]; who waits for what,
//! and how much of each line the pipe has taken, stands in the [`desk`]; the [`owner`] moves bytes
//! and ends the child.
//!
//! What is known of a request (rows W of `docs/reference/rows.md`): a line of which the pipe took less than its JSON
//! text is unsent, because a prefix of JSON is no message. A line of which it took the whole text
//! is unknown until its reply comes, even if the newline is missing: readers run such a line.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Notify;
use warmline_core::code::Reason;
use warmline_core::delivery::Delivery;
use warmline_core::era::Version;
use warmline_core::exchange::Trouble;
use warmline_core::protocol::envelope::Message;
use warmline_core::protocol::splice::one_line;

use super::children::Children;
use super::hidden::Hidden;
use super::notices::Hearing;
use super::path::FoundBy;
pub use super::process::ChildEnded;
use super::server::{Server, StdioReach, Tether};
use super::stderr::{self, StderrTail};
use super::whose::Whose;
use super::{environment, path, process};
use crate::clock;
use desk::Desk;
use owner::Owner;

mod desk;
mod outbox;
mod owner;
mod routing;

/// A child and the way to talk to it. Dropping the last one closes the child in the background.
#[derive(Clone, Debug)]
pub(crate) struct Pipe {
    handle: Arc<Handle>,
}

#[derive(Debug)]
struct Handle {
    desk: Arc<Desk>,
    stderr: Arc<StderrTail>,
    child: ChildFacts,
}

/// What does not change about a child.
#[derive(Debug)]
struct ChildFacts {
    pid: u32,
    program: PathBuf,
    found_by: FoundBy,
    path: String,
    warden: bool,
    left_behind: process::LeftBehind,
}

/// What is known of a child, for `doctor` and error pages.
#[derive(Clone, Debug)]
pub struct ChildReport {
    /// Its process id, which is also the id of its process group.
    pub pid: u32,
    /// The program that was started.
    pub program: PathBuf,
    /// How it was found.
    pub found_by: FoundBy,
    /// The PATH it was given.
    pub path: String,
    /// The last lines of its standard error, as harmless text.
    pub stderr_tail: String,
    /// How it ended, once it has.
    pub exit: Option<String>,
    /// The same as a kind, for whoever counts.
    pub ended: Option<ChildEnded>,
    /// Why nothing more is heard of it, where nobody had closed it: it ended, or had to be ended.
    /// With its last words.
    pub lost: Option<String>,
    /// How many processes outlived it and were killed, once it has ended.
    pub left_behind: u32,
    /// How many lines of its output were no messages.
    pub skipped_lines: u64,
    /// The beginning of the last such line, as harmless text.
    pub skipped_line: Option<String>,
    /// Whether its whole tree ends also when we are killed.
    pub warden: bool,
}

/// What is told of a line of a child's output that is no message.
pub(crate) fn no_message(line: &str) -> String {
    format!("\"{line}\" stands in its output, and is no message")
}

/// A request on its way, and the place where its news arrive.
#[derive(Debug)]
#[must_use = "dropping a call gives it up"]
pub(crate) struct PipeCall {
    desk: Arc<Desk>,
    id: u64,
    wake: Arc<Notify>,
    /// Why it was never queued.
    refused: Option<Trouble>,
}

/// What a call hears. The last one is a reply or a loss, and there is exactly one of these.
#[derive(Debug)]
pub(crate) enum PipeNews {
    /// A notification that belongs to the call.
    Notice(Message),
    /// The server asks something; the answer goes back by [`Pipe::say`].
    Question(Message),
    /// So many notices were left out: too much waited already.
    Missed(u64),
    /// The answer.
    Reply(Message),
    /// There will be no answer.
    Lost {
        /// Unsent or unknown.
        delivery: Delivery,
        trouble: Trouble,
    },
}

/// What was known of a call when it was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Abandoned {
    /// No byte of it left.
    Unsent,
    /// A part of it left, no whole message; the child is ended, because its input is torn.
    Torn,
    /// All of it left.
    Written,
}

/// What a request stays open for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// Its answer, and what is told on the way.
    ForAnswer,
    /// News that name it, for as long as somebody listens.
    ForNews,
}

/// Whether the era lets us answer what a server asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Questions {
    /// Legacy: servers may ask.
    #[default]
    Allowed,
    /// Modern: servers must not ask, and we must not answer.
    Ignored,
}

impl Pipe {
    /// Starts the server's program. Nothing was sent if this fails, and nothing is left running.
    pub(crate) async fn spawn(
        server: &Server,
        reach: &StdioReach,
        children: &Arc<Children>,
    ) -> Result<Self, Trouble> {
        let counted = Arc::new(children.one_more());
        // A start that is given up is counted until nothing is left of it.
        let tether: Tether = Arc::new((Arc::clone(&counted), server.tether.clone()));
        let mut environment = environment::of_child(reach);
        let program = path::find(&server.name, reach, &mut environment).await?;
        let start = process::Start {
            program: &program.path,
            args: &reach.args,
            environment: &environment,
            cwd: reach.cwd.as_deref(),
            tether: Some(&tether),
        };
        let (process, streams) = process::Process::start(start)
            .await
            .map_err(|error| start_failed(&server.name, &program.path, &error))?;
        let hidden = Hidden::of(&environment).and_values(&reach.filled);
        let tail = Arc::new(StderrTail::without(hidden));
        let child = ChildFacts {
            pid: process.pid(),
            program: program.path,
            found_by: program.found_by,
            path: environment
                .get(std::ffi::OsStr::new("PATH"))
                .map(|path| path.to_string_lossy().into_owned())
                .unwrap_or_default(),
            warden: process.has_warden(),
            left_behind: process.left_behind(),
        };
        let draining = stderr::drain(streams.stderr, Arc::clone(&tail));
        let draining = clock::spawn("stderr of a child", draining);
        let desk = Arc::new(Desk::new(server.name.clone()));
        let owner = Owner::new(
            Arc::clone(&desk),
            (process, counted),
            streams.stdout,
            server.sizes.line,
        )
        .with_stderr(draining, Arc::clone(&tail))
        .heard_by(Hearing::new(server.on_notice.clone()))
        .tethered_by(server.tether.clone());
        // Ends by itself: when the child does, or when the last handle is dropped.
        drop(clock::spawn("owner of a child", owner.run(streams.stdin)));
        Ok(Self {
            handle: Arc::new(Handle {
                desk,
                stderr: tail,
                child,
            }),
        })
    }

    /// Sends a request of ours: one JSON message without a newline, whose id is `id`.
    pub(crate) fn request(&self, id: u64, line: Bytes) -> PipeCall {
        self.request_of(None, id, line)
    }

    /// The same for a caller.
    pub(crate) fn request_of(&self, whose: Option<Whose>, id: u64, line: Bytes) -> PipeCall {
        self.ask(id, line, (Waits::ForAnswer, whose))
    }

    /// The same for a request that stays open to hear news: only what names it is its own.
    pub(crate) fn listen(&self, id: u64, line: Bytes) -> PipeCall {
        self.ask(id, line, (Waits::ForNews, None))
    }

    fn ask(&self, id: u64, line: Bytes, waits: (Waits, Option<Whose>)) -> PipeCall {
        let desk = &self.handle.desk;
        let (wake, refused) = match desk.register(id, one_line(line), waits) {
            Ok(wake) => (wake, None),
            Err(trouble) => (Arc::default(), Some(trouble)),
        };
        PipeCall {
            desk: Arc::clone(desk),
            id,
            wake,
            refused,
        }
    }

    /// Sends a message that nobody waits for: a notification, or the answer to a question.
    ///
    /// # Errors
    /// With the reason why it will never be written.
    pub(crate) fn say(&self, line: Bytes) -> Result<(), Trouble> {
        self.handle.desk.say(one_line(line))
    }

    /// Sets whether servers may ask, once the era is known.
    pub(crate) fn set_questions(&self, questions: Questions) {
        self.handle.desk.set_questions(questions);
    }

    /// A version was agreed on.
    pub(crate) fn speak(&self, version: Version) {
        self.handle.desk.speak(version);
    }

    /// What must not be told of what the child was given.
    pub(crate) fn hidden(&self) -> Hidden {
        self.handle.stderr.hidden().clone()
    }

    /// What is known of the child.
    pub(crate) fn report(&self) -> ChildReport {
        let Handle {
            desk,
            stderr,
            child,
        } = &*self.handle;
        let (skipped_lines, skipped_line) = desk.skipped();
        ChildReport {
            pid: child.pid,
            program: child.program.clone(),
            found_by: child.found_by,
            path: child.path.clone(),
            stderr_tail: stderr.text(),
            exit: desk.exit().map(|exit| exit.to_string()),
            ended: desk.exit().map(|exit| exit.kind()),
            lost: desk.lost(),
            left_behind: child.left_behind.number(),
            skipped_lines,
            skipped_line: (skipped_lines > 0).then(|| stderr.beside(skipped_line)),
            warden: child.warden,
        }
    }

    /// Waits until the child and its tree are gone.
    pub(crate) async fn gone(&self) {
        self.handle.desk.gone().await;
    }

    /// Ends the child: its input, 2 s, TERM to its group, 2 s, KILL. The tree is gone when this
    /// returns. Calls under way are lost at once. Dropped half-way, the closing goes on.
    pub(crate) async fn close(&self) {
        self.handle.desk.ask_to_close();
        self.handle.desk.gone().await;
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.desk.ask_to_close();
    }
}

impl PipeCall {
    /// Waits for the next news. May be dropped and asked again without losing any.
    pub(crate) async fn next(&mut self) -> PipeNews {
        if let Some(trouble) = self.refused.take() {
            return PipeNews::Lost {
                delivery: Delivery::Unsent,
                trouble,
            };
        }
        let elsewhere = self.desk.elsewhere();
        loop {
            if let Some(news) = self.desk.take_news(self.id) {
                return news;
            }
            tokio::select! {
                biased;
                () = self.wake.notified() => {},
                // What left before is answered, whoever may read it.
                () = clock::rests(elsewhere.clone()), if !self.is_under_way() => {
                    if !self.is_under_way() {
                        return self.never_written();
                    }
                },
            }
        }
    }

    /// Nobody drives the runtime that the owner of the child runs in.
    fn never_written(&self) -> PipeNews {
        let server = self.desk.server();
        let what = format!("`{server}` was started in a runtime that nobody drives at this moment");
        PipeNews::Lost {
            delivery: match self.abandon() {
                Abandoned::Unsent => Delivery::Unsent,
                Abandoned::Torn | Abandoned::Written => Delivery::Unknown,
            },
            trouble: Trouble::new(Reason::TimeoutUnsent, what)
                .hint("let that runtime run on, or call all servers from one runtime"),
        }
    }

    /// Gives the call up and says how much of it has left.
    pub(crate) fn abandon(&self) -> Abandoned {
        self.desk.abandon(self.id)
    }

    /// Whether something of it has left and its end has not come.
    pub(crate) fn is_under_way(&self) -> bool {
        self.desk.is_under_way(self.id)
    }
}

impl Drop for PipeCall {
    /// A line that is half-way out is still written to its end: torn input would cost the others.
    fn drop(&mut self) {
        self.desk.unregister(self.id);
    }
}

/// Why a program that exists could not be started.
fn start_failed(server: &str, program: &std::path::Path, error: &std::io::Error) -> Trouble {
    use rustix::io::Errno;
    let program = program.display();
    let (reason, hint) = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => (
            Reason::ProgramMissing,
            "the interpreter in its first line may be missing",
        ),
        Some(Errno::ACCESS) => (Reason::Spawn, "check that it may be executed"),
        Some(Errno::NOEXEC) => (Reason::Spawn, "check that it is built for this machine"),
        Some(Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE) => (
            Reason::LocalResources,
            "this machine has no room for another process: raise its limits",
        ),
        _ => (Reason::Spawn, "try to run it in a terminal"),
    };
    let what = format!("`{server}` could not be started: {program}");
    Trouble::new(reason, what)
        .because(error.to_string())
        .hint(hint)
}

#[cfg(test)]
mod tests;
