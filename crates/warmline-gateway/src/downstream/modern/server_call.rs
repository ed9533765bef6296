//! A modern request to one server: what is sealed for its caller, and its answer.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use warmline_core::era::Era;
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::message::params::Params;
use warmline_core::message::splice::Edit;
use warmline_core::pool_key::Digest;
use warmline_engine::admin::CallerAdmin as _;
use warmline_engine::relay::RelayHandle as _;
use warmline_engine::{Caller, Error, Run, ServerHandle};

use super::request_state::{self, SealBinding, StateOrigin};
use super::tasks::{ClientExtensions, TaskIds};
use crate::GatewayState;
use crate::auth::{self, AnonymousScope, Subject};
use crate::downstream::RequestContext;
use crate::response;
use crate::response::call_error::{self, ErrorDetail};
use crate::response::rejection::RequestRejection;
use crate::response::stream::FinalResponse;

/// Who a modern request speaks for, and in which run.
#[derive(Clone)]
pub(crate) struct ModernCaller {
    identity: Caller,
    pub(crate) run: Option<Run>,
    /// The caller's digest, as far as the caller is known.
    pub(crate) key: Digest,
}

impl ModernCaller {
    pub(crate) fn from_request(
        context: &RequestContext<'_>,
        params: &Params,
    ) -> Result<Self, RequestRejection> {
        let warmline = &context.shared.warmline;
        let run = context.named_run(Some(params))?;
        let scope = run
            .as_deref()
            .map_or(AnonymousScope::Request, AnonymousScope::Run);
        let identity = auth::caller_for(warmline, &context.subject, scope);
        let key = match (&context.subject, &run) {
            // Their identity is new with each request, so they share one key.
            (Subject::Anonymous, None) => Digest::new([0; 16]),
            (Subject::Anonymous, Some(_)) | (Subject::Authenticated(_), _) => identity.digest(),
        };
        let run = match run {
            None => None,
            Some(name) => {
                let begun = identity.named_run(&name)?;
                let run = begun.clone();
                // The run outlives this request.
                begun.detach();
                Some(run)
            },
        };
        Ok(Self { identity, run, key })
    }

    pub(crate) fn server(
        &self,
        context: &RequestContext<'_>,
        name: &str,
    ) -> Result<ServerHandle, Error> {
        let server = match &self.run {
            Some(run) => run.server(name)?,
            None => self.identity.server(name)?,
        };
        Ok(server
            .with_caller_credential(context.head.headers)
            .with_era(Era::Modern))
    }
}

pub(crate) struct ModernCall {
    pub(crate) server: ServerHandle,
    pub(super) run: Option<Run>,
    pub(super) task_ids: TaskIds,
    shared: Arc<GatewayState>,
    caller_key: Digest,
    /// What a state in the answer is sealed for; `None` where the answer may hold none.
    state_origin: Option<StateOrigin>,
    extensions: ClientExtensions,
}

impl ModernCall {
    /// The call to the server of `context`, and its parameters as that server gets them.
    pub(crate) fn new(
        context: &RequestContext<'_>,
        caller: ModernCaller,
        method: &str,
        params: Params,
    ) -> Result<(Self, Params), RequestRejection> {
        let mut call = Self {
            server: caller.server(context, context.target.server.unwrap_or_default())?,
            run: caller.run,
            task_ids: TaskIds::default(),
            shared: Arc::clone(context.shared),
            caller_key: caller.key,
            state_origin: StateOrigin::from_request(method, &params, context.is_aggregate),
            extensions: ClientExtensions::from_params(&params),
        };
        let params = call.unseal_params(method, params)?;
        Ok((call, params))
    }

    fn binding(&self) -> SealBinding<'_> {
        SealBinding {
            vault: self.shared.warmline.vault(),
            caller_key: self.caller_key,
            server: self.server.name(),
            run: self.run.as_ref().map(Run::name),
        }
    }

    /// The parameters with the server's own state and task.
    fn unseal_params(&mut self, method: &str, params: Params) -> Result<Params, RequestRejection> {
        let binding = self.binding();
        let origin = self.state_origin.as_ref();
        let state = origin.and_then(|origin| binding.open_state(&params, origin).transpose());
        let state = state.transpose()?;
        let (task_ids, task) = TaskIds::from_request(binding, method, &params)?;
        self.task_ids = task_ids;
        // No method has both.
        let edit = match (&state, &task) {
            (Some(raw), _) => Edit::Set(request_state::MEMBER, raw),
            (None, Some((member, raw))) => Edit::Set(member, raw),
            (None, None) => return Ok(params),
        };
        Ok(params.edited(&[edit], &[]))
    }

    /// The answer for the client. `status` is the server's HTTP status, 0 if it is 200 or unknown.
    pub(crate) async fn finish(
        self,
        id: &[u8],
        outcome: Result<Bytes, Error>,
        (status, detail): (u16, ErrorDetail),
    ) -> FinalResponse {
        let result = match outcome {
            Ok(result) => result,
            Err(error) => {
                return failed_call_response(&self.server, id, (&error, status), detail).await;
            },
        };
        FinalResponse::ok(match self.downstream_result(result) {
            Ok(result) => response::response_message(Some(id), "result", &result),
            Err(diagnostic) => request_state::undeliverable_message(id, &diagnostic),
        })
    }

    /// The result with the server's state and tasks sealed.
    fn downstream_result(&self, result: Bytes) -> Result<Bytes, Diagnostic> {
        match &self.state_origin {
            Some(origin) => self.binding().seal_result(result, origin, &self.extensions),
            None => {
                request_state::read_result_type(&result, &self.extensions)?;
                Ok(self.task_ids.rewrite_result(result))
            },
        }
    }
}

/// The answer to a call that failed. Where the server does not speak this era, the client gets what
/// a legacy server would answer, and falls back.
pub(super) async fn failed_call_response(
    server: &ServerHandle,
    id: &[u8],
    (error, status): (&Error, u16),
    detail: ErrorDetail,
) -> FinalResponse {
    let is_ours = error.server_error().is_none();
    if is_ours && error.reason() == Reason::Version && server.lacks_era(Era::Modern).await {
        return FinalResponse {
            status: StatusCode::BAD_REQUEST,
            message: RequestRejection::legacy_only().to_message(Some(id), detail),
        };
    }
    FinalResponse {
        status: call_error::modern_http_status(error, status),
        message: call_error::call_error_message(id, error, detail),
    }
}
