//! A legacy client at the place of all servers: whose each of its requests is.
//!
//! Asked by: [`request`](super::request), and for what a client tells.  What one server has to
//! answer goes its way, under the server's own name; what all have to answer is put together in
//! [`merge`](crate::merge).

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use http::StatusCode;
use serde_json::json;
use warmline::core::code::Reason;
use warmline::core::era::Era;
use warmline::core::exchange::Trouble;
use warmline::core::protocol::params::Params;
use warmline::{Code, Error, List, ServerHandle, clock};

use super::asking::Ear;
use super::client::Client;
use super::levels::asked_level;
use super::refusal::Refusal;
use super::request::{Seat, calling_one};
use super::way::{Way, named_run};
use crate::Shared;
use crate::face::Visit;
use crate::failure::{self, Candour};
use crate::flow::{Calling, Ended};
use crate::merge::absent::{self, Absences, Asked, LeftOut, Whom, Why};
use crate::merge::lists::{self, From, Listing};
use crate::merge::owner::{self, Look, Seeker};
use crate::merge::{self, About, Errand, Member};
use crate::reply::{self, RpcCode};
use crate::which;

/// So much is shown of a name that nobody knows.
const MAX_SHOWN: usize = 128;

/// What a request asks for, ready to be driven.
pub(super) async fn calling(
    visit: &Visit<'_>,
    client: &Arc<Client>,
    method: &str,
    params: Params,
    seat: Seat<'_>,
) -> Result<Calling, Refusal> {
    match Errand::of(method) {
        Errand::List(list) => listing(visit, client, list, &params, seat),
        Errand::Named(list) => {
            let name = params.name().unwrap_or_default();
            let (server, way) = way_by_name(visit, client, (list, &name), &params)?;
            let params = merge::meant(&way.server, list, &name, &params).await?;
            calling_one(&visit.to(&server), client, method, params, seat)
        },
        Errand::Resource => {
            let uri = params.uri().unwrap_or_default().into_owned();
            by_uri(visit, client, (method, &uri), params, seat).await
        },
        Errand::Completion => match About::of(&params) {
            About::Prompt(name) => {
                let meant = (List::Prompts, name.as_str());
                let (server, way) = way_by_name(visit, client, meant, &params)?;
                let params = merge::meant_in_completion(&way.server, &name, &params).await?;
                calling_one(&visit.to(&server), client, method, params, seat)
            },
            About::Resource(uri) => by_uri(visit, client, (method, &uri), params, seat).await,
            About::Nothing => {
                let what = "Invalid params: `ref` names neither a prompt nor a resource".to_owned();
                Err(Refusal::Wrong(RpcCode::Params, what))
            },
        },
        Errand::Level => tell_all(visit, client, method, &params, seat),
        Errand::Unknown => {
            let what = format!("Method not found: {method}");
            Err(Refusal::Wrong(RpcCode::Method, what))
        },
    }
}

/// One list of all servers.
fn listing(
    visit: &Visit<'_>,
    client: &Arc<Client>,
    list: List,
    params: &Params,
    (id, _, present): Seat<'_>,
) -> Result<Calling, Refusal> {
    let from = From::asked(list, params).ok_or_else(|| {
        let what = "Invalid params: this cursor is none of this list".to_owned();
        Refusal::Wrong(RpcCode::Params, what)
    })?;
    let listing = Listing {
        shared: Arc::clone(visit.shared),
        subject: visit.subject.clone(),
        era: Era::Legacy,
        list,
        from,
        members: members(visit, client, Some(params))?,
    };
    let line = visit.noted(list.method(), params);
    let (client, candour) = (Arc::clone(client), visit.candour());
    Ok(Box::pin(async move {
        let page = listing.read().await;
        client.missed.note(list, &page.left_out);
        let result = Ok(page.result());
        if let Some(line) = line {
            line.ended(&result);
        }
        drop(present);
        ended(&id, result, candour)
    }))
}

/// The way to the server that a name is of. A server that somebody may not use is like one that is
/// not there.
fn way_by_name(
    visit: &Visit<'_>,
    client: &Client,
    (list, name): (List, &str),
    params: &Params,
) -> Result<(String, Arc<Way>), Refusal> {
    let what = || {
        let name: String = name.chars().take(MAX_SHOWN).collect();
        format!("Unknown {}: {name}", merge::word_for_one(list))
    };
    let unknown = || Refusal::Wrong(RpcCode::Params, what());
    let server = merge::server_of(name).ok_or_else(unknown)?;
    let terms = visit.shared.terms.load();
    if !terms.rules.may_use(&visit.subject, server) {
        return Err(Refusal::Hidden(what()));
    }
    match client.way(&visit.to(server), Some(params)) {
        Ok(way) => Ok((server.to_owned(), way)),
        Err(Refusal::Failed(error)) if error.code() == Code::ServerUnknown => Err(unknown()),
        Err(refusal) => Err(refusal),
    }
}

/// A request for a resource, to the server that has it.
async fn by_uri(
    visit: &Visit<'_>,
    client: &Arc<Client>,
    (method, uri): (&str, &str),
    params: Params,
    seat: Seat<'_>,
) -> Result<Calling, Refusal> {
    let members = members(visit, client, Some(&params))?;
    let era = Era::Legacy;
    let seeker = Seeker { visit, era };
    // It may be gone from its server by now, and shall be let go all the same.
    let subscribed = || members.iter().find(|member| member.is_subscribed(uri));
    if method == "resources/unsubscribe"
        && let Some(member) = subscribed()
    {
        return calling_one(&visit.to(&member.name), client, method, params, seat);
    }
    let concerned = match method {
        "resources/subscribe" | "resources/unsubscribe" => {
            Vec::from_iter(seeker.holder(members, uri).await)
        },
        _ => seeker.find(members, uri).await,
    };
    match concerned.as_slice() {
        [owner] => calling_one(&visit.to(owner.name()), client, method, params, seat),
        [_, _, ..] if method == owner::READ => {
            let (id, _, present) = seat;
            let reading = reading(visit, &concerned, &params);
            let uri = uri.to_owned();
            Ok(Box::pin(async move {
                let read = reading.await;
                drop(present);
                match read {
                    Some(result) => answered(reply::response_message(Some(&id), "result", &result)),
                    None => answered(no_such_resource(&id, &uri)),
                }
            }))
        },
        _ => {
            visit.turned_down(method, &params, "unknown-resource");
            let (id, ..) = seat;
            let refusal = answered(no_such_resource(&id, uri));
            Ok(Box::pin(std::future::ready(refusal)))
        },
    }
}

/// Reads a resource from the first of several servers that has it.
fn reading(
    visit: &Visit<'_>,
    servers: &[ServerHandle],
    params: &Params,
) -> impl Future<Output = Option<Bytes>> + Send + use<> {
    let for_server = which::without_run(params.clone());
    let looks = servers.iter().filter_map(|server| {
        let look = Look::at(visit, server, params)?;
        Some(look.read(server.request_raw(owner::READ, for_server.clone())))
    });
    owner::first_of(looks.collect())
}

fn no_such_resource(id: &[u8], uri: &str) -> Bytes {
    let data = json!({ "uri": uri });
    let code = RpcCode::Resource.number();
    reply::error_message(Some(id), code, "Resource not found", Some(&data))
}

/// Says something to every server that can hear it. It is said if one of them took it, or nobody
/// can; else the first says what is wrong.
fn tell_all(
    visit: &Visit<'_>,
    client: &Arc<Client>,
    method: &str,
    params: &Params,
    (id, lane, present): Seat<'_>,
) -> Result<Calling, Refusal> {
    let members = members(visit, client, Some(params))?;
    let line = visit.noted(method, params);
    let (shared, candour) = (Arc::clone(visit.shared), visit.candour());
    let subject = visit.subject.clone();
    let level = asked_level(method, params);
    let ear = Arc::new(Ear::new(visit, client, lane, None).of(present.as_ref()));
    let client = Arc::clone(client);
    let (method, params) = (method.to_owned(), which::without_run(params.clone()));
    Ok(Box::pin(async move {
        let servers = members.into_iter().filter_map(|member| member.reached.ok());
        let told = servers.map(|server| {
            let whom = absent::whom(&subject, Era::Legacy, server.name());
            tell_in_time(&shared, whom, server, (&method, &params, &ear))
        });
        let told: Vec<_> = join_all(told).await.into_iter().flatten().collect();
        let nothing = || Ok(Bytes::from_static(b"{}"));
        let result = if told.iter().any(Result::is_ok) {
            nothing()
        } else {
            told.into_iter().next().unwrap_or_else(nothing)
        };
        if let (Some(level), Ok(_)) = (level, &result) {
            client.hears_from(level);
        }
        if let Some(line) = line {
            line.ended(&result);
        }
        drop(present);
        ended(&id, result, candour)
    }))
}

/// None where the server does not hear it in time. One that did not before is not waited for again.
async fn tell_in_time(
    shared: &Arc<Shared>,
    whom: Whom,
    server: ServerHandle,
    said: (&str, &Params, &Arc<Ear>),
) -> Option<Result<Bytes, Error>> {
    let (absences, most) = (&shared.absences, shared.options.list_share);
    let share = absences.share_of(&server, &whom, most).ok()?;
    let Ok(told) = clock::timeout(share, tell(&server, said)).await else {
        let (name, why) = (server.name().to_owned(), Why::Late);
        let late = LeftOut { server: name, why };
        absences.left_out(whom.clone(), Asked::Level, &late);
        let answers = async move { server.greeting().await.is_ok() };
        Absences::look_for(shared, whom, Asked::Level, answers);
        return None;
    };
    absences.present(&whom, Asked::Level);
    told
}

/// None where the server does not say that it hears such things.
async fn tell(
    server: &ServerHandle,
    (method, params, ear): (&str, &Params, &Arc<Ear>),
) -> Option<Result<Bytes, Error>> {
    let can = lists::can(server, "logging").await.unwrap_or_default();
    if !can {
        return None;
    }
    let told = server.request_raw(method.to_owned(), params.clone());
    Some(told.listened_by(Arc::<Ear>::clone(ear)).await)
}

/// What a client tells is for all servers that hold a session for it.
pub(super) async fn notified(
    visit: &Visit<'_>,
    client: &Client,
    method: &str,
    (params, raw): (&Params, &[u8]),
) -> Result<(), Refusal> {
    let members = members(visit, client, Some(params))?;
    let servers = members.into_iter().filter_map(|member| member.reached.ok());
    let told = servers.map(|server| async move {
        if let Err(error) = server.notify(method, raw).await {
            let server = server.name();
            tracing::debug!(server, %error, "a notice of a client was not taken");
        }
    });
    join_all(told).await;
    Ok(())
}

/// All servers, as this client reaches them.
pub(super) fn members(
    visit: &Visit<'_>,
    client: &Client,
    params: Option<&Params>,
) -> Result<Vec<Member>, Refusal> {
    named_run(visit, params)?;
    let reach = |server: &str| {
        let way = client.way(&visit.to(server), params);
        way.map(|way| way.server.clone()).map_err(unreached)
    };
    Ok(merge::members(visit.shared, &visit.subject, reach))
}

/// Why a server cannot be reached. That the run has a name was seen before.
pub(super) fn unreached(refusal: Refusal) -> Error {
    match refusal {
        Refusal::Failed(error) => error,
        Refusal::NoSession
        | Refusal::BadRun(_)
        | Refusal::Wrong(..)
        | Refusal::IdUnderWay
        | Refusal::Hidden(_) => {
            Error::unsent(Trouble::new(Reason::Internal, "this run cannot be entered"))
        },
    }
}

fn ended(id: &[u8], result: Result<Bytes, Error>, candour: Candour) -> Ended {
    answered(match result {
        Ok(result) => reply::response_message(Some(id), "result", &result),
        Err(error) => failure::message(id, &error, candour),
    })
}

const fn answered(message: Bytes) -> Ended {
    Ended {
        status: StatusCode::OK,
        message,
    }
}
