//! Secrets that were removed or replaced between two lives: it is told, and nothing is lost by it
//! that was not lost already.

use warmline_store::FileStore;

use super::*;

fn life_in(folder: &Path, server: &LedgerServer) -> (Warmline, EventSubscription) {
    let warm = Warmline::builder()
        .server(Server::http(LEDGER, server.url()))
        .vault(Keyring::in_folder(folder).unwrap())
        .store(FileStore::in_folder(folder.join("sessions")))
        .build()
        .unwrap();
    let events = warm.events();
    (warm, events)
}

/// What is done to the secrets; none removes them.
type Spoil<'a> = &'a dyn Fn(&str) -> Option<String>;

/// What was told about secrets and records so far.
async fn told(events: &mut EventSubscription) -> Vec<&'static str> {
    let mut kinds = Vec::new();
    let heard = async |events: &mut EventSubscription| {
        tokio::select! {
            biased;
            heard = events.next() => heard,
            () = std::future::ready(()) => None,
        }
    };
    while let Some(heard) = heard(events).await {
        if let EventItem::Event(
            event @ (Event::SecretsReplaced { .. } | Event::RecordRefused { .. }),
        ) = heard
        {
            kinds.push(event.kind());
        }
    }
    kinds
}

/// DESIGN 5.4: a run begins anew, and the program is told why; with the old secrets it goes on.
#[tokio::test]
async fn a_run_whose_secrets_were_lost_begins_anew_and_says_so() {
    let word = |old: &str, part: &str| {
        let mut words = old.split_whitespace();
        words
            .find(|word| word.starts_with(part))
            .unwrap()
            .to_owned()
    };
    let instance_lost = |old: &str| format!("instance={} {}", "cd".repeat(32), word(old, "seal="));
    let seal_replaced = |old: &str| format!("{} seal={}", word(old, "instance="), "ab".repeat(32));
    #[rustfmt::skip]
    let table: [(&str, Spoil<'_>, &[&str]); 3] = [
        ("all of them were removed", &|_| None, &["secrets-replaced"]),
        ("the instance secret is another", &|old| Some(instance_lost(old)), &["secrets-replaced"]),
        ("the sealing key is another", &|old| Some(seal_replaced(old)), &["secrets-replaced", "record-refused"]),
    ];
    for (what, spoil, expected) in table {
        let (server, folder) = (server(), tempfile::tempdir().unwrap());
        let secrets = folder.path().join("secrets");
        let (first, _) = life_in(folder.path(), &server);
        assert_eq!(count_in(&first, "chat").await, 1);
        first.close().await;
        let old = std::fs::read_to_string(&secrets).unwrap();
        match spoil(&old) {
            Some(new) => std::fs::write(&secrets, new).unwrap(),
            None => std::fs::remove_file(&secrets).unwrap(),
        }
        let (second, mut events) = life_in(folder.path(), &server);
        assert_eq!(count_in(&second, "chat").await, 1, "{what}");
        assert_eq!(count_in(&second, "other").await, 1, "{what}");
        assert_eq!(told(&mut events).await, expected, "{what}");
        second.close().await;
        // Where the record has the same name, the new one took its place.
        let goes_on = expected.len() == 1;
        std::fs::write(&secrets, &old).unwrap();
        let (third, mut events) = life_in(folder.path(), &server);
        let counted = count_in(&third, "chat").await;
        assert_eq!(counted, if goes_on { 2 } else { 1 }, "{what}");
        let expected: &[&str] = if goes_on { &[] } else { expected };
        assert_eq!(told(&mut events).await, expected, "{what}");
        third.close().await;
    }
}
