//! What the log and the audit say of requests that are refused.

use crate::prelude::*;

use warmline_engine::credentials::Secret;
use warmline_gateway::AccessRule as Allowing;

use super::modern::raw_client::{Wire, call as modern_call, request as modern};

/// A request by hand that the legacy face reads.
fn greeting() -> Wire {
    let body = initialize("2025-11-25", json!({})).to_string();
    modern("initialize", json!({}))
        .without("MCP-Protocol-Version")
        .without("Mcp-Method")
        .body(&body)
}

/// Messages that a face refuses for their era, and one for a name, each with the kind of its server
/// and what the log says.
fn refused() -> Vec<(Personality, Wire, &'static str)> {
    let list = || modern("tools/list", json!({}));
    vec![
        (
            Personality::modern(),
            list().without("Mcp-Method"),
            "reason=\"message\" status=400 code=-32020",
        ),
        (
            Personality::modern(),
            modern("ping", json!({})),
            "reason=\"message\" status=404 code=-32601",
        ),
        (
            Personality::modern(),
            greeting(),
            "reason=\"era\" status=400 code=-32022",
        ),
        (
            Personality::legacy(),
            list(),
            "reason=\"era\" status=400 code=-32600 what=\"Bad Request: this server begins with initialize; only 2025-11-25 and older",
        ),
        (
            Personality::legacy(),
            list().at("/mcp"),
            "reason=\"era\" status=400 code=-32600",
        ),
        (
            Personality::legacy(),
            greeting().at("/mcp").changed(|body| {
                *body = call(1, "nobody__echo", json!({}));
            }),
            "reason=\"message\" status=200 code=-32602",
        ),
    ]
}

/// reliability O25: what a face refuses is one line of the log, whatever its status; the same
/// again is only counted.
#[tokio::test]
async fn a_message_that_a_face_refuses_is_one_line() {
    let (book, _guard) = Logbook::open();
    for (personality, wire, said) in refused() {
        let world = World::new(personality).await;
        let before = book.lines().len();
        for _ in 0..3 {
            wire.clone().send(&world).await;
        }
        let lines = book.lines().split_off(before);
        let refused = lines.iter().filter(|line| line.contains("request refused"));
        let refused: Vec<_> = refused.collect();
        let holds = refused.iter().all(|line| line.contains(said));
        assert!(holds, "{refused:#?}");
        let told = |level: &str| {
            refused
                .iter()
                .filter(|line| line.starts_with(level))
                .count()
        };
        // Trying another era first is what clients of both do.
        let expected = match said.contains("reason=\"era\"") {
            true => (0, 3),
            false => (1, 2),
        };
        let found = (told("INFO"), told("DEBUG"));
        assert_eq!(found, expected, "{said}: {lines:#?}");
        world.finish().await;
    }
}

/// A token that a server refuses is told in the log by where it came from, and by that alone; who
/// calls from elsewhere reads no path of this machine.
#[tokio::test]
async fn a_refused_token_is_told_by_its_source() {
    let (book, _guard) = Logbook::open();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token-file");
    fs::write(&file, "canary-refused").unwrap();
    let server = LedgerServer::start(Personality::legacy().token("another")).unwrap();
    let declared = Server::http("ledger", server.url()).bearer(Secret::file(&file));
    let world = Merged::beside(Vec::new(), vec![declared], |options| options).await;
    let hello = initialize("2025-11-25", json!({}));
    let (at, path) = (world.gateway.address(), "/servers/ledger/mcp");
    let mut said = raw_http::post(at, path, &[], &hello).await;
    let said = said.answer().await.to_string();
    world.finish().await;
    assert!(said.contains("credential-refused"), "{said}");
    let line = book.lines_with("opening failed").remove(0);
    let from = format!("comes from file {}", file.display());
    assert!(line.starts_with("WARN") && line.contains(&from), "{line}");
    assert!(!said.contains("token-file"), "{said}");
    assert!(!format!("{said}{:?}", book.lines()).contains("canary-refused"));
}

fn audited(options: GatewayOptions, file: &Path) -> GatewayOptions {
    let rules = denied(None);
    GatewayOptions {
        rules: AccessRules::none().with_server("b", rules),
        audit: Some(audit_into(file.to_owned())),
        list_share: SHARE,
        ..options
    }
}

/// So long a server may take that is asked among others.
const SHARE: Duration = Duration::from_secs(2);

/// A file for the audit, in a folder that goes with the story.
fn file() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.jsonl");
    (folder, file)
}

/// What stands in the audit of each line: its method or path, and how it ended.
fn outcomes(file: &Path) -> Vec<(String, String)> {
    let lines = audit_lines(file).into_iter().map(|line| {
        let word = |names: [&str; 3]| {
            let said = names.iter().find_map(|name| line[*name].as_str());
            said.unwrap_or_else(|| panic!("{line}")).to_owned()
        };
        (
            word(["tool", "method", "path"]),
            word(["refused", "code", "delivery"]),
        )
    });
    lines.collect()
}

fn expected(said: &[(&str, &str)]) -> Vec<(String, String)> {
    let said = said.iter();
    said.map(|(what, how)| ((*what).to_owned(), (*how).to_owned()))
        .collect()
}

/// DESIGN 7: one line for each call and each refusal, also for what is refused before any server is
/// asked. What is hidden from a client is not hidden from the audit.
#[tokio::test]
async fn every_refusal_at_the_place_of_all_servers_is_in_the_audit() {
    let (_folder, file) = file();
    let servers = ["a", "b", "c"].map(|name| (name, Personality::legacy()));
    let to = file.clone();
    let world = Merged::beside(servers.to_vec(), Vec::new(), |options| {
        audited(options, &to)
    })
    .await;
    let client = world.greet("/mcp", json!({})).await;
    let hidden = client.call("b__echo", json!({})).await;
    let missing = client.call("d__echo", json!({})).await;
    assert_eq!(hidden["error"]["code"], missing["error"]["code"]);
    client.call("echo", json!({})).await;
    ask(&client, "tools/list", json!({ "cursor": "zz" })).await;
    ask(&client, "resources/subscribe", json!({ "uri": "zzz://q" })).await;
    client.call("a__echo", json!({})).await;
    let forged = Legacy {
        ticket: "forged".to_owned(),
        ..client.clone()
    };
    for response in [
        forged.post(&call(1, "a__echo", json!({}))).await,
        forged.get(None).await,
        forged.delete().await,
        request(client.address, "DELETE", "/runs/nope", &[], "").await,
    ] {
        assert_eq!(response.status, 404);
    }
    world.finish().await;
    let said = [
        ("initialize", "answered"),
        ("b__echo", "not-allowed"),
        ("d__echo", "bad-params"),
        ("echo", "bad-params"),
        ("tools/list", "bad-params"),
        // Nobody lists it, so it is looked for at both.
        ("resources/read", "answered"),
        ("resources/read", "answered"),
        ("resources/subscribe", "unknown-resource"),
        ("echo", "answered"),
        ("a__echo", "session-unknown"),
        ("/mcp", "session-unknown"),
        ("/mcp", "session-unknown"),
        ("/runs/nope", "run-unknown"),
    ];
    assert_eq!(outcomes(&file), expected(&said));
}

/// DESIGN 7: who may not do something reads the same in the audit, whichever rule says so, and whoever
/// sees to it: the engine, the face, or the door.
#[tokio::test]
async fn what_the_rules_refuse_reads_the_same_in_the_audit() {
    let (_folder, file) = file();
    let nobody = DeclaredAccess {
        allow: vec![Allowing {
            subject: AccessSubject::Identity("somebody else".to_owned()),
            tools: None,
        }],
        deny: Vec::new(),
    };
    let never = denied(Some("echo"));
    let ledgers: Vec<LedgerServer> = (0..3)
        .map(|_| LedgerServer::start(Personality::legacy()).unwrap())
        .collect();
    let server = |name: &str, ledger: &LedgerServer| Server::http(name, ledger.url());
    let servers = vec![
        server("plain", &ledgers[0]).deny(["echo"]),
        server("ruled", &ledgers[1]),
        server("whole", &ledgers[2]),
    ];
    let to = file.clone();
    let world = Merged::beside(Vec::new(), servers, |options| GatewayOptions {
        rules: AccessRules::none()
            .with_server("ruled", never)
            .with_server("whole", nobody),
        audit: Some(audit_into(to.clone())),
        ..options
    })
    .await;
    for name in ["plain", "ruled"] {
        let path = format!("/servers/{name}/mcp");
        let client = world.greet(&path, json!({})).await;
        client.call("echo", json!({})).await;
    }
    let at = world.gateway.address();
    let whole = "/servers/whole/mcp";
    raw_http::post(at, whole, &[], &initialize("2025-11-25", json!({}))).await;
    world.finish().await;
    let mut lines = audit_lines(&file);
    lines.retain(|line| line["delivery"] != "answered");
    let shown = ["server", "refused", "code", "delivery"];
    let lines: Vec<_> = lines
        .iter()
        .map(|line| shown.map(|name| &line[name]))
        .collect();
    let expected = |server| [server, "not-allowed", "not-allowed", "unsent"];
    assert_eq!(lines, ["plain", "ruled", "whole"].map(expected));
}

/// The same for a modern client; what it reads from whoever has it is in the audit as well.
#[tokio::test]
async fn every_refusal_of_a_modern_client_is_in_the_audit() {
    let (_folder, file) = file();
    let servers = ["a", "b", "c"].map(|name| (name, Personality::modern()));
    let to = file.clone();
    let world = Merged::modern_with(servers.to_vec(), |options| audited(options, &to)).await;
    let at = world.gateway.address();
    for wire in [
        modern_call("b__echo", json!({})),
        modern_call("d__echo", json!({})),
        modern("tools/list", json!({ "cursor": "zz" })),
        modern("made/up", json!({})),
        modern("resources/read", json!({ "uri": "zzz://q" })),
        modern_call("a__echo", json!({})),
    ] {
        wire.at("/mcp").send_to(at).await;
    }
    world.finish().await;
    let said = [
        ("b__echo", "not-allowed"),
        ("d__echo", "bad-params"),
        ("tools/list", "bad-params"),
        ("made/up", "unknown-method"),
        ("resources/read", "answered"),
        ("resources/read", "answered"),
        ("echo", "answered"),
    ];
    assert_eq!(outcomes(&file), expected(&said));
}

/// A resource that nobody lists is looked for at all servers at once: however many of them hang,
/// their client waits for one share, and the audit says of each that nobody knows.
#[tokio::test]
async fn servers_that_hang_are_asked_together_and_called_late() {
    let names = ["a", "c", "d", "e"];
    let hang = |world: &Merged| {
        for name in names {
            let silent = FaultRule::new(Fault::Silence(FaultTiming::BeforeExecuting));
            let silent = silent.on_method("resources/read").always();
            world.server(name).inject(silent);
        }
    };
    let uri = || json!({ "uri": "zzz://q" });
    let kind = |personality: fn() -> Personality| names.map(|name| (name, personality())).to_vec();
    let late = |file: &Path| {
        let late = expected(&[("resources/read", "deadline"); 4]);
        assert!(outcomes(file).ends_with(&late));
    };

    let (_folder, to) = file();
    let legacy = kind(Personality::legacy);
    let world = Merged::beside(legacy, Vec::new(), |options| audited(options, &to)).await;
    hang(&world);
    let client = world.greet("/mcp", json!({})).await;
    let begun = Instant::now();
    let answer = ask(&client, "resources/read", uri()).await;
    assert_eq!(answer["error"]["code"], -32002);
    assert!(begun.elapsed() < SHARE * 3, "{:?}", begun.elapsed());
    world.finish().await;
    late(&to);

    let (_folder, to) = file();
    let modern_ones = kind(Personality::modern);
    let world = Merged::modern_with(modern_ones, |options| audited(options, &to)).await;
    hang(&world);
    let begun = Instant::now();
    let read = modern("resources/read", uri()).at("/mcp");
    let answer = read.send_to(world.gateway.address()).await;
    assert_eq!(answer.refusal(), (200, -32602));
    assert!(begun.elapsed() < SHARE * 3, "{:?}", begun.elapsed());
    world.finish().await;
    late(&to);
}
