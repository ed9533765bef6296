//! The headers of every request of a session over HTTP.
//!
//! The credential is read for each request, so the very next one uses a refreshed token; no copy is
//! kept. What wins, from the last: headers that only Warmline may write, the credential, the headers
//! of one request, those of the server's configuration. A request cannot overwrite a secret of the
//! configuration.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use warmline_core::era::Version;
use warmline_core::protocol::headers::{PROTOCOL_VERSION, SESSION_ID};

use crate::http::endpoint::{Endpoint, HttpResponse, SendFailure};
use crate::listener::ExtraHeaders;
use crate::redaction::Redactor;
use crate::target::HeaderSource;
use warmline_platform::clock::Instant;

/// Accept, content type and length, session, version, credential; in the modern era method and
/// name; and where a stream broke.
const EXTRA_CAPACITY: usize = 9;
const JSON_OR_EVENT_STREAM: HeaderValue =
    HeaderValue::from_static("application/json, text/event-stream");
const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

#[derive(Clone, Debug)]
pub(crate) struct RequestHeaders {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(super) credential: Option<Arc<dyn HeaderSource>>,
    session_id: Option<HeaderValue>,
    /// The version that is spoken, once it is known.
    pub(crate) version: Option<Version>,
}

impl RequestHeaders {
    pub(crate) fn new(endpoint: Arc<Endpoint>, credential: Option<Arc<dyn HeaderSource>>) -> Self {
        Self {
            endpoint,
            credential,
            session_id: None,
            version: None,
        }
    }

    /// The same in a session. The id is copied, because what it was read from may be large, and
    /// marked sensitive, because it gives access to the session.
    pub(crate) fn with_session_id(mut self, id: &HeaderValue) -> Self {
        self.session_id = HeaderValue::from_bytes(id.as_bytes()).ok();
        if let Some(id) = &mut self.session_id {
            id.set_sensitive(true);
        }
        self
    }

    pub(crate) fn with_version(mut self, version: Version) -> Self {
        self.version = Some(version);
        self
    }

    pub(crate) fn redactor(&self) -> Redactor {
        let credential = self.credential.as_ref().and_then(|source| source.header());
        Redactor::clone(&self.endpoint.redactor).with_headers(credential.as_slice())
    }

    pub(crate) fn session_id(&self) -> Option<&str> {
        self.session_id.as_ref()?.to_str().ok()
    }

    /// Sends a request and waits for the head of its response until `by`. `own` are the headers of
    /// this request; `extra` writes more, once there is a connection.
    pub(crate) async fn send(
        &self,
        method: Method,
        own: &ExtraHeaders,
        body: Bytes,
        by: Instant,
        extra: impl Fn(&mut HeaderMap),
    ) -> Result<HttpResponse, SendFailure> {
        let headers = |map: &mut HeaderMap| {
            self.write(&method, own, map);
            extra(map);
        };
        self.endpoint.send(&method, headers, body, by).await
    }

    fn write(&self, method: &Method, own: &ExtraHeaders, map: &mut HeaderMap) {
        let always = &self.endpoint.headers;
        map.reserve(always.len() + own.len() + EXTRA_CAPACITY);
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
        let accepted = match *method {
            Method::GET => EVENT_STREAM,
            _ => JSON_OR_EVENT_STREAM,
        };
        map.insert(ACCEPT, accepted);
        if *method == Method::POST {
            map.insert(CONTENT_TYPE, JSON);
        }
        if let Some(id) = &self.session_id {
            map.insert(SESSION_ID, id.clone());
        }
        // Older versions have no header for it.
        if let Some(version) = self.version.filter(|it| *it >= Version::V2025_06_18) {
            map.insert(PROTOCOL_VERSION, HeaderValue::from_static(version.as_str()));
        }
    }
}
