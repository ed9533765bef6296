//! The console of a running server: faults and the ledger over HTTP, beside the endpoint.
//!
//! | request | does |
//! |---|---|
//! | `POST /-/faults` | adds the rule in the body |
//! | `DELETE /-/faults` | takes every rule back |
//! | `POST /-/forget-sessions`, `/-/change-tools`, `/-/end-listens` | what it says |
//! | `GET /-/ledger` | every line, as one JSON array |
//! | `GET /-/violations`, `/-/counts` | what clients did wrong; totals |

use std::sync::Arc;

use serde_json::{Value, json};

use super::HttpRequest;
use super::reply::HttpReply;
use crate::server::ServerControl;
use crate::server::state::LedgerServerState;

/// Answers a request to the console; none if it is for somebody else.
pub(crate) fn handle_control_request(
    state: &Arc<LedgerServerState>,
    request: &HttpRequest,
) -> Option<HttpReply> {
    let path = request.path.strip_prefix("/-/")?;
    let control = ServerControl {
        state: Arc::clone(state),
    };
    let done = HttpReply::json(200, &json!({"done": path}));
    Some(match (request.method.as_str(), path) {
        ("POST", "faults") => match serde_json::from_slice(&request.body) {
            Ok(rule) => {
                control.inject(rule);
                done
            },
            Err(error) => HttpReply::text(400, &format!("not a rule: {error}\n")),
        },
        ("DELETE", "faults") => {
            control.clear_faults();
            done
        },
        ("POST", "forget-sessions") => {
            control.forget_sessions();
            done
        },
        ("POST", "change-tools") => {
            control.change_tools();
            done
        },
        ("POST", "end-listens") => {
            control.end_listens();
            done
        },
        ("GET", "ledger") => HttpReply::json(200, &json!(state.ledger.entries())),
        ("GET", "violations") => HttpReply::json(200, &json!(state.violations())),
        ("GET", "counts") => HttpReply::json(200, &counts_json(&control)),
        _ => HttpReply::text(404, "there is no such page\n"),
    })
}

fn counts_json(control: &ServerControl) -> Value {
    let counts = control.counts();
    json!({
        "connections": counts.connections,
        "open_connections": counts.open_connections,
        "requests": counts.requests,
        "incomplete": counts.incomplete_requests,
        "initializes": counts.initializes,
        "sessions": counts.sessions,
        "open_sessions": counts.open_sessions,
        "paid": control.total_paid(),
    })
}
