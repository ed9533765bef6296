//! Why a legacy client is not served, and what it hears of it.
//!
//! Asked by: the legacy face, where a request goes no further.

use bytes::Bytes;
use http::{Response, StatusCode};
use warmline::Error;
use warmline::core::code::Code;
use warmline::core::protocol::params::Params;

use crate::body::Body;
use crate::face::Visit;
use crate::failure::{self, Candour};
use crate::reply::{self, RpcCode};
use crate::which::{self, BadName};

/// Why a client is not served.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Its session is not known, or somebody else's.
    NoSession,
    /// It names a run that cannot be.
    BadRun(BadName),
    /// What it asks for is not to be had here.
    Wrong(RpcCode, String),
    /// The id of its request is that of one under way, and both would be answered on one stream.
    IdUnderWay,
    /// The rules keep it from its client, who hears the same as of what is not there.
    Hidden(String),
    /// The engine said why.
    Failed(Error),
}

impl Refusal {
    pub(crate) fn response(&self, id: Option<&[u8]>, candour: Candour) -> Response<Body> {
        match self {
            Self::NoSession => reply::no_such_session(id),
            Self::BadRun(bad) => bad.response(id),
            Self::Failed(error) if error.code() == Code::ServerUnknown => reply::no_such_server(),
            Self::Failed(_) => reply::answer(self.message(id, candour)),
            Self::Wrong(code, what) => reply::error(StatusCode::OK, id, *code, what),
            Self::IdUnderWay => reply::id_under_way(id),
            Self::Hidden(what) => reply::error(StatusCode::OK, id, RpcCode::Params, what),
        }
    }

    /// The same for a notice, which has no answer to say it in: the status does (mcp-spec L2).
    pub(super) fn to_notice(&self, candour: Candour) -> Response<Body> {
        let mut response = self.response(None, candour);
        if response.status().is_success() {
            *response.status_mut() = StatusCode::BAD_REQUEST;
        }
        response
    }

    /// Tells the audit of a request that is not served for this.
    pub(super) fn note(&self, visit: &Visit<'_>, method: &str, params: &Params) {
        match self {
            Self::Failed(error) => visit.failed(method, params, error),
            Self::NoSession
            | Self::BadRun(_)
            | Self::Wrong(..)
            | Self::IdUnderWay
            | Self::Hidden(_) => {
                visit.turned_down(method, params, self.why());
            },
        }
    }

    /// The word for it in the audit.
    pub(super) fn why(&self) -> &'static str {
        match self {
            Self::Failed(error) => error.code().word(),
            Self::NoSession => reply::NO_SESSION,
            Self::BadRun(_) => which::BAD_RUN,
            Self::Wrong(code, _) => code.why(),
            Self::IdUnderWay => reply::ID_UNDER_WAY,
            Self::Hidden(_) => Code::NotAllowed.word(),
        }
    }

    /// The same where there is no response of its own for it.
    pub(super) fn message(&self, id: Option<&[u8]>, candour: Candour) -> Bytes {
        match self {
            Self::Failed(error) => failure::message(id.unwrap_or(b"null"), error, candour),
            Self::Wrong(code, what) => reply::error_message(id, code.number(), what, None),
            Self::Hidden(what) => reply::error_message(id, RpcCode::Params.number(), what, None),
            Self::IdUnderWay => {
                reply::error_message(id, RpcCode::Invalid.number(), reply::UNDER_WAY, None)
            },
            Self::BadRun(bad) => {
                reply::error_message(id, RpcCode::Params.number(), &bad.sentence(), None)
            },
            Self::NoSession => {
                let what = "Session not found";
                reply::error_message(id, RpcCode::Invalid.number(), what, None)
            },
        }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Box<Error>> for Refusal {
    fn from(error: Box<Error>) -> Self {
        Self::Failed(*error)
    }
}
