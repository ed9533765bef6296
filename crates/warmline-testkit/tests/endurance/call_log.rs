//! The log of calls, in a process of its own: who is asked about a line of the log is decided for a
//! whole process, and stories side by side would decide it for each other.

use warmline_core::policy::SessionScope;
use warmline_engine::relay::RelayHandle as _;
use warmline_testkit::Personality;

use crate::census::until;
use crate::fixture::{LEDGER, World, count};
use crate::log_capture::Logbook;

/// A53: each call writes one line that says how it came by its session, with server, run and the
/// shortened session, and is counted so.
#[test]
fn each_call_logs_how_it_came_by_its_session() {
    crate::play_alone(async {
        // The first to reach a line of the log decides who is asked about it, and other stories run
        // beside this one: it is reached once before the book is opened.
        let before = World::new(Personality::legacy());
        count(&before.ledger()).await;
        before.finish().await;
        let (book, _guard) = Logbook::open();
        let world = World::with(Personality::legacy(), |server| server.max_per_key(1));
        let run = world.warm.begin_run();
        let ledger = run.server(LEDGER).unwrap();
        for _ in 0..3 {
            count(&ledger).await;
        }
        let id = ledger.current_session().unwrap().id.unwrap();
        run.end().await;
        count(&world.ledger()).await;
        for (word, times) in [("miss", 1), ("hit", 2), ("ephemeral", 1)] {
            assert_eq!(world.number("acquires_total", &[word]), times, "{word}");
        }
        world.finish().await;
        wait_for_a_session().await;

        let lines = book.lines_with("session acquired");
        let how = |word: &str| -> Vec<&String> {
            let word = format!("how=\"{word}\"");
            lines.iter().filter(|line| line.contains(&word)).collect()
        };
        for (word, times) in [("miss", 1), ("hit", 2), ("ephemeral", 1), ("wait", 1)] {
            assert_eq!(how(word).len(), times, "{word}: {lines:#?}");
        }
        for line in how("miss").into_iter().chain(how("hit")) {
            assert!(line.starts_with("DEBUG "), "{line}");
            for field in ["server=", "run=", "session="] {
                assert!(line.contains(field), "no {field} in {line}");
            }
            assert!(!line.contains(&id), "the whole id stands in {line}");
        }
        for line in how("ephemeral") {
            for field in ["server=", "session="] {
                assert!(line.contains(field), "no {field} in {line}");
            }
        }
    });
}

/// A call has to wait until somebody else is done.
async fn wait_for_a_session() {
    let world = World::with(Personality::legacy(), |server| {
        server.session_per(SessionScope::Identity).max_per_key(1)
    });
    let alice = world.warm.identity("alice");
    let lease = alice.lease(LEDGER).await.unwrap();
    let waiting = alice.server(LEDGER).unwrap();
    let waiting = tokio::spawn(async move { count(&waiting).await });
    until("somebody waits", || world.number("waiters", &[]) == 1).await;
    drop(lease);
    waiting.await.unwrap();
    assert_eq!(world.number("acquires_total", &["wait"]), 1);
    drop(alice);
    world.finish().await;
}
