//! The clients that a script of `tests/parts` drives.

use super::client_process::{ClientReport, visits};
use super::fixture::{DUAL, LEGACY, MODERN, World};
use crate::real_parts::{Program, node, python};

/// How a client behaves by itself.
#[derive(Clone, Copy)]
struct Manners {
    /// What it counts to in two calls on a server with sessions: a client that opens one for every
    /// call never gets further than one.
    alone: [u64; 2],
    eras: Eras,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Eras {
    /// `initialize` and nothing else.
    Legacy,
    /// `server/discover` first, then `initialize`.
    Both,
}

const HOLDS_A_SESSION: Manners = Manners {
    alone: [1, 2],
    eras: Eras::Legacy,
};
const ASKS_FIRST: Manners = Manners {
    alone: [1, 2],
    eras: Eras::Both,
};
const SESSION_PER_CALL: Manners = Manners {
    alone: [1, 1],
    eras: Eras::Legacy,
};

/// A client lists and calls as without the gateway, keeps its state, and two runs stay apart.
async fn is_served(client: Program, variables: &[(&str, &str)], manners: Manners) {
    let world = World::new().await;
    let mut urls = vec![
        world.direct(LEGACY),
        world.through(LEGACY),
        world.through(LEGACY),
        world.in_run("one", LEGACY),
        world.in_run("one", LEGACY),
        world.in_run("other", LEGACY),
        world.direct(DUAL),
        world.through(DUAL),
    ];
    if manners.eras == Eras::Both {
        urls.extend([world.direct(MODERN), world.through(MODERN)]);
    }
    let visits = visits(&client, variables, &urls).await;
    let (legacy, rest) = visits.split_at(6);
    keeps_its_state(legacy, manners);
    for pair in rest.chunks(2) {
        assert_eq!(pair[0], pair[1], "{client:?}");
    }
    if manners.eras == Eras::Both {
        for modern in [DUAL, MODERN] {
            assert_eq!(world.server(modern).counts().initializes, 0, "{modern}");
        }
    }
    world.finish().await;
}

fn keeps_its_state(seen: &[ClientReport], manners: Manners) {
    let direct = &seen[0];
    let counts: Vec<_> = seen.iter().map(|visit| visit.counts.clone()).collect();
    let alone = manners.alone.to_vec();
    let expected = [
        alone.clone(),
        alone.clone(),
        alone,
        vec![1, 2],
        // Another client of the same run.
        vec![3, 4],
        vec![1, 2],
    ];
    assert_eq!(counts, expected);
    for visit in seen {
        assert_eq!(visit.tools, direct.tools);
        assert_eq!(visit.version, direct.version);
    }
}

#[tokio::test]
async fn clients_of_the_official_sdks_are_served() {
    for (client, manners) in [
        (python("mcp1", "client_mcp1.py"), HOLDS_A_SESSION),
        (python("mcp2", "client_mcp2.py"), ASKS_FIRST),
        (node("client-v1.mjs"), HOLDS_A_SESSION),
        (node("client-v2.mjs"), HOLDS_A_SESSION),
    ] {
        is_served(client, &[], manners).await;
    }
    let asks = [("WARMLINE_PARTS_ERA", "auto")];
    is_served(node("client-v2.mjs"), &asks, ASKS_FIRST).await;
}

/// Some ask `server/discover` first; a legacy server behind the gateway answers as it would. One
/// opens a session for every call, and keeps its state only in a run.
#[tokio::test]
async fn clients_of_frameworks_are_served_at_their_defaults() {
    for (client, manners) in [
        (python("fastmcp3", "client_fastmcp.py"), HOLDS_A_SESSION),
        (python("fastmcp4", "client_fastmcp.py"), ASKS_FIRST),
        (python("langchain", "client_langchain.py"), SESSION_PER_CALL),
        (python("agents", "client_pydantic.py"), ASKS_FIRST),
        (python("agents", "client_openai.py"), ASKS_FIRST),
    ] {
        is_served(client, &[], manners).await;
    }
}
