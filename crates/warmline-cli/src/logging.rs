//! The log on stderr, written by a thread so that a slow reader delays no call: its lines are lost, and
//! counted.

use std::io::{self, IsTerminal as _, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use warmline_config::gateway_settings::{GatewaySettings, LogFormat, LogLevel};
use warmline_engine::metrics::Counter;
use warmline_engine::settings::{SettingOrigin, SettingsGroup as _};

use crate::output;

const MAX_QUEUED_LINES: usize = 4_096;
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

static LOG_WRITER: OnceLock<LogWriter> = OnceLock::new();

/// Whether lines are JSON: then stderr has nothing else.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// The log of a short command: only if `WARMLINE_LOG` asks for it.
pub(crate) fn start_for_command() {
    install_subscriber(None, LogFormat::Text);
}

/// The log of a gateway whose stderr a client keeps: warnings, unless settings decide otherwise.
pub(crate) fn start_for_stdio(settings: &GatewaySettings) {
    let level = match settings.origin("log.level") {
        SettingOrigin::Default | SettingOrigin::MachineLimit => LogLevel::Warn,
        SettingOrigin::Builder | SettingOrigin::Environment(_) | SettingOrigin::File { .. } => {
            settings.log_level
        },
    };
    install_subscriber(Some(level), settings.log_format);
}

/// The log of a service. Returns the counter of lost lines.
pub(crate) fn start_for_service(settings: &GatewaySettings) -> Option<Arc<Counter>> {
    install_subscriber(Some(settings.log_level), settings.log_format);
    LOG_WRITER.get().map(|lines| Arc::clone(&lines.lost_count))
}

pub(crate) fn is_json() -> bool {
    IS_JSON.load(Ordering::Relaxed)
}

pub(crate) fn flush() {
    let Some(lines) = LOG_WRITER.get() else {
        return;
    };
    let (written, flushed) = sync_channel(1);
    if lines.sender.try_send(LogMessage::Flush(written)).is_ok() {
        flushed.recv_timeout(FLUSH_TIMEOUT).ok();
    }
}

fn install_subscriber(usual: Option<LogLevel>, format: LogFormat) {
    let asked = warmline_config::process_variable("WARMLINE_LOG");
    let Some(filter) = asked.or_else(|| Some(usual?.as_str().to_owned())) else {
        return;
    };
    let lines = LOG_WRITER.get_or_init(LogWriter::start);
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_ansi(output::stderr_supports_color())
        .with_writer(lines);
    let as_json = match format {
        LogFormat::Json => true,
        LogFormat::Text => false,
        LogFormat::Auto => !io::stderr().is_terminal(),
    };
    IS_JSON.store(as_json, Ordering::Relaxed);
    // It fails only if another logger is set already.
    if as_json {
        subscriber.json().flatten_event(true).try_init().ok();
    } else {
        subscriber.try_init().ok();
    }
}

struct LogWriter {
    sender: SyncSender<LogMessage>,
    lost_count: Arc<Counter>,
}

enum LogMessage {
    Line(Vec<u8>),
    Flush(SyncSender<()>),
}

impl LogWriter {
    fn start() -> Self {
        let (sender, waiting) = sync_channel(MAX_QUEUED_LINES);
        let lost_count = Arc::new(Counter::default());
        let counted = Arc::clone(&lost_count);
        let thread = std::thread::Builder::new().name("log".to_owned());
        // Without the thread every line counts as lost.
        drop(thread.spawn(move || write_all(&waiting, io::stderr(), &counted)));
        Self { sender, lost_count }
    }
}

fn write_all(waiting: &Receiver<LogMessage>, mut to: impl Write, lost: &Counter) {
    for note in waiting {
        match note {
            LogMessage::Line(line) => {
                if to.write_all(&line).is_err() {
                    lost.increment();
                }
            },
            LogMessage::Flush(told) => {
                told.send(()).ok();
            },
        }
    }
}

impl<'a> MakeWriter<'a> for &'static LogWriter {
    type Writer = LogLine;

    fn make_writer(&'a self) -> LogLine {
        LogLine {
            writer: self,
            buffer: Vec::new(),
        }
    }
}

struct LogLine {
    writer: &'static LogWriter,
    buffer: Vec<u8>,
}

impl Write for LogLine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for LogLine {
    fn drop(&mut self) {
        let line = LogMessage::Line(std::mem::take(&mut self.buffer));
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) =
            self.writer.sender.try_send(line)
        {
            self.writer.lost_count.increment();
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

    /// reliability F69: a reader that does not read the log delays nobody, and lost lines are counted.
    #[test]
    fn a_reader_that_hangs_loses_lines_and_holds_nobody_up() {
        let (let_go, held) = sync_channel(0);
        let (to, waiting) = sync_channel(8);
        let lost = Arc::new(Counter::default());
        let counted = Arc::clone(&lost);
        let writing = std::thread::spawn(move || write_all(&waiting, Blocked(held), &counted));
        let lines: &'static LogWriter = Box::leak(Box::new(LogWriter {
            sender: to,
            lost_count: lost,
        }));
        for _ in 0..100 {
            lines.make_writer().write_all(b"a line\n").unwrap();
        }
        let lost = lines.lost_count.count();
        assert!((91..=92).contains(&lost), "{lost}");
        drop(let_go);
        // As soon as somebody reads again, lines are taken again.
        loop {
            let before = lines.lost_count.count();
            lines.make_writer().write_all(b"another\n").unwrap();
            if lines.lost_count.count() == before {
                break;
            }
            std::thread::yield_now();
        }
        assert!(!writing.is_finished());
    }
}
