//! First contacts: what they open is counted like everything else, and goes with its run.

use crate::prelude::*;

use tokio::time::Instant;
use warmline_upstream::ClientProfile;

/// No caller here waits for room for longer.
fn impatient(server: Server) -> Server {
    server.with_policy(|policy| policy.wait = Duration::from_millis(300))
}

/// Calls a server of a run, and says what came of it and how many were alive at most meanwhile.
async fn call(run: &Run, name: &str, alive: impl Fn() -> usize) -> (Result<(), String>, usize) {
    let server = run.server(name).unwrap();
    let mut call = tokio::spawn(async move {
        let called = server.call("counter", json!({})).await;
        called
            .map(drop)
            .map_err(|error| error.code().as_str().to_owned())
    });
    let mut most = alive();
    loop {
        let tick = tokio::time::sleep(Duration::from_millis(5));
        tokio::select! {
            called = &mut call => return (called.unwrap(), most.max(alive())),
            () = tick => most = most.max(alive()),
        }
    }
}

/// Room that a first contact took for a caller who left goes to whoever waits for it,
/// whether that one came before the contact was made or after.
#[tokio::test]
async fn room_of_a_caller_who_left_goes_to_who_waits() {
    for is_first_made in [false, true] {
        let servers = [(); 2].map(|()| LedgerServer::start(Personality::legacy()).unwrap());
        let [left, wanted] = &servers;
        let slow = Fault::Delay(300, FaultTiming::BeforeExecuting);
        left.inject(FaultRule::new(slow).on_method("initialize"));
        let warm = Warmline::builder()
            .servers([("left", left), ("wanted", wanted)].map(|(n, s)| Server::http(n, s.url())))
            .limits(|limits| limits.sessions = 1)
            .build()
            .unwrap();
        let call = warm.server("left").unwrap().call("counter", json!({}));
        let call = tokio::spawn(call.into_future());
        let is_so = || left.ledger().messages_received("initialize") == 1;
        until("it is met", is_so).await;
        call.abort();
        if is_first_made {
            until("it has a session", || left.counts().open_sessions == 1).await;
        }
        let wanted = warm.server("wanted").unwrap();
        let counted = tokio::time::timeout(secs(10), count(&wanted)).await;
        assert_eq!(counted, Ok(1), "{is_first_made}");
        warm.close().await;
        agrees(&warm.snapshot());
        for server in &servers {
            until("nothing is open", || server.counts().open_sessions == 0).await;
        }
    }
}

/// Clients of one run that say different things of themselves, and come at the same moment, have one
/// session, and one process, as if they had come one after the other.
#[tokio::test]
async fn clients_of_a_run_have_one_session_whatever_they_declare() {
    let (world, program) = (
        World::new(Personality::legacy()),
        Program::ledger(&["--personality", "legacy"]),
    );
    world.add_server(program.declared("child"));
    let run = world.begin_run();
    for name in [LEDGER, "child"] {
        let clients = (0..6).map(|at| {
            let declared = ClientProfile {
                client_name: format!("client-{at}"),
                ..ClientProfile::default()
            };
            run.server(name).unwrap().with_client_profile(declared)
        });
        let clients: Vec<_> = clients.collect();
        let mut counted = join_all(clients.iter().map(count)).await;
        counted.sort_unstable();
        assert_eq!(counted, [1, 2, 3, 4, 5, 6], "{name}");
    }
    assert_eq!(world.handshakes(), 1);
    assert_eq!(world.server.counts().open_sessions, 1);
    until("one process runs", || program.alive() == 1).await;
    world.finish().await;
    program.gone().await;
}

/// reliability I22: one process may run, and six servers are called by one run: one process runs,
/// at every moment, whatever the eras of the servers are; and who comes next has the room again.
#[tokio::test]
async fn processes_of_several_servers_never_pass_their_limit() {
    for personality in ["legacy", "dual", "modern"] {
        let programs: Vec<Program> = (0..6)
            .map(|_| Program::ledger(&["--personality", personality]))
            .collect();
        let named = programs.iter().enumerate();
        let declared = named.map(|(at, program)| impatient(program.declared(&format!("p{at}"))));
        let warm = Warmline::builder()
            .servers(declared)
            .limits(|limits| limits.processes = 1)
            .build()
            .unwrap();
        let alive = || programs.iter().map(Program::alive).sum::<usize>();
        let run = warm.begin_run();
        for (at, name) in ["p0", "p1", "p2", "p3", "p4", "p5"].into_iter().enumerate() {
            let (called, most) = call(&run, name, alive).await;
            let expected = match at {
                0 => Ok(()),
                // What is held for an identity over its runs rests, and makes room.
                _ if personality == "modern" => Ok(()),
                _ => Err("pool-full".to_owned()),
            };
            assert_eq!(called, expected, "{personality} {name}");
            assert_eq!(most, 1, "{personality} {name}");
        }
        run.end().await;
        let next = warm.begin_run();
        let (called, most) = call(&next, "p5", alive).await;
        assert_eq!((called, most), (Ok(()), 1), "{personality}");
        next.end().await;
        warm.close().await;
        for program in &programs {
            program.gone().await;
        }
        agrees(&warm.snapshot());
    }
}

/// reliability I22: the same with sessions of HTTP servers, counted by the servers.
#[tokio::test]
async fn sessions_of_several_servers_never_pass_their_limit() {
    for (most, served) in [(1, 1), (2, 2)] {
        let servers: Vec<LedgerServer> = (0..5)
            .map(|_| LedgerServer::start(Personality::legacy()).unwrap())
            .collect();
        let named = servers.iter().enumerate();
        let declared =
            named.map(|(at, server)| impatient(Server::http(format!("s{at}"), server.url())));
        let warm = Warmline::builder()
            .servers(declared)
            .limits(|limits| limits.sessions = most)
            .build()
            .unwrap();
        let open = || {
            let open = servers.iter().map(|server| server.counts().open_sessions);
            usize::try_from(open.sum::<u64>()).unwrap()
        };
        let run = warm.begin_run();
        for at in 0..5 {
            let (called, most_open) = call(&run, &format!("s{at}"), open).await;
            assert_eq!(called.is_ok(), at < served, "s{at}: {called:?}");
            assert_eq!(most_open, served.min(at + 1), "s{at}");
        }
        run.end().await;
        until("every session is ended", || open() == 0).await;
        // Nothing that was met and refused keeps a place.
        let next = warm.begin_run();
        count(&next.server("s4").unwrap()).await;
        next.end().await;
        warm.close().await;
        agrees(&warm.snapshot());
    }
}

/// A first contact that nobody waits for any more ends with its run, whenever its caller left.
#[tokio::test]
async fn a_first_contact_that_nobody_waits_for_goes_with_its_run() {
    for left_after in [0_u64, 3, 30, 300] {
        let program = Program::ledger(&["--personality", "legacy"]);
        let warm = program.engine();
        let run = warm.begin_run();
        let child = run.server("child").unwrap();
        let call = child.call("counter", json!({})).into_future();
        tokio::time::timeout(Duration::from_millis(left_after), call)
            .await
            .ok();
        run.end().await;
        let ended = Instant::now();
        program.gone().await;
        assert!(ended.elapsed() < secs(5), "left after {left_after} ms");
        // What was found out stays, and whoever comes next is served.
        let next = warm.begin_run();
        assert_eq!(count(&next.server("child").unwrap()).await, 1);
        next.end().await;
        warm.close().await;
        program.gone().await;
        agrees(&warm.snapshot());
    }
}

/// A run that ends in the midst of a first contact takes nothing from another that waits for it.
#[tokio::test]
async fn another_run_makes_the_first_contact_that_ended_with_its_run() {
    let program = Program::of(["-c", "exec sleep 1000"].into_iter());
    let warm = program.engine();
    let (one, two) = (warm.begin_run(), warm.begin_run());
    let calls = [&one, &two].map(|run| {
        let child = run.server("child").unwrap();
        tokio::spawn(async move { child.call("counter", json!({})).await.unwrap_err() })
    });
    until("one process was started for both", || program.alive() == 1).await;
    one.end().await;
    let [first, second] = calls;
    assert_eq!(first.await.unwrap().code().as_str(), "run-ended");
    until("the other starts its own", || program.alive() == 1).await;
    assert!(!second.is_finished());
    two.end().await;
    assert_eq!(second.await.unwrap().code().as_str(), "run-ended");
    program.gone().await;
    warm.close().await;
}
