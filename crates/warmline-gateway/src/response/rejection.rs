//! Why a request goes no further, and the response that says so.

use std::borrow::Cow;

use bytes::Bytes;
use http::{Response, StatusCode};
use hyper::ext::ReasonPhrase;
use serde_json::Value;
use warmline_core::delivery::Delivery;
use warmline_core::era::Era;
use warmline_core::error::code::{Code, Reason};
use warmline_core::exchange::Diagnostic;
use warmline_engine::Error;

use super::call_error::{self, ErrorDetail};
use crate::response::{self, ResponseBody, error_message};

/// The JSON-RPC error codes of the gateway itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RpcCode {
    /// The body is not JSON.
    Parse,
    /// It is JSON, but not a valid message here.
    Invalid,
    /// The method is unknown here.
    Method,
    /// The parameters are wrong.
    Params,
    /// No server has the resource.
    Resource,
    /// The gateway failed.
    Internal,
    /// A header is missing, or contradicts the body.
    Header,
    /// The version is not supported here.
    Version,
    /// The call failed with this delivery.
    Failed(Delivery),
}

impl RpcCode {
    /// The number on the wire. Those of delivery are outside the reserved range.
    pub(crate) const fn number(self) -> i64 {
        match self {
            Self::Parse => -32700,
            Self::Invalid => -32600,
            Self::Method => -32601,
            Self::Params => -32602,
            Self::Resource => -32002,
            Self::Internal => -32603,
            Self::Header => -32020,
            Self::Version => -32022,
            Self::Failed(Delivery::Unsent) => 7501,
            Self::Failed(Delivery::Refused) => 7502,
            Self::Failed(Delivery::Unknown | Delivery::Answered) => 7503,
        }
    }

    /// The audit reason of a rejection with this code.
    pub(crate) const fn audit_reason(self) -> &'static str {
        match self {
            Self::Parse | Self::Invalid => "bad-message",
            Self::Method => "unknown-method",
            Self::Params => "bad-params",
            Self::Resource => "unknown-resource",
            Self::Header => "bad-headers",
            Self::Version => "bad-version",
            Self::Internal | Self::Failed(_) => "failed",
        }
    }
}

/// Why a request goes no further. The response carries it, for the log and the audit.
#[derive(Clone, Debug)]
pub(crate) enum RequestRejection {
    /// The gateway rejects it.
    Rpc(RpcRejection),
    /// The engine failed.
    Failed(Error),
}

#[derive(Clone, Debug)]
pub(crate) struct RpcRejection {
    pub(super) status: StatusCode,
    /// `None` where the response is no JSON-RPC error.
    pub(crate) code: Option<RpcCode>,
    pub(crate) message: Cow<'static, str>,
    pub(super) data: Option<Value>,
    pub(crate) audit_reason: &'static str,
    /// Whether only its server speaks another era: then nothing is wrong with the message.
    pub(crate) is_era_mismatch: bool,
    /// Some clients show only the status line of an error.
    pub(super) reason_phrase: Option<&'static str>,
}

impl RpcRejection {
    pub(super) const fn new(
        status: StatusCode,
        code: Option<RpcCode>,
        message: Cow<'static, str>,
        audit_reason: &'static str,
    ) -> Self {
        Self {
            status,
            code,
            message,
            data: None,
            audit_reason,
            is_era_mismatch: false,
            reason_phrase: None,
        }
    }
}

/// It names no modern version, since some clients search errors for one.
pub(crate) const LEGACY_ONLY_MESSAGE: &str = "Bad Request: this server begins with initialize; only 2025-11-25 and \
    older versions are supported here, so the client has to fall back to them";

impl RequestRejection {
    pub(crate) fn new(
        status: StatusCode,
        code: RpcCode,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        let audit_reason = code.audit_reason();
        Self::Rpc(RpcRejection::new(
            status,
            Some(code),
            message.into(),
            audit_reason,
        ))
    }

    fn edit(mut self, edit: impl FnOnce(&mut RpcRejection)) -> Self {
        if let Self::Rpc(rejection) = &mut self {
            edit(rejection);
        }
        self
    }

    pub(crate) fn with_audit_reason(self, reason: &'static str) -> Self {
        self.edit(|rejection| rejection.audit_reason = reason)
    }

    pub(crate) fn with_data(self, value: Value) -> Self {
        self.edit(|rejection| rejection.data = Some(value))
    }

    /// The server speaks another era, and the status line says this.
    pub(crate) fn with_era_mismatch(self, reason_phrase: Option<&'static str>) -> Self {
        self.edit(|rejection| {
            (rejection.is_era_mismatch, rejection.reason_phrase) = (true, reason_phrase);
        })
    }

    pub(crate) fn bad_request(code: RpcCode, what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, what)
    }

    pub(crate) fn invalid(what: impl Into<Cow<'static, str>>) -> Self {
        Self::bad_request(RpcCode::Invalid, what)
    }

    /// The client session does not exist, or belongs to another client.
    pub(crate) fn unknown_session() -> Self {
        Self::new(StatusCode::NOT_FOUND, RpcCode::Invalid, "Session not found")
            .with_audit_reason("session-unknown")
    }

    /// A request with the same id is in flight, and both would be answered on one stream.
    pub(crate) fn id_in_flight() -> Self {
        Self::invalid("Invalid Request: a request with this id is in flight")
            .with_audit_reason("id-under-way")
    }

    /// Not every server behind this endpoint is known to speak the modern era. The client gets an answer like
    /// that of a legacy server, which must not look like a modern error, and falls back to `initialize`.
    pub(crate) fn legacy_only() -> Self {
        Self::invalid(LEGACY_ONLY_MESSAGE)
            .with_audit_reason(Code::EraUnknown.as_str())
            .with_era_mismatch(None)
    }

    pub(crate) fn not_acceptable(what: &'static str) -> Self {
        Self::new(StatusCode::NOT_ACCEPTABLE, RpcCode::Invalid, what)
            .with_audit_reason("not-acceptable")
    }

    pub(crate) fn no_format() -> Self {
        Self::not_acceptable(
            "Not Acceptable: a client must accept application/json or text/event-stream",
        )
    }

    /// The parameters are wrong. The status is no error: the message was well-formed.
    pub(crate) fn invalid_params(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::OK, RpcCode::Params, message)
    }

    pub(crate) fn method_not_found(method: &str, era: Era) -> Self {
        let status = match era {
            Era::Legacy => StatusCode::OK,
            Era::Modern => StatusCode::NOT_FOUND,
        };
        let what = format!("Method not found: {method}");
        Self::new(status, RpcCode::Method, what)
    }

    /// Whether it says something about what a server offers.
    pub(crate) fn is_about_server(&self) -> bool {
        matches!(self, Self::Rpc(rejection) if rejection.status != StatusCode::BAD_REQUEST)
    }

    /// The response; `id` is raw JSON, `None` for `null`.
    pub(crate) fn to_response(
        &self,
        id: Option<&[u8]>,
        detail: ErrorDetail,
    ) -> Response<ResponseBody> {
        let mut response = match self {
            Self::Failed(error) if error.code() == Code::ServerUnknown => {
                response::unknown_server()
            },
            Self::Failed(_) => response::ok_json(self.to_message(id, detail)),
            Self::Rpc(rejection) => {
                response::json_response(rejection.status, self.to_message(id, detail))
            },
        };
        if let Self::Rpc(rejection) = self
            && let Some(phrase) = rejection.reason_phrase
        {
            let phrase = ReasonPhrase::from_static(phrase.as_bytes());
            response.extensions_mut().insert(phrase);
        }
        response.extensions_mut().insert(self.clone());
        response
    }

    /// The response to a notification. It has no JSON-RPC answer, so the status says it (mcp-spec L2).
    pub(crate) fn to_notification_response(&self, detail: ErrorDetail) -> Response<ResponseBody> {
        let mut response = self.to_response(None, detail);
        if response.status().is_success() {
            *response.status_mut() = StatusCode::BAD_REQUEST;
        }
        response
    }

    /// The message alone, for an answer inside a batch.
    pub(crate) fn to_message(&self, id: Option<&[u8]>, detail: ErrorDetail) -> Bytes {
        match self {
            Self::Rpc(rejection) => {
                let code = rejection.code.unwrap_or(RpcCode::Internal).number();
                error_message(id, code, &rejection.message, rejection.data.as_ref())
            },
            Self::Failed(error) => {
                call_error::call_error_message(id.unwrap_or(b"null"), error, detail)
            },
        }
    }

    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Failed(error) => error,
            Self::Rpc(_) => Error::from(Diagnostic::new(
                Reason::Internal,
                "this run cannot be entered",
            )),
        }
    }
}

impl From<Error> for RequestRejection {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Box<Error>> for RequestRejection {
    fn from(error: Box<Error>) -> Self {
        Self::Failed(*error)
    }
}
