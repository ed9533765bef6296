//! Delivery: what is known of a request, and whether it may run twice.
//!
//! Exactly one of the four deliveries is true of every attempt, and it never changes afterwards.
//! When in doubt it is [`Delivery::Unknown`].

#![warn(missing_docs)]

use crate::word_enum::word_enum;

word_enum! {
    /// What is known of a request that was sent, or was to be sent.
    pub enum Delivery {
        /// The server cannot have received a complete request.
        Unsent = "unsent",
        /// The server said, in a form defined to mean "not processed", that it did not act.
        Refused = "refused",
        /// A complete, valid JSON-RPC response for this attempt arrived.
        Answered = "answered",
        /// Everything else: it may have been executed, or be running still.
        Unknown = "unknown",
    }
}

impl Delivery {
    /// The sentence for people and models; none for an answer, which speaks for itself.
    pub const fn description(self) -> Option<&'static str> {
        match self {
            Self::Unsent | Self::Refused => Some("not executed, safe to call again"),
            Self::Unknown => Some("may have been executed, check before calling again"),
            Self::Answered => None,
        }
    }

    /// Whether the request can be sent again without any risk of running twice.
    pub const fn is_safe_to_retry(self) -> bool {
        matches!(self, Self::Unsent | Self::Refused)
    }
}

/// Whether a request may run twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Idempotency {
    /// A read, or a control that changes nothing the second time; or the caller or operator says
    /// so.
    Idempotent,
    /// May act; also everything we do not know.
    NotIdempotent,
}
