//! The pages.

use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};
use warmline_engine::metrics::{ServerCondition, ServerStatus};

use super::{metrics, prometheus};
use crate::GatewayState;
use crate::response::body::ResponseBody;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

pub(super) fn is_draining(shared: &GatewayState) -> bool {
    shared.drain_notice.is_announced() || *shared.stopping.borrow()
}

fn unready_reason(shared: &GatewayState, statuses: &[ServerStatus]) -> Option<&'static str> {
    let fails = |status: &ServerStatus| {
        let fails = matches!(
            status.state,
            ServerCondition::Degraded | ServerCondition::BreakerOpen
        );
        status.required && fails
    };
    if is_draining(shared) {
        Some("draining")
    } else if shared.limiter.is_full() {
        Some("overloaded")
    } else if statuses.iter().any(fails) {
        Some("required")
    } else {
        None
    }
}

pub(super) fn liveness(shared: &GatewayState) -> Response<ResponseBody> {
    match shared.process_health.is_alive() {
        true => page(StatusCode::OK, TEXT, "ok\n".to_owned()),
        false => {
            let text = "the runtime is stuck\n".to_owned();
            page(StatusCode::SERVICE_UNAVAILABLE, TEXT, text)
        },
    }
}

/// Whether the gateway is ready, and the states of its servers. Of servers, only required ones
/// decide.
pub(super) fn readiness(shared: &GatewayState) -> Response<ResponseBody> {
    shared.drain_notice.record_probe();
    let statuses = shared.warmline.snapshot().server_statuses;
    let reason = unready_reason(shared, &statuses);
    let servers: Vec<Value> = statuses
        .iter()
        .map(|status| json!({ "server": status.server, "state": status.state }))
        .collect();
    let mut body = json!({ "ready": reason.is_none(), "servers": servers });
    let mut status = StatusCode::OK;
    if let Some(reason) = reason {
        body["why"] = reason.into();
        status = StatusCode::SERVICE_UNAVAILABLE;
    }
    page(status, JSON, format!("{body}\n"))
}

pub(super) fn metrics(shared: &GatewayState) -> Response<ResponseBody> {
    let kind = HeaderValue::from_static(prometheus::CONTENT_TYPE);
    page(StatusCode::OK, kind, metrics::metrics_page(shared))
}

/// The states of all servers, without texts of theirs.
pub(super) fn servers(shared: &GatewayState) -> Response<ResponseBody> {
    let statuses = shared.warmline.snapshot().server_statuses.into_iter();
    let servers: Vec<ServerStatus> = statuses.map(ServerStatus::without_details).collect();
    let body = json!({ "servers": servers });
    page(StatusCode::OK, JSON, format!("{body}\n"))
}

pub(super) fn failure() -> Response<ResponseBody> {
    let text = "this page failed\n".to_owned();
    page(StatusCode::INTERNAL_SERVER_ERROR, TEXT, text)
}

fn page(status: StatusCode, kind: HeaderValue, text: String) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::full(text.into()));
    *response.status_mut() = status;
    set_headers(&mut response, kind);
    response
}

pub(super) fn set_headers(response: &mut Response<ResponseBody>, kind: HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, kind);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
}
