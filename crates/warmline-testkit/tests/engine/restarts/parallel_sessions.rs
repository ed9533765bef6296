//! A key with several sessions has no record: none of them is anybody's but its holder's.

use super::*;

fn pool(server: &LedgerServer, store: &RecordingStore) -> Warmline {
    let several = Server::http(LEDGER, server.url()).session_per(SessionScope::Identity);
    life_of(several, store)
}

/// Two sessions that are held alone at the same time, and what each of them counts.
async fn counts_of_two(one: &Warmline, other: &Warmline) -> [i64; 2] {
    let [one, other] = [one, other].map(|warm| warm.server(LEDGER).unwrap());
    let (one, other) = tokio::join!(one.lease(), other.lease());
    let held = [one.unwrap(), other.unwrap()];
    let mut counts = [0; 2];
    for (count, lease) in counts.iter_mut().zip(&held) {
        let called = lease.call("counter", json!({})).await.unwrap();
        *count = called.structured::<Value>().unwrap()["count"]
            .as_i64()
            .unwrap();
    }
    counts
}

/// DESIGN 5.4: after a process was killed, two who hold sessions alone never hold the same.
#[tokio::test]
async fn a_pool_of_several_is_opened_anew_after_a_kill() {
    let (server, store) = (server(), RecordingStore::new());
    let killed = pool(&server, &store);
    assert_eq!(count(&killed.server(LEDGER).unwrap()).await, 1);
    let next = pool(&server, &store);
    assert_eq!(counts_of_two(&next, &next).await, [1, 1]);
    next.close().await;
    killed.close().await;
}

/// DESIGN 5.4: nor do two processes on one store.
#[tokio::test]
async fn two_programs_share_no_session_of_a_pool_of_several() {
    let (server, store) = (server(), RecordingStore::new());
    let (one, other) = (pool(&server, &store), pool(&server, &store));
    assert_eq!(count(&one.server(LEDGER).unwrap()).await, 1);
    assert_eq!(counts_of_two(&one, &other).await, [2, 1]);
    one.close().await;
    assert_eq!(count(&other.server(LEDGER).unwrap()).await, 2);
    other.close().await;
}
