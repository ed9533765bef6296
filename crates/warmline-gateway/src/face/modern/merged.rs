//! A modern client at the place of all servers: whose each of its requests is.
//!
//! Asked by: the modern face, where a path names no server.  The place speaks this era once all its
//! servers are known to; until then it answers as a legacy server would, and its clients go on
//! with `initialize`.

use bytes::Bytes;
use futures_util::future::join_all;
use http::Response;
use serde_json::json;
use std::sync::Arc;
use warmline::core::era::Era;
use warmline::core::protocol::envelope::Message;
use warmline::core::protocol::params::Params;
use warmline::{Code, List, Run, ServerHandle};

use super::state::{self, Binding};
use super::task::Extensions;
use super::{Asked, NotPassed, Way, call, gathered, listen, method_named, raw_id};
use crate::body::Body;
use crate::face::Visit;
use crate::merge::lists::{From, Listing};
use crate::merge::owner::{self, Look, Seeker};
use crate::merge::{self, About, Errand, Member, words};
use crate::reply::{self, RpcCode};

/// So much is shown of a name that nobody knows.
const MAX_SHOWN: usize = 128;

/// Answers a message of a modern client.
pub(super) async fn message(visit: &Visit<'_>, message: Message, params: Params) -> Response<Body> {
    let method = message.method().unwrap_or_default();
    let said = params.clone();
    let answered = match (method, Errand::of(method)) {
        ("server/discover", _) => discover(visit, &message, &params).await,
        (listen::METHOD, _) => listen(visit, &message, &params).await,
        (_, Errand::List(list)) => listed(visit, &message, list, &params).await,
        (_, Errand::Named(list)) => by_name(visit, &message, list, params).await,
        ("resources/read", Errand::Resource) => {
            let uri = params.uri().unwrap_or_default().into_owned();
            by_uri(visit, &message, &uri, params).await
        },
        (_, Errand::Completion) => completed(visit, &message, params).await,
        (_, Errand::Resource | Errand::Level | Errand::Unknown) => {
            let what = format!("Method not found: {method}");
            Err(NotPassed::Wrong(RpcCode::Method, what))
        },
    };
    let refused = match answered {
        Ok(response) => return response,
        // What a modern server would say may only be said where this era is spoken.
        Err(wrong @ (NotPassed::Wrong(..) | NotPassed::Hidden(_))) => {
            members(visit, &said).await.err().unwrap_or(wrong)
        },
        Err(refused) => refused,
    };
    refused.note(visit, message.method().unwrap_or_default(), &said);
    refused.response(message.raw_id(), visit.candour())
}

/// All servers, as this caller reaches them.
///
/// # Errors
/// One of them is not known to speak this era.
async fn members(visit: &Visit<'_>, params: &Params) -> Result<Vec<Member>, NotPassed> {
    let way = Way::of(visit, params)?;
    let reach = |server: &str| way.to(visit, server);
    let members = merge::members(visit.shared, &visit.subject, reach);
    let absences = &visit.shared.absences;
    let speaks = members.iter().map(|member| async {
        match &member.reached {
            Ok(server) => {
                server.lacks(Era::Legacy).await
                    || server.remembered(Era::Modern).await.is_some()
                    || absences.says_modern(&member.name)
            },
            Err(_) => true,
        }
    });
    let all = !members.is_empty() && join_all(speaks).await.into_iter().all(|speaks| speaks);
    all.then_some(members).ok_or(NotPassed::OnlyLegacy)
}

fn answer(message: &Message, result: &[u8]) -> Response<Body> {
    let message = reply::response_message(message.raw_id(), "result", result);
    reply::answer(message)
}

/// `server/discover`.
async fn discover(
    visit: &Visit<'_>,
    message: &Message,
    params: &Params,
) -> Result<Response<Body>, NotPassed> {
    let members = members(visit, params).await?;
    let line = visit.noted("server/discover", params);
    let said = words::discovery(&words::of_servers(&members, Era::Modern).await);
    let said = Bytes::from(said.to_string());
    if let Some(line) = line {
        line.ended(&Ok(Bytes::new()));
    }
    Ok(answer(message, &said))
}

/// `subscriptions/listen`.
async fn listen(
    visit: &Visit<'_>,
    message: &Message,
    params: &Params,
) -> Result<Response<Body>, NotPassed> {
    // That they all speak this era is what a client relies on.
    members(visit, params).await?;
    let way = Way::of(visit, params)?;
    Ok(gathered::answer(visit, way, raw_id(message), params).await)
}

/// One list of all servers.
async fn listed(
    visit: &Visit<'_>,
    message: &Message,
    list: List,
    params: &Params,
) -> Result<Response<Body>, NotPassed> {
    let from = From::asked(list, params).ok_or_else(|| {
        let what = "Invalid params: this cursor is none of this list".to_owned();
        NotPassed::Wrong(RpcCode::Params, what)
    })?;
    let listing = Listing {
        shared: Arc::clone(visit.shared),
        subject: visit.subject.clone(),
        era: Era::Modern,
        list,
        from,
        members: members(visit, params).await?,
    };
    let line = visit.noted(list.method(), params);
    let result = listing.read().await.modern_result();
    if let Some(line) = line {
        line.ended(&Ok(result.clone()));
    }
    Ok(answer(message, &result))
}

/// A request for what stands in a list under its name.
async fn by_name(
    visit: &Visit<'_>,
    message: &Message,
    list: List,
    params: Params,
) -> Result<Response<Body>, NotPassed> {
    let name = params.name().unwrap_or_default().into_owned();
    let there = visit.to(server_of(visit, list, &name)?);
    let mut asked = asked(&there, message, (list, &name), params)?;
    let meant = merge::meant(&asked.server, list, &name, &asked.params).await;
    asked.params = meant.map_err(NotPassed::Failed)?;
    Ok(passed(&there, message, asked).await)
}

/// The server that a name is of, if somebody may use it.
fn server_of<'n>(visit: &Visit<'_>, list: List, name: &'n str) -> Result<&'n str, NotPassed> {
    let server = merge::server_of(name).ok_or_else(|| unknown(list, name))?;
    let terms = visit.shared.terms.load();
    if terms.rules.may_use(&visit.subject, server) {
        Ok(server)
    } else {
        Err(NotPassed::Hidden(unknown_name(list, name)))
    }
}

/// The same as at the server's own place. One that is not there is no name that is known.
fn asked(
    there: &Visit<'_>,
    message: &Message,
    (list, name): (List, &str),
    params: Params,
) -> Result<Asked, NotPassed> {
    match Asked::of(there, message, params) {
        Err(NotPassed::Failed(error)) if error.code() == Code::ServerUnknown => {
            Err(unknown(list, name))
        },
        asked => asked,
    }
}

fn unknown(list: List, name: &str) -> NotPassed {
    NotPassed::Wrong(RpcCode::Params, unknown_name(list, name))
}

fn unknown_name(list: List, name: &str) -> String {
    let name: String = name.chars().take(MAX_SHOWN).collect();
    format!("Unknown {}: {name}", merge::word_for_one(list))
}

async fn passed(there: &Visit<'_>, message: &Message, asked: Asked) -> Response<Body> {
    let method = method_named(message.method().unwrap_or_default());
    call(there, asked, method).await
}

/// A completion, at the server of what it is about.
async fn completed(
    visit: &Visit<'_>,
    message: &Message,
    params: Params,
) -> Result<Response<Body>, NotPassed> {
    match About::of(&params) {
        About::Prompt(name) => {
            let list = List::Prompts;
            let there = visit.to(server_of(visit, list, &name)?);
            let mut asked = asked(&there, message, (list, &name), params)?;
            let meant = merge::meant_in_completion(&asked.server, &name, &asked.params).await;
            asked.params = meant.map_err(NotPassed::Failed)?;
            Ok(passed(&there, message, asked).await)
        },
        About::Resource(uri) => by_uri(visit, message, &uri, params).await,
        About::Nothing => {
            let what = "Invalid params: `ref` names neither a prompt nor a resource".to_owned();
            Err(NotPassed::Wrong(RpcCode::Params, what))
        },
    }
}

/// A request for a resource, to the server that has it.
async fn by_uri(
    visit: &Visit<'_>,
    message: &Message,
    uri: &str,
    params: Params,
) -> Result<Response<Body>, NotPassed> {
    let era = Era::Modern;
    let seeker = Seeker { visit, era };
    let concerned = seeker.find(members(visit, &params).await?, uri).await;
    let method = message.method().unwrap_or_default();
    match concerned.as_slice() {
        [owner] => {
            let there = visit.to(owner.name());
            let asked = Asked::of(&there, message, params)?;
            Ok(passed(&there, message, asked).await)
        },
        [_, _, ..] if method == owner::READ => {
            Ok(read_from_first(visit, message, (concerned, uri), &params).await)
        },
        _ => {
            visit.turned_down(method, &params, "unknown-resource");
            Ok(reply::answer(no_such_resource(message, uri)))
        },
    }
}

fn no_such_resource(message: &Message, uri: &str) -> Bytes {
    let (code, data) = (RpcCode::Params.number(), json!({ "uri": uri }));
    reply::error_message(message.raw_id(), code, "Resource not found", Some(&data))
}

/// Reads a resource from the first of several servers that has it. A state that a server gave is
/// its own alone.
async fn read_from_first(
    visit: &Visit<'_>,
    message: &Message,
    (servers, uri): (Vec<ServerHandle>, &str),
    params: &Params,
) -> Response<Body> {
    let reading = servers.into_iter().filter_map(|server| {
        let there = visit.to(server.name());
        let asked = Asked::of(&there, message, params.clone()).ok()?;
        let look = Look::at(&there, &server, params)?;
        let read = look.read(server.request_raw(owner::READ, asked.params).relayed());
        let whose = (asked.who, asked.run, asked.occasion?);
        Some(async move { read.await.map(|result| (whose, server, result)) })
    });
    let reading = Vec::from_iter(reading);
    let Some(((who, run, occasion), server, result)) = owner::first_of(reading).await else {
        return reply::answer(no_such_resource(message, uri));
    };
    let binding = Binding {
        vault: visit.shared.warm.vault(),
        who,
        server: server.name(),
        run: run.as_ref().map(Run::name),
    };
    match binding.seal(result, &occasion, &Extensions::of(params)) {
        Ok(result) => answer(message, &result),
        Err(trouble) => reply::answer(state::not_passed_on(message.raw_id(), &trouble)),
    }
}
