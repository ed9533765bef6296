//! Servers that are programs: their processes, their handles, their last words.

use crate::prelude::*;

use futures_util::FutureExt as _;

fn engine(server: Server) -> Warmline {
    Warmline::builder().server(server).build().unwrap()
}

/// A35, A28, P115: a program that dies during its start is told with its last words.
#[tokio::test]
async fn a_program_that_dies_at_its_start_is_told_with_its_last_words() {
    let script = r"printf 'no license \377 found\n' >&2; exit 3";
    let warm = engine(Server::stdio("broken", ["sh", "-c", script]));
    let mut events = warm.events();
    let error = warm
        .server("broken")
        .unwrap()
        .call("any", json!({}))
        .await
        .unwrap_err();
    let words = format!("{error:?}");
    for word in ["broken", "exit status 3", "no license \u{fffd} found"] {
        assert!(words.contains(word), "{words}");
    }
    assert_eq!(error.delivery(), Delivery::Unsent);
    // Every event is a line of the log, with the name of its server.
    let Some(Some(EventItem::Event(Event::OpenFailed { session, what, .. }))) =
        events.next().now_or_never()
    else {
        panic!("an opening that failed is told");
    };
    assert_eq!(&*session.server, "broken");
    assert!(what.contains("exit status 3"), "{what}");
    drop(events);
    warm.close().await;
    agrees(&warm.snapshot());
    drop(warm);
    nothing_left().await;
}

/// A29, E12: a program that is not named, or not there, is told before or at its first call.
#[tokio::test]
async fn a_declaration_without_its_place_is_an_error_by_name() {
    let bad = [
        Server::stdio("nameless", Vec::<String>::new()),
        Server::stdio("blank", [" "]),
        Server::http("no-url", ""),
        Server::http("half-url", "example.com"),
        Server::http("Bad Name", "http://127.0.0.1:9/"),
    ];
    for server in bad {
        let name = server.name().to_owned();
        let built = Warmline::builder().server(server.clone()).build();
        let error = built.unwrap_err();
        assert_eq!(error.code().as_str(), "config-bad-value", "{name}");
        assert!(format!("{error:?}").contains(&name), "{error:?}");
        let late = Warmline::builder().build().unwrap();
        assert_eq!(late.add_server(server).unwrap_err().code(), error.code());
    }
    let warm = engine(Server::stdio("missing", ["no-such-program-anywhere"]));
    let missing = warm.server("missing").unwrap();
    let error = missing.call("any", json!({})).await.unwrap_err();
    assert!(format!("{error:?}").contains("no-such-program-anywhere"));
    assert_eq!(error.delivery(), Delivery::Unsent);
    warm.close().await;
}

/// reliability D9: the task that serves a program dies with its runtime. What was not sent goes to
/// another process, and the loss is told.
#[test]
fn a_call_goes_on_when_the_task_of_its_program_died_with_its_runtime() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().build().unwrap()
    };
    let program = Program::ledger(&["--personality", "legacy"]);
    let warm = engine(program.declared("child"));
    let first = runtime();
    let run = first.block_on(async {
        let run = warm.begin_run();
        assert_eq!(count(&run.server("child").unwrap()).await, 1);
        run
    });
    first.shutdown_timeout(Duration::from_secs(5));
    runtime().block_on(async {
        let child = run.server("child").unwrap();
        let result = child.call("counter", json!({})).await.unwrap();
        assert!(result.state_lost());
        assert_eq!((counted(&result), program.starts()), (1, 2));
        run.end().await;
        warm.close().await;
        program.gone().await;
    });
}

/// Hangs at its start unless it is told to be well, and notes each process that starts while
/// another one of it is alive.
const HANGS: &str = r#"
for other in "$WARMLINE_STAGE"/*.pid; do
    [ -f "$other" ] && kill -0 "$(basename "$other" .pid)" 2>/dev/null && echo "$$" >> "$WARMLINE_STAGE/beside"
done
: > "$WARMLINE_STAGE/$$.pid"
[ -f "$WARMLINE_STAGE/well" ] && exec "$0" --stdio "$@"
sleep 60
"#;

/// reliability I22: a start that is given up, at a first contact and later, takes up room until
/// its process is gone: where one process has room there are never two.
#[tokio::test]
async fn a_start_that_is_given_up_has_room_until_its_process_is_gone() {
    let ledger = env!("CARGO_BIN_EXE_warmline-ledger");
    let program = Program::of(["-c", HANGS, ledger, "--personality", "legacy"].into_iter());
    let place = std::path::PathBuf::from(program.place());
    let starts = || {
        let files = std::fs::read_dir(&place).unwrap().flatten();
        files
            .filter(|file| file.path().extension().is_some_and(|end| end == "pid"))
            .count()
    };
    let warm = Warmline::builder()
        .server(program.declared("child"))
        .limits(|ceilings| ceilings.processes = 1)
        .build()
        .unwrap();
    for when in ["at the first contact", "at a later opening"] {
        let before = starts();
        let given_up = warm.begin_run();
        let child = given_up.server("child").unwrap();
        let call = tokio::spawn(async move { child.call("counter", json!({})).await });
        until("the process hangs", || starts() > before).await;
        given_up.end().await;
        assert!(call.await.unwrap().is_err(), "{when}");
        std::fs::write(place.join("well"), "").unwrap();
        let run = warm.begin_run();
        assert_eq!(count(&run.server("child").unwrap()).await, 1, "{when}");
        run.end().await;
        assert!(!place.join("beside").exists(), "two processes, {when}");
        std::fs::remove_file(place.join("well")).unwrap();
    }
    warm.close().await;
    program.gone().await;
}
