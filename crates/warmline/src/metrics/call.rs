//! One call under way, as the metrics see it: counted once, however it ends.
//!
//! Told by: the data path, which begins one for every call. A call whose future is dropped ends
//! too, so that the calls always are the sum of what became of them (I28).

use std::sync::Arc;
use std::time::Duration;

use warmline_core::code::Code;
use warmline_core::delivery::Delivery;

use super::{CallFate, CallOutcome, MethodWord, ServerMetrics};
use crate::clock::{self, Instant};

/// A call that began and has not ended. Dropped, it counts as cancelled.
#[derive(Debug)]
pub struct CallUnderWay {
    metrics: Arc<ServerMetrics>,
    method: MethodWord,
    since: Instant,
    attempts: u32,
    /// What is known should the caller give up now.
    if_dropped: Delivery,
    ended: bool,
}

impl CallUnderWay {
    /// A call begins.
    pub fn begin(metrics: &Arc<ServerMetrics>, method: MethodWord) -> Self {
        metrics.calls_begun.one_more();
        Self {
            metrics: Arc::clone(metrics),
            method,
            since: clock::now(),
            attempts: 0,
            if_dropped: Delivery::Unsent,
            ended: false,
        }
    }

    /// It is handed to a session: from here on a dropped call may have been executed.
    pub fn attempt(&mut self) {
        self.attempts = self.attempts.saturating_add(1);
        self.metrics.attempts.one_more();
        self.if_dropped = Delivery::Unknown;
    }

    /// The attempt is over and did not end the call: this is what is known so far.
    pub fn known_so_far(&mut self, delivery: Delivery) {
        self.if_dropped = delivery;
    }

    /// How often it was handed to a session.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// What was asked for.
    pub fn method(&self) -> MethodWord {
        self.method
    }

    /// How long it has been under way.
    pub fn took(&self) -> Duration {
        clock::now().saturating_duration_since(self.since)
    }

    /// It was answered.
    pub fn answered(mut self, outcome: CallOutcome) {
        self.end(outcome, Delivery::Answered, None);
    }

    /// It ended with an error.
    pub fn failed(mut self, delivery: Delivery, code: Code) {
        self.end(outcome_of(delivery, code), delivery, Some(code));
    }

    fn end(&mut self, outcome: CallOutcome, delivery: Delivery, code: Option<Code>) {
        self.ended = true;
        let metrics = &self.metrics;
        metrics.calls.one_more(self.method, outcome);
        metrics.fates.one_more(self.fate(delivery, code));
        if let Some(code) = code {
            metrics.failures.one_more(delivery, code);
        }
        metrics
            .call_time
            .took(clock::now().saturating_duration_since(self.since));
    }
}

impl CallUnderWay {
    /// What is known of it. Nobody wonders whether a call ran that its caller gave up; and a
    /// request that only listens runs nothing.
    fn fate(&self, delivery: Delivery, code: Option<Code>) -> CallFate {
        let is_given_up = code == Some(Code::Cancelled) || self.method == MethodWord::Listen;
        if is_given_up && delivery == Delivery::Unknown {
            CallFate::Cancelled
        } else {
            CallFate::of(delivery)
        }
    }
}

impl Drop for CallUnderWay {
    fn drop(&mut self) {
        if !self.ended {
            self.end(
                CallOutcome::Cancelled,
                self.if_dropped,
                Some(Code::Cancelled),
            );
        }
    }
}

/// How a failed call ended, in the words of M10.
fn outcome_of(delivery: Delivery, code: Code) -> CallOutcome {
    if code == Code::Cancelled {
        CallOutcome::Cancelled
    } else if code == Code::Deadline {
        CallOutcome::Timeout
    } else {
        match delivery {
            Delivery::Unsent | Delivery::Refused => CallOutcome::NotExecuted,
            Delivery::Answered => CallOutcome::ProtocolError,
            Delivery::Unknown => CallOutcome::OutcomeUnknown,
        }
    }
}
