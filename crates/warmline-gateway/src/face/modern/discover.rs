//! `server/discover`: what a server says of itself, in its own words.
//!
//! Asked by: the modern face.  What is remembered is told while it may be believed, and never as
//! fresher than it is; else the server is asked now.

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderValue, Response, StatusCode};
use serde::Deserialize;
use std::time::Duration;
use warmline::core::code::Code;
use warmline::core::delivery::Delivery;
use warmline::core::era::{Era, Version};
use warmline::core::protocol::splice::{self, Edit};
use warmline::upstream::{Facts, Transport};
use warmline::{Error, clock};

use super::{Asked, failed};
use crate::body::Body;
use crate::face::Visit;
use crate::reply;

/// Answers `server/discover`.
pub(super) async fn answer(visit: &Visit<'_>, asked: Asked) -> Response<Body> {
    let line = visit.noted("server/discover", &asked.params);
    let told = told(&asked).await;
    if let Some(line) = line {
        line.ended(&told);
    }
    let error = match told {
        Ok(said) => {
            let message = reply::response_message(Some(&asked.id), "result", &said);
            return reply::answer(message);
        },
        Err(error) => error,
    };
    let ended = failed(&asked.server, &asked.id, (&error, 0), visit.candour()).await;
    match not_met(&error) {
        Some(status) => later(reply::ended(status, ended.message), &error),
        None => reply::ended(ended.status, ended.message),
    }
}

/// The same response, saying when to come back, where that is known.
fn later(mut response: Response<Body>, error: &Error) -> Response<Body> {
    if let Some(after) = error.retry_after() {
        let seconds = HeaderValue::from(after.as_secs().saturating_add(1));
        response.headers_mut().insert(RETRY_AFTER, seconds);
    }
    response
}

/// What the server says of itself, from memory or asked now.
async fn told(asked: &Asked) -> Result<Bytes, Error> {
    let began = clock::now();
    let known = match asked.server.remembered(Era::Modern).await {
        Some(known) => known,
        // It is met now, and says it in passing.
        None => asked.server.facts().await?,
    };
    let age = known.age().unwrap_or(Duration::MAX);
    if let Some(said) = &known.said {
        let is_new = age <= began.elapsed();
        let left = Hints::of(said).left(age);
        // To ask a program, one would have to start it.
        if is_new || !left.is_zero() || known.transport == Transport::Stdio {
            return Ok(retold(said, (!is_new).then_some(left)));
        }
    }
    let asking = asked
        .server
        .request_raw("server/discover", asked.params.clone())
        .relayed();
    match asking.await {
        Ok(said) => Ok(retold(&said, None)),
        Err(error) => stale(&known, &error).ok_or(error),
    }
}

/// What was said once, where the server cannot be asked now: old words, and told as such.
fn stale(known: &Facts, error: &Error) -> Option<Bytes> {
    let was_asked = error.delivery() == Delivery::Answered || error.code() == Code::EraUnknown;
    let said = known.said.as_ref().filter(|_| !was_asked)?;
    Some(retold(said, Some(Duration::ZERO)))
}

/// The status of a failure that says nothing about the era of the server: a client that looks for
/// it must not take an outage for an answer.
fn not_met(error: &Error) -> Option<StatusCode> {
    if error.server_error().is_some() || error.code() == Code::EraUnknown {
        return None;
    }
    let busy = [
        Code::BreakerOpen,
        Code::PoolFull,
        Code::Overloaded,
        Code::Draining,
    ];
    Some(if busy.contains(&error.code()) {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::BAD_GATEWAY
    })
}

/// How long a result may be believed, as it says itself.
#[derive(Deserialize, Default)]
struct Hints {
    #[serde(default, rename = "ttlMs")]
    ttl_ms: Option<f64>,
    #[serde(default, rename = "supportedVersions")]
    versions: Vec<String>,
}

impl Hints {
    fn of(said: &[u8]) -> Self {
        serde_json::from_slice(said).unwrap_or_default()
    }

    fn left(&self, age: Duration) -> Duration {
        let ttl = self.ttl_ms.filter(|ttl| ttl.is_finite() && *ttl > 0.0);
        let ttl = Duration::try_from_secs_f64(ttl.unwrap_or_default() / 1000.0);
        ttl.unwrap_or(Duration::MAX).saturating_sub(age)
    }
}

/// What the server said, with the versions that can be spoken through us and, where it was said a
/// while ago, how long it may still be believed. All the rest stays as it is.
fn retold(said: &Bytes, left: Option<Duration>) -> Bytes {
    let hints = Hints::of(said);
    let spoken = |version: &&String| Version::parse(version).is_some();
    let versions: Vec<&String> = hints.versions.iter().filter(spoken).collect();
    let is_cut = versions.len() < hints.versions.len();
    let versions = serde_json::to_vec(&versions).unwrap_or_default();
    let left = left.filter(|_| hints.ttl_ms.is_some());
    let left = left.map(|left| left.as_millis().to_string());
    let edits: Vec<Edit<'_>> = [
        is_cut.then_some(Edit::Set("supportedVersions", &versions)),
        left.as_ref()
            .map(|left| Edit::Set("ttlMs", left.as_bytes())),
    ]
    .into_iter()
    .flatten()
    .collect();
    if edits.is_empty() {
        return said.clone();
    }
    let mut out = Vec::with_capacity(said.len());
    match splice::edit_object(said, &edits, &mut out) {
        Ok(()) => out.into(),
        Err(_) => said.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hints are told truthfully, and nothing else is touched.
    #[test]
    fn what_a_server_said_is_told_again_and_never_as_fresher_than_it_is() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let rows = [
            (
                r#"{ "supportedVersions": ["2026-07-28"] , "x":1}"#,
                None,
                r#"{ "supportedVersions": ["2026-07-28"] , "x":1}"#,
            ),
            (
                r#"{"supportedVersions":["2026-07-28","2099-01-01"],"x":1}"#,
                None,
                r#"{"supportedVersions":["2026-07-28"],"x":1}"#,
            ),
            (
                r#"{"ttlMs":5000,"cacheScope":"private"}"#,
                seconds(2),
                r#"{"ttlMs":2000,"cacheScope":"private"}"#,
            ),
            (
                r#"{"cacheScope":"public"}"#,
                seconds(2),
                r#"{"cacheScope":"public"}"#,
            ),
        ];
        for (said, left, expected) in rows {
            assert_eq!(retold(&Bytes::from(said), left), expected);
        }
    }

    #[test]
    fn a_result_is_believed_as_long_as_it_says_itself() {
        let rows = [
            (r#"{"ttlMs":5000}"#, 4000, 1000),
            (r#"{"ttlMs":5000}"#, 6000, 0),
            (r#"{"ttlMs":0}"#, 0, 0),
            (r#"{"ttlMs":-3}"#, 0, 0),
            (r#"{"ttlMs":1.5e3}"#, 0, 1500),
            ("{}", 0, 0),
            (r#"{"ttlMs":"soon"}"#, 0, 0),
        ];
        for (said, age, expected) in rows {
            let left = Hints::of(said.as_bytes()).left(Duration::from_millis(age));
            assert_eq!(left, Duration::from_millis(expected), "{said}");
        }
    }
}
