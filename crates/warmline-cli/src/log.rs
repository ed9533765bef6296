//! The log: lines on stderr, written beside the work and never in its way.
//!
//! Asked by: `main`, and by commands that last and have settings of their own.  Lines are handed
//! to a thread; where whoever reads them does not keep up, they are counted and lost (the calls of
//! clients are not).

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use warmline::metrics::Counter;
use warmline::settings::{GatewaySettings, LogFormat, LogLevel, Origin};

use crate::args::Lasts;
use crate::report;

/// So many lines wait to be written.
const MAX_WAITING: usize = 4_096;
/// So long the last lines may take to be written.
const TO_FLUSH: Duration = Duration::from_secs(1);

/// Lines that nobody will read, and the way to the thread that writes.
static LOG: OnceLock<Lines> = OnceLock::new();

/// Whether lines are objects for programs: then nothing else may stand between them.
static AS_JSON: AtomicBool = AtomicBool::new(false);

/// Logs of a command: only if `WARMLINE_LOG` asks for them. What lasts reads its settings first.
pub(crate) fn start(lasts: Lasts) {
    match lasts {
        Lasts::UntilStopped | Lasts::UntilClosed => {},
        Lasts::OneCommand => write(None, LogFormat::Text),
    }
}

/// The log of a gateway that somebody else started and keeps the words of: what should be looked
/// at, unless settings ask for more or for less.
pub(crate) fn start_beside(settings: &GatewaySettings) {
    let level = match settings.origin("log.level") {
        Origin::Default | Origin::Machine => LogLevel::Warn,
        Origin::Builder | Origin::Environment(_) | Origin::File { .. } => settings.log_level,
    };
    write(Some(level), settings.log_format);
}

/// The log of a service, as its settings say. What is given back counts lines that were lost.
pub(crate) fn start_by(settings: &GatewaySettings) -> Option<Arc<Counter>> {
    write(Some(settings.log_level), settings.log_format);
    LOG.get().map(|lines| Arc::clone(&lines.lost))
}

/// Whether whoever reads stderr reads objects, one in each line.
pub(crate) fn is_json() -> bool {
    AS_JSON.load(Ordering::Relaxed)
}

/// Waits until what was said so far is written, or for a moment.
pub(crate) fn flush() {
    if let Some(lines) = LOG.get() {
        lines.flush();
    }
}

fn write(usual: Option<LogLevel>, format: LogFormat) {
    let asked = warmline::config::process_variable("WARMLINE_LOG");
    let Some(filter) = asked.or_else(|| Some(usual?.word().to_owned())) else {
        return;
    };
    let lines = LOG.get_or_init(Lines::begin);
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_ansi(report::stderr_takes_colour())
        .with_writer(lines);
    let as_json = match format {
        LogFormat::Json => true,
        LogFormat::Text => false,
        LogFormat::Auto => !report::stderr_is_terminal(),
    };
    AS_JSON.store(as_json, Ordering::Relaxed);
    // It fails only where another logger is set already, and then that one serves.
    if as_json {
        subscriber.json().flatten_event(true).try_init().ok();
    } else {
        subscriber.try_init().ok();
    }
}

/// The way of lines to the thread that writes them.
struct Lines {
    to: SyncSender<Note>,
    lost: Arc<Counter>,
}

enum Note {
    Line(Vec<u8>),
    /// Everything before this was written.
    Flush(SyncSender<()>),
}

impl Lines {
    fn begin() -> Self {
        let (to, waiting) = sync_channel(MAX_WAITING);
        let lost = Arc::new(Counter::default());
        let counted = Arc::clone(&lost);
        let thread = std::thread::Builder::new().name("log".to_owned());
        // Without a thread every line is lost, and counted as such.
        drop(thread.spawn(move || write_all(&waiting, io::stderr(), &counted)));
        Self { to, lost }
    }

    fn flush(&self) {
        let (written, flushed) = sync_channel(1);
        if self.to.try_send(Note::Flush(written)).is_ok() {
            flushed.recv_timeout(TO_FLUSH).ok();
        }
    }
}

/// Writes lines as they come. Who cannot be written to loses them.
fn write_all(waiting: &Receiver<Note>, mut to: impl Write, lost: &Counter) {
    for note in waiting {
        match note {
            Note::Line(line) => {
                if to.write_all(&line).is_err() {
                    lost.one_more();
                }
            },
            Note::Flush(told) => {
                told.send(()).ok();
            },
        }
    }
}

impl<'a> MakeWriter<'a> for &'static Lines {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line {
            lines: self,
            text: Vec::new(),
        }
    }
}

/// One line; it goes on its way when it is whole.
struct Line {
    lines: &'static Lines,
    text: Vec<u8>,
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let line = Note::Line(std::mem::take(&mut self.text));
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) =
            self.lines.to.try_send(line)
        {
            self.lines.lost.one_more();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes nothing until it is let go.
    struct Blocked(Receiver<()>);

    impl Write for Blocked {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.recv().ok();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// reliability F69: whoever does not read the log holds nobody up, and what is lost is counted.
    #[test]
    fn a_reader_that_hangs_loses_lines_and_holds_nobody_up() {
        let (let_go, held) = sync_channel(0);
        let (to, waiting) = sync_channel(8);
        let lost = Arc::new(Counter::default());
        let counted = Arc::clone(&lost);
        let writing = std::thread::spawn(move || write_all(&waiting, Blocked(held), &counted));
        let lines: &'static Lines = Box::leak(Box::new(Lines { to, lost }));
        for _ in 0..100 {
            lines.make_writer().write_all(b"a line\n").unwrap();
        }
        let lost = lines.lost.count();
        assert!((91..=92).contains(&lost), "{lost}");
        drop(let_go);
        // As soon as somebody reads again, lines are taken again.
        loop {
            let before = lines.lost.count();
            lines.make_writer().write_all(b"another\n").unwrap();
            if lines.lost.count() == before {
                break;
            }
            std::thread::yield_now();
        }
        assert!(!writing.is_finished());
    }
}
