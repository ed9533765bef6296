//! The only place that prints: answers to stdout, everything else to stderr.
//!
//! Asked by: every command.  Decides: text or JSON, colour or none, what quiet and verbose mean,
//! and that nothing of a server reaches the terminal as a control character.

use std::io::{IsTerminal as _, Write as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use anstream::ColorChoice;

use crate::args::{Color, Look};
use crate::problem::Problem;

mod error;
mod fields;
mod progress;
pub(crate) mod style;
pub(crate) mod table;
pub(crate) mod text;
mod unwritten;

pub(crate) use fields::Fields;
pub(crate) use text::sanitised;
use unwritten::{Output, Unwritten};

/// How much is said on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Volume {
    Quiet,
    Normal,
    Verbose,
}

/// Whether people or programs read the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Text,
    Json,
}

/// Prints for one command.
#[derive(Debug)]
pub(crate) struct Report {
    form: Form,
    volume: Volume,
    color: ColorChoice,
    terminal: bool,
    /// A line of progress stands on the terminal.
    line_open: AtomicBool,
    /// Somebody is typing: nothing may be drawn over the line.
    asking: AtomicBool,
    /// A question stands on the terminal, and no line was typed under it yet.
    prompt_open: AtomicBool,
    /// How far the server says it is.
    progress: Mutex<String>,
    /// Whether everything that was printed arrived.
    unwritten: Unwritten,
}

/// Whether stderr shows colours, where no option says so.
pub(crate) fn stderr_takes_colour() -> bool {
    anstream::AutoStream::choice(&std::io::stderr()) != ColorChoice::Never
}

/// Whether a person looks at stderr.
pub(crate) fn stderr_is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

impl Report {
    pub(crate) fn new(look: &Look) -> Self {
        let color = match look.color {
            Color::Auto => ColorChoice::Auto,
            Color::Always => ColorChoice::Always,
            Color::Never => ColorChoice::Never,
        };
        Self {
            form: if look.json { Form::Json } else { Form::Text },
            volume: match (look.quiet, look.verbose) {
                (true, _) => Volume::Quiet,
                (false, true) => Volume::Verbose,
                (false, false) => Volume::Normal,
            },
            color,
            terminal: std::io::stderr().is_terminal(),
            line_open: AtomicBool::new(false),
            asking: AtomicBool::new(false),
            prompt_open: AtomicBool::new(false),
            progress: Mutex::default(),
            unwritten: Unwritten::default(),
        }
    }

    /// Whether programs read the output.
    pub(crate) fn is_json(&self) -> bool {
        self.form == Form::Json
    }

    pub(crate) fn is_verbose(&self) -> bool {
        self.volume == Volume::Verbose
    }

    /// Whether a person can be asked: both ends of the conversation are a terminal.
    pub(crate) fn can_ask(&self) -> bool {
        self.terminal && std::io::stdin().is_terminal()
    }

    /// Whether a person sits where a program is expected.
    pub(crate) fn hears_a_person(&self) -> bool {
        std::io::stdin().is_terminal()
    }

    /// How wide a line of the answer may be. What a program reads is never cut.
    pub(crate) fn width(&self) -> usize {
        if !std::io::stdout().is_terminal() {
            return usize::MAX;
        }
        let told = warmline::config::process_variable("COLUMNS").and_then(|c| c.parse().ok());
        let seen = rustix::termios::tcgetwinsize(std::io::stdout()).map(|w| usize::from(w.ws_col));
        match (told, seen) {
            (Some(told), _) => told,
            (None, Ok(seen @ 1..)) => seen,
            (None, Ok(0) | Err(_)) => 80,
        }
        .max(40)
    }

    /// Output, or a part of it. The text may be styled.
    pub(crate) fn data(&self, text: &str) {
        self.styled(text, Output::Other);
    }

    fn styled(&self, text: &str, output: Output) {
        self.clear_progress();
        let mut out = anstream::AutoStream::new(std::io::stdout().lock(), self.color_of_stdout());
        let attempt = writeln!(out, "{}", text.trim_end_matches('\n')).and_then(|()| out.flush());
        self.wrote(output, attempt);
    }

    /// What a server answered: harmless on a terminal, untouched for a program that reads it.
    pub(crate) fn answer(&self, text: &str) {
        if std::io::stdout().is_terminal() {
            self.styled(&sanitised(text), Output::Answer);
        } else {
            let line = format!("{}\n", text.trim_end_matches('\n'));
            self.raw(line.as_bytes(), Output::Answer);
        }
    }

    /// Bytes as they are.
    pub(crate) fn bytes(&self, bytes: &[u8]) {
        self.raw(bytes, Output::Other);
    }

    fn raw(&self, bytes: &[u8], output: Output) {
        self.clear_progress();
        let mut out = std::io::stdout().lock();
        let attempt = out.write_all(bytes).and_then(|()| out.flush());
        self.wrote(output, attempt);
    }

    /// What a server answered, as one object on a line of its own.
    pub(crate) fn reply(&self, fields: &Fields) {
        let line = format!("{}\n", fields.line("reply"));
        self.raw(line.as_bytes(), Output::Answer);
    }

    /// One object on a line of its own; `kind` comes first.
    pub(crate) fn object(&self, kind: &str, fields: &Fields) {
        self.bytes(format!("{}\n", fields.line(kind)).as_bytes());
    }

    /// A line beside the answer: left out by `--quiet`, and for programs.
    pub(crate) fn note(&self, text: &str) {
        if self.volume > Volume::Quiet && self.form == Form::Text {
            self.say(text);
        }
    }

    /// Something worth knowing beside the answer, as text and as an object: left out by `--quiet`.
    pub(crate) fn remark(&self, text: &str, fields: &Fields) {
        match self.form {
            _ if self.volume == Volume::Quiet => {},
            Form::Text => self.say(text),
            Form::Json => self.object("note", fields),
        }
    }

    /// The same where the output is that of another program: all of it goes to stderr.
    pub(crate) fn aside(&self, text: &str, fields: &Fields) {
        match self.form {
            _ if self.volume == Volume::Quiet => {},
            Form::Text => self.say(text),
            Form::Json => self.say(&fields.line("note")),
        }
    }

    /// Something the reader may not have meant, in one sentence: left out by `--quiet` alone.
    pub(crate) fn caution(&self, what: &str) {
        self.remark(&format!("note: {what}"), &Fields::new().put("what", what));
    }

    /// The same where the output is that of another program, or a log stands beside it: it goes to
    /// stderr.
    pub(crate) fn caution_aside(&self, what: &str) {
        self.aside(what, &Fields::new().put("what", what));
    }

    /// A line of the account that `--verbose` asks for.
    pub(crate) fn account(&self, text: &str) {
        if self.is_verbose() {
            self.say(&style::dim(text));
        }
    }

    /// What an answer cost: for people who look, not for logs.
    pub(crate) fn cost(&self, text: &str) {
        let wanted = self.is_verbose() || (self.terminal && self.volume == Volume::Normal);
        if wanted && self.form == Form::Text {
            self.say(&style::dim(text));
        }
    }

    /// What ends the command.
    pub(crate) fn problem(&self, problem: &Problem) {
        match self.form {
            Form::Text => self.say(&error::in_text(problem)),
            Form::Json => self.object("error", &error::in_fields(problem)),
        }
    }

    /// A question to the person at the terminal, and what was typed; none at the end of input.
    pub(crate) async fn ask(&self, prompt: &str) -> Option<String> {
        self.prompt(prompt);
        self.asking.store(true, Ordering::Relaxed);
        let line = read_line().await;
        self.asking.store(false, Ordering::Relaxed);
        // Who types a line ends the question's own; the end of input does not.
        if line.is_some() {
            self.prompt_open.store(false, Ordering::Relaxed);
        }
        line
    }

    fn prompt(&self, prompt: &str) {
        self.clear_progress();
        let mut out = self.stderr();
        write!(out, "{prompt}").and_then(|()| out.flush()).ok();
        self.prompt_open.store(true, Ordering::Relaxed);
    }

    /// A line on stderr whatever the volume.
    pub(crate) fn say(&self, text: &str) {
        self.clear_progress();
        writeln!(self.stderr(), "{text}").ok();
    }

    fn stderr(&self) -> anstream::AutoStream<std::io::StderrLock<'static>> {
        anstream::AutoStream::new(std::io::stderr().lock(), self.color_of_stderr())
    }

    fn color_of_stdout(&self) -> ColorChoice {
        if self.color == ColorChoice::Auto {
            return anstream::AutoStream::choice(&std::io::stdout());
        }
        self.color
    }

    fn color_of_stderr(&self) -> ColorChoice {
        if self.color == ColorChoice::Auto {
            return anstream::AutoStream::choice(&std::io::stderr());
        }
        self.color
    }

    /// Takes the line of progress away, and ends that of a question, if there is one.
    fn clear_progress(&self) {
        if self.prompt_open.swap(false, Ordering::Relaxed) {
            writeln!(std::io::stderr().lock()).ok();
        }
        if self.line_open.swap(false, Ordering::Relaxed) {
            write!(std::io::stderr().lock(), "\r\u{1b}[2K").ok();
        }
    }
}

/// A line of input without its end; none at the end of input.
async fn read_line() -> Option<String> {
    let read = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        std::io::stdin()
            .read_line(&mut line)
            .map(|count| (count > 0).then_some(line))
    });
    let line = read.await.ok()?.ok()??;
    Some(line.trim_end_matches(['\r', '\n']).to_owned())
}
