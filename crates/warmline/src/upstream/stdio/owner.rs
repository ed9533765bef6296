//! The owner task of a child: moves bytes, notices its end, and ends it.
//!
//! It ends for one reason ([`Why`]); then it collects what the child said last, tells all callers,
//! and only then takes the time to close.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Sender;
use tokio::process::ChildStdout;
use tokio::task::JoinHandle;
use warmline_core::code::Reason;
use warmline_core::exchange::Trouble;
use warmline_core::protocol::batch;
use warmline_core::protocol::lines::{Line, LineCodec};

use super::desk::{Desk, Reading, Wish, Work};
use super::no_message;
use super::routing::{self, Fed, Taken};
use crate::clock;
use crate::upstream::aside::Aside;
use crate::upstream::children::CountedChild;
use crate::upstream::fair::Share;
use crate::upstream::notices::{Hearing, Speaker};
use crate::upstream::pace::ASK_AFTER;
use crate::upstream::process::{Exit, Process};
use crate::upstream::server::Tether;
use crate::upstream::stderr::StderrTail;

/// The one task that has a child's streams.
pub(super) struct Owner {
    desk: Arc<Desk>,
    process: Process,
    stdout: Output,
    draining: Option<JoinHandle<()>>,
    stderr: Arc<StderrTail>,
    /// These last, so that they are dropped when nothing is left of the child.
    tether: Option<Tether>,
    counted: Arc<CountedChild>,
}

/// A child's output, read line by line.
struct Output {
    stdout: ChildStdout,
    codec: LineCodec,
    line_limit: usize,
    chunk: Vec<u8>,
    hearing: Hearing,
    /// Questions that belong to no call.
    aside: Arc<Aside>,
    /// How many were read.
    lines: u64,
    open: bool,
    /// Whether all whole lines that were read were routed.
    is_routed: bool,
    haste: Haste,
    /// Whether calls are behind with what they were told.
    reading: Reading,
    /// Bytes that were told since those who hear it were last known to keep up.
    told: usize,
}

/// Whether what is read waits for those who hear it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Haste {
    None,
    /// The child is gone: what it said is taken in while its calls can still hear of it.
    LastWords,
}

/// Why a child is not served any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Exited,
    OutputClosed,
    InputClosed,
    Fed(Fed),
    Asked(Wish),
}

impl Owner {
    pub(super) fn new(
        desk: Arc<Desk>,
        (process, counted): (Process, Arc<CountedChild>),
        stdout: ChildStdout,
        line_limit: usize,
    ) -> Self {
        let stdout = Output {
            stdout,
            codec: LineCodec::new(line_limit),
            line_limit,
            chunk: vec![0; CHUNK_BYTES],
            hearing: Hearing::default(),
            aside: Arc::default(),
            lines: 0,
            open: true,
            is_routed: true,
            haste: Haste::None,
            reading: Reading::Goes,
            told: 0,
        };
        Self {
            desk,
            process,
            stdout,
            draining: None,
            stderr: Arc::default(),
            tether: None,
            counted,
        }
    }

    pub(super) fn with_stderr(mut self, draining: JoinHandle<()>, tail: Arc<StderrTail>) -> Self {
        self.draining = Some(draining);
        self.stderr = tail;
        self
    }

    /// The same, with somebody who hears what belongs to no call.
    pub(super) fn heard_by(mut self, hearing: Hearing) -> Self {
        self.stdout.hearing = hearing;
        self
    }

    /// The same, keeping something until nothing is left of the child.
    pub(super) fn tethered_by(mut self, tether: Option<Tether>) -> Self {
        self.tether = tether;
        self
    }

    /// Serves the child until it ends or has to.
    pub(super) async fn run(mut self, stdin: Sender) {
        let why = self.serve(&stdin).await;
        // Its input stays open until its last words are heard: many end with it, and then nobody
        // could tell what they did by themselves from what we made them do.
        let exit = self.hear_the_last(why).await;
        drop(stdin);
        let trouble = self.trouble(why, exit);
        if why != Why::Asked(Wish::Close) {
            self.tell_of_loss(&trouble);
        }
        self.end(trouble);
        self.close(why).await;
    }

    /// Whoever held its session, or wanted one, tells the operator; this is for debugging.
    fn tell_of_loss(&self, trouble: &Trouble) {
        let (server, why) = (self.desk.server(), trouble.what.as_str());
        let said = trouble.why.as_deref().unwrap_or_default();
        tracing::debug!(server, why, said, "child lost");
    }

    /// Nothing more is heard of the child, and nothing is answered.
    fn end(&self, trouble: Trouble) {
        self.desk.end(trouble);
        self.stdout.aside.end();
    }

    async fn serve(&mut self, stdin: &Sender) -> Why {
        let mut share = Share::default();
        loop {
            // As much as one line may have: a child whose callers do not read waits, and so do
            // all who call it.
            let (work, reading) = self.desk.work(self.stdout.line_limit);
            if let Work::End(wish) = work {
                self.desk.write_the_last(stdin);
                return Why::Asked(wish);
            }
            tokio::select! {
                read = self.stdout.read(&self.desk), if reading == Reading::Goes => match read {
                    Ok(bytes) if self.stdout.open => share.took(bytes).await,
                    Ok(_) => return Why::OutputClosed,
                    Err(fed) => return Why::Fed(fed),
                },
                () = self.desk.wait_for_work() => {},
                ready = stdin.writable(), if work == Work::Write => {
                    match ready.and_then(|()| self.desk.write_some(stdin)) {
                        Ok(()) => {},
                        Err(error) if is_passing(&error) => {},
                        Err(_) => return Why::InputClosed,
                    }
                },
                exit = self.process.exited() => {
                    self.desk.set_exit(exit);
                    return Why::Exited;
                },
            }
        }
    }

    /// Takes in what the child said before it ended: replies in the pipe still count.
    async fn hear_the_last(&mut self, why: Why) -> Option<Exit> {
        let by = clock::after(LAST_WORDS);
        self.stdout.haste = Haste::LastWords;
        if matches!(why, Why::Exited | Why::OutputClosed | Why::InputClosed) {
            let Self {
                stdout,
                desk,
                process,
                draining,
                ..
            } = self;
            let hearing = async {
                while stdout.open && stdout.read(desk).await.is_ok() {}
                desk.set_exit(process.exited().await);
                if let Some(draining) = draining.as_mut() {
                    drop(draining.await);
                }
            };
            clock::timeout_at(by, hearing).await.ok();
        }
        self.desk.exit()
    }

    /// What callers are told.
    fn trouble(&self, why: Why, exit: Option<Exit>) -> Trouble {
        let server = self.desk.server();
        let (reason, what) = match (why, exit) {
            (Why::Asked(Wish::Close), _) => (Reason::Closed, "was closed".to_owned()),
            (Why::Asked(Wish::EndTorn), _) => (
                Reason::ReplyLost,
                "was ended: a message to it was cut by a deadline".to_owned(),
            ),
            (Why::Fed(Fed::UpWithGarbage), _) => {
                let what = "was ended: its output is not MCP (100 lines or 1 MiB in a row)";
                (Reason::BadReply, what.to_owned())
            },
            (Why::Fed(Fed::UpWithStrays), _) => {
                let strays = routing::STRAYS;
                (
                    Reason::BadReply,
                    format!("was ended: {strays} replies to nothing we asked"),
                )
            },
            (Why::Exited | Why::OutputClosed | Why::InputClosed, Some(exit)) => {
                (Reason::ChildExit, format!("ended with {exit}"))
            },
            (Why::InputClosed | Why::Exited, None) => {
                (Reason::ChildExit, "closed its input".to_owned())
            },
            (Why::OutputClosed, None) => (
                Reason::ReplyLost,
                "closed its output and went on running".to_owned(),
            ),
        };
        let trouble = Trouble::new(reason, format!("`{server}` {what}"));
        match self.last_words() {
            Some(said) if why != Why::Asked(Wish::Close) => trouble.because(said),
            Some(_) | None => trouble,
        }
    }

    /// What the child said as it ended: on its standard error, or where only messages belong.
    fn last_words(&self) -> Option<String> {
        let said = self.stderr.text();
        if !said.is_empty() {
            return Some(said);
        }
        let (skipped, line) = self.desk.skipped();
        let line = self.stderr.beside(line);
        (skipped > 0).then(|| no_message(&line))
    }

    /// Ends the child and all below it, step by step. Its input is closed already.
    async fn close(&mut self, why: Why) {
        if why == Why::Asked(Wish::Close) && self.ended_within(AFTER_INPUT).await {
            return;
        }
        self.process.terminate();
        if self.ended_within(AFTER_TERM).await {
            return;
        }
        self.process.kill();
        if clock::timeout(AFTER_KILL, self.ended()).await.is_err() {
            tracing::error!(server = self.desk.server(), "a child cannot be killed");
        }
    }

    /// Waits for the child's end, for so long or less.
    async fn ended_within(&mut self, limit: Duration) -> bool {
        let patience = self.counted.patience(limit);
        tokio::select! {
            biased;
            () = self.ended() => true,
            () = patience => false,
        }
    }

    /// Waits for the child's end. Its output is still read, or it might hang in a last word.
    async fn ended(&mut self) {
        let Self {
            process,
            stdout,
            desk,
            ..
        } = self;
        loop {
            tokio::select! {
                exit = process.exited() => return desk.set_exit(exit),
                () = stdout.discard(), if stdout.open => {},
            }
        }
    }
}

impl Drop for Owner {
    /// Also reached by a panic and by the end of the runtime: nobody waits for ever.
    fn drop(&mut self) {
        let what = format!("the task that served `{}` ended", self.desk.server());
        // Its child ends with it: what was not sent yet may go to another.
        self.end(Trouble::new(Reason::ChildExit, what));
        if let Some(draining) = &self.draining {
            draining.abort();
        }
        self.desk.set_gone();
    }
}

impl Output {
    /// Reads once, routes all whole lines, and says how much was read. May be dropped without losing
    /// any.
    async fn read(&mut self, desk: &Arc<Desk>) -> Result<usize, Fed> {
        if !self.is_routed {
            self.route_all(desk).await?;
        }
        let read = self.fill().await;
        self.codec.push(self.chunk.get(..read).unwrap_or_default());
        self.is_routed = false;
        self.route_all(desk).await?;
        // A last line without a newline is a line all the same.
        if !self.open
            && let Some(line) = self.codec.finish()
        {
            self.route(desk, line)?;
        }
        Ok(read)
    }

    /// Routes all whole lines that were read, no faster than they are heard.
    async fn route_all(&mut self, desk: &Arc<Desk>) -> Result<(), Fed> {
        loop {
            self.keep_pace(desk).await;
            let Some(line) = self.codec.next() else {
                self.is_routed = true;
                return Ok(());
            };
            self.lines += 1;
            self.route(desk, line)?;
        }
    }

    /// Waits for those who are behind with what they hear. Last words wait for nobody.
    async fn keep_pace(&mut self, desk: &Desk) {
        if self.haste == Haste::LastWords {
            return;
        }
        if self.reading == Reading::Rests {
            desk.keep_pace(&self.hearing).await;
            self.reading = Reading::Goes;
        }
        if self.told >= ASK_AFTER {
            self.hearing.keep_pace().await;
            self.told = 0;
        }
    }

    fn route(&mut self, desk: &Arc<Desk>, line: Line) -> Result<(), Fed> {
        match line {
            Line::Full(line) => {
                self.told += line.len();
                let mut texts = batch::parts(line, desk.version());
                texts.try_for_each(|text| self.take_in(desk, text))
            },
            Line::TooLong { id, bytes } => {
                let limit = (desk.server(), self.line_limit);
                desk.route(|state| routing::take_in_too_long(state, limit, id, bytes));
                Ok(())
            },
        }
    }

    /// Takes in one message.
    fn take_in(&mut self, desk: &Arc<Desk>, text: Bytes) -> Result<(), Fed> {
        let (taken, reading) = desk.route(|state| routing::take_in(state, text));
        self.reading = reading;
        if let Some(taken) = taken? {
            self.pass_on(desk, taken);
        }
        Ok(())
    }

    /// Leads what is not for one call to whom it concerns.
    fn pass_on(&mut self, desk: &Arc<Desk>, taken: Taken) {
        let weak = Arc::downgrade(desk);
        let answer = move |id: &[u8], spoken| {
            if let Some(desk) = weak.upgrade() {
                desk.answer(spoken, id);
            }
        };
        match taken {
            Taken::ForAll(notice) => {
                let told = self.hearing.tell_all(&notice, Speaker::of(&**desk));
                self.reading = desk.tell_callers(&notice, &told);
            },
            Taken::Aside(notice) => self.hearing.tell(&notice),
            Taken::Stray(stray) => self.hearing.ask(&self.aside, stray, answer),
            Taken::OneCallers(whose, stray, question) => {
                let by_a_call = || desk.ask_oldest_of(whose, question);
                let aside = &self.aside;
                self.hearing
                    .ask_caller(whose, aside, stray, by_a_call, answer);
            },
            Taken::Nobodys(kind, question) => {
                let id = question.raw_id().unwrap_or(b"null");
                desk.answer(self.hearing.refuse(kind), id);
            },
            Taken::Withdrawn(id) => self.aside.take_back(&id),
        }
    }

    async fn discard(&mut self) {
        self.fill().await;
    }

    /// Reads into the chunk. A failed read is the end, as there is no other way to go on.
    async fn fill(&mut self) -> usize {
        let read = self.stdout.read(&mut self.chunk).await.unwrap_or(0);
        self.open = read > 0;
        read
    }
}

/// The pipe was full after all, or a signal came.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

const CHUNK_BYTES: usize = 64 << 10;
/// For what is still in the pipes of a child that ended: its calls fail within 100 ms.
const LAST_WORDS: Duration = Duration::from_millis(90);
const AFTER_INPUT: Duration = Duration::from_secs(2);
const AFTER_TERM: Duration = Duration::from_secs(2);
/// The kernel's own time; only a process that waits for a dead disk takes longer.
const AFTER_KILL: Duration = Duration::from_secs(2);
