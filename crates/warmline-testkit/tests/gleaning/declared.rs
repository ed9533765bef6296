//! What is said of a server before it is called: by a file, by a version, by a catalogue.

use std::sync::{Arc, Mutex};

use serde_json::json;
use warmline::config::{Config, Folders};
use warmline::core::code::Code;
use warmline::core::delivery::Delivery;
use warmline::core::era::{Era, Version};
use warmline::core::exchange::Trouble;
use warmline::resolve::{Resolved, ServerResolver};
use warmline::seal::Vault;
use warmline::store::{FileStore, ServerCard, Stepping};
use warmline::upstream::List;
use warmline::{Server, Warmline};
use warmline_testkit::{Canned, Fault, FaultProxy, LedgerServer, Personality, Rule};

use super::world::{LEDGER, World, count};

/// A166: a word that is none stops the program from loading, and says in which file, at which key
/// and which value.
#[test]
fn an_unknown_value_stops_the_loading() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("nowhere");
    let folders = Folders {
        working: nowhere.clone(),
        user: None,
        system: nowhere,
        state: None,
    };
    let cases = [
        (
            "warmline.toml",
            "[servers.a]\nurl = 'http://127.0.0.1:9/mcp'\nsessions = 'sometimes'\n",
            "sessions",
        ),
        (
            "capabilities.json",
            r#"{"mcp_metadata": {"server_url": "http://127.0.0.1:9/mcp", "server_name": "a"},
                "mcp_requires_session": "sometimes"}"#,
            "mcp_requires_session",
        ),
    ];
    for (name, text, key) in cases {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        let error = Config::read(Some(&file), &folders).unwrap_err();
        let said = format!("{error} {error:?}");
        for word in [name, key, "sometimes"] {
            assert!(said.contains(word), "no {word} in {said}");
        }
    }
}

/// A174: exactly the version that is said is offered; a server that wants another is an error that
/// names both, and nothing is called.
#[tokio::test]
async fn a_pinned_version_is_offered_alone() {
    for version in [Version::V2024_11_05, Version::V2025_06_18] {
        let world = World::with(Personality::dual(), |server| server.version(version));
        let run = world.warm.begin();
        let ledger = run.server(LEDGER).unwrap();
        count(&ledger).await;
        assert_eq!(ledger.facts().await.unwrap().version, version);
        let entries = world.server.ledger().entries();
        assert_eq!(entries[0].method, "initialize");
        assert_eq!(entries[0].arguments["protocolVersion"], version.as_str());
        run.end().await;
        world.finish().await;
    }
    let refusal = Fault::Error {
        code: -32602,
        message: "Unsupported protocol version".to_owned(),
        data: json!({ "supported": ["2025-06-18"], "requested": "2024-11-05" }),
    };
    for refuses in [true, false] {
        let personality = Personality::legacy().legacy_versions(&["2025-06-18"]);
        let world = World::with(personality, |server| server.version(Version::V2024_11_05));
        if refuses {
            world
                .server
                .inject(Rule::new(refusal.clone()).on("initialize"));
        }
        let error = world.pay(&world.ledger(), "pinned").await.unwrap_err();
        assert_eq!(error.delivery(), Delivery::Unsent);
        let said = format!("{error:?}");
        for version in ["2024-11-05", "2025-06-18"] {
            assert!(said.contains(version), "{said}");
        }
        world.finish().await;
    }
}

/// A151: with a server of each version, the last as well as those between, everything the library
/// does is what that version allows: the server finds nothing to complain about.
#[tokio::test]
async fn every_version_is_spoken_as_it_is_written() {
    for version in Version::ALL {
        let personality = match version.era() {
            Era::Legacy => Personality::legacy().legacy_versions(&[version.as_str()]),
            Era::Modern => Personality::modern(),
        };
        let world = World::new(personality);
        let run = world.warm.begin();
        let ledger = run.server(LEDGER).unwrap();
        assert!(ledger.tools().await.unwrap().len() > 5);
        for list in [List::Resources, List::Templates, List::Prompts] {
            ledger.list(list).await.unwrap();
        }
        ledger
            .call("echo", json!({ "a": 1 }))
            .await
            .unwrap()
            .ok()
            .unwrap();
        ledger
            .call("fail", json!({}))
            .await
            .unwrap()
            .ok()
            .unwrap_err();
        let steps = ledger.call("progress", json!({ "steps": 3 }));
        steps.on_news(|_| {}).await.unwrap().ok().unwrap();
        world
            .pay(&ledger, version.as_str())
            .await
            .unwrap()
            .ok()
            .unwrap();
        let asked = ledger.request("no/such/method", json!({})).await;
        assert_eq!(asked.unwrap_err().delivery(), Delivery::Answered);
        if version.era() == Era::Legacy {
            ledger.ping().await.unwrap();
            world.server.control().forget_sessions();
            assert_eq!(count(&ledger).await, 1);
        }
        assert_eq!(ledger.facts().await.unwrap().version, version);
        run.end().await;
        world.finish().await;
    }
}

/// A171: what was found out of a server is known to the next life of the program: the first call of
/// the run uses the session at once, and the server is not asked what it is.
#[tokio::test]
async fn what_was_found_out_is_known_after_a_restart() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for number in 1..=3 {
        let before = server.ledger().methods().len();
        let warm = a_life(&folder, &server.url());
        let run = warm.named("chat").unwrap();
        assert_eq!(count(&run.server(LEDGER).unwrap()).await, number);
        if number > 1 {
            let sent = server.ledger().methods().split_off(before);
            assert_eq!(sent, ["tools/call"]);
        }
        if number < 3 {
            run.detach();
        } else {
            run.end().await;
        }
        warm.close().await;
    }
    assert_eq!(server.violations(), Vec::<String>::new());
}

/// A171: what was found out is known to a later start, also in a run that is new: its session is
/// opened at once, and nobody probes.
#[tokio::test]
async fn a_new_run_of_a_later_start_opens_its_session_at_once() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for number in 0..4 {
        let before = server.ledger().methods().len();
        let warm = a_life(&folder, &server.url());
        let run = warm.begin();
        assert_eq!(count(&run.server(LEDGER).unwrap()).await, 1);
        run.end().await;
        // Outside a run, too.
        assert_eq!(count(&warm.server(LEDGER).unwrap()).await, 1);
        let sent = server.ledger().methods().split_off(before);
        let probes = sent.iter().filter(|method| *method == "server/discover");
        assert_eq!(probes.count(), usize::from(number == 0), "{sent:?}");
        warm.close().await;
    }
    assert_eq!(server.violations(), Vec::<String>::new());
}

/// A171: a server that became something else is not taken for what it was, and the next start
/// knows.
#[tokio::test]
async fn a_server_that_became_another_is_found_out_after_a_restart() {
    let old = LedgerServer::start(Personality::legacy()).unwrap();
    let new = LedgerServer::start(Personality::modern()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let proxy = FaultProxy::start(old.address()).unwrap();
    let (address, url) = (proxy.address(), proxy.url(&old.url()));
    let speaks = async || {
        let warm = a_life(&folder, &url);
        let run = warm.begin();
        let ledger = run.server(LEDGER).unwrap();
        ledger.call("echo", json!({})).await.unwrap().ok().unwrap();
        let era = ledger.facts().await.unwrap().era;
        run.end().await;
        warm.close().await;
        era
    };
    assert_eq!(speaks().await, Era::Legacy);
    drop(proxy);
    let proxy = FaultProxy::start_on(address, new.address()).unwrap();
    for number in 0..2 {
        let before = new.ledger().methods().len();
        assert_eq!(speaks().await, Era::Modern);
        let sent = new.ledger().methods().split_off(before);
        // At first it is taken for what it was; then it is asked.
        let first = ["initialize", "server/discover"][number];
        assert_eq!(sent.first().unwrap(), first, "{sent:?}");
    }
    drop(proxy);
}

fn a_life(folder: &tempfile::TempDir, url: &str) -> Warmline {
    Warmline::builder()
        .server(Server::http(LEDGER, url))
        .vault(Vault::in_folder(folder.path()).unwrap())
        .store(FileStore::in_folder(folder.path().join("sessions")))
        .build()
        .unwrap()
}

/// Knows servers by their folder and short name.
#[derive(Clone, Debug, Default)]
struct Catalogue {
    url: String,
    asked: Arc<Mutex<Vec<ServerCard>>>,
}

impl ServerResolver for Catalogue {
    fn resolve<'a>(&'a self, card: &'a ServerCard) -> Stepping<'a, Result<Resolved, Trouble>> {
        self.asked.lock().unwrap().push(card.clone());
        Box::pin(std::future::ready(Resolved::at(&self.url)))
    }
}

/// S33: a resolver is told the short name and the folder that a server is looked up by.
#[tokio::test]
async fn a_resolver_looks_a_server_up_by_its_slug_and_folder() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let catalogue = Catalogue {
        url: server.url(),
        ..Catalogue::default()
    };
    let declared = Server::resolved(LEDGER, catalogue.clone()).card(|card| {
        card.slug = Some("the-ledger".to_owned());
        card.folder = Some("Shared/Tools".to_owned());
    });
    let warm = Warmline::builder().server(declared).build().unwrap();
    let run = warm.begin();
    assert_eq!(count(&run.server(LEDGER).unwrap()).await, 1);
    let asked = catalogue.asked.lock().unwrap().clone();
    let [card] = asked.as_slice() else {
        panic!("{asked:?}");
    };
    assert_eq!(card.slug.as_deref(), Some("the-ledger"));
    assert_eq!(card.folder.as_deref(), Some("Shared/Tools"));
    assert_eq!((card.name.as_str(), card.url.as_deref()), (LEDGER, None));
    run.end().await;
    warm.close().await;

    // Nobody to ask: that is said before anything is sent.
    let nowhere = warm_without_a_resolver();
    let error = nowhere.unwrap_err();
    assert_eq!(error.code(), Code::ConfigBadValue, "{error:?}");
}

fn warm_without_a_resolver() -> warmline::Result<Warmline> {
    Warmline::builder().server(Server::http(LEDGER, "")).build()
}

/// A162: a modern server became a legacy one in the middle of a run: an answer that only the other era
/// gives makes us look at it again, and nothing is executed twice.
#[tokio::test]
async fn an_answer_of_the_other_era_leads_to_another_look() {
    let modern = LedgerServer::start(Personality::modern()).unwrap();
    let legacy = LedgerServer::start(Personality::legacy()).unwrap();
    let proxy = FaultProxy::start(modern.address()).unwrap();
    let (address, url) = (proxy.address(), proxy.url(&modern.url()));
    let declared = Server::http(LEDGER, url);
    let warm = Warmline::builder().server(declared).build().unwrap();
    let run = warm.begin();
    let ledger = run.server(LEDGER).unwrap();
    let pay = |account: &str| ledger.call("pay", json!({ "amount": 1, "account": account }));
    pay("modern").await.unwrap().ok().unwrap();
    assert_eq!(ledger.facts().await.unwrap().era, Era::Modern);
    // Inside a run a first contact asks for the other era as well.
    let met = modern.ledger().received("initialize");
    // What other errors say makes nobody look again.
    for status in [404, 400, 500] {
        let canned = Canned::new(status, "Session not found");
        modern.inject(Rule::new(Fault::Reply(canned)).on_tool("get"));
        let asked = ledger.call("get", json!({ "key": "a" })).not_repeatable();
        asked.await.unwrap_err();
    }
    pay("still modern").await.unwrap().ok().unwrap();
    assert_eq!(modern.ledger().received("initialize"), met, "not met anew");

    drop(proxy);
    let proxy = FaultProxy::start_on(address, legacy.address()).unwrap();
    // Whoever finds it out may be refused, but nothing of theirs was executed.
    if let Err(error) = pay("first").await {
        assert!(error.delivery().is_safe(), "{error:?}");
        assert_eq!(legacy.ledger().executions("pay"), 0);
        pay("first").await.unwrap().ok().unwrap();
    }
    assert_eq!(legacy.ledger().executions("pay"), 1);
    assert_eq!(ledger.facts().await.unwrap().era, Era::Legacy);
    run.end().await;
    warm.close().await;
    drop(proxy);
}
