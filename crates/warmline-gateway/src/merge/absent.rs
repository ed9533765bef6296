//! Servers that are left out of a list: how long each is waited for, and who is told.
//!
//! Asked by: [`lists`](super::lists).  All servers are asked at once, so one that hangs delays a
//! list by its share and no more; and one that was waited for in vain a moment ago is not waited
//! for again: its answer goes on being read, and counts as soon as it is there.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use warmline::clock::{self, Instant};
use warmline::core::key::Digest;
use warmline::{Code, Error};

use crate::who::Subject;

/// How long a list waits for a server that was late just now.
const SHORT_SHARE: Duration = Duration::from_millis(250);
/// So long a server counts as late.
const LATE_FOR: Duration = Duration::from_secs(60);
/// More are not remembered.
const MAX_REMEMBERED: usize = 4_096;

/// Why a server is left out of a list.
#[derive(Debug)]
pub(crate) enum Why {
    /// It did not answer within its share of the time.
    Late,
    /// It could not be met, or said no.
    Failed(Error),
}

/// A server that is left out of a list.
#[derive(Debug)]
pub(crate) struct LeftOut {
    pub(crate) server: String,
    pub(crate) why: Why,
}

impl LeftOut {
    /// What a client is told of it.
    pub(super) fn told(&self) -> Value {
        let (code, what) = match &self.why {
            Why::Late => (
                Code::Deadline.word(),
                "it did not answer in time".to_owned(),
            ),
            Why::Failed(error) => (error.code().word(), error.to_string()),
        };
        json!({ "server": self.server, "code": code, "what": what })
    }
}

/// The servers that were left out lately, and for whom.
#[derive(Debug, Default)]
pub(crate) struct Absences(Mutex<HashMap<(Digest, String), Absent>>);

#[derive(Debug)]
struct Absent {
    /// When it was last waited for in vain.
    late: Option<Instant>,
}

impl Absences {
    /// How long a list of somebody waits for a server.
    pub(super) fn share(&self, most: Duration, subject: &Subject, server: &str) -> Duration {
        let known = self.0.lock();
        let late = known
            .get(&(who(subject), server.to_owned()))
            .and_then(|absent| absent.late);
        match late {
            Some(late) if late.elapsed() < LATE_FOR => most.min(SHORT_SHARE),
            _ => most,
        }
    }

    /// A server was left out. One line says so, when it begins.
    pub(super) fn left_out(&self, subject: &Subject, absent: &LeftOut) {
        let server = absent.server.as_str();
        let late = matches!(absent.why, Why::Late).then(clock::now);
        let mut known = self.0.lock();
        if known.len() >= MAX_REMEMBERED {
            known.clear();
        }
        let before = known.insert((who(subject), server.to_owned()), Absent { late });
        drop(known);
        if before.is_none() {
            let told = absent.told();
            let (code, what) = (&told["code"], &told["what"]);
            tracing::warn!(server, %code, %what, "left out of the list of all servers");
        }
    }

    /// A server is there.
    pub(super) fn present(&self, subject: &Subject, server: &str) {
        let mut known = self.0.lock();
        if known.is_empty() {
            return;
        }
        let was = known.remove(&(who(subject), server.to_owned()));
        drop(known);
        if was.is_some() {
            tracing::info!(server, "back in the list of all servers");
        }
    }
}

/// Whom it is remembered for. Callers that nobody knows are told apart by nothing that lasts.
fn who(subject: &Subject) -> Digest {
    match subject {
        Subject::Known(known) => known.identity.digest(),
        Subject::Anybody => Digest::new([0; 16]),
    }
}
