//! The line that says what is being waited for: on a terminal only, and only after a while.

use std::future::Future;
use std::io::Write as _;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::text::{cut, seconds};
use super::{Report, Volume};
use crate::clock;

impl Report {
    /// Waits for a future, and says so if it takes long.
    pub(crate) async fn while_waiting<F: Future>(&self, what: &str, future: F) -> F::Output {
        let mut future = pin!(future);
        if !self.can_draw() || self.volume == Volume::Quiet || self.is_json() {
            return future.await;
        }
        self.tell_progress("");
        let begun = clock::now();
        let mut pause = PATIENCE;
        for frame in FRAMES.iter().cycle() {
            if let Ok(output) = tokio::time::timeout(pause, &mut future).await {
                self.clear_progress();
                return output;
            }
            let told = self
                .progress
                .lock()
                .map(|told| told.clone())
                .unwrap_or_default();
            self.draw(&format!(
                "{frame} {what} … {}{told}",
                seconds(begun.elapsed())
            ));
            pause = FRAME;
        }
        future.await
    }

    /// Remembers how far the server says it is, for the line that is drawn next.
    pub(crate) fn tell_progress(&self, told: &str) {
        if let Ok(mut progress) = self.progress.lock() {
            *progress = if told.is_empty() {
                String::new()
            } else {
                format!(" · {told}")
            };
        }
    }

    /// Whether the terminal can take a line away again.
    fn can_draw(&self) -> bool {
        let kind = warmline::config::process_variable("TERM");
        self.terminal && kind.as_deref() != Some("dumb")
    }

    /// Puts the line of progress in the place of the last one, unless somebody is typing.
    fn draw(&self, line: &str) {
        if self.asking.load(Ordering::Relaxed) {
            return;
        }
        self.line_open.store(true, Ordering::Relaxed);
        let mut out = std::io::stderr().lock();
        // A line that wraps could not be taken away again.
        let line = cut(line, width_of_stderr().saturating_sub(1));
        write!(out, "\r\u{1b}[2K{line}")
            .and_then(|()| out.flush())
            .ok();
    }
}

fn width_of_stderr() -> usize {
    match rustix::termios::tcgetwinsize(std::io::stderr()).map(|size| usize::from(size.ws_col)) {
        Ok(width @ 1..) => width,
        Ok(0) | Err(_) => 80,
    }
}

/// What is done sooner needs no line.
const PATIENCE: Duration = Duration::from_millis(300);
const FRAME: Duration = Duration::from_millis(100);
const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
