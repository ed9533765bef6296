//! Log lines: which of them a client asked for.
//!
//! Asked by: whoever passes one down to a client.  Told by: the requests that set a level.

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use serde::Deserialize;
use serde_json::value::RawValue;
use warmline::ServerHandle;
use warmline::core::protocol::meta::LOG_LEVELS;
use warmline::core::protocol::params::Params;

use super::client::Client;

impl Client {
    /// It asked for log lines from a level on.
    pub(super) fn hears_from(&self, level: u8) {
        self.level.store(level, Ordering::Relaxed);
    }

    /// It comes to a server, maybe again: the session there knows what it asked for.
    pub(super) fn comes_back_to(&self, server: &ServerHandle) {
        let known = self.name().and_then(|name| server.level_wanted_by(name));
        let place = known.and_then(|place| u8::try_from(place + 1).ok());
        if let Some(place) = place {
            self.hears_from(place);
        }
    }

    /// Whether it asked for a log line like this. Others may share its session, and want more.
    pub(super) fn wants_line(&self, line: &[u8]) -> bool {
        let wanted = self.level.load(Ordering::Relaxed);
        wanted == 0 || line_level(line).is_none_or(|level| level >= wanted)
    }
}

/// The level that a request asks for, by its place from one.
pub(super) fn asked_level(method: &str, params: &Params) -> Option<u8> {
    let sets = method == "logging/setLevel";
    sets.then(|| params.member("level"))
        .flatten()
        .and_then(place)
}

fn line_level(line: &[u8]) -> Option<u8> {
    #[derive(Deserialize)]
    struct Line<'a> {
        #[serde(borrow)]
        level: &'a RawValue,
    }
    let line = serde_json::from_slice::<Line<'_>>(line).ok()?;
    place(line.level.get().as_bytes())
}

fn place(level: &[u8]) -> Option<u8> {
    let level = serde_json::from_slice::<Cow<'_, str>>(level).ok()?;
    let place = LOG_LEVELS.iter().position(|known| *known == level)?;
    u8::try_from(place + 1).ok()
}
