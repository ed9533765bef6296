//! Children: processes are started when they are needed, so many at a time, and not in a loop.

use crate::prelude::*;

fn legacy() -> Program {
    Program::ledger(&["--personality", "legacy"])
}

/// The end of a story with programs: nothing of them is left.
async fn finish(warm: Warmline, programs: &[&Program]) {
    warm.close().await;
    for program in programs {
        program.gone().await;
    }
    agrees(&warm.snapshot());
}

/// P30: there are so many processes at a time, and what nobody uses ends.
#[tokio::test]
async fn processes_are_limited_and_idle_ones_end() {
    let program = legacy();
    let declared = program
        .declared("child")
        .session_per(SessionScope::Identity);
    let warm = Warmline::builder()
        .server(declared.with_policy(|policy| policy.wait = Duration::from_millis(300)))
        .limits(|limits| limits.processes = 2)
        .build()
        .unwrap();
    let who = |name: &str| warm.identity(name).server("child").unwrap();
    let (one, two, three) = (who("one"), who("two"), who("three"));
    let leases = [one.lease().await.unwrap(), two.lease().await.unwrap()];
    let error = payment(&three, "no room").await.unwrap_err();
    failed_as(&error, "pool-full", Delivery::Unsent);
    assert_eq!((program.starts(), program.payments("no room")), (2, 0));
    drop(leases);
    // Room is made by what rests.
    assert_eq!(count(&three).await, 1);
    assert_eq!(program.starts(), 3);
    let children = || number(&warm.snapshot(), "child", "children", &[]);
    assert!((1..=2).contains(&children()));
    for _ in 0..4 {
        pass(secs(8 * 60)).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    until("idle ones end", || children() == 0).await;
    program.gone().await;
    assert_eq!(count(&three).await, 1);
    finish(warm, &[&program]).await;
}

/// reliability P35, reliability I34: a program that dies at its start is started ever more slowly,
/// and its last words are told.
#[tokio::test]
async fn a_program_that_keeps_dying_is_started_ever_more_slowly() {
    let note = r#"echo $$ >> "$WARMLINE_STAGE/starts"; echo "no such library" >&2; exit 3"#;
    let program = Program::of(["-c", note].into_iter());
    let starts = || {
        let place = format!("{}/starts", program.place());
        std::fs::read_to_string(place).map_or(0, |text| text.lines().count())
    };
    let server = program.declared("child");
    let warm = Warmline::builder().server(server).build().unwrap();
    let run = warm.begin_run();
    let child = run.server("child").unwrap();
    for _ in 0..5 {
        let error = payment(&child, "never").await.unwrap_err();
        assert_eq!(error.delivery(), Delivery::Unsent);
        let words = format!("{error:?}");
        assert!(words.contains("no such library"), "{words}");
    }
    let tried = starts();
    assert!(tried <= 10, "two starts find out its era: {tried}");
    for pause in [10_u64, 20, 40, 60, 60] {
        let mut before = starts();
        for _ in 0..2 {
            let error = payment(&child, "never").await.unwrap_err();
            assert_eq!(error.code().as_str(), "breaker-open", "{error:?}");
            let wait = error.retry_after().unwrap();
            assert!(wait <= secs(pause), "{wait:?} of {pause} s");
        }
        assert_eq!(starts(), before, "not before its time");
        pass(secs(pause)).await;
        payment(&child, "never").await.unwrap_err();
        before = starts() - before;
        assert!((1..=2).contains(&before), "once a step: {before}");
    }
    run.end().await;
    finish(warm, &[&program]).await;
}

/// reliability P35, reliability I34: the same for one that dies of every call; that it starts and
/// lists its tools proves nothing.
#[tokio::test]
async fn a_program_that_dies_of_every_call_is_given_up_for_a_while() {
    for per in [
        SessionScope::Run,
        SessionScope::Identity,
        SessionScope::Call,
    ] {
        let program = legacy();
        let server = program.declared("child").session_per(per);
        let warm = Warmline::builder().server(server).build().unwrap();
        let run = warm.begin_run();
        let child = run.server("child").unwrap();
        let crash = async || child.call("crash", json!({})).await.unwrap_err();
        // What dies now and then is there again at once.
        for _ in 0..2 {
            assert_ne!(crash().await.code().as_str(), "breaker-open");
            assert_eq!(count(&child).await, 1);
        }
        let mut codes = Vec::new();
        for _ in 0..12 {
            codes.push(crash().await.code().as_str());
        }
        assert_eq!(codes[11], "breaker-open", "{per:?}: {codes:?}");
        let before = program.starts();
        assert!(before <= 12, "{per:?}: {before} starts");
        child.call("counter", json!({})).await.unwrap_err();
        assert_eq!(program.starts(), before);
        pass(secs(10)).await;
        assert_eq!(count(&child).await, 1);
        // It was given up once, and one more death is enough now: it waits for longer.
        crash().await;
        let wait = crash().await.retry_after();
        assert!(wait > Some(secs(10)), "{per:?}: {wait:?}");
        // A minute of life makes up for all of it.
        pass(secs(20)).await;
        if per != SessionScope::Call {
            assert_eq!(count(&child).await, 1);
            pass(secs(60)).await;
            count(&child).await;
            for _ in 0..4 {
                assert_ne!(crash().await.code().as_str(), "breaker-open", "{per:?}");
            }
            assert_eq!(count(&child).await, 1);
        }
        run.end().await;
        finish(warm, &[&program]).await;
    }
}

/// reliability P5: an identity whose calls kill its own program stops no other.
#[tokio::test]
async fn calls_that_kill_their_own_program_stop_no_other_identity() {
    let program = legacy();
    let server = program.declared("child");
    let warm = Warmline::builder().server(server).build().unwrap();
    let mut codes = Vec::new();
    for _ in 0..7 {
        let run = warm.identity("careless").begin_run();
        let crash = run.server("child").unwrap().call("crash", json!({}));
        codes.push(crash.await.unwrap_err().code().as_str());
        run.end().await;
    }
    assert_eq!(codes[6], "breaker-open", "{codes:?}");
    let run = warm.identity("careful").begin_run();
    assert_eq!(count(&run.server("child").unwrap()).await, 1);
    run.end().await;
    finish(warm, &[&program]).await;
}
