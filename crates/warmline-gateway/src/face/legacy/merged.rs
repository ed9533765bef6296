//! A legacy client at the place of all servers: whose each of its requests is.
//!
//! Asked by: [`request`](super::request).  What one server has to answer goes its way, under the
//! server's own name; what all have to answer is put together in [`merge`](crate::merge).

use std::sync::Arc;

use http::StatusCode;
use warmline::core::code::Reason;
use warmline::core::exchange::Trouble;
use warmline::core::protocol::params::Params;
use warmline::{Code, Error, List};

use super::client::{Client, Refusal};
use super::request::{Seat, calling_one};
use crate::face::Visit;
use crate::flow::{Calling, Ended};
use crate::merge::lists::{From, Listing};
use crate::merge::{self, Errand, Member};
use crate::reply::{self, RpcCode};

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
        Errand::Named(list) => by_name(visit, client, (method, list), params, seat).await,
        Errand::Unknown => {
            let what = format!("Method not found: {method}");
            Err(Refusal::Wrong(RpcCode::Method, what))
        },
    }
}

/// One list of all servers.
fn listing(
    visit: &Visit<'_>,
    client: &Client,
    list: List,
    params: &Params,
    (id, _, present): Seat<'_>,
) -> Result<Calling, Refusal> {
    let line = visit.noted(list.method(), params);
    let listing = Listing {
        shared: Arc::clone(visit.shared),
        subject: visit.subject.clone(),
        list,
        from: from(list, params)?,
        members: members(visit, client, params)?,
    };
    Ok(Box::pin(async move {
        let result = listing.read().await.result();
        if let Some(line) = line {
            line.ended(&Ok(result.clone()));
        }
        drop(present);
        Ended {
            status: StatusCode::OK,
            message: reply::response_message(Some(&id), "result", &result),
        }
    }))
}

/// Where a page begins, as its request says.
fn from(list: List, params: &Params) -> Result<From, Refusal> {
    From::asked(list, params).ok_or_else(|| {
        let what = "Invalid params: this cursor is none of this list".to_owned();
        Refusal::Wrong(RpcCode::Params, what)
    })
}

/// A request for what stands in a list under its name.
async fn by_name(
    visit: &Visit<'_>,
    client: &Arc<Client>,
    (method, list): (&str, List),
    params: Params,
    seat: Seat<'_>,
) -> Result<Calling, Refusal> {
    let name = params.name().unwrap_or_default();
    let rules = &visit.shared.options.rules;
    let server = merge::server_of(&name).filter(|server| rules.may_use(&visit.subject, server));
    let there = visit.to(server.ok_or_else(|| unknown(list, &name))?);
    // A server that somebody may not use is like one that is not there.
    let way = client.way(&there, Some(&params));
    let way = way.map_err(|refusal| {
        let is_unknown =
            matches!(&refusal, Refusal::Failed(error) if error.code() == Code::ServerUnknown);
        if is_unknown {
            unknown(list, &name)
        } else {
            refusal
        }
    })?;
    let params = merge::meant(&way.server, list, &name, &params).await?;
    calling_one(&there, client, method, params, seat)
}

fn unknown(list: List, name: &str) -> Refusal {
    let name: String = name.chars().take(MAX_SHOWN).collect();
    let what = format!("Unknown {}: {name}", merge::word_for_one(list));
    Refusal::Wrong(RpcCode::Params, what)
}

/// All servers, as this client reaches them.
fn members(visit: &Visit<'_>, client: &Client, params: &Params) -> Result<Vec<Member>, Refusal> {
    super::way::named_run(visit, Some(params))?;
    let reach = |server: &str| {
        let way = client.way(&visit.to(server), Some(params));
        way.map(|way| way.server.clone()).map_err(unreached)
    };
    Ok(merge::members(visit.shared, &visit.subject, reach))
}

/// Why a server cannot be reached. That the run has a name was seen before.
fn unreached(refusal: Refusal) -> Error {
    match refusal {
        Refusal::Failed(error) => error,
        Refusal::NoSession | Refusal::BadRun(_) | Refusal::Wrong(..) => {
            Error::unsent(Trouble::new(Reason::Internal, "this run cannot be entered"))
        },
    }
}
