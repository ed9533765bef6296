//! Delivery: what is known of a request that was sent.
//!
//! Asked by: every caller, before it sends a request again.  Told by: the drivers, at the place
//! where bytes leave us.
//!
//! Exactly one of the four is true of every attempt, and it never changes afterwards. When in
//! doubt the answer is [`Delivery::Unknown`].

/// What is known of a request that was sent, or was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// The server cannot have received a complete request.
    Unsent,
    /// The server said, in a form defined to mean "not processed", that it did not act.
    Refused,
    /// A complete, valid JSON-RPC response for this attempt arrived.
    Answered,
    /// Everything else: it may have been executed, or be running still.
    Unknown,
}

impl Delivery {
    /// The word used in logs, metrics, JSON and on the wire.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unsent => "unsent",
            Self::Refused => "refused",
            Self::Answered => "answered",
            Self::Unknown => "unknown",
        }
    }

    /// The sentence for people and models; none for an answer, which speaks for itself.
    pub const fn sentence(self) -> Option<&'static str> {
        match self {
            Self::Unsent | Self::Refused => Some("not executed, safe to call again"),
            Self::Unknown => Some("may have been executed, check before calling again"),
            Self::Answered => None,
        }
    }

    /// Whether the request can be sent again without any risk of running twice.
    pub const fn is_safe(self) -> bool {
        matches!(self, Self::Unsent | Self::Refused)
    }
}

impl std::fmt::Display for Delivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}
