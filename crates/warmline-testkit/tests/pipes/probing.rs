//! Probes over a pipe: what a look at an idle child finds.

use std::time::Duration;

use warmline::core::code::Reason;
use warmline::core::era::Era;
use warmline::upstream::{Probe, Probed};

use super::child::Child;

const LONG: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(200);

#[tokio::test]
async fn a_child_that_lives_answers_the_probe_of_its_era() {
    for (era, probe) in [(Era::Legacy, Probe::Ping), (Era::Modern, Probe::Discover)] {
        let child = Child::ledger(era, &[]).await;
        let probed = child.session.probe(probe, LONG).await;
        assert!(matches!(probed, Probed::Alive), "{era}: {probed:?}");
        child.works().await;
        child.ends().await;
    }
}

#[tokio::test]
async fn a_child_that_does_not_know_the_probe_lives_all_the_same() {
    let unknown = r#"hear; printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}\n' "$id"; hear"#;
    let child = Child::script(unknown).await;
    let probed = child.session.probe(Probe::Ping, LONG).await;
    assert!(matches!(probed, Probed::NotUnderstood), "{probed:?}");
    assert_eq!(child.session.retired(), None);
    child.ends().await;
}

#[tokio::test]
async fn a_child_that_says_nothing_is_silent_and_one_that_ends_is_gone() {
    let child = Child::script("hear; hear; hear").await;
    let probed = child.session.probe(Probe::Ping, SHORT).await;
    assert!(matches!(probed, Probed::Silent), "{probed:?}");
    child.ends().await;

    for script in ["hear; exit 3", "exit 3"] {
        let child = Child::script(script).await;
        let probed = child.session.probe(Probe::Ping, LONG).await;
        let Probed::Gone(trouble) = probed else {
            panic!("{probed:?}");
        };
        assert_eq!(trouble.reason, Reason::ChildExit, "{trouble:?}");
        assert!(child.session.retired().is_some());
        let again = child.session.probe(Probe::Ping, LONG).await;
        assert!(matches!(again, Probed::Gone(_)), "{again:?}");
        child.ends().await;
    }
}
