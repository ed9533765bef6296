//! The modern face: 2026-07-28 over Streamable HTTP. Nothing is opened, everything is said in each
//! request.
//!
//! Asked by: [`face`](crate::face).  Whoever closes the response cancels the call.

mod check;

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use warmline::core::era::Era;
use warmline::core::protocol::envelope::{Kind, Message};
use warmline::core::protocol::meta;
use warmline::core::protocol::params::Params;
use warmline::core::protocol::splice::{self, Edit};
use warmline::{Declared, Error, Listener, News, ServerHandle};

use super::Visit;
use crate::body::Body;
use crate::failure;
use crate::flow::{self, Accepts, Calling, Ended, Leaving, Manner};
use crate::lane::{Keep, Lane};
use crate::reply;
use crate::which::{self, BadName};
use crate::who::{self, Split};

/// Answers a message of a modern client.
pub(crate) async fn message(visit: Visit<'_>, message: Message, params: Params) -> Response<Body> {
    let said = match check::check(visit.head, &message, &params) {
        Ok(said) => said,
        Err(refusal) => return refusal.response(message.raw_id()),
    };
    if message.kind() == Kind::Notification {
        // The protocol knows none that a client of this era sends over HTTP.
        return reply::empty(StatusCode::ACCEPTED);
    }
    let server = match server(&visit, &params, said) {
        Ok(server) => server,
        Err(refused) => return refused.response(message.raw_id()),
    };
    let id = message
        .raw_id()
        .map(Bytes::copy_from_slice)
        .unwrap_or_default();
    let method = message.method().unwrap_or_default().to_owned();
    let lane = Arc::new(Lane::new(Keep::Nothing));
    let token = params.meta_member(meta::PROGRESS_TOKEN);
    let ear = Ear {
        lane: Arc::clone(&lane),
        token: token.map(Bytes::copy_from_slice),
    };
    let call = server
        .request_raw(method, params)
        .relayed()
        .listened_by(Arc::new(ear));
    let calling: Calling = Box::pin(async move {
        match call.await {
            Ok(result) => Ended {
                status: StatusCode::OK,
                message: reply::response_message(Some(&id), "result", &result),
            },
            Err(error) => Ended {
                status: failure::modern_status(&error),
                message: failure::message(&id, &error),
            },
        }
    });
    let manner = Manner {
        accepts: Accepts::Both,
        leaving: Leaving::Cancels,
        stream: None,
    };
    flow::respond(calling, lane, manner).await
}

/// Why a request goes to no server.
enum NoServer {
    BadRun(BadName),
    Failed(Error),
}

impl NoServer {
    fn response(&self, id: Option<&[u8]>) -> Response<Body> {
        match self {
            Self::BadRun(bad) => bad.response(id),
            Self::Failed(error) => {
                let message = failure::message(id.unwrap_or(b"null"), error);
                reply::json(StatusCode::OK, message)
            },
        }
    }
}

/// The server, as this request may call it: inside the run it names, else outside.
fn server(visit: &Visit<'_>, params: &Params, said: Declared) -> Result<ServerHandle, NoServer> {
    let shared = visit.shared;
    let name = visit.target.server.unwrap_or_default();
    let run_from = &shared.options.run_from;
    let vault = shared.warm.vault();
    let run = which::run(visit.target.run, visit.head, Some(params), run_from, vault)
        .map_err(NoServer::BadRun)?;
    let split = run.as_deref().map_or(Split::Once, Split::Run);
    let identity = who::identity(&shared.warm, &visit.subject, split);
    let server = match run {
        None => identity.server(name),
        Some(run) => identity.named(&run).and_then(|begun| {
            let server = begun.server(name);
            begun.detach();
            server
        }),
    };
    server
        .map(|server| server.declaring(said).in_era(Era::Modern))
        .map_err(NoServer::Failed)
}

/// Hears what comes down during one call.
struct Ear {
    lane: Arc<Lane>,
    token: Option<Bytes>,
}

impl Listener for Ear {
    fn news(&self, news: News) {
        let (method, params) = match news {
            News::Progress(params) => {
                let Some(token) = &self.token else { return };
                let mut named = Vec::with_capacity(params.len() + token.len());
                let edits = [Edit::Set("progressToken", token)];
                if splice::edit_object(&params, &edits, &mut named).is_err() {
                    return;
                }
                ("notifications/progress".to_owned(), Bytes::from(named))
            },
            News::Log(params) => ("notifications/message".to_owned(), params),
            News::Other(method, params) => (method, params),
        };
        let mut out = Vec::with_capacity(64 + params.len());
        splice::write_notification(&mut out, &method, Some(&params));
        self.lane.tell(out.into());
    }
}
