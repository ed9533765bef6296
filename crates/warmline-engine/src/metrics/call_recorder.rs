//! Counts one call, once, however it ends. A call whose future is dropped ends too, so that the calls
//! always are the sum of their outcomes (I28).

use std::sync::Arc;
use std::time::Duration;

use warmline_core::delivery::Delivery;
use warmline_core::error::code::Code;

use super::{CallDelivery, CallOutcome, MethodLabel, ServerMetrics};
use warmline_platform::clock::{self, Instant};

/// A call under way. Dropped, it counts as cancelled.
#[derive(Debug)]
pub struct CallRecorder {
    metrics: Arc<ServerMetrics>,
    method: MethodLabel,
    started_at: Instant,
    attempts: u32,
    /// The delivery if the caller gives up now.
    delivery_if_dropped: Delivery,
    is_finished: bool,
}

impl CallRecorder {
    /// Starts counting.
    pub fn start(metrics: &Arc<ServerMetrics>, method: &str) -> Self {
        metrics.calls_started.increment();
        Self {
            metrics: Arc::clone(metrics),
            method: MethodLabel::from_method(method),
            started_at: clock::now(),
            attempts: 0,
            delivery_if_dropped: Delivery::Unsent,
            is_finished: false,
        }
    }

    /// An attempt begins: from now on a dropped call may have been executed.
    pub fn record_attempt(&mut self) {
        self.attempts = self.attempts.saturating_add(1);
        self.metrics.attempts.increment();
        self.delivery_if_dropped = Delivery::Unknown;
    }

    /// The number of attempts.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The method.
    pub fn method(&self) -> MethodLabel {
        self.method
    }

    /// The time since the start.
    pub fn elapsed(&self) -> Duration {
        clock::now().saturating_duration_since(self.started_at)
    }

    /// The call was answered.
    pub fn finish_answered(mut self, outcome: CallOutcome) {
        self.finish(outcome, Delivery::Answered, None);
    }

    /// The call ended with an error.
    pub fn finish_failed(mut self, delivery: Delivery, code: Code) {
        self.finish(call_outcome(delivery, code), delivery, Some(code));
    }

    fn finish(&mut self, outcome: CallOutcome, delivery: Delivery, code: Option<Code>) {
        self.is_finished = true;
        let metrics = &self.metrics;
        metrics.calls.increment(self.method, outcome);
        metrics
            .call_deliveries
            .increment(self.call_delivery(delivery, code));
        if let Some(code) = code {
            metrics.failures.increment(delivery, code);
        }
        metrics
            .call_time
            .record_time(clock::now().saturating_duration_since(self.started_at));
    }

    /// The delivery that is counted. Whether a call ran that its caller gave up matters to nobody, and
    /// a request that only listens runs nothing.
    fn call_delivery(&self, delivery: Delivery, code: Option<Code>) -> CallDelivery {
        let is_given_up = code == Some(Code::Cancelled) || self.method == MethodLabel::Listen;
        if is_given_up && delivery == Delivery::Unknown {
            CallDelivery::Cancelled
        } else {
            CallDelivery::from_delivery(delivery)
        }
    }
}

impl Drop for CallRecorder {
    fn drop(&mut self) {
        if !self.is_finished {
            self.finish(
                CallOutcome::Cancelled,
                self.delivery_if_dropped,
                Some(Code::Cancelled),
            );
        }
    }
}

fn call_outcome(delivery: Delivery, code: Code) -> CallOutcome {
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
