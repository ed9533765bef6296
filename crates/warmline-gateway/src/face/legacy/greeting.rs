//! `initialize`: a client session begins, in the words of its server.

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use warmline::core::code::Reason;
use warmline::core::era::{Era, Version};
use warmline::core::protocol::envelope::Message;
use warmline::core::protocol::headers::SESSION_ID;
use warmline::core::protocol::params::Params;
use warmline::upstream::Facts;
use warmline::{Error, ServerHandle};

use super::client::{Client, NewSession};
use super::merged;
use super::refusal::Refusal;
use crate::Shared;
use crate::audit::Line;
use crate::body::Body;
use crate::face::Visit;
use crate::failure::{self, Candour};
use crate::merge::{self, words};
use crate::reply::{self, RpcCode};

/// Answers `initialize`.
pub(super) async fn greet(visit: &Visit<'_>, message: Message, params: Params) -> Response<Body> {
    let id = message.raw_id().unwrap_or(b"null");
    let Some(offered) = offered(&params) else {
        let what = "Invalid params: `protocolVersion` is missing";
        return reply::error(StatusCode::BAD_REQUEST, Some(id), RpcCode::Params, what);
    };
    let capabilities = params.member("capabilities").unwrap_or(b"{}");
    if !capabilities.starts_with(b"{") {
        let what = "Invalid params: `capabilities` are an object";
        return reply::error(StatusCode::BAD_REQUEST, Some(id), RpcCode::Params, what);
    }
    let begun = match Client::begin_session(visit, &params, capabilities, offered) {
        Ok(begun) => begun,
        Err(refusal) => return turned_down(visit, &refusal, id, &params),
    };
    if visit.target.server.is_none() {
        return greet_for_all(visit, begun, (id, &params), offered).await;
    }
    let way = match begun.way(visit) {
        Ok(way) => way,
        Err(refusal) => return turned_down(visit, &refusal, id, &params),
    };
    let line = visit.noted("initialize", &params);
    let facts = match way.server.greeting().await {
        Ok(facts) => facts,
        Err(error) => {
            note(line, &Err(error.clone()));
            return not_greeted(&way.server, id, &params, (&error, visit.candour())).await;
        },
    };
    note(line, &Ok(Bytes::new()));
    let mut said = result(&facts);
    if way.server.keeps_nothing_apart(&facts) {
        said = without_tasks(said);
    }
    admitted(visit.shared, begun, id, facts.version, &said)
}

/// Nothing is begun, and the audit says so.
fn turned_down(visit: &Visit<'_>, refusal: &Refusal, id: &[u8], params: &Params) -> Response<Body> {
    refusal.note(visit, "initialize", params);
    refusal.response(Some(id), visit.candour())
}

fn note(line: Option<Line>, outcome: &Result<Bytes, Error>) {
    if let Some(line) = line {
        line.ended(outcome);
    }
}

/// Greets at the place of all servers: nothing is opened for it.
async fn greet_for_all(
    visit: &Visit<'_>,
    begun: NewSession,
    (id, params): (&[u8], &Params),
    version: Version,
) -> Response<Body> {
    if let Err(refusal) = begun.begin_run(visit) {
        return turned_down(visit, &refusal, id, params);
    }
    note(visit.noted("initialize", params), &Ok(Bytes::new()));
    let reach = |server: &str| {
        let way = begun.way(&visit.to(server));
        way.map(|way| way.server.clone()).map_err(merged::unreached)
    };
    let members = merge::members(visit.shared, &visit.subject, reach);
    let servers = words::of_servers(&members, Era::Legacy).await;
    let greeting = words::greeting(version, &servers).to_string();
    admitted(visit.shared, begun, id, version, &greeting)
}

/// The answer to `initialize`, with the ticket.
fn admitted(
    shared: &Shared,
    begun: NewSession,
    id: &[u8],
    version: Version,
    result: &str,
) -> Response<Body> {
    let ticket = match begun.admit(shared, version) {
        Ok(ticket) => ticket,
        Err(trouble) => {
            let what = trouble.to_string();
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            return reply::error(status, Some(id), RpcCode::Internal, &what);
        },
    };
    let message = reply::response_message(Some(id), "result", result.as_bytes());
    let mut response = reply::answer(message);
    response.headers_mut().insert(SESSION_ID, ticket);
    response
}

/// Why there is no greeting. A server that does not speak this era says which versions it speaks.
async fn not_greeted(
    server: &ServerHandle,
    id: &[u8],
    params: &Params,
    (error, candour): (&Error, Candour),
) -> Response<Body> {
    let modern = Version::NEWEST_MODERN.as_str();
    // It said so just now, or is known to.
    let names_it = error.why().is_some_and(|why| why.contains(modern));
    let is_modern =
        error.reason() == Reason::Version && (names_it || server.lacks(Era::Legacy).await);
    if !is_modern {
        return reply::answer(failure::message(id, error, candour));
    }
    let requested = params.member("protocolVersion");
    let requested = requested.and_then(|raw| serde_json::from_slice::<String>(raw).ok());
    let data = json!({
        "supported": [modern],
        "requested": requested,
    });
    let what = format!(
        "Unsupported protocol version: `{}` speaks {modern} alone, and nothing here translates yet; \
         use a client that speaks it, or a server that speaks older versions too",
        server.name()
    );
    let (status, code) = (StatusCode::BAD_REQUEST, RpcCode::Version);
    let error = reply::error_with(status, Some(id), (code, &what), Some(&data));
    reply::about_era(reply::worded(error, ONLY_MODERN))
}

/// The status in words, for clients that show no more of an answer than that.
const ONLY_MODERN: &str = "Unsupported protocol version: this server speaks 2026-07-28 alone";

/// The version to open the server's session in: the client's own, else the newest there is.
fn offered(params: &Params) -> Option<Version> {
    let raw = params.member("protocolVersion")?;
    let stated: String = serde_json::from_slice(raw).ok()?;
    let known = Version::parse(&stated).filter(|version| version.era() == Era::Legacy);
    Some(known.unwrap_or(Version::NEWEST_LEGACY))
}

/// What the server said of itself, but that it knows tasks: those of one client would be
/// everybody's (mcp-spec 5.7).
fn without_tasks(said: String) -> String {
    let greeting = serde_json::from_str::<Value>(&said).ok();
    let taken = greeting.and_then(|mut greeting| {
        let capabilities = greeting.get_mut("capabilities")?.as_object_mut()?;
        capabilities.remove("tasks")?;
        Some(greeting.to_string())
    });
    taken.unwrap_or(said)
}

/// What the server said of itself, in its own words where they are remembered.
fn result(facts: &Facts) -> String {
    if let Some(said) = facts
        .said
        .as_deref()
        .and_then(|said| std::str::from_utf8(said).ok())
    {
        return said.to_owned();
    }
    let raw = |bytes: &[u8]| {
        let text = std::str::from_utf8(bytes).unwrap_or("{}").to_owned();
        RawValue::from_string(text).ok()
    };
    let info = facts.server_info.as_deref().and_then(raw);
    let mut result = json!({
        "protocolVersion": facts.version.as_str(),
        "capabilities": raw(&facts.capabilities),
        "serverInfo": info,
    });
    if let (Some(instructions), Some(result)) = (&facts.instructions, result.as_object_mut()) {
        result.insert("instructions".to_owned(), instructions.clone().into());
    }
    result.to_string()
}
