//! Eras and versions of the protocol.
//!
//! Versions are dates and compare as such. An unknown string is never guessed into an era.

#![warn(missing_docs)]

use crate::word_enum::word_enum;

word_enum! {
    /// One of the two families of the protocol that do not understand each other.
    pub enum Era {
        /// 2024-11-05 to 2025-11-25: `initialize`, sessions, requests both ways.
        Legacy = "legacy",
        /// 2026-07-28 on: no handshake, no session, all context in each request.
        Modern = "modern",
    }
}

word_enum! {
    /// A released version of the protocol, oldest first.
    pub enum Version {
        /// The first one; over HTTP two endpoints.
        V2024_11_05 = "2024-11-05",
        /// Streamable HTTP, session ids, batches.
        V2025_03_26 = "2025-03-26",
        /// Batches gone, the version header, elicitation, structured results.
        V2025_06_18 = "2025-06-18",
        /// Polling SSE, URL elicitation, tools in sampling.
        V2025_11_25 = "2025-11-25",
        /// No handshake, no session.
        V2026_07_28 = "2026-07-28",
    }
}

impl Version {
    /// What we offer in `initialize`.
    pub const NEWEST_LEGACY: Self = Self::V2025_11_25;
    /// What we offer in `server/discover`.
    pub const NEWEST_MODERN: Self = Self::V2026_07_28;

    /// Whether several messages may come in one text.
    pub const fn supports_batches(self) -> bool {
        matches!(self, Self::V2025_03_26)
    }

    /// The era it belongs to.
    pub const fn era(self) -> Era {
        match self {
            Self::V2024_11_05 | Self::V2025_03_26 | Self::V2025_06_18 | Self::V2025_11_25 => {
                Era::Legacy
            },
            Self::V2026_07_28 => Era::Modern,
        }
    }
}
