//! Probes over a pipe: what a look at an idle child finds.

use crate::prelude::*;

use warmline_upstream::{HealthCheck, HealthCheckOutcome};

use super::child_session::Child;

const LONG: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(200);

#[tokio::test]
async fn a_child_that_lives_answers_the_probe_of_its_era() {
    for (era, probe) in [
        (Era::Legacy, HealthCheck::Ping),
        (Era::Modern, HealthCheck::Discover),
    ] {
        let child = Child::ledger(era, &[]).await;
        let probed = child.session.check_health(probe, LONG).await;
        let holds = matches!(probed, HealthCheckOutcome::Alive);
        assert!(holds, "{era}: {probed:?}");
        child.works().await;
        child.ends().await;
    }
}

#[tokio::test]
async fn a_child_that_does_not_know_the_probe_lives_all_the_same() {
    let unknown = r#"hear; printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}\n' "$id"; hear"#;
    let child = Child::script(unknown).await;
    let probed = child.session.check_health(HealthCheck::Ping, LONG).await;
    let holds = matches!(probed, HealthCheckOutcome::UnknownMethod);
    assert!(holds, "{probed:?}");
    assert_eq!(child.session.retired_reason(), None);
    child.ends().await;
}

#[tokio::test]
async fn a_child_that_says_nothing_is_silent_and_one_that_ends_is_gone() {
    let child = Child::script("hear; hear; hear").await;
    let probed = child.session.check_health(HealthCheck::Ping, SHORT).await;
    assert!(matches!(probed, HealthCheckOutcome::Silent), "{probed:?}");
    child.ends().await;

    for script in ["hear; exit 3", "exit 3"] {
        let child = Child::script(script).await;
        let probed = child.session.check_health(HealthCheck::Ping, LONG).await;
        let HealthCheckOutcome::Gone(trouble) = probed else {
            panic!("{probed:?}");
        };
        assert_eq!(trouble.reason, Reason::ChildExit, "{trouble:?}");
        assert!(child.session.retired_reason().is_some());
        let again = child.session.check_health(HealthCheck::Ping, LONG).await;
        assert!(matches!(again, HealthCheckOutcome::Gone(_)), "{again:?}");
        child.ends().await;
    }
}
