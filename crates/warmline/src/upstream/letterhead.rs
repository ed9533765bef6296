//! The letterhead of a session over HTTP: what stands at the head of everything it sends.
//!
//! Used by: all drivers over HTTP.  The credential is asked for each request, so a token that was
//! refreshed is used by the very next one; nothing of it is kept.
//!
//! Whose word counts, the last first: what only we may write, the credential, the headers of one
//! request, the server's own. A secret of the server's own is not overwritten by a request.

use std::sync::Arc;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use warmline_core::era::Version;
use warmline_core::exchange::Trouble;
use warmline_core::protocol::headers::{PROTOCOL_VERSION, SESSION_ID};

use super::hidden::Hidden;
use super::server::HeaderSource;
use super::way::Way;

/// Headers of one request alone.
pub(crate) type Own = [(HeaderName, HeaderValue)];

/// What stands at the head of everything that a session sends.
#[derive(Clone, Debug)]
pub(crate) struct Letterhead {
    pub(crate) way: Arc<Way>,
    credential: Option<Arc<dyn HeaderSource>>,
    session_id: Option<HeaderValue>,
    version: Option<Version>,
}

/// What a request is for, as far as its headers tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A message, posted.
    Message,
    /// A stream is asked for.
    Stream,
    /// The session is ended.
    End,
}

impl Letterhead {
    pub(crate) fn new(way: Arc<Way>, credential: Option<Arc<dyn HeaderSource>>) -> Self {
        Self {
            way,
            credential,
            session_id: None,
            version: None,
        }
    }

    /// The same in a session. The id is copied, because what it was read from may be large, and
    /// not shown: whoever has it has the session.
    pub(crate) fn in_session(mut self, id: &HeaderValue) -> Self {
        self.session_id = HeaderValue::from_bytes(id.as_bytes()).ok();
        if let Some(id) = &mut self.session_id {
            id.set_sensitive(true);
        }
        self
    }

    /// The same in a version.
    pub(crate) fn speaking(mut self, version: Version) -> Self {
        self.version = Some(version);
        self
    }

    /// The same by another way.
    pub(crate) fn by_way_of(mut self, way: Way) -> Self {
        self.way = Arc::new(way);
        self
    }

    /// All that must not be told of what it sends.
    pub(crate) fn hidden(&self) -> Hidden {
        let credential = self.credential.as_ref().and_then(|source| source.header());
        Hidden::clone(&self.way.hidden).and_headers(credential.as_slice())
    }

    /// A trouble without what was sent, which some servers repeat.
    pub(crate) fn struck(&self, trouble: Trouble) -> Trouble {
        self.hidden().struck(trouble)
    }

    /// The version that is spoken, where it is known.
    pub(crate) fn version(&self) -> Option<Version> {
        self.version
    }

    pub(crate) fn session_id(&self) -> Option<&str> {
        self.session_id.as_ref()?.to_str().ok()
    }

    /// The number of the credential as it is now, to be said where it is refused.
    pub(crate) fn epoch(&self) -> u64 {
        self.credential.as_ref().map_or(0, |source| source.epoch())
    }

    /// Asks for another credential than the one of that number; true if there is another.
    pub(crate) async fn renewed(&self, refused: u64) -> bool {
        match &self.credential {
            Some(source) => source.renewed(refused).await,
            None => false,
        }
    }

    /// Writes the headers of one request, with the credential as it is now, where none stand yet.
    pub(crate) fn write(&self, form: Form, own: &Own, map: &mut HeaderMap) {
        let always = &self.way.headers;
        map.reserve(always.len() + own.len() + ROOM);
        for (name, value) in always {
            map.insert(name.clone(), value.clone());
        }
        for (name, value) in own {
            if !map.get(name).is_some_and(HeaderValue::is_sensitive) {
                map.insert(name.clone(), value.clone());
            }
        }
        if let Some((name, mut value)) = self.credential.as_ref().and_then(|source| source.header())
        {
            value.set_sensitive(true);
            map.insert(name, value);
        }
        map.insert(ACCEPT, if form == Form::Stream { STREAM } else { EITHER });
        if form == Form::Message {
            map.insert(CONTENT_TYPE, JSON);
        }
        if let Some(id) = &self.session_id {
            map.insert(SESSION_ID, id.clone());
        }
        // Older ones have no header to say so.
        if let Some(version) = self.version.filter(|it| *it >= Version::V2025_06_18) {
            map.insert(PROTOCOL_VERSION, HeaderValue::from_static(version.as_str()));
        }
    }
}

/// Accept, content type and length, session, version, credential; in the modern era method and
/// name; and where a stream broke.
const ROOM: usize = 9;
const EITHER: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
