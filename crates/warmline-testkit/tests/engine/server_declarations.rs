//! What is said of a server before it is called: by a file, by a version, by a catalogue.

use crate::prelude::*;

use warmline_config::{Config, ConfigFolders};
use warmline_core::era::Version;
use warmline_engine::server_resolver::{ResolvedServer, ServerResolver};
use warmline_store::{BoxFuture, FileStore, ServerDescriptor};

/// A166: a word that is none stops the program from loading, and says in which file, at which key
/// and which value.
#[test]
fn an_unknown_value_stops_the_loading() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("nowhere");
    let folders = ConfigFolders {
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
        let ledger = world.in_run();
        assert!(ledger.tools().await.unwrap().len() > 5);
        for list in [
            ListKind::Resources,
            ListKind::ResourceTemplates,
            ListKind::Prompts,
        ] {
            ledger.list(list).await.unwrap();
        }
        done(ledger.call("echo", json!({ "a": 1 }))).await;
        ledger
            .call("fail", json!({}))
            .await
            .unwrap()
            .ok()
            .unwrap_err();
        let steps = ledger.call("progress", json!({ "steps": 3 }));
        steps.on_notification(|_| {}).await.unwrap().ok().unwrap();
        let paid = world.pay(&ledger, version.as_str()).await;
        paid.unwrap().ok().unwrap();
        let asked = ledger.request("no/such/method", json!({})).await;
        assert_eq!(asked.unwrap_err().delivery(), Delivery::Answered);
        if version.era() == Era::Legacy {
            ledger.ping().await.unwrap();
            world.control().forget_sessions();
            assert_eq!(count(&ledger).await, 1);
        }
        assert_eq!(ledger.info().await.unwrap().version, version);
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
        let run = warm.named_run("chat").unwrap();
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
        let run = warm.begin_run();
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
    let (address, url) = (proxy.address(), proxy.proxied_url(&old.url()));
    let speaks = async || {
        let warm = a_life(&folder, &url);
        let run = warm.begin_run();
        let ledger = run.server(LEDGER).unwrap();
        ledger.call("echo", json!({})).await.unwrap().ok().unwrap();
        let era = ledger.info().await.unwrap().era;
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
        .vault(Keyring::in_folder(folder.path()).unwrap())
        .store(FileStore::in_folder(folder.path().join("sessions")))
        .build()
        .unwrap()
}

/// Knows servers by their folder and short name.
#[derive(Clone, Debug, Default)]
struct Catalogue {
    url: String,
    asked: Arc<Mutex<Vec<ServerDescriptor>>>,
}

impl ServerResolver for Catalogue {
    fn resolve<'a>(
        &'a self,
        card: &'a ServerDescriptor,
    ) -> BoxFuture<'a, Result<ResolvedServer, Diagnostic>> {
        self.asked.lock().unwrap().push(card.clone());
        Box::pin(std::future::ready(ResolvedServer::from_url(&self.url)))
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
    let run = warm.begin_run();
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
    let (address, url) = (proxy.address(), proxy.proxied_url(&modern.url()));
    let declared = Server::http(LEDGER, url);
    let warm = Warmline::builder().server(declared).build().unwrap();
    let run = warm.begin_run();
    let ledger = run.server(LEDGER).unwrap();
    let pay = |account: &str| ledger.call("pay", json!({ "amount": 1, "account": account }));
    pay("modern").await.unwrap().ok().unwrap();
    assert_eq!(ledger.info().await.unwrap().era, Era::Modern);
    // Inside a run a first contact asks for the other era as well.
    let met = modern.ledger().messages_received("initialize");
    // What other errors say makes nobody look again.
    for status in [404, 400, 500] {
        let canned = CannedReply::new(status, "Session not found");
        modern.inject(FaultRule::new(Fault::Reply(canned)).on_tool("get"));
        let asked = ledger.call("get", json!({ "key": "a" })).not_repeatable();
        asked.await.unwrap_err();
    }
    pay("still modern").await.unwrap().ok().unwrap();
    let received = modern.ledger().messages_received("initialize");
    assert_eq!(received, met, "not met anew");

    drop(proxy);
    let proxy = FaultProxy::start_on(address, legacy.address()).unwrap();
    // Whoever finds it out may be refused, but nothing of theirs was executed.
    if let Err(error) = pay("first").await {
        assert!(error.delivery().is_safe_to_retry(), "{error:?}");
        assert_eq!(legacy.ledger().executions("pay"), 0);
        pay("first").await.unwrap().ok().unwrap();
    }
    assert_eq!(legacy.ledger().executions("pay"), 1);
    assert_eq!(ledger.info().await.unwrap().era, Era::Legacy);
    run.end().await;
    warm.close().await;
    drop(proxy);
}
