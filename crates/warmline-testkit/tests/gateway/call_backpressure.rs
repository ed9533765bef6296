//! A call that is told more than its client reads, on a program that others listen to as well.

use crate::prelude::*;

const PATH: &str = "/servers/child/mcp";

/// Answers everything with nothing, but for a tool, which floods: with 8 KiB for its caller each
/// time, and an update for whoever wants it behind each MiB.
const SCRIPT: &str = r#"
much=$(printf '%08192d' 0)
reply() { printf '{"jsonrpc":"2.0","id":%s,"result":{%s}}\n' "$id" "$1"; }
flood() {
    updates=0
    while [ $updates -lt 40 ]; do
        n=0
        while [ $n -lt 128 ]; do
            n=$((n + 1))
            printf '{"jsonrpc":"2.0","method":"notifications/flood","params":{"much":"%s"}}\n' "$much"
        done
        updates=$((updates + 1))
        printf '{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"note:///a"}}\n'
    done
}
while IFS= read -r line; do
    id=${line#*\"id\":}
    id=${id%%[,\}]*}
    case $line in
    *'"initialize"'*) reply '"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{"subscribe":true}},"serverInfo":{"name":"flood","version":"1"}' ;;
    *'"tools/call"'*) flood; reply '"content":[]' ;;
    *'"method":"notifications/'*) ;;
    *) reply '' ;;
    esac
done
"#;
/// As many as the tool tells: far more than are told before all buffers on the way to a client that
/// does not read are full.
const UPDATES: usize = 40;

/// reliability F79: Alice floods a program that all share and reads nothing. She has no other call
/// beside hers to hold up, but Bob, who calls nothing, listens.
#[tokio::test]
async fn who_only_listens_is_not_held_up_by_a_call_that_nobody_reads() {
    let program = Program::of(["-c", SCRIPT].into_iter());
    let declared = program.declared("child").era(Era::Legacy);
    let declared = declared.session_per(SessionScope::Server);
    let warm = Warmline::builder().server(declared).build().unwrap();
    let mut options = known(local(), warm.vault(), &["alice", "bob"]);
    // The door does not show her out meanwhile.
    options.limits.stall_timeout = Duration::from_secs(600);
    let gateway = Gateway::start(warm.clone(), options).await.unwrap();
    let greet = |name| Legacy::greet_at(gateway.address(), PATH, NEWEST, json!({}), bearer(name));
    let (alice, bob) = (greet("alice").await, greet("bob").await);
    let answer = ask(&bob, "resources/subscribe", json!({ "uri": "note:///a" })).await;
    assert_eq!(answer["result"], json!({}), "{answer}");
    let standing = Log::of(bob.get(None).await);
    let unread = alice.post(&call(1, "flood", json!({}))).await;
    until("he hears all", || standing.heard().len() == UPDATES).await;
    drop(unread);
    gateway.stop().await;
    warm.close().await;
    program.gone().await;
}
