//! Clients that read nothing of what their call says: it ends all the same when it is ended.

use crate::prelude::*;

use super::ops_disconnects::ask;

/// In a run, in front of a server and of a program.
const PATHS: [&str; 2] = [
    "/runs/trip/servers/ledger/mcp",
    "/runs/trip/servers/child/mcp",
];
/// No client is left for that it reads nothing while a test runs.
const NEVER: Duration = Duration::from_secs(3_600);
/// Long before that.
const SOON: Duration = Duration::from_secs(20);

struct Stage {
    world: World,
    program: Program,
    audit: TempDir,
}

impl Stage {
    async fn set() -> Self {
        let server = LedgerServer::start(Personality::legacy()).unwrap();
        let program = Program::ledger(&["--personality", "legacy"]);
        let builder = Warmline::builder()
            .server(Server::http(LEDGER, server.url()))
            .server(program.declared("child"))
            .limits(|limits| limits.grace = Duration::from_secs(1));
        let audit = TempDir::new().unwrap();
        let file = audit.path().join("audit");
        let world = World::around(server, builder.build().unwrap(), |options, _| {
            let mut options = watched(options);
            options.audit = Some(audit_into(file));
            options.limits.stall_timeout = NEVER;
            options
        });
        Self {
            world: world.await,
            program,
            audit,
        }
    }

    /// A call that has more to say than anybody holds for a client; nothing of it is read.
    async fn call_unread(&self, client: &Legacy) -> TcpStream {
        let unread = ask(client, &endless()).await;
        let mut held = 0.0;
        let stuck = async {
            loop {
                let page = scraped(&self.world.gateway).await;
                let now = page.number("warmline_buffer_bytes", &[("kind", "replies")]);
                if now > 0.0 && now == held {
                    return;
                }
                held = now;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let stuck = tokio::time::timeout(SOON, stuck).await;
        assert!(stuck.is_ok(), "its client takes no more");
        unread
    }

    /// What the audit says of calls, once all is over.
    async fn ended(self) -> Vec<Value> {
        self.world.finish().await;
        self.program.gone().await;
        let mut lines = audit_lines(&self.audit.path().join("audit"));
        lines.retain(|line| line["tool"] == "progress");
        lines
    }

    /// Calls of two clients that read nothing end by this; each has its line with this code.
    async fn all_end(self, code: &str, ending: impl AsyncFnOnce(&Self)) {
        let mut unread = Vec::new();
        for path in PATHS {
            let client = Legacy::greet(&self.world, path, NEWEST, json!({})).await;
            unread.push(self.call_unread(&client).await);
        }
        ending(&self).await;
        assert_eq!(under_way(&self.world.warm), 0);
        self.program.gone().await;
        let audit = self.ended().await;
        assert_eq!(audit.len(), PATHS.len(), "{audit:?}");
        for line in audit {
            assert_eq!(line["delivery"], "unknown", "{line}");
            assert_eq!(line["code"], code, "{line}");
        }
    }
}

fn endless() -> Value {
    let reports = json!({ "steps": 400, "bytes": 100_000, "pause_ms": 0 });
    let mut asked = call(7, "progress", reports);
    asked["params"]["_meta"] = json!({ "progressToken": "mine" });
    asked
}

fn under_way(warm: &Warmline) -> u64 {
    let snapshot = warm.snapshot();
    let servers = snapshot.servers.iter();
    servers
        .map(|server| server.count("calls_under_way", &[]))
        .sum()
}

/// DESIGN 10.1: the end of a run waits for its grace, and not for who reads nothing.
#[tokio::test]
async fn a_run_ends_though_the_client_of_a_call_reads_nothing() {
    let ending = async |stage: &Stage| {
        let at = stage.world.gateway.address();
        let ended = request(at, "DELETE", "/runs/trip", &[], "").await;
        assert_eq!(ended.status, 204);
    };
    Stage::set().await.all_end("run-ended", ending).await;
}

/// reliability O1b: the same for the end of everything. No program is left after it, and every call
/// has its line.
#[tokio::test]
async fn everything_is_closed_in_time_though_the_client_of_a_call_reads_nothing() {
    let ending = async |stage: &Stage| {
        stage.world.warm.close_within(SOON).await;
        assert_eq!(stage.program.alive(), 0);
    };
    Stage::set().await.all_end("draining", ending).await;
}

/// mcp-spec T18: a call that is given up by another request is cancelled at once.
#[tokio::test]
async fn a_call_of_which_nothing_is_read_can_be_given_up() {
    let stage = Stage::set().await;
    let client = Legacy::greet(&stage.world, PATHS[0], NEWEST, json!({})).await;
    let unread = stage.call_unread(&client).await;
    let notice = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 },
    });
    assert_eq!(client.post(&notice).await.status, 202);
    until("it is over", || under_way(&stage.world.warm) == 0).await;
    let ledger = stage.world.server.ledger();
    let told = || ledger.messages_received("notifications/cancelled") == 1;
    until("its server is told", told).await;
    drop(unread);
    assert_eq!(stage.ended().await.len(), 1);
}
