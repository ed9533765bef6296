//! Lists at the place of all servers: each run sees what its own sessions list.

use crate::prelude::*;

/// The lists that a place puts together: how each is asked for, and by what its items are known.
const LISTS: [(&str, &str, &str); 4] = [
    ("tools/list", "tools", "name"),
    ("prompts/list", "prompts", "name"),
    ("resources/list", "resources", "uri"),
    (
        "resources/templates/list",
        "resourceTemplates",
        "uriTemplate",
    ),
];

const ALICE: (&str, &str) = ("Authorization", "Bearer token-of-alice");

/// From now on a list holds one item, which says how often the list was read before.
fn count_readings(server: &LedgerServer, (method, member, known_by): (&str, &str, &str)) {
    for number in 0..10 {
        let shown = match known_by {
            "name" => format!("n{number}"),
            _ => format!("n://{number}"),
        };
        let item = json!({ "name": "x", "inputSchema": { "type": "object" }, known_by: shown });
        let listed = Fault::Result(json!({ member: [item] }));
        server.inject(FaultRule::new(listed).on_method(method));
    }
}

/// How often a list was read before it was shown to this client.
async fn reading(client: &Legacy, (method, member, known_by): (&str, &str, &str)) -> u32 {
    let listed = list(client, method, json!({})).await;
    let shown = each(&listed, member, known_by);
    let [only] = <[&str; 1]>::try_from(shown).unwrap();
    let number = only.trim_start_matches(|letter: char| !letter.is_ascii_digit());
    number.parse().unwrap()
}

/// A server behind a gateway that knows Alice: all runs here are hers.
async fn world() -> World {
    World::of_alice(Personality::legacy()).await
}

/// mcp-spec 8.3.1: a server may list something else in each session, so a run is shown what its own
/// session lists, and never what another run was shown.
#[tokio::test]
async fn a_run_is_shown_the_lists_of_its_own_session() {
    for which in LISTS {
        let world = world().await;
        let first = world.greet_as_alice("/runs/r1/mcp").await;
        let second = world.greet_as_alice("/runs/r2/mcp").await;
        let own = world.greet_as_alice("/mcp").await;
        count_readings(&world.server, which);
        for _ in 0..2 {
            assert_eq!(reading(&first, which).await, 0, "{which:?}");
            assert_eq!(reading(&second, which).await, 1, "{which:?}");
            assert_eq!(reading(&own, which).await, 2, "{which:?}");
        }
        world.finish().await;
    }
}

/// mcp-spec 8.3.1: a call may change what its session lists, and not every server says so, or says
/// it where it is heard. So a list is read again after a call of its run; other runs keep theirs.
#[tokio::test]
async fn a_list_does_not_outlive_a_call_of_its_run() {
    for which in LISTS {
        let world = world().await;
        let first = world.greet_as_alice("/runs/r1/mcp").await;
        let second = world.greet_as_alice("/runs/r2/mcp").await;
        count_readings(&world.server, which);
        assert_eq!(reading(&first, which).await, 0);
        assert_eq!(reading(&second, which).await, 1);
        let called: Value = first.call("ledger__counter", json!({})).await;
        assert!(called["result"].is_object(), "{called}");
        for _ in 0..2 {
            assert_eq!(reading(&first, which).await, 2, "{which:?}");
            assert_eq!(reading(&second, which).await, 1, "{which:?}");
        }
        world.finish().await;
    }
}

/// What a run was shown goes with it: one that has its name later is another run.
#[tokio::test]
async fn what_a_run_was_shown_goes_with_the_run() {
    for which in LISTS {
        let world = world().await;
        let client = world.greet_as_alice("/runs/r1/mcp").await;
        count_readings(&world.server, which);
        assert_eq!(reading(&client, which).await, 0);
        let ended = request(client.address, "DELETE", "/runs/r1", &[ALICE], "").await;
        assert_eq!(ended.status, 204);
        let client = world.greet_as_alice("/runs/r1/mcp").await;
        assert_eq!(reading(&client, which).await, 1, "{which:?}");
        world.finish().await;
    }
}
