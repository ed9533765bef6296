//! Output that could not be written: an answer that nobody got must not look like one.

use std::io;
use std::sync::Mutex;

use warmline::core::code::Code;
use warmline::core::delivery::Delivery;

use super::{Report, error};
use crate::problem::Problem;

/// What became of the output so far.
#[derive(Debug, Default)]
pub(super) struct Unwritten(Mutex<Lost>);

#[derive(Clone, Debug, Default)]
struct Lost {
    why: Option<String>,
    /// The answer to a call was among it, or before it.
    answer: bool,
}

/// What is about to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// What came of a request that a server answered.
    Answer,
    Other,
}

impl Report {
    /// Remembers an attempt to write. Whoever closed our output does not want to read on, also
    /// not a complaint about it; anything else is told when the command ends.
    pub(super) fn wrote(&self, output: Output, attempt: io::Result<()>) {
        let Ok(mut lost) = self.unwritten.0.lock() else {
            return;
        };
        lost.answer |= output == Output::Answer;
        if let Err(error) = attempt
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            lost.why.get_or_insert_with(|| plain(&error));
        }
    }

    /// The exit code of a command that thinks it ends with `exit`: output that was lost is told on
    /// stderr, since stdout is what failed.
    pub(crate) fn finish(&self, exit: u8) -> u8 {
        let lost = self
            .unwritten
            .0
            .lock()
            .map(|lost| lost.clone())
            .unwrap_or_default();
        let Some(why) = lost.why else {
            return exit;
        };
        let problem = if lost.answer {
            Problem::new(
                Code::AnswerLost,
                format!("the answer could not be written: {why}"),
            )
            .delivered(Delivery::Answered)
            .hint("it was executed: calling again would execute it twice")
        } else {
            Problem::new(
                Code::AnswerLost,
                format!("the output could not be written: {why}"),
            )
            .hint("make room where it goes, or send it elsewhere")
        };
        self.say(&error::in_text(&problem));
        if exit == 0 { problem.exit() } else { exit }
    }
}

/// The system's words without its number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error")
        .next()
        .unwrap_or_default()
        .to_owned()
}
