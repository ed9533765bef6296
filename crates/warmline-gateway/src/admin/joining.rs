//! A command joins a run: the server it names is taken in, and the run's session to it is opened,
//! or found.
//!
//! Asked by: [`admin`](super), where servers may be handed in.  What is called then goes the way
//! of every client: MCP, at the path that is told here.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use warmline::config::Handed;
use warmline::upstream::{Declared, Facts};
use warmline::{Code, Era, Result, ServerHandle};

use super::{Refusal, VERSION, failed, read, refuse, told};
use crate::Shared;
use crate::body::Body;
use crate::who::{self, Split, Subject};

/// What a command hands in.
#[derive(Deserialize)]
struct Joining {
    version: String,
    run: String,
    server: Handed,
    /// What the command says that it can answer, as the protocol has it.
    capabilities: Box<RawValue>,
}

pub(super) async fn answer(shared: &Arc<Shared>, body: Incoming) -> Response<Body> {
    let body = match read(shared, body).await {
        Ok(body) => body,
        Err(refusal) => return refuse(&refusal),
    };
    let joining: Joining = match serde_json::from_slice(&body) {
        Ok(joining) => joining,
        // It may be of another version altogether, and may hold secrets: it is not repeated.
        Err(_) => return refuse(&misunderstood("this is not what a command hands in")),
    };
    if joining.version != VERSION {
        let what = format!(
            "this gateway is of version {VERSION}, not {}",
            joining.version
        );
        return refuse(&misunderstood(&what));
    }
    if *shared.stopping.borrow() {
        return refuse(&Refusal {
            status: StatusCode::SERVICE_UNAVAILABLE,
            code: Code::Draining,
            what: "this gateway is going down".to_owned(),
            hint: Some("start another when it is gone: `warmline up`".to_owned()),
        });
    }
    shared.desk.used();
    match join(shared, &joining).await {
        Ok(joined) => told(&joined),
        Err(error) => failed(&error),
    }
}

fn misunderstood(what: &str) -> Refusal {
    Refusal {
        status: StatusCode::CONFLICT,
        code: Code::BadMessage,
        what: what.to_owned(),
        hint: Some("stop it, and the next command of this version is understood: `warmline down`, `warmline up`".to_owned()),
    }
}

async fn join(shared: &Arc<Shared>, joining: &Joining) -> Result<Value> {
    let subject = Subject::local(&shared.warm);
    let identity = who::identity(&shared.warm, &subject, Split::Run(&joining.run));
    let run = identity.named(&joining.run)?;
    let joined = run.clone();
    // It ends when it idles, or when somebody says so: not with this request.
    run.detach();
    let whose = (&shared.warm, &identity);
    let entered = shared
        .desk
        .handed
        .enter(&joining.server, &joining.run, whose)?;
    let mut server = joined.server(&entered.name)?;
    // In the modern era every request says for itself what can be answered, and all clients share
    // what is opened without a word about it.
    if !server.lacks(Era::Legacy).await {
        server = server.declaring(Declared {
            capabilities: Bytes::copy_from_slice(joining.capabilities.get().as_bytes()),
            ..Declared::default()
        });
    }
    let was_held = server.session().is_some();
    let facts = server.facts().await?;
    Ok(account(&server, &joining.run, &facts, was_held))
}

fn account(server: &ServerHandle, run: &str, facts: &Facts, was_held: bool) -> Value {
    let evidence = facts.evidence.iter();
    let evidence: Vec<Value> = evidence
        .map(|one| json!({ "step": one.step, "answer": one.answer }))
        .collect();
    let name = server.name();
    json!({
        "server": name,
        "path": format!("/runs/{run}/servers/{name}/mcp"),
        "warm": was_held || (facts.keeps_session && facts.opened_in.is_zero()),
        "generation": server.session().map(|held| held.generation),
        "era": facts.era.word(),
        "version": facts.version.as_str(),
        "transport": facts.transport.word(),
        "keeps_session": facts.keeps_session,
        "opened_in_us": u64::try_from(facts.opened_in.as_micros()).unwrap_or(u64::MAX),
        "evidence": evidence,
    })
}
