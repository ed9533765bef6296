//! The end of a child: its input first, then asked, then forced, with all that it started.

use crate::prelude::*;

use super::child_session::{Child, ERAS, result};

/// A130, P73, reliability P33: closing twice is closing once.
#[tokio::test]
async fn a_child_that_is_closed_ends_by_the_end_of_its_input() {
    for era in ERAS {
        let child = Child::ledger(era, &[]).await;
        child.works().await;
        child.session.close().await;
        let report = child.session.child().unwrap();
        assert_eq!(report.exit.as_deref(), Some("exit status 0"), "{era}");
        child.session.close().await;
        child.ends().await;
    }
}

/// How a child with such manners ended, and that nothing of it is left.
async fn closed(args: &[&str]) -> Option<String> {
    let child = Child::ledger(Era::Legacy, args).await;
    child.works().await;
    child.session.close().await;
    let exit = child.session.child().unwrap().exit;
    drop(child.session);
    child.program.gone().await;
    exit
}

/// P27, P36, reliability P33: input, TERM, KILL, each with its limit.
#[tokio::test]
async fn a_stubborn_child_is_asked_and_then_forced_with_all_that_it_started() {
    let deaf = closed(&["--ignore-eof", "--grandchildren", "2"]);
    let stubborn = closed(&["--ignore-eof", "--ignore-term", "--grandchildren", "3"]);
    let orphaning = closed(&["--grandchildren", "2"]);
    let (deaf, stubborn, orphaning) = tokio::join!(deaf, stubborn, orphaning);
    assert_eq!(deaf.as_deref(), Some("signal 15"));
    assert_eq!(stubborn.as_deref(), Some("signal 9"));
    assert_eq!(orphaning.as_deref(), Some("exit status 0"));
    no_task_left().await;
}

/// P27, reliability P25, reliability P33: dropping a session ends its tree.
#[tokio::test]
async fn a_session_that_is_only_dropped_leaves_nothing_behind() {
    let manners: [&[&str]; 3] = [
        &[],
        &["--grandchildren", "2"],
        &["--ignore-eof", "--ignore-term", "--grandchildren", "2"],
    ];
    let dropped = |args| async move {
        let child = Child::ledger(Era::Legacy, args).await;
        child.works().await;
        drop(child.session);
        child.program.gone().await;
    };
    let [one, two, three] = manners.map(dropped);
    tokio::join!(one, two, three);
    no_task_left().await;
}

/// P73, reliability P26: closing goes on without its caller.
#[tokio::test]
async fn a_close_that_is_dropped_goes_on() {
    let child = Child::ledger(Era::Legacy, &["--ignore-eof"]).await;
    {
        let closing = child.session.close();
        let ready = std::future::ready(());
        tokio::select! {
            biased;
            () = closing => panic!("it does not end by the end of its input"),
            () = ready => {},
        }
    }
    child.program.gone().await;
    child.ends().await;
}

/// P36: nobody waits for a stranger that holds the pipe.
#[tokio::test]
async fn a_child_that_leaves_its_output_to_another_process_is_not_waited_for() {
    let child = Child::script("hear; reply '{}'; sleep 600 & exit 0").await;
    result(child.call("any", json!({})).await);
    child.program.gone().await;
    child.ends().await;
}
