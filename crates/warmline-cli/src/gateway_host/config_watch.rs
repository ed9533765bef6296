//! The configuration of a gateway, read at the start and again while it runs.
//!
//! A blocking task reads it: its disk may not answer, and the main loop must react to signals.

use std::time::Duration;

use tokio::task::JoinHandle;
use warmline_core::error::code::Code;
use warmline_gateway::reload::{FileStamps, FileWatch, LoadedConfiguration};
use warmline_gateway::{ReloadFailure, ReloadRequest};
use warmline_platform::clock;
use warmline_platform::clock::Instant;

use super::ConfigSource;
use crate::output::problem::{CliResult, Problem};
use crate::signals::Signals;

/// A read that takes longer is reported.
const SLOW_READ: Duration = Duration::from_secs(10);

pub(crate) type ConfigUpdate = (LoadedConfiguration, Vec<String>);

/// Reads the configuration when it changes, or on request.
pub(crate) struct ConfigWatch {
    files: FileWatch,
    /// None during a read.
    source: Option<ConfigSource>,
    pending_read: Option<PendingRead>,
    is_reread_requested: bool,
    /// Requests that wait for the pending read, and for the one after it.
    waiters: Vec<ReloadRequest>,
    next_waiters: Vec<ReloadRequest>,
    due_waiters: Vec<ReloadRequest>,
}

struct PendingRead {
    task: JoinHandle<(ConfigSource, FileStamps, CliResult<ConfigUpdate>)>,
    late_at: Instant,
    is_late_reported: bool,
}

impl ConfigWatch {
    pub(crate) fn new(source: ConfigSource) -> Self {
        Self {
            files: FileWatch::new(source.watched_paths()),
            source: Some(source),
            pending_read: None,
            is_reread_requested: false,
            waiters: Vec::new(),
            next_waiters: Vec::new(),
            due_waiters: Vec::new(),
        }
    }

    /// Reads it for the first time; none if a signal stops the gateway meanwhile.
    pub(crate) async fn read_first(
        &mut self,
        signals: &mut Signals,
    ) -> CliResult<Option<ConfigUpdate>> {
        self.start_read();
        tokio::select! {
            read = self.next_update() => read.map(Some),
            () = signals.wait_for_stop() => Ok(None),
        }
    }

    pub(crate) fn stop_watching(&mut self) {
        self.files = FileWatch::new(Vec::new());
    }

    pub(crate) fn start_read(&mut self) {
        let Some(mut source) = self.source.take() else {
            self.is_reread_requested = true;
            return;
        };
        // From before the read, so that later changes are noticed.
        let look = self.files.snapshot();
        let reading = clock::spawn_blocking("configuration", move || {
            let seen = look();
            let read = source.read();
            (source, seen, read)
        });
        self.pending_read = Some(PendingRead {
            task: reading,
            late_at: clock::after(SLOW_READ),
            is_late_reported: false,
        });
    }

    /// Starts a read whose outcome answers the request. A read that began earlier may not see what the
    /// request is about.
    pub(crate) fn start_read_for(&mut self, request: ReloadRequest) {
        match self.source {
            Some(_) => self.waiters.push(request),
            None if self.pending_read.is_some() => self.next_waiters.push(request),
            // No read is possible any more; dropping the request tells so.
            None => return,
        }
        self.start_read();
    }

    pub(crate) fn answer_waiters(&mut self, outcome: &CliResult<()>) {
        for request in self.due_waiters.drain(..) {
            request.respond(outcome.as_ref().map_err(reload_failure).copied());
        }
    }

    /// The configuration, each time it was read; once per read the error that it takes long. Dropping it
    /// loses nothing.
    pub(crate) async fn next_update(&mut self) -> CliResult<ConfigUpdate> {
        let under_way = loop {
            match &mut self.pending_read {
                Some(under_way) => break under_way,
                None => {
                    self.files.changed().await;
                    self.start_read();
                },
            }
        };
        let is_told = under_way.is_late_reported;
        let read = tokio::select! {
            read = &mut under_way.task => read,
            () = clock::sleep_until(under_way.late_at), if !is_told => {
                under_way.is_late_reported = true;
                self.due_waiters.append(&mut self.waiters);
                return Err(slow_read_error());
            },
        };
        self.pending_read = None;
        self.due_waiters.append(&mut self.waiters);
        self.waiters.append(&mut self.next_waiters);
        let (source, seen, read) = read.map_err(|error| {
            // There is no read after this one.
            self.due_waiters.append(&mut self.waiters);
            Problem::new(Code::Bug, "cannot read the configuration").with_cause(error.to_string())
        })?;
        self.source = Some(source);
        self.files.mark_read(seen);
        if std::mem::take(&mut self.is_reread_requested) {
            self.start_read();
        }
        read
    }
}

fn reload_failure(problem: &Problem) -> ReloadFailure {
    let parts = problem.parts();
    let place = parts.location.as_ref().map(|place| format!("{place}: "));
    let why = parts.cause.as_ref().map(|why| format!(" ({why})"));
    let (place, why) = (place.unwrap_or_default(), why.unwrap_or_default());
    ReloadFailure {
        code: parts.code,
        what: format!("{place}{}{why}", parts.message),
        hint: parts.hint.clone(),
    }
}

fn slow_read_error() -> Problem {
    let what = format!(
        "reading the configuration takes longer than {} s",
        SLOW_READ.as_secs()
    );
    Problem::new(Code::ConfigUnreadable, what)
        .with_cause("a file of it, or one that it names, does not answer")
        .with_hint("check the disks of the file, of its `file` credentials and of `ca_file`")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reading that takes as long as somebody says.
    fn reading(release: std::sync::mpsc::Receiver<()>) -> PendingRead {
        let source = ConfigSource::from_user_files(None).unwrap();
        let reading = clock::spawn_blocking("configuration", move || {
            release.recv().unwrap();
            let read = Err(Problem::usage("it was read"));
            (source, FileWatch::new(Vec::new()).snapshot()(), read)
        });
        PendingRead {
            task: reading,
            late_at: clock::after(Duration::ZERO),
            is_late_reported: false,
        }
    }

    /// DESIGN 9: a disk that does not answer is told once; what was read counts when it comes, and
    /// what was asked for meanwhile is read after it.
    #[tokio::test]
    async fn a_reading_that_hangs_is_told_and_waited_for_by_nobody() {
        let mut rereading = ConfigWatch::new(ConfigSource::from_user_files(None).unwrap());
        rereading.source = None;
        let (release, held) = std::sync::mpsc::channel();
        rereading.pending_read = Some(reading(held));
        let said =
            |read: CliResult<ConfigUpdate>| read.err().map(|error| error.parts().message.clone());
        let late = said(rereading.next_update().await).unwrap_or_default();
        assert!(late.contains("takes longer than 10 s"), "{late}");
        rereading.start_read();
        let quiet = tokio::time::timeout(Duration::from_millis(50), rereading.next_update()).await;
        assert!(quiet.is_err(), "it is told once");
        release.send(()).unwrap();
        assert_eq!(
            said(rereading.next_update().await).as_deref(),
            Some("it was read")
        );
        assert!(rereading.pending_read.is_some(), "it was asked for again");
    }
}
