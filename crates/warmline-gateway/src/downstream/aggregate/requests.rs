//! Which server answers a request, in both eras. Lists and log levels are answered by all of them.

use std::future::ready;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::json;
use warmline_core::era::Era;
use warmline_core::error::code::Code;
use warmline_core::message::params::Params;
use warmline_engine::relay::{RelayCall as _, RelayHandle as _};
use warmline_engine::{Error, ServerHandle};
use warmline_upstream::ListKind;

use super::absent::{MemberQuery, MemberRequest};
use super::lists::{self, AggregateListRequest};
use super::resources::{self, READ_METHOD, ResourceLocator};
use super::{AggregateMember, names};
use crate::downstream::aggregate::lists::Cursor;
use crate::downstream::legacy::client_session::log_level;
use crate::downstream::modern::discover;
use crate::downstream::request::{CallSink, Client, ClientRequest, outcome_response};
use crate::downstream::{RequestContext, strip_run};
use crate::response;
use crate::response::rejection::{RequestRejection, RpcCode};
use crate::response::stream::{CallFuture, FinalResponse};

const MAX_SHOWN_NAME: usize = 128;

pub(in crate::downstream) async fn prepare_call(
    context: &RequestContext<'_>,
    request: ClientRequest,
) -> Result<CallFuture, RequestRejection> {
    let caller = match &request.client {
        Client::Legacy { .. } => None,
        Client::Modern(caller) => Some(caller.clone()),
    };
    match (dispatch(context, request).await, caller) {
        // Until all servers are known to be modern, only a legacy server's answer fits.
        (Err(rejection), Some(caller)) if rejection.is_about_server() => {
            super::modern_members(context, &caller).await?;
            Err(rejection)
        },
        (call, _) => call,
    }
}

async fn dispatch(
    context: &RequestContext<'_>,
    request: ClientRequest,
) -> Result<CallFuture, RequestRejection> {
    let name = || request.params.name().unwrap_or_default().into_owned();
    let uri = || request.params.uri().unwrap_or_default().into_owned();
    match (&*request.method, request.client.era()) {
        ("tools/list", _) => prepare_list(context, request, ListKind::Tools).await,
        ("prompts/list", _) => prepare_list(context, request, ListKind::Prompts).await,
        ("resources/list", _) => prepare_list(context, request, ListKind::Resources).await,
        ("resources/templates/list", _) => {
            prepare_list(context, request, ListKind::ResourceTemplates).await
        },
        ("tools/call", _) => forward_by_name(context, ListKind::Tools, name(), request).await,
        ("prompts/get", _) => forward_by_name(context, ListKind::Prompts, name(), request).await,
        (READ_METHOD, _) | ("resources/subscribe" | "resources/unsubscribe", Era::Legacy) => {
            forward_by_uri(context, uri(), request).await
        },
        ("completion/complete", _) => match completion_ref(&request.params) {
            Some(CompletionRef::Prompt { name }) => {
                forward_by_name(context, ListKind::Prompts, name, request).await
            },
            Some(CompletionRef::Resource { uri }) => forward_by_uri(context, uri, request).await,
            None => Err(RequestRejection::invalid_params(
                "Invalid params: `ref` names neither a prompt nor a resource",
            )),
        },
        ("logging/setLevel", Era::Legacy) => set_log_level(context, request).await,
        (discover::METHOD, Era::Modern) => discover(context, request).await,
        (method, era) => Err(RequestRejection::method_not_found(method, era)),
    }
}

async fn members(
    context: &RequestContext<'_>,
    request: &ClientRequest,
) -> Result<Vec<AggregateMember>, RequestRejection> {
    let params = &request.params;
    match &request.client {
        Client::Legacy { session, .. } => {
            context.named_run(Some(params))?;
            Ok(super::session_members(context, session, Some(params)))
        },
        Client::Modern(caller) => super::modern_members(context, caller).await,
    }
}

async fn prepare_list(
    context: &RequestContext<'_>,
    request: ClientRequest,
    list: ListKind,
) -> Result<CallFuture, RequestRejection> {
    let cursor = Cursor::from_params(list, &request.params).ok_or_else(|| {
        RequestRejection::invalid_params("Invalid params: this cursor does not belong to this list")
    })?;
    let listing = AggregateListRequest {
        query: MemberQuery::new(context, request.client.era()),
        subject: context.subject.clone(),
        list,
        cursor,
        members: members(context, &request).await?,
    };
    let line = context.target_audit_line(list.method(), &request.params);
    let detail = context.subject.error_detail();
    Ok(Box::pin(async move {
        let page = listing.read_page().await;
        if let Client::Legacy { session, .. } = &request.client {
            let missing = page.recoverable_servers();
            session.missing_servers.record(list, missing);
        }
        let result = Ok(page.into_result(request.client.era()));
        line.finish(&result);
        outcome_response(&request.id, result, detail)
    }))
}

/// Sends a request to the server that a name belongs to. A server that the caller may not use looks
/// like one that does not exist.
async fn forward_by_name(
    context: &RequestContext<'_>,
    list: ListKind,
    name: String,
    request: ClientRequest,
) -> Result<CallFuture, RequestRejection> {
    let name = &*name;
    let unknown = || {
        let name: String = name.chars().take(MAX_SHOWN_NAME).collect();
        let what = format!("Unknown {}: {name}", item_noun(list));
        RequestRejection::invalid_params(what)
    };
    let server = names::split_name(name).ok_or_else(unknown)?.0;
    let policy = context.shared.access.policy.load();
    if !policy.rules.may_use(&context.subject, server) {
        return Err(unknown().with_audit_reason(Code::NotAllowed.as_str()));
    }
    drop(policy);
    let is_completion = request.method == "completion/complete";
    let there = context.for_server(server);
    let mut call = match request.address(&there) {
        Err(RequestRejection::Failed(error)) if error.code() == Code::ServerUnknown => {
            return Err(unknown());
        },
        call => call?,
    };
    let (server, params) = (call.server(), &call.params);
    call.params = if is_completion {
        names::completion_with_original_name(server, name, params).await?
    } else {
        names::with_original_name(server, list, name, params).await?
    };
    call.start(&there)
}

const fn item_noun(list: ListKind) -> &'static str {
    match list {
        ListKind::Tools => "tool",
        ListKind::Prompts => "prompt",
        ListKind::Resources => "resource",
        ListKind::ResourceTemplates => "resource template",
    }
}

/// What a completion is about.
#[derive(Deserialize)]
#[serde(tag = "type")]
enum CompletionRef {
    #[serde(rename = "ref/prompt")]
    Prompt { name: String },
    #[serde(rename = "ref/resource")]
    Resource { uri: String },
}

fn completion_ref(params: &Params) -> Option<CompletionRef> {
    serde_json::from_slice(params.member("ref")?).ok()
}

async fn forward_by_uri(
    context: &RequestContext<'_>,
    uri: String,
    request: ClientRequest,
) -> Result<CallFuture, RequestRejection> {
    let members = members(context, &request).await?;
    let era = request.client.era();
    let locator = ResourceLocator { context, era };
    let subscribed = members.iter().find(|member| {
        let server = member.handle.as_ref();
        server.is_ok_and(|server| server.is_subscribed(&uri))
    });
    let servers = match (&*request.method, subscribed) {
        // The server may have dropped the resource, and must still drop the subscription.
        ("resources/unsubscribe", Some(member)) => Vec::from_iter(member.handle.clone()),
        ("resources/subscribe" | "resources/unsubscribe", _) => {
            Vec::from_iter(locator.find_owner(members, &uri).await)
        },
        _ => locator.find_candidates(members, &uri).await,
    };
    match servers.as_slice() {
        [owner] => {
            let there = context.for_server(owner.name());
            request.address(&there)?.start(&there)
        },
        [_, _, ..] if request.method == READ_METHOD => {
            Ok(read_from_first(context, request, &servers, uri))
        },
        _ => {
            let line = context.target_audit_line(&request.method, &request.params);
            line.finish_rejected("unknown-resource");
            Ok(Box::pin(ready(resource_not_found(&request, &uri))))
        },
    }
}

/// Reads a resource from the first of several servers that has it.
fn read_from_first(
    context: &RequestContext<'_>,
    request: ClientRequest,
    servers: &[ServerHandle],
    uri: String,
) -> CallFuture {
    let reads = servers.iter().filter_map(|server| {
        let there = context.for_server(server.name());
        let mut call = request.fork().address(&there).ok()?;
        let built = call.build(&there);
        let read = resources::start_read(&there, server, &request.params, built)?;
        Some(async move { Some((call, read.await?)) })
    });
    let reads = Vec::from_iter(reads);
    Box::pin(async move {
        match resources::first_in_order(reads).await {
            Some((call, result)) => call.finish(Ok(result)).await,
            None => resource_not_found(&request, &uri),
        }
    })
}

fn resource_not_found(request: &ClientRequest, uri: &str) -> FinalResponse {
    let code = match request.client.era() {
        Era::Legacy => RpcCode::Resource,
        Era::Modern => RpcCode::Params,
    };
    let (id, data) = (Some(&*request.id), json!({ "uri": uri }));
    let what = "Resource not found";
    FinalResponse::ok(response::error_message(
        id,
        code.number(),
        what,
        Some(&data),
    ))
}

async fn discover(
    context: &RequestContext<'_>,
    request: ClientRequest,
) -> Result<CallFuture, RequestRejection> {
    let members = members(context, &request).await?;
    let line = context.target_audit_line(discover::METHOD, &request.params);
    let servers = super::recall_instructions(&members, Era::Modern).await;
    let result = super::discover_result(&servers).to_string();
    line.finish(&Ok(Bytes::new()));
    let outcome = Ok(Bytes::from(result));
    let response = outcome_response(&request.id, outcome, context.subject.error_detail());
    Ok(Box::pin(ready(response)))
}

/// Sets the log level at every server that logs. It succeeds if one of them takes it or none logs.
async fn set_log_level(
    context: &RequestContext<'_>,
    request: ClientRequest,
) -> Result<CallFuture, RequestRejection> {
    let members = members(context, &request).await?;
    let line = context.target_audit_line(&request.method, &request.params);
    let (query, detail) = (
        MemberQuery::new(context, Era::Legacy),
        context.subject.error_detail(),
    );
    let sink = CallSink::new(context, &request.client, &request.queue, &Params::empty());
    let sink = Arc::new(sink);
    let params = strip_run(request.params.clone());
    Ok(Box::pin(async move {
        let servers = members.into_iter().filter_map(|member| member.handle.ok());
        let told = servers.map(|server| {
            let (query, request, params, sink) = (&query, &request, &params, &sink);
            async move {
                let setting = async { Ok(send_log_level(&server, request, params, sink).await) };
                query
                    .ask(&server, MemberRequest::LogLevel, setting)
                    .await
                    .ok()?
            }
        });
        let told: Vec<_> = join_all(told).await.into_iter().flatten().collect();
        let empty = || Ok(Bytes::from_static(b"{}"));
        let result = if told.iter().any(Result::is_ok) {
            empty()
        } else {
            told.into_iter().next().unwrap_or_else(empty)
        };
        let level = log_level(request.params.raw());
        if let (Some(level), Ok(_), Client::Legacy { session, .. }) =
            (level, &result, &request.client)
        {
            session.set_log_level(level);
        }
        line.finish(&result);
        outcome_response(&request.id, result, detail)
    }))
}

/// `None` where the server does not log.
async fn send_log_level(
    server: &ServerHandle,
    request: &ClientRequest,
    params: &Params,
    sink: &Arc<CallSink>,
) -> Option<Result<Bytes, Error>> {
    let logs = lists::has_capability(server, "logging").await;
    if !logs.unwrap_or_default() {
        return None;
    }
    let call = server.request_raw(request.method.clone(), params.clone());
    Some(call.shared_listener(Arc::<CallSink>::clone(sink)).await)
}
