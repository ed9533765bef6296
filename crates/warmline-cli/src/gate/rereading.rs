//! The configuration, read at the start and again while a gateway runs.
//!
//! Asked by: `serve` and the background gateway.  What it names may lie on a disk that does not
//! answer. So it is read by a thread of its own, and nobody who has to hear signals waits for it.

use std::time::Duration;

use tokio::task::JoinHandle;
use warmline::clock::{self, Instant};
use warmline::core::code::Code;
use warmline_gateway::reload::{Seen, Wanted, Watch};
use warmline_gateway::{AskedToReload, Unreloaded};

use super::Source;
use crate::interrupt::{Signals, Told};
use crate::problem::{Outcome, Problem};

/// Whoever runs the gateway is told when it takes longer than this.
const LONG: Duration = Duration::from_secs(10);

/// What was read, and what somebody should know about it.
pub(crate) type Read = (Wanted, Vec<String>);

/// A configuration that is read as often as it changes, or as somebody asks for it.
pub(crate) struct Rereading {
    files: Watch,
    /// Away while it is read.
    source: Option<Source>,
    under_way: Option<UnderWay>,
    asked_again: bool,
    /// Those who wait for what comes of the reading that is under way, and of the one after it.
    asking: Vec<AskedToReload>,
    asking_again: Vec<AskedToReload>,
    /// Those who are to hear what came of the last one.
    due: Vec<AskedToReload>,
}

/// A reading that is not over.
struct UnderWay {
    reading: JoinHandle<(Source, Seen, Outcome<Read>)>,
    is_late_at: Instant,
    is_told: bool,
}

impl Rereading {
    pub(crate) fn of(source: Source) -> Self {
        Self {
            files: Watch::over(source.places()),
            source: Some(source),
            under_way: None,
            asked_again: false,
            asking: Vec::new(),
            asking_again: Vec::new(),
            due: Vec::new(),
        }
    }

    /// Reads it for the first time; nothing where somebody says to stop meanwhile.
    ///
    /// # Errors
    /// It cannot be used, or cannot be read in time.
    pub(crate) async fn first(&mut self, signals: &mut Signals) -> Outcome<Option<Read>> {
        self.begin();
        loop {
            tokio::select! {
                read = self.next() => return read.map(Some),
                told = signals.next() => match told {
                    Told::Stop => return Ok(None),
                    Told::Reload => {},
                },
            }
        }
    }

    /// Changes are not looked for: it is read where somebody asks for it.
    pub(crate) fn look_no_more(&mut self) {
        self.files = Watch::over(Vec::new());
    }

    /// Reads it, now or as soon as it can be: what was asked for while it was read is not lost.
    pub(crate) fn begin(&mut self) {
        let Some(mut source) = self.source.take() else {
            self.asked_again = true;
            return;
        };
        // From before it is read, so that what changes meanwhile is seen.
        let look = self.files.look();
        let reading = clock::spawn_blocking("configuration", move || {
            let seen = look();
            let read = source.read();
            (source, seen, read)
        });
        self.under_way = Some(UnderWay {
            reading,
            is_late_at: clock::after(LONG),
            is_told: false,
        });
    }

    /// The same for somebody who waits for what comes of it: a reading that began before they asked
    /// may not have seen what they mean.
    pub(crate) fn begin_for(&mut self, somebody: AskedToReload) {
        match self.source {
            Some(_) => self.asking.push(somebody),
            None if self.under_way.is_some() => self.asking_again.push(somebody),
            // It cannot be read any more; who is not answered hears that nobody does.
            None => return,
        }
        self.begin();
    }

    /// Tells those who wait what came of it.
    pub(crate) fn came(&mut self, came: &Outcome<()>) {
        for somebody in self.due.drain(..) {
            somebody.answer(came.as_ref().map_err(unreloaded).copied());
        }
    }

    /// What the configuration says, when it was read again.
    ///
    /// # Errors
    /// It cannot be used; or, once, it takes long. Then it still comes.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub(crate) async fn next(&mut self) -> Outcome<Read> {
        let under_way = loop {
            match &mut self.under_way {
                Some(under_way) => break under_way,
                None => {
                    self.files.changed().await;
                    self.begin();
                },
            }
        };
        let is_told = under_way.is_told;
        let read = tokio::select! {
            read = &mut under_way.reading => read,
            () = clock::sleep_until(under_way.is_late_at), if !is_told => {
                under_way.is_told = true;
                self.due.append(&mut self.asking);
                return Err(late());
            },
        };
        self.under_way = None;
        self.due.append(&mut self.asking);
        self.asking.append(&mut self.asking_again);
        let (source, seen, read) = read.map_err(|error| {
            // There is no reading after this one.
            self.due.append(&mut self.asking);
            Problem::new(Code::Bug, "the configuration could not be read")
                .because(error.to_string())
        })?;
        self.source = Some(source);
        self.files.saw(seen);
        if std::mem::take(&mut self.asked_again) {
            self.begin();
        }
        read
    }
}

fn unreloaded(problem: &Problem) -> Unreloaded {
    let parts = problem.parts();
    Unreloaded {
        code: parts.code,
        what: parts.what.clone(),
        place: parts.place.clone(),
        why: parts.why.clone(),
        hint: parts.hint.clone(),
    }
}

fn late() -> Problem {
    let what = format!(
        "the configuration takes longer than {} s to be read",
        LONG.as_secs()
    );
    Problem::new(Code::ConfigUnreadable, what)
        .because("a file of it, or one that it names, does not answer")
        .hint("look at the disks of the file, of its `file` credentials and of `ca_file`")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reading that takes as long as somebody says.
    fn reading(release: std::sync::mpsc::Receiver<()>) -> UnderWay {
        let source = Source::of_user(None).unwrap();
        let reading = clock::spawn_blocking("configuration", move || {
            release.recv().unwrap();
            let read = Err(Problem::usage("it was read"));
            (source, Watch::over(Vec::new()).look()(), read)
        });
        UnderWay {
            reading,
            is_late_at: clock::after(Duration::ZERO),
            is_told: false,
        }
    }

    /// DESIGN 9: a disk that does not answer is told once; what was read counts when it comes, and
    /// what was asked for meanwhile is read after it.
    #[tokio::test]
    async fn a_reading_that_hangs_is_told_and_waited_for_by_nobody() {
        let mut rereading = Rereading::of(Source::of_user(None).unwrap());
        rereading.source = None;
        let (release, held) = std::sync::mpsc::channel();
        rereading.under_way = Some(reading(held));
        let said = |read: Outcome<Read>| read.err().map(|error| error.parts().what.clone());
        let late = said(rereading.next().await).unwrap_or_default();
        assert!(late.contains("takes longer than 10 s"), "{late}");
        rereading.begin();
        let quiet = tokio::time::timeout(Duration::from_millis(50), rereading.next()).await;
        assert!(quiet.is_err(), "it is told once");
        release.send(()).unwrap();
        assert_eq!(said(rereading.next().await).as_deref(), Some("it was read"));
        assert!(rereading.under_way.is_some(), "it was asked for again");
    }
}
