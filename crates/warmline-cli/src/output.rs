//! The only place that prints: answers to stdout, everything else to stderr.
//!
//! Text of a server reaches a terminal without control characters.

use std::ffi::OsString;
use std::future::Future;
use std::io::{self, IsTerminal as _, Write as _};
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anstream::{AutoStream, ColorChoice};
use clap::Args;
use warmline_core::delivery::Delivery;
use warmline_core::error::code::Code;
use warmline_platform::clock;

mod fields;
mod note;
pub(crate) mod problem;
pub(crate) mod style;
mod text;
pub(crate) mod tool_content;

pub(crate) use fields::JsonFields;
pub(crate) use note::Note;
pub(crate) use problem::{CliResult, Problem};
pub(crate) use text::{
    Column, collapse_whitespace, first_line, format_duration, one_line, pad, pad_first, pluralize,
    sanitize, truncate,
};

/// Options of every command about its output.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Print one JSON object per line instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// When to use colors; `NO_COLOR` is honored too
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: clap::ColorChoice,
    /// Print answers and errors only
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Show on stderr what is sent and received, without values
    #[arg(long, short, global = true)]
    pub(crate) verbose: bool,
}

impl OutputArgs {
    /// The options of a command line that does not parse, as far as they can be told.
    pub(crate) fn from_raw_args(words: impl Iterator<Item = OsString>) -> Self {
        let words: Vec<OsString> = words.take_while(|word| word != "--").collect();
        let has = |option: &str| words.iter().any(|word| word == option);
        Self {
            json: has("--json"),
            color: match has("--color=never") {
                true => clap::ColorChoice::Never,
                false => clap::ColorChoice::Auto,
            },
            quiet: false,
            verbose: false,
        }
    }
}

/// Nothing is drawn for what takes less.
const PROGRESS_DELAY: Duration = Duration::from_millis(300);
const FRAME_INTERVAL: Duration = Duration::from_millis(100);
const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

#[derive(Debug)]
pub(crate) struct Report {
    args: OutputArgs,
    color: ColorChoice,
    is_terminal: bool,
    is_progress_shown: AtomicBool,
    /// The user is typing: nothing may be drawn over the line.
    is_reading_input: AtomicBool,
    /// A prompt is shown, and no line was typed after it yet.
    is_prompt_shown: AtomicBool,
    server_progress: Mutex<String>,
    lost_output: Mutex<LostOutput>,
}

#[derive(Clone, Debug, Default)]
struct LostOutput {
    cause: Option<String>,
    /// The answer to a call was among it, or before it.
    includes_answer: bool,
}

/// Whether stderr shows colors, unless an option decides.
pub(crate) fn stderr_supports_color() -> bool {
    AutoStream::choice(&io::stderr()) != ColorChoice::Never
}

impl Report {
    pub(crate) fn new(args: &OutputArgs) -> Self {
        Self {
            args: args.clone(),
            color: match args.color {
                clap::ColorChoice::Auto => ColorChoice::Auto,
                clap::ColorChoice::Always => ColorChoice::Always,
                clap::ColorChoice::Never => ColorChoice::Never,
            },
            is_terminal: io::stderr().is_terminal(),
            is_progress_shown: AtomicBool::new(false),
            is_reading_input: AtomicBool::new(false),
            is_prompt_shown: AtomicBool::new(false),
            server_progress: Mutex::default(),
            lost_output: Mutex::default(),
        }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.args.json
    }

    pub(crate) fn is_verbose(&self) -> bool {
        self.args.verbose && !self.args.quiet
    }

    /// Whether the user can be asked: stdin and stderr are terminals.
    pub(crate) fn can_ask(&self) -> bool {
        self.is_terminal && self.is_stdin_terminal()
    }

    pub(crate) fn is_stdin_terminal(&self) -> bool {
        io::stdin().is_terminal()
    }

    /// How wide a line of the answer may be. Output for programs is never cut.
    pub(crate) fn stdout_width(&self) -> usize {
        if !io::stdout().is_terminal() {
            return usize::MAX;
        }
        let set = warmline_config::process_variable("COLUMNS").and_then(|c| c.parse().ok());
        set.unwrap_or_else(|| terminal_width(io::stdout())).max(40)
    }

    /// Prints output, or a part of it. The text may be styled.
    pub(crate) fn print(&self, text: &str) {
        self.print_styled(text, false);
    }

    fn print_styled(&self, text: &str, is_answer: bool) {
        self.clear_progress();
        let mut out = AutoStream::new(io::stdout().lock(), self.color);
        let attempt = writeln!(out, "{}", text.trim_end_matches('\n')).and_then(|()| out.flush());
        self.record_write(is_answer, attempt);
    }

    /// Prints a server's answer: sanitized for a terminal, unchanged for a program.
    pub(crate) fn print_answer(&self, text: &str) {
        if io::stdout().is_terminal() {
            self.print_styled(&sanitize(text), true);
        } else {
            let line = format!("{}\n", text.trim_end_matches('\n'));
            self.write_stdout(line.as_bytes(), true);
        }
    }

    pub(crate) fn print_bytes(&self, bytes: &[u8]) {
        self.write_stdout(bytes, false);
    }

    fn write_stdout(&self, bytes: &[u8], is_answer: bool) {
        self.clear_progress();
        let mut out = io::stdout().lock();
        let attempt = out.write_all(bytes).and_then(|()| out.flush());
        self.record_write(is_answer, attempt);
    }

    pub(crate) fn print_reply(&self, fields: &JsonFields) {
        let line = format!("{}\n", fields.to_line("reply"));
        self.write_stdout(line.as_bytes(), true);
    }

    pub(crate) fn print_object(&self, kind: &str, fields: &JsonFields) {
        self.print_bytes(format!("{}\n", fields.to_line(kind)).as_bytes());
    }

    /// Prints one object or a text: output in either form.
    pub(crate) fn print_entry(&self, kind: &str, fields: &JsonFields, text: &str) {
        match self.args.json {
            true => self.print_object(kind, fields),
            false => self.print(text),
        }
    }

    /// Prints one object, or a line beside the answer.
    pub(crate) fn print_outcome(&self, kind: &str, fields: &JsonFields, text: &str) {
        match self.args.json {
            true => self.print_object(kind, fields),
            false => self.print_note(text),
        }
    }

    pub(crate) fn print_table<T>(&self, columns: &[Column<T>], rows: &[T]) {
        let head: Vec<&str> = columns.iter().map(|(title, _)| *title).collect();
        let cells = |row: &T| columns.iter().map(|(_, text)| text(row)).collect();
        let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
        for line in text::table_lines(&head, &rows, self.stdout_width()) {
            self.print(&line);
        }
    }

    /// Prints a line beside the answer, unless `--quiet` or `--json` is given.
    pub(crate) fn print_note(&self, text: &str) {
        if !self.args.quiet && !self.args.json {
            self.print_to_stderr(text);
        }
    }

    /// Prints a note as text or as an object, unless `--quiet` is given.
    pub(crate) fn print_notice(&self, text: &str, fields: &JsonFields) {
        match self.args.json {
            _ if self.args.quiet => {},
            true => self.print_object("note", fields),
            false => self.print_to_stderr(text),
        }
    }

    /// Prints a note to stderr in either form: stdout belongs to another program.
    pub(crate) fn print_notice_to_stderr(&self, text: &str, fields: &JsonFields) {
        match self.args.json {
            _ if self.args.quiet => {},
            true => self.print_to_stderr(&fields.to_line("note")),
            false => self.print_to_stderr(text),
        }
    }

    pub(crate) fn warn(&self, what: &str) {
        let fields = JsonFields::with("what", what);
        self.print_notice(&format!("note: {what}"), &fields);
    }

    /// The same to stderr: stdout belongs to another program, or a log is written there.
    pub(crate) fn warn_on_stderr(&self, what: &str) {
        self.print_notice_to_stderr(what, &JsonFields::with("what", what));
    }

    pub(crate) fn print_verbose(&self, text: &str) {
        if self.is_verbose() {
            self.print_to_stderr(&style::dim(text));
        }
    }

    /// Prints what an answer cost: for people, not for logs.
    pub(crate) fn print_cost(&self, text: &str) {
        let wanted = self.is_verbose() || (self.is_terminal && !self.args.quiet);
        if wanted && !self.args.json {
            self.print_to_stderr(&style::dim(text));
        }
    }

    pub(crate) fn print_problem(&self, problem: &Problem) {
        match self.args.json {
            true => self.print_object("error", &problem.to_fields()),
            false => self.print_to_stderr(&problem.to_text()),
        }
    }

    /// Asks the user at the terminal. Returns the line, or none at the end of input.
    pub(crate) async fn ask_line(&self, prompt: &str) -> Option<String> {
        self.write_prompt(prompt);
        self.is_prompt_shown.store(true, Ordering::Relaxed);
        self.is_reading_input.store(true, Ordering::Relaxed);
        let line = read_line().await;
        self.is_reading_input.store(false, Ordering::Relaxed);
        // A typed line ends the line of the prompt; the end of input does not.
        if line.is_some() {
            self.is_prompt_shown.store(false, Ordering::Relaxed);
        }
        line
    }

    fn write_prompt(&self, prompt: &str) {
        self.clear_progress();
        let mut out = self.stderr_stream();
        write!(out, "{prompt}").and_then(|()| out.flush()).ok();
    }

    /// Whether the user says yes; none at the end of input.
    pub(crate) async fn confirm(&self, question: &str) -> Option<bool> {
        let typed = self.ask_line(question).await?;
        Some(matches!(typed.trim(), "y" | "Y" | "yes"))
    }

    /// Prints a line to stderr, also with `--quiet`.
    pub(crate) fn print_to_stderr(&self, text: &str) {
        self.clear_progress();
        // One write: another process may share this stderr, and its lines must not cut ours.
        let line = format!("{text}\n");
        self.stderr_stream().write_all(line.as_bytes()).ok();
    }

    fn stderr_stream(&self) -> AutoStream<io::StderrLock<'static>> {
        AutoStream::new(io::stderr().lock(), self.color)
    }

    fn clear_progress(&self) {
        if self.is_prompt_shown.swap(false, Ordering::Relaxed) {
            writeln!(io::stderr().lock()).ok();
        }
        if self.is_progress_shown.swap(false, Ordering::Relaxed) {
            write!(io::stderr().lock(), "\r\u{1b}[2K").ok();
        }
    }

    pub(crate) async fn with_progress<F: Future>(&self, what: &str, future: F) -> F::Output {
        let mut future = pin!(future);
        let terminal = warmline_config::process_variable("TERM");
        let can_draw = self.is_terminal && terminal.as_deref() != Some("dumb");
        if !can_draw || self.args.quiet || self.args.json {
            return future.await;
        }
        self.set_server_progress("");
        let begun = clock::now();
        let mut pause = PROGRESS_DELAY;
        for frame in FRAMES.iter().cycle() {
            if let Ok(output) = tokio::time::timeout(pause, &mut future).await {
                self.clear_progress();
                return output;
            }
            let server = self.server_progress.lock().map(|text| text.clone());
            let (elapsed, server) = (format_duration(begun.elapsed()), server.unwrap_or_default());
            self.draw_progress(&format!("{frame} {what} … {elapsed}{server}"));
            pause = FRAME_INTERVAL;
        }
        future.await
    }

    /// Remembers the progress that the server reports, for the next frame.
    pub(crate) fn set_server_progress(&self, text: &str) {
        if let Ok(mut progress) = self.server_progress.lock() {
            let separator = if text.is_empty() { "" } else { " · " };
            *progress = format!("{separator}{text}");
        }
    }

    fn draw_progress(&self, line: &str) {
        if self.is_reading_input.load(Ordering::Relaxed) {
            return;
        }
        self.is_progress_shown.store(true, Ordering::Relaxed);
        // A line that wraps could not be cleared.
        let line = truncate(line, terminal_width(io::stderr()).saturating_sub(1));
        let mut out = io::stderr().lock();
        let drawn = write!(out, "\r\u{1b}[2K{line}");
        drawn.and_then(|()| out.flush()).ok();
    }

    /// Remembers a failed write. A reader that closed our output does not want an error about it.
    fn record_write(&self, is_answer: bool, attempt: io::Result<()>) {
        let Ok(mut lost) = self.lost_output.lock() else {
            return;
        };
        lost.includes_answer |= is_answer;
        if let Err(error) = attempt.map_err(|error| (error.kind(), error.to_string()))
            && error.0 != io::ErrorKind::BrokenPipe
        {
            // The system's words without its number.
            let why = error.1.split(" (os error").next().unwrap_or_default();
            lost.cause.get_or_insert_with(|| why.to_owned());
        }
    }

    /// The exit code of a command that ends with `exit`. Lost output is reported on stderr, since
    /// stdout is what failed.
    pub(crate) fn final_exit_code(&self, exit: u8) -> u8 {
        let lost = self.lost_output.lock().map(|lost| lost.clone());
        let LostOutput {
            cause: Some(why),
            includes_answer,
        } = lost.unwrap_or_default()
        else {
            return exit;
        };
        let noun = if includes_answer { "answer" } else { "output" };
        let what = format!("cannot write the {noun}: {why}");
        let problem = Problem::new(Code::AnswerLost, what);
        let problem = match includes_answer {
            true => problem
                .with_delivery(Delivery::Answered)
                .with_hint("the call was executed: calling again would execute it twice"),
            false => problem.with_hint("make room for the output, or send it elsewhere"),
        };
        self.print_to_stderr(&problem.to_text());
        if exit == 0 { problem.exit_code() } else { exit }
    }
}

fn terminal_width(stream: impl std::os::fd::AsFd) -> usize {
    match rustix::termios::tcgetwinsize(stream).map(|size| usize::from(size.ws_col)) {
        Ok(width @ 1..) => width,
        Ok(0) | Err(_) => 80,
    }
}

/// Reads a line of input without its end; none at the end of input.
async fn read_line() -> Option<String> {
    let read = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        let read = io::stdin().read_line(&mut line);
        read.map(|count| (count > 0).then_some(line))
    });
    let line = read.await.ok()?.ok()??;
    Some(line.trim_end_matches(['\r', '\n']).to_owned())
}
