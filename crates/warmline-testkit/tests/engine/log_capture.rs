//! A subscriber that keeps every line of the log that is written on its thread.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex, OnceLock};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Metadata, Subscriber};

/// What was logged so far: each line with its level, its target and all its fields.
#[derive(Clone, Debug, Default)]
pub(crate) struct Logbook(Arc<Mutex<Vec<String>>>);

impl Logbook {
    /// Keeps the lines of this thread from now on, as long as the guard lives.
    pub(crate) fn open() -> (Self, DefaultGuard) {
        // Of a process with one subscriber, a line that another thread would write first is
        // written nowhere from then on: interest in it is asked for on that thread alone.
        static SECOND: OnceLock<Dispatch> = OnceLock::new();
        SECOND.get_or_init(|| Dispatch::new(Self::default()));
        let book = Self::default();
        let guard = tracing::subscriber::set_default(book.clone());
        (book, guard)
    }

    /// All lines.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// The lines that contain this text.
    pub(crate) fn lines_with(&self, text: &str) -> Vec<String> {
        let mut lines = self.lines();
        lines.retain(|line| line.contains(text));
        lines
    }
}

struct LineVisitor(String);

impl Visit for LineVisitor {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl Subscriber for Logbook {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut line = LineVisitor(format!("span {}", span.metadata().name()));
        span.record(&mut line);
        self.0.lock().unwrap().push(line.0);
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        let mut line = LineVisitor("span".to_owned());
        values.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let of = event.metadata();
        let mut line = LineVisitor(format!("{} {}", of.level(), of.target()));
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
