//! `server/discover`: a server's description of itself. A cached one is used while its TTL lasts,
//! and passed on with the rest of that TTL.

use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderValue, Response, StatusCode};
use serde::Deserialize;
use warmline_core::delivery::Delivery;
use warmline_core::era::{Era, Version};
use warmline_core::error::code::Code;
use warmline_core::message::params::Params;
use warmline_core::message::splice::Edit;
use warmline_engine::relay::{RelayCall as _, RelayHandle as _};
use warmline_engine::{Error, ServerHandle};
use warmline_platform::clock;
use warmline_upstream::{ServerFacts, Transport};

use super::server_call::{ModernCall, ModernCaller, failed_call_response};
use crate::downstream::message::edited;
use crate::downstream::{RequestContext, strip_run};
use crate::response::rejection::RequestRejection;
use crate::response::{self, ResponseBody};

pub(crate) const METHOD: &str = "server/discover";

pub(super) async fn handle_discover(
    context: &RequestContext<'_>,
    id: &[u8],
    caller: ModernCaller,
    params: Params,
) -> Result<Response<ResponseBody>, RequestRejection> {
    let (call, params) = ModernCall::new(context, caller, METHOD, params)?;
    let (server, params) = (call.server, strip_run(params));
    let line = context.target_audit_line(METHOD, &params);
    let outcome = discover_result(&server, params).await;
    line.finish(&outcome);
    let error = match outcome {
        Ok(result) => {
            let message = response::response_message(Some(id), "result", &result);
            return Ok(response::ok_json(message));
        },
        Err(error) => error,
    };
    let failed =
        failed_call_response(&server, id, (&error, 0), context.subject.error_detail()).await;
    let status = unreachable_status(&error);
    let mut response = response::json_response(status.unwrap_or(failed.status), failed.message);
    if let (Some(_), Some(after)) = (status, error.retry_after()) {
        let seconds = HeaderValue::from(after.as_secs().saturating_add(1));
        response.headers_mut().insert(RETRY_AFTER, seconds);
    }
    Ok(response)
}

async fn discover_result(server: &ServerHandle, params: Params) -> Result<Bytes, Error> {
    let began = clock::now();
    let known = match server.known_facts(Era::Modern).await {
        Some(known) => known,
        // The first contact brings it.
        None => server.info().await?,
    };
    let age = known.age().unwrap_or(Duration::MAX);
    if let Some(said) = &known.handshake_result {
        let is_new = age <= began.elapsed();
        let left = DiscoverHints::parse(said).remaining_ttl(age);
        // Asking a program would mean starting it.
        if is_new || !left.is_zero() || known.transport == Transport::Stdio {
            return Ok(rewrite_result(said, (!is_new).then_some(left)));
        }
    }
    let call = server.request_raw(METHOD, params).relayed();
    match call.await {
        Ok(said) => Ok(rewrite_result(&said, None)),
        Err(error) => stale_result(&known, &error).ok_or(error),
    }
}

/// The expired description, where the server cannot be asked now.
fn stale_result(known: &ServerFacts, error: &Error) -> Option<Bytes> {
    let was_asked = error.delivery() == Delivery::Answered || error.code() == Code::EraUnknown;
    let said = known.handshake_result.as_ref().filter(|_| !was_asked)?;
    Some(rewrite_result(said, Some(Duration::ZERO)))
}

/// The status of a failure that says nothing about the server's era. A client that probes the era must
/// not take an outage for an answer.
fn unreachable_status(error: &Error) -> Option<StatusCode> {
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

/// The part of a result that says how long it is valid.
#[derive(Deserialize, Default)]
struct DiscoverHints {
    #[serde(default, rename = "ttlMs")]
    ttl_ms: Option<f64>,
    #[serde(default, rename = "supportedVersions")]
    versions: Vec<String>,
}

impl DiscoverHints {
    fn parse(said: &[u8]) -> Self {
        serde_json::from_slice(said).unwrap_or_default()
    }

    fn remaining_ttl(&self, age: Duration) -> Duration {
        let ttl = self.ttl_ms.filter(|ttl| ttl.is_finite() && *ttl > 0.0);
        let ttl = Duration::try_from_secs_f64(ttl.unwrap_or_default() / 1000.0);
        ttl.unwrap_or(Duration::MAX).saturating_sub(age)
    }
}

/// The description with the versions that the gateway speaks and, if it was cached, the rest of its TTL.
/// Nothing else changes.
fn rewrite_result(said: &Bytes, left: Option<Duration>) -> Bytes {
    let hints = DiscoverHints::parse(said);
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
    edited(said, &edits).unwrap_or_else(|| said.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hints are corrected, and nothing else is touched.
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
            assert_eq!(rewrite_result(&Bytes::from(said), left), expected);
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
            let left =
                DiscoverHints::parse(said.as_bytes()).remaining_ttl(Duration::from_millis(age));
            assert_eq!(left, Duration::from_millis(expected), "{said}");
        }
    }
}
