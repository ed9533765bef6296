//! Eras and versions of the protocol.
//!
//! Versions are dates and compare as such. A string we do not know is never guessed into an era.

/// One of the two families of the protocol that do not understand each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Era {
    /// 2024-11-05 to 2025-11-25: `initialize`, sessions, requests both ways.
    Legacy,
    /// 2026-07-28 on: no handshake, no session, everything said in each request.
    Modern,
}

impl Era {
    /// The word used in settings, logs and output.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        }
    }
}

impl std::fmt::Display for Era {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

/// A released version of the protocol, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    /// The first one; over HTTP two endpoints.
    V2024_11_05,
    /// Streamable HTTP, session ids, batches.
    V2025_03_26,
    /// Batches gone, the version header, elicitation, structured results.
    V2025_06_18,
    /// Polling SSE, URL elicitation, tools in sampling.
    V2025_11_25,
    /// No handshake, no session.
    V2026_07_28,
}

impl Version {
    /// Every version we speak, oldest first.
    pub const ALL: [Self; 5] = [
        Self::V2024_11_05,
        Self::V2025_03_26,
        Self::V2025_06_18,
        Self::V2025_11_25,
        Self::V2026_07_28,
    ];
    /// What we offer in `initialize`.
    pub const NEWEST_LEGACY: Self = Self::V2025_11_25;
    /// What we offer in `server/discover`.
    pub const NEWEST_MODERN: Self = Self::V2026_07_28;

    /// The date as it stands on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// The version of that date, if we speak it.
    pub fn parse(date: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|version| version.as_str() == date)
    }

    /// Whether several messages may come in one text.
    pub const fn knows_batches(self) -> bool {
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

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
