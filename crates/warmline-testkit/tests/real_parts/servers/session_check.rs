//! One meeting with a real server: open, list, call, close, and what must be true of each.

use crate::prelude::*;

use warmline_core::era::Version;
use warmline_core::exchange::{AttemptResult, Reply, Request};
use warmline_core::message::params::Params;
use warmline_upstream::{ClientProfile, Listener, Session, Transport, TransportConfig, Upstream};

/// What is expected of an open session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub(crate) version: Version,
    pub(crate) session: Keeps,
}

/// Whether the server keeps something for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeps {
    Session,
    Nothing,
}

/// The legacy era with a session.
pub(crate) const LEGACY: Expected = Expected {
    version: Version::V2025_11_25,
    session: Keeps::Session,
};
/// The legacy era of a server that issues no session id.
pub(crate) const LEGACY_WITHOUT_SESSION: Expected = Expected {
    version: Version::V2025_11_25,
    session: Keeps::Nothing,
};
/// The modern era over HTTP.
pub(crate) const MODERN: Expected = Expected {
    version: Version::V2026_07_28,
    session: Keeps::Nothing,
};
/// The modern era over stdio, where the process itself is what is kept.
pub(crate) const MODERN_PROCESS: Expected = Expected {
    version: Version::V2026_07_28,
    session: Keeps::Session,
};

/// A server over stdio, with a variable if it needs one.
pub(crate) fn over_stdio(program: &Program) -> ServerTarget {
    ServerTarget::stdio("real", program.program(), program.args.clone())
}

/// The same with a variable of its own.
pub(crate) fn with_variable(mut server: ServerTarget, name: &str, value: &Path) -> ServerTarget {
    if let TransportConfig::Stdio(reach) = &mut server.transport {
        reach
            .env
            .insert(name.to_owned(), value.to_str().unwrap().to_owned());
    }
    server
}

/// A running server over HTTP.
pub(crate) fn over_http(running: &Running) -> ServerTarget {
    ServerTarget::http("real", running.url.parse().unwrap())
}

/// The same server, spoken to in one era whatever it offers.
pub(crate) fn pinned(server: &ServerTarget, era: Era) -> ServerTarget {
    ServerTarget {
        era: Some(era),
        ..server.clone()
    }
}

/// Opens a session and compares what is known of it.
pub(crate) async fn open(server: &ServerTarget, expected: Expected) -> Session {
    open_as(server, expected, &ClientProfile::default()).await
}

/// The same, declaring something of our own.
pub(crate) async fn open_as(
    server: &ServerTarget,
    expected: Expected,
    declared: &ClientProfile,
) -> Session {
    let session = Upstream::new()
        .open(server, declared)
        .await
        .unwrap_or_else(|trouble| {
            panic!("{trouble}: {:?} ({:?})", trouble.cause, trouble.reason);
        });
    let facts = session.facts();
    assert_eq!(facts.version, expected.version, "{:?}", facts.evidence);
    assert_eq!(facts.era, expected.version.era());
    assert_eq!(
        facts.keeps_session,
        expected.session == Keeps::Session,
        "{:?}",
        facts.evidence
    );
    let transport = match &server.transport {
        TransportConfig::Http(reach) if reach.url.path() == "/sse" => Transport::HttpSse,
        TransportConfig::Http(_) => Transport::Http,
        TransportConfig::Stdio(_) => Transport::Stdio,
    };
    assert_eq!(facts.transport, transport);
    session
}

/// The names of the server's tools.
pub(crate) async fn tools(session: &Session) -> Vec<String> {
    let result = answer(session, "tools/list", json!({}), &()).await;
    let tools = result["tools"]
        .as_array()
        .unwrap_or_else(|| panic!("no tools in {result}"));
    tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

/// The text a tool answers with.
pub(crate) async fn call(session: &Session, tool: &str, arguments: Value) -> String {
    call_heard(session, tool, arguments, &()).await
}

/// The same, with somebody who hears what is told and asked meanwhile.
pub(crate) async fn call_heard(
    session: &Session,
    tool: &str,
    arguments: Value,
    listener: &dyn Listener,
) -> String {
    let params = json!({ "name": tool, "arguments": arguments });
    let result = answer(session, "tools/call", params, listener).await;
    assert_ne!(result["isError"], json!(true), "{tool} failed: {result}");
    let texts = result["content"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|c| c["text"].as_str());
    texts.collect::<Vec<_>>().join("\n")
}

async fn answer(session: &Session, method: &str, params: Value, listener: &dyn Listener) -> Value {
    let params = Params::parse(Bytes::from(params.to_string())).unwrap();
    match session
        .call(Request::new(method.to_owned(), params), listener)
        .await
    {
        AttemptResult::Answered(Reply::Result(raw)) => serde_json::from_slice(&raw).unwrap(),
        AttemptResult::Answered(Reply::Error(raw)) => {
            panic!("{method} answered {}", String::from_utf8_lossy(&raw))
        },
        AttemptResult::Failed(failure) => panic!("{method} failed: {failure:?}"),
    }
}

/// Ends a session; a child must be gone when that returns.
pub(crate) async fn close(session: Session) {
    let child = session.child();
    session.close().await;
    if let Some(child) = child {
        let process = format!("/proc/{}", child.pid);
        let holds = !Path::new(&process).exists();
        assert!(holds, "the child {} outlived its session", child.pid);
    }
}
