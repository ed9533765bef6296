//! A canary for every secret that passes the gateway: none of them is heard where people look.

use crate::prelude::*;

use warmline_engine::events::{EventItem, EventSubscription};

use super::raw_client::send_on;

/// What people would not want to read anywhere.
const CANARIES: [&str; 8] = [
    "canary-of-alice",
    "canary-of-eve",
    "canary-upstream",
    "canary-static-header",
    "canary-query",
    "canary-handed",
    "canary-cookie",
    "canary-argument",
];

/// Every way in which a call of this story goes wrong; what its server says may be spiteful.
fn faults() -> [Option<Fault>; 6] {
    [
        None,
        Some(Fault::Reply(CannedReply::new(
            401,
            "canary-upstream is not known",
        ))),
        Some(Fault::Reply(CannedReply::new(
            500,
            "canary-static-header broke us",
        ))),
        Some(Fault::Reply(CannedReply::new(200, "").json())),
        Some(Fault::Cut(CutPoint::AfterExecuting, ConnectionEnd::Rst)),
        Some(Fault::ForgetSessions),
    ]
}

/// A request that nobody lets in, or that makes no sense, with secrets wherever some can be.
async fn knock(gateway: &Gateway) -> String {
    let at = gateway.address();
    let json = ("Content-Type", "application/json");
    let alice = ("Authorization", "Bearer canary-of-alice");
    let mut said = String::new();
    for (path, headers, body) in [
        (
            LEDGER,
            vec![json, ("Authorization", "Bearer canary-of-eve")],
            "{}",
        ),
        (
            LEDGER,
            vec![json, ("Authorization", "Basic canary-of-eve")],
            "{}",
        ),
        (LEDGER, vec![json, alice, ("Cookie", "canary-cookie")], "{"),
        (
            LEDGER,
            vec![json, alice, ("Origin", "http://canary-of-eve.example")],
            "{}",
        ),
        (
            LEDGER,
            vec![json, alice],
            r#"{"jsonrpc":"2.0","id":"canary-argument"}"#,
        ),
        ("elsewhere", vec![json, alice], "{}"),
        ("elsewhere", vec![json], "{}"),
    ] {
        let path = format!("/servers/{path}/mcp?key=canary-query");
        let mut response = request(at, "POST", &path, &headers, body).await;
        said.push_str(&response.status.to_string());
        let body = response.whole().await;
        // A client may hear its own id again.
        said.push_str(&body.replace(r#""id":"canary-argument""#, ""));
    }
    said
}

async fn admin_page(socket: &Path, path: &str) -> String {
    let socket = UnixStream::connect(socket).await.unwrap();
    let reply = send_on(socket, &raw_http::text("GET", path, &[], "")).await;
    assert_eq!(reply.status, 200, "{path}");
    reply.body
}

/// What every page of the gateway says.
async fn pages(gateway: &Gateway, admin: &Path) -> String {
    let mut all = String::new();
    let ops = gateway.ops_address().unwrap();
    for path in ["/metrics", "/servers", "/readyz", "/livez", "/elsewhere"] {
        all.push_str(&raw_http::get(ops, path).await.whole().await);
    }
    for path in ["/admin", "/admin/servers", "/admin/runs", "/admin/sessions"] {
        all.push_str(&admin_page(admin, path).await);
    }
    all
}

/// A gateway that can be looked at in every way.
fn observed(admin: &Path, audit: &Path) -> GatewayOptions {
    GatewayOptions {
        admin_socket: Some(admin.to_owned()),
        audit: Some(AuditOptions {
            file: audit.to_owned(),
            arguments: vec!["named".to_owned()],
        }),
        ..watched(local())
    }
}

/// Its numbers before its end, and all that happened until then.
async fn last_words(gateway: Gateway, warm: Warmline, mut events: EventSubscription) -> String {
    let mut told = serde_json::to_string(&warm.snapshot()).unwrap();
    gateway.stop().await;
    warm.close().await;
    drop(warm);
    while let Some(EventItem::Event(event)) = events.next().await {
        told.push_str(&serde_json::to_string(&event).unwrap());
    }
    told
}

/// reliability T9, reliability P30, A66: tokens of clients, credentials of servers, headers that
/// are handed on, queries, cookies and arguments stand in no line of the log at any level, no audit
/// line, no event, no number, no page of either listener, and no answer to others.
#[tokio::test]
async fn no_canary_is_heard_around_the_gateway() {
    let (book, guard) = Logbook::open();
    let folder = tempfile::tempdir().unwrap();
    let (audit, admin) = (folder.path().join("audit"), folder.path().join("admin"));
    let server = LedgerServer::start(Personality::legacy().token("canary-upstream")).unwrap();
    let declared = Server::http(LEDGER, format!("{}?key=canary-query", server.url()))
        .header("X-Key", "canary-static-header")
        .bearer(Secret::new("canary-upstream"));
    let dead = Server::http("dead", "http://127.0.0.1:1/mcp?key=canary-query")
        .bearer(Secret::new("canary-upstream"));
    let warm = Warmline::builder()
        .servers([declared, dead])
        .build()
        .unwrap();
    let events = warm.events();
    let alice = BearerToken::from_text(warm.vault(), "alice", "canary-of-alice");
    let options = GatewayOptions {
        auth: Auth::tokens(vec![alice]),
        ..observed(&admin, &audit)
    };
    let gateway = Gateway::start(warm.clone(), options).await.unwrap();
    let mut told = knock(&gateway).await;
    for name in [LEDGER, "dead"] {
        for fault in faults() {
            if let Some(fault) = fault {
                server.inject(FaultRule::new(fault).on_tool("pay").always());
            }
            told.push_str(&call(&gateway, name).await.to_string());
            server.control().clear_faults();
            told.push_str(&pages(&gateway, &admin).await);
        }
    }
    told.push_str(&last_words(gateway, warm, events).await);
    drop(guard);
    let audit = fs::read_to_string(audit).unwrap();
    assert!(audit.contains("pay") && audit.contains("unknown-token"));
    told.push_str(&audit);
    let lines = book.lines();
    assert!(lines.iter().any(|line| line.contains("request refused")));
    told.push_str(&lines.join("\n"));
    are_not_in(&told);
}

/// What a spiteful server says when a session is to be opened: all that it was sent, and once so
/// long that it is shortened in the middle of a secret.
fn echoes(token: &str) -> Vec<Fault> {
    let sent = [token, "canary-static-header", "canary-query"];
    let all = sent.map(|canary| format!("you sent {canary}, ")).concat();
    let long = format!("{}{token}", "x".repeat(150));
    let error = json!({ "jsonrpc": "2.0", "id": null, "error": { "code": -1, "message": all } });
    let mut faults: Vec<Fault> = [401, 403, 404, 429, 500, 503]
        .into_iter()
        .flat_map(|status| [&*all, &*long].map(|said| Fault::Reply(CannedReply::new(status, said))))
        .collect();
    faults.push(Fault::Reply(
        CannedReply::new(400, &error.to_string()).json(),
    ));
    faults.push(Fault::Reply(CannedReply::new(200, &all)));
    faults.push(Fault::Reply(
        CannedReply::new(200, &error.to_string()).json(),
    ));
    faults.push(Fault::Reply(CannedReply::redirect(
        302,
        &format!("http://127.0.0.1:1/{token}"),
    )));
    faults
}

/// Servers that differ in where their secrets come from.
fn of_every_source(url: &str, tenants: &str, folder: &Path) -> Vec<Server> {
    let file = folder.join("token");
    fs::write(&file, "canary-upstream\n").unwrap();
    let handed = Secret::header("X-Handed").unwrap();
    let secrets = [
        ("value", url, Secret::new("canary-upstream")),
        ("file", url, Secret::file(file)),
        ("command", url, Secret::command(["echo", "canary-upstream"])),
        ("handed", tenants, handed),
    ];
    let declared = secrets.map(|(name, url, secret)| {
        Server::http(name, format!("{url}?key=canary-query"))
            .header("X-Key", "canary-static-header")
            .bearer(secret)
    });
    declared.to_vec()
}

/// A66, reliability T9, reliability P30: nor where a server repeats what it was sent when a session
/// is opened, wherever its secret comes from. Those of a tenant do not reach the operator either.
#[tokio::test]
async fn no_canary_is_heard_where_a_server_repeats_it_at_the_opening() {
    let (book, guard) = Logbook::open();
    let folder = tempfile::tempdir().unwrap();
    let (audit, admin) = (folder.path().join("audit"), folder.path().join("admin"));
    let [server, tenants] = [(); 2].map(|()| LedgerServer::start(Personality::legacy()).unwrap());
    let servers = of_every_source(&server.url(), &tenants.url(), folder.path());
    let names = ["value", "file", "command", "handed"];
    let mut told = String::new();
    let theirs = echoes("canary-handed");
    for (fault, theirs) in echoes("canary-upstream").into_iter().zip(theirs) {
        // Each with an engine of its own: nothing is remembered, and nothing pauses.
        let built = Warmline::builder().servers(servers.clone());
        let warm = built.build().unwrap();
        let events = warm.events();
        let options = observed(&admin, &audit);
        let gateway = Gateway::start(warm.clone(), options).await.unwrap();
        for method in ["initialize", "server/discover", "tools/call"] {
            server.inject(FaultRule::new(fault.clone()).on_method(method).always());
            tenants.inject(FaultRule::new(theirs.clone()).on_method(method).always());
        }
        for name in names {
            told.push_str(&call(&gateway, name).await.to_string());
        }
        server.control().clear_faults();
        tenants.control().clear_faults();
        told.push_str(&pages(&gateway, &admin).await);
        told.push_str(&last_words(gateway, warm, events).await);
    }
    drop(guard);
    told.push_str(&fs::read_to_string(audit).unwrap());
    let lines = book.lines();
    let failed = lines.iter().filter(|line| line.contains("opening failed"));
    assert!(failed.count() >= names.len(), "{lines:#?}");
    told.push_str(&lines.join("\n"));
    assert!(told.contains("[redacted: "), "something was struck out");
    are_not_in(&told);
}

/// None of them stands in a text, nor so much of one that it could be guessed.
fn are_not_in(told: &str) {
    for hidden in CANARIES.into_iter().chain(["canary-ups", "canary-han"]) {
        let place = told.find(hidden);
        let around = place.map(|at| told.get(at.saturating_sub(300)..at + 60));
        assert_eq!(around, None, "{hidden} was told");
    }
}

/// One call of Alice's with secrets wherever some can be.
async fn call(gateway: &Gateway, server: &str) -> Value {
    let arguments = json!({ "amount": 1, "secret": "canary-argument" });
    let params = json!({ "name": "pay", "arguments": arguments });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let headers = [
        ("Authorization", "Bearer canary-of-alice"),
        ("Cookie", "canary-cookie"),
        ("X-Handed", "canary-handed"),
    ];
    let path = format!("/runs/r/servers/{server}/mcp?key=canary-query");
    let mut reply = raw_http::post(gateway.address(), &path, &headers, &call).await;
    reply.answer().await
}
