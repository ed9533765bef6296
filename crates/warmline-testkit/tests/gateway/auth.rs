//! Who is let in, and what they may do: stories with clients that speak HTTP by hand.

use crate::prelude::*;

use std::time::{SystemTime, UNIX_EPOCH};

use super::raw_client::{Reply, call, initialize, post, request, send, send_on};
use warmline_gateway::{IpNetwork, ProtectedResource, TrustedProxies};

/// A token that must be seen nowhere.
const CANARY: &str = "canary-7f3a-of-alice";

fn shown(token: &str) -> (&'static str, String) {
    ("Authorization", format!("Bearer {token}"))
}

async fn ask(address: SocketAddr, headers: &[(&str, &str)], message: &Value) -> Reply {
    send(address, &post(PATH, headers, message)).await
}

/// A legacy server behind a gateway to which these tokens lead; each is its own text.
async fn world_of(names: &[&str], decide: impl FnOnce(GatewayOptions) -> GatewayOptions) -> World {
    World::knowing(Personality::legacy(), |options, vault| {
        let tokens = names
            .iter()
            .map(|name| BearerToken::from_text(vault, name, name));
        decide(GatewayOptions {
            auth: Auth::tokens(tokens.collect()),
            ..options
        })
    })
    .await
}

/// Opens a client session with this token, and gives its id.
async fn opened(address: SocketAddr, token: &str) -> String {
    let opened = ask(address, &[("Authorization", token)], &initialize()).await;
    opened.header("mcp-session-id").unwrap().to_owned()
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap().as_secs()
}

/// Headers, status and challenge.
type Case<'a> = (&'a [(&'a str, &'a str)], u16, &'a str);

/// reliability T7: who shows nothing, something else, or two things is told how to come in.
#[tokio::test]
async fn only_a_token_that_is_known_lets_in() {
    let world = world_of(&["alice"], |options| options).await;
    let at = world.gateway.address();
    let cases: &[Case<'_>] = &[
        (&[], 401, "Bearer"),
        (
            &[("Authorization", "Bearer bob")],
            401,
            "Bearer error=\"invalid_token\"",
        ),
        (&[("Authorization", "Bearer ")], 401, "Bearer"),
        (&[("Authorization", "Basic alice")], 401, "Bearer"),
        (
            &[
                ("Authorization", "Bearer alice"),
                ("Authorization", "Bearer alice"),
            ],
            401,
            "Bearer",
        ),
        (&[("Authorization", "bearer alice")], 200, ""),
        (&[("Authorization", "Bearer alice")], 200, ""),
    ];
    for (headers, status, challenge) in cases {
        let reply = ask(at, headers, &initialize()).await;
        assert_eq!(reply.status, *status, "{headers:?} {reply:?}");
        assert_eq!(reply.header("www-authenticate").unwrap_or(""), *challenge);
    }
    world.finish().await;
}

/// A client that is not let in learns where it gets a token, per place (RFC 9728).
#[tokio::test]
async fn a_client_learns_where_tokens_come_from() {
    let world = world_of(&["alice"], |options| GatewayOptions {
        protected_resource: Some(ProtectedResource {
            url: "https://mcp.example.com/".to_owned(),
            authorization_servers: vec!["https://login.example.com".to_owned()],
            scopes: vec!["tools".to_owned()],
        }),
        ..options
    })
    .await;
    let at = world.gateway.address();
    let refused = ask(at, &[], &initialize()).await;
    let challenge = refused.header("www-authenticate").unwrap();
    let place = "https://mcp.example.com/.well-known/oauth-protected-resource";
    assert_eq!(
        challenge,
        format!("Bearer resource_metadata=\"{place}{PATH}\"")
    );
    // By the name that they were told.
    let get = async |of: &str| {
        let path = format!("/.well-known/oauth-protected-resource{of}");
        let named = [("Host", "mcp.example.com")];
        send(at, &raw_http::text("GET", &path, &named, "")).await
    };
    for (of, resource) in [
        ("", "https://mcp.example.com"),
        (PATH, "https://mcp.example.com/servers/ledger/mcp"),
    ] {
        let told = get(of).await;
        assert_eq!(told.status, 200);
        let expected = json!({
            "resource": resource,
            "authorization_servers": ["https://login.example.com"],
            "bearer_methods_supported": ["header"],
            "scopes_supported": ["tools"],
        });
        assert_eq!(told.json(), expected);
    }
    assert_eq!(get("/elsewhere").await.status, 404);
    world.finish().await;
}

/// P59, reliability T3: a token that was taken away or is over counts no longer at the next request,
/// also where the client session was opened with it.
#[tokio::test]
async fn a_token_that_is_taken_away_counts_no_longer_at_the_next_request() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    fs::write(&file, "alice\nbob\n").unwrap();
    let read_from = file.clone();
    let world = World::knowing(Personality::legacy(), |options, vault| {
        // Digests are made once: the vault stays with the engine.
        let tokens = ["alice", "bob"].map(|name| BearerToken::from_text(vault, name, name));
        let expiring = |name, at| BearerToken {
            expires_at: Some(at),
            ..BearerToken::from_text(vault, name, name)
        };
        let others = vec![
            expiring("carol", now() - 1),
            expiring("dave", now() + 3_600),
        ];
        let source = TokenSource::watching([read_from.clone()], move |_| {
            let names = fs::read_to_string(&read_from).unwrap_or_default();
            let counts = |token: &&BearerToken| names.lines().any(|name| name == token.identity);
            tokens.iter().filter(counts).cloned().collect()
        });
        GatewayOptions {
            auth: Auth::AnyOf(vec![
                AuthMethod::TokenSource(source),
                AuthMethod::TokenSource(TokenSource::watching([], move |_| others.clone())),
            ]),
            ..options
        }
    })
    .await;
    let at = world.gateway.address();
    let (header, alice) = shown("alice");
    let ticket = opened(at, &alice).await;
    let held = [(header, alice.as_str()), ("Mcp-Session-Id", &ticket)];
    let list = request("tools/list", &json!({}));
    assert_eq!(ask(at, &held, &list).await.status, 200);
    for (token, status) in [("bob", 200), ("carol", 401), ("dave", 200)] {
        let (header, shown) = shown(token);
        let reply = ask(at, &[(header, &shown)], &initialize()).await;
        assert_eq!(reply.status, status, "{token}");
    }
    fs::write(&file, "bob\n").unwrap();
    assert_eq!(ask(at, &held, &list).await.status, 401);
    fs::write(&file, "alice\n").unwrap();
    assert_eq!(ask(at, &held, &list).await.status, 200);
    world.gateway.set_auth(Auth::tokens(Vec::new()));
    assert_eq!(ask(at, &held, &list).await.status, 401);
    world.finish().await;
}

/// A69, reliability T3: a ticket of somebody else is answered like one that never was.
#[tokio::test]
async fn a_ticket_is_no_proof_of_who_somebody_is() {
    let world = world_of(&["alice", "bob"], |options| options).await;
    let at = world.gateway.address();
    let ticket = opened(at, &shown("alice").1).await;
    let list = request("tools/list", &json!({}));
    let (header, bob) = shown("bob");
    let heard = world.server.ledger().entries().len();
    let stolen = ask(at, &[(header, &bob), ("Mcp-Session-Id", &ticket)], &list).await;
    let never = ask(at, &[(header, &bob), ("Mcp-Session-Id", "never")], &list).await;
    assert_eq!((stolen.status, stolen.body), (404, never.body));
    let heard_now = world.server.ledger().entries().len();
    assert_eq!(heard_now, heard, "nothing of it reached the server");
    world.finish().await;
}

/// A71, reliability F86: a header names somebody only where a trusted proxy sends it.
#[tokio::test]
async fn a_header_names_somebody_only_if_a_trusted_proxy_sends_it() {
    for (addresses, status) in [("127.0.0.0/8", 200), ("10.0.0.0/8", 401)] {
        let world = World::with(Personality::legacy(), |options| GatewayOptions {
            auth: Auth::AnyOf(vec![AuthMethod::TrustedProxies(TrustedProxies {
                addresses: vec![IpNetwork::parse(addresses).unwrap()],
                header: http::HeaderName::from_static("x-user"),
            })]),
            ..options
        })
        .await;
        let at = world.gateway.address();
        let named = ask(at, &[("X-User", "alice")], &initialize()).await;
        assert_eq!(named.status, status, "{addresses}");
        let ticket = named.header("mcp-session-id").unwrap_or("none").to_owned();
        let list = request("tools/list", &json!({}));
        let other = [("X-User", "bob"), ("Mcp-Session-Id", ticket.as_str())];
        let other = ask(at, &other, &list).await.status;
        assert_eq!(other, if status == 200 { 404 } else { 401 });
        for headers in [
            &[("X-User", "")][..],
            &[("X-User", "a"), ("X-User", "b")],
            &[],
        ] {
            let refused = ask(at, headers, &initialize()).await;
            assert_eq!(refused.status, 401);
            let said = refused.json()["error"]["message"].to_string();
            let holds = said.contains("through a trusted proxy");
            assert!(holds, "no token helps: {said}");
        }
        world.finish().await;
    }
}

/// reliability T7: a listener that others can reach does not start without asking who they are.
#[tokio::test]
async fn a_listener_that_others_can_reach_must_ask() {
    let warm = Warmline::builder().build().unwrap();
    let open = GatewayOptions {
        listen: ([0, 0, 0, 0], 0).into(),
        ..GatewayOptions::default()
    };
    let refused = Gateway::start(warm.clone(), open.clone()).await;
    assert!(matches!(refused, Err(StartError::OpenToNetwork(_))));
    let asks = known(open, warm.vault(), &["alice"]);
    let gateway = Gateway::start(warm.clone(), asks).await.unwrap();
    // It never stops to ask, whatever a later configuration says.
    gateway.set_auth(Auth::None);
    let at = (std::net::Ipv4Addr::LOCALHOST, gateway.address().port()).into();
    assert_eq!(ask(at, &[], &initialize()).await.status, 401);
    gateway.stop().await;
    warm.close().await;
}

/// Our own user comes in by a socket of this machine without a token, and the file is theirs.
#[tokio::test]
async fn our_own_user_comes_in_by_the_local_socket() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.sock");
    // A socket that nobody listens on any more is in nobody's way.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let socket = path.clone();
    let world = world_of(&["alice"], |options| GatewayOptions {
        socket: Some(socket),
        ..options
    })
    .await;
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let by_socket = UnixStream::connect(&path).await.unwrap();
    let reply = send_on(by_socket, &post(PATH, &[], &initialize())).await;
    assert_eq!(reply.status, 200);
    let same = GatewayOptions {
        socket: Some(path.clone()),
        ..local()
    };
    let taken = Gateway::start(world.warm.clone(), same).await;
    assert!(matches!(taken, Err(StartError::Socket(..))));
    world.finish().await;
    assert!(!path.exists(), "it goes with the gateway");
}

/// Rules hold in the list, at the call, and on every request of a ticket from before.
#[tokio::test]
async fn rules_hold_in_lists_and_calls() {
    let whose = |name: &str| AccessSubject::Identity(name.to_owned());
    let about = |whose, tools: &[&str]| AccessRule {
        subject: whose,
        tools: Some(tools.iter().map(|tool| (*tool).to_owned()).collect()),
    };
    let rules = DeclaredAccess {
        allow: vec![about(whose("alice"), &["e*"]), about(whose("bob"), &["*"])],
        deny: vec![about(AccessSubject::Everyone, &["pay*"])],
    };
    let world = world_of(&["alice", "bob", "eve"], |options| GatewayOptions {
        rules: AccessRules::none().with_server(LEDGER, rules),
        ..options
    })
    .await;
    let at = world.gateway.address();
    let (header, alice) = shown("alice");
    let ticket = opened(at, &alice).await;
    let held = [(header, alice.as_str()), ("Mcp-Session-Id", &ticket)];
    let listed = ask(at, &held, &request("tools/list", &json!({}))).await;
    let listed = listed.json();
    let tools = listed["result"]["tools"].as_array().unwrap();
    assert!(!tools.is_empty());
    for tool in tools {
        assert!(tool["name"].as_str().unwrap().starts_with('e'), "{tool}");
    }
    let echoed = ask(at, &held, &call("echo", &json!({ "a": 1 }))).await;
    assert!(echoed.json()["result"].is_object(), "{echoed:?}");
    let before = world.server.ledger().entries().len();
    let refused = ask(at, &held, &call("counter", &json!({}))).await;
    let error = &refused.json()["error"];
    assert_eq!(error["code"], 7501);
    assert_eq!(error["data"]["warmline"]["code"], "not-allowed");
    let sent = world.server.ledger().entries().len() - before;
    assert_eq!(sent, 0);
    let (_, eve) = shown("eve");
    assert_eq!(ask(at, &[(header, &eve)], &initialize()).await.status, 404);
    world.finish().await;
}

/// reliability T5, reliability T9: what a client shows to be let in is in no request to a server,
/// no audit line, no error, no line of the log and no number.
#[tokio::test]
async fn a_token_of_a_client_goes_no_further_than_the_door() {
    let (book, _guard) = Logbook::open();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.jsonl");
    let to = file.clone();
    let world = World::knowing(Personality::legacy(), |options, vault| GatewayOptions {
        auth: Auth::tokens(vec![BearerToken::from_text(vault, "alice", CANARY)]),
        audit: Some(AuditOptions {
            file: to,
            arguments: vec!["named".to_owned()],
        }),
        ..options
    })
    .await;
    let at = world.gateway.address();
    let (header, token) = shown(CANARY);
    let shown = [
        (header, token.as_str()),
        (
            "traceparent",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ),
        ("User-Agent", "by-hand/1"),
        ("Warmline-Run", "r1"),
    ];
    let mut said = String::new();
    let arguments = json!({ "named": "kept", "secret": "hidden-argument" });
    for message in [
        initialize(),
        call("echo", &arguments),
        call("no-such-tool", &json!({})),
    ] {
        said += &ask(at, &shown, &message).await.body;
    }
    said += &ask(at, &[(header, &format!("{token}x"))], &initialize())
        .await
        .body;
    let server = format!("{:?}", world.server.ledger().entries());
    assert!(server.contains("echo"));
    let numbers = format!("{:?}", world.warm.snapshot());
    world.finish().await;
    let lines = audit_lines(&file);
    let audit = json!(lines).to_string();
    let log = book.lines().join("\n");
    assert!(log.contains("ledger"), "the log was heard");
    for (place, text) in [
        ("server", &server),
        ("client", &said),
        ("audit", &audit),
        ("log", &log),
        ("numbers", &numbers),
    ] {
        assert!(!text.contains(CANARY), "{place}");
    }
    assert!(!audit.contains("hidden-argument"));
    audited(&lines);
}

/// The line of the call, and that of somebody who was not let in.
fn audited(lines: &[Value]) {
    let echoed = lines.iter().find(|line| line["tool"] == "echo").unwrap();
    for (name, expected) in [
        ("subject", json!("alice")),
        ("server", json!(LEDGER)),
        ("method", json!("tools/call")),
        ("run", json!("r1")),
        ("client", json!("by-hand/1")),
        ("delivery", json!("answered")),
        ("trace", json!("0af7651916cd43dd8448eb211c80319c")),
        ("arguments", json!({ "named": "kept" })),
    ] {
        assert_eq!(echoed[name], expected, "{name}");
    }
    assert!(echoed["duration_us"].is_u64() && echoed["time"].is_string());
    let greeted = lines.iter().find(|line| line["method"] == "initialize");
    assert_eq!(greeted.unwrap()["client"], "by-hand 1");
    let refused = lines.last().unwrap();
    assert_eq!(refused["refused"], "unknown-token");
    assert_eq!(refused["subject"], "nobody");
}
