//! Records that processes share: each gets what it wrote or what was there first.

use super::*;
use warmline_platform::clock;

/// A139, A203: after a restart everything a session needs comes from the store.
#[tokio::test]
async fn what_one_process_saved_the_next_one_loads() {
    let folder = tempfile::tempdir().unwrap();
    let process = || {
        let vault = Arc::new(Keyring::in_folder(folder.path()).unwrap());
        let store = FileStore::in_folder(folder.path().join("sessions"));
        Records::new(Arc::new(store), vault, TIMEOUT)
    };
    let run = key(ALICE, 1);
    let mut saved = record(&run, 1, "abc");
    saved.stateful = true;
    assert_done(&process().save(&saved, None).await);
    let next = process();
    assert!(next.outlives_process());
    assert_eq!(next.load(&run).await.unwrap(), Some(saved));
}

/// A144: an id is only used with the identity and the run it was made for.
#[tokio::test]
async fn nobody_gets_the_record_of_another_key() {
    let store = MemoryStore::new();
    let records = records(&store);
    let run = key(ALICE, 1);
    assert_done(&records.save(&record(&run, 1, "abc"), None).await);
    assert_eq!(records.load(&key(BOB, 1)).await.unwrap(), None);
    assert_eq!(records.load(&key(ALICE, 2)).await.unwrap(), None);
    let other_instance = Records::new(
        Arc::new(store),
        Arc::new(Keyring::ephemeral().unwrap()),
        TIMEOUT,
    );
    assert_eq!(other_instance.load(&run).await.unwrap(), None);
}

/// Every part of a key alone leads to another name (A200 for records).
#[tokio::test]
async fn each_part_of_a_key_alone_leads_to_another_record() {
    let records = records(&MemoryStore::new());
    let base = key(ALICE, 1);
    let digest = |byte| Digest::new([byte; 16]);
    let place = |change: fn(&mut TargetKey)| {
        let mut place = base.target.clone();
        change(&mut place);
        PoolKey::new(place, base.owner, base.credential, base.scope)
    };
    let shared = KeyScope::Shared(warmline_core::pool_key::ClientProfileId(digest(1)));
    let others = [
        place(|it| it.server = Arc::from("browser2")),
        place(|it| it.revision = ConfigRevision(Digest::new([0; 16]))),
        place(|it| it.era = Era::Modern),
        place(|it| it.transport = Transport::HttpSse),
        key(BOB, 1),
        key(ALICE, 2),
        PoolKey::new(
            base.target.clone(),
            KeyOwner::AnyIdentity,
            base.credential,
            base.scope,
        ),
        PoolKey::new(
            base.target.clone(),
            base.owner,
            CredentialId(digest(0)),
            base.scope,
        ),
        PoolKey::new(base.target.clone(), base.owner, base.credential, shared),
    ];
    assert_done(&records.save(&record(&base, 1, "abc"), None).await);
    for other in others {
        assert_eq!(records.load(&other).await.unwrap(), None, "{other:?}");
    }
}

/// A144, reliability F48: of two that open at once one wins, and the other gets its session.
#[tokio::test]
async fn who_comes_second_gets_the_record_of_who_came_first() {
    let store = MemoryStore::new();
    let (one, other) = (records(&store), records(&store));
    let run = key(ALICE, 1);
    let theirs = record(&run, 1, "first");
    assert_done(&one.save(&theirs, None).await);
    let written = other.save(&record(&run, 1, "second"), None).await;
    assert_eq!(winner(written), theirs);
    // It ends its own session, and that is no word about the winner's.
    assert!(other.clear(&run, 1, Some("second")).await.is_none());
    assert_eq!(one.load(&run).await.unwrap(), Some(theirs));
    assert!(one.clear(&run, 1, Some("first")).await.is_some());
    assert_eq!(one.load(&run).await.unwrap(), None);
}

/// A140, A134: after a heal the store holds the new id, once.
#[tokio::test]
async fn a_healed_session_replaces_the_lost_one() {
    let store = MemoryStore::new();
    let (one, other) = (records(&store), records(&store));
    let run = key(ALICE, 1);
    let lost = record(&run, 1, "lost");
    assert_done(&one.save(&lost, None).await);
    assert_eq!(other.load(&run).await.unwrap().as_ref(), Some(&lost));
    let healed = record(&run, 2, "healed");
    assert_done(&one.save(&healed, Some(&lost)).await);
    // The other process saw the same session go, and was slower.
    let written = other.save(&record(&run, 2, "late"), Some(&lost)).await;
    assert_eq!(winner(written), healed);
    let written = other.touch(&lost).await;
    assert_eq!(winner(written), healed);
    assert!(other.clear(&run, 1, Some("lost")).await.is_none());
    assert_eq!(one.load(&run).await.unwrap(), Some(healed));
}

#[tokio::test]
async fn a_record_that_vanished_is_replaced_as_if_it_had_never_been() {
    let store = MemoryStore::new();
    let records = records(&store);
    let run = key(ALICE, 1);
    let gone = record(&run, 4, "gone");
    assert_done(&records.save(&record(&run, 5, "new"), Some(&gone)).await);
    assert_eq!(records.load(&run).await.unwrap().unwrap().generation, 5);
}

/// A write that was given up and got through all the same is not somebody else's.
#[tokio::test]
async fn who_finds_its_own_record_has_not_lost() {
    let store = MemoryStore::new();
    let records = records(&store);
    let run = key(ALICE, 1);
    let mut mine = record(&run, 1, "mine");
    mine.stateful = true;
    assert_done(&records.save(&mine, None).await);
    let again = record(&run, 1, "mine");
    assert_done(&records.save(&again, None).await);
    let there = records.load(&run).await.unwrap().unwrap();
    assert!(there.stateful, "what was left stays left");
}

/// Two processes on one session: neither undoes what the other wrote.
#[tokio::test(start_paused = true)]
async fn renewals_of_two_processes_add_up() {
    let store = MemoryStore::new();
    let (one, other) = (records(&store), records(&store));
    let run = key(ALICE, 1);
    let opened = record(&run, 1, "abc");
    assert_done(&one.save(&opened, None).await);
    let mut with_state = opened.clone();
    with_state.stateful = true;
    assert_done(&one.touch(&with_state).await);
    assert_done(&other.touch(&opened).await);
    let there = one.load(&run).await.unwrap().unwrap();
    assert!(there.stateful);
    assert!(
        there.last_used_at > opened.last_used_at,
        "the wall clock went on"
    );
    let mut with_level = opened.clone();
    with_level.log_level = Some("debug".to_owned());
    assert_done(&other.touch(&with_level).await);
    let there = one.load(&run).await.unwrap().unwrap();
    assert!(there.stateful && there.log_level.is_some());
}

/// Another process may have left state in a session that this one knew without: whoever replaces or
/// clears its record hears of it.
#[tokio::test]
async fn who_takes_a_record_away_hears_what_was_lost_with_it() {
    let changes: [fn(&mut Record); 2] = [|it| it.stateful = true, |it| it.unreported_loss = true];
    for change in changes {
        let store = MemoryStore::new();
        let (one, other) = (records(&store), records(&store));
        let run = key(ALICE, 1);
        let known = record(&run, 1, "shared");
        assert_done(&one.save(&known, None).await);
        let mut later = known.clone();
        change(&mut later);
        assert_done(&other.touch(&later).await);
        let (new, newer) = (record(&run, 2, "new"), record(&run, 3, "newer"));
        let written = one.save(&new, Some(&known)).await;
        assert!(matches!(
            written,
            WriteOutcome::Written(ReplacedRecord::State)
        ));
        let written = one.save(&newer, Some(&new)).await;
        assert!(matches!(
            written,
            WriteOutcome::Written(ReplacedRecord::Nothing)
        ));
        let mut newest = newer;
        change(&mut newest);
        assert_done(&other.touch(&newest).await);
        let cleared = one.clear(&run, 3, Some("newer")).await;
        assert!(cleared.unwrap().has_state_to_lose());
    }
}

/// A135: renewing is cheap enough for every round of the keeper.
#[tokio::test(start_paused = true)]
async fn what_was_renewed_a_moment_ago_is_not_written_again() {
    let store = MemoryStore::new();
    let (one, other) = (records(&store), records(&store));
    let mut opened = record(&key(ALICE, 1), 1, "abc");
    opened.last_used_at = clock::wall_seconds();
    assert_done(&one.save(&opened, None).await);
    let before = store.scan().await.unwrap();
    for _ in 0..10 {
        assert_done(&one.touch(&opened).await);
    }
    assert_eq!(store.scan().await.unwrap(), before);
    // Another process has nothing to add either.
    assert_done(&other.touch(&opened).await);
    assert_eq!(store.scan().await.unwrap(), before);
}

#[tokio::test]
async fn a_renewal_writes_what_is_not_there_any_more() {
    let records = records(&MemoryStore::new());
    let opened = record(&key(ALICE, 1), 3, "abc");
    assert_done(&records.touch(&opened).await);
    let there = records.load(&opened.key).await.unwrap().unwrap();
    assert!(there.is_same_session(&opened));
    assert!(records.clear(&opened.key, 3, Some("abc")).await.is_some());
    assert_done(&records.touch(&opened).await);
    assert!(records.load(&opened.key).await.unwrap().is_some());
}

/// reliability F50: a use that lies in the future of this machine's clock is renewed at once.
#[tokio::test]
async fn a_clock_that_went_back_is_the_clock_from_now_on() {
    let store = MemoryStore::new();
    let mut opened = record(&key(ALICE, 1), 1, "abc");
    opened.last_used_at = 4_000_000_000;
    assert_done(&records(&store).save(&opened, None).await);
    let mut process = Records::new(Arc::new(store), vault(), TIMEOUT);
    process.wall_clock = || 1_000;
    assert_done(&process.touch(&opened).await);
    let there = process.load(&opened.key).await.unwrap().unwrap();
    assert_eq!(there.last_used_at, 1_000);
}

/// What a process leaves behind cannot be used again, and says so.
#[tokio::test]
async fn a_process_leaves_a_record_that_tells_of_its_state() {
    let records = records(&MemoryStore::new());
    let mut process = record(&key(ALICE, 1), 1, "-");
    process.session_id = None;
    process.stateful = true;
    assert_done(&records.save(&process, None).await);
    let there = records.load(&process.key).await.unwrap().unwrap();
    assert_eq!((there.session_id, there.stateful), (None, true));
    assert!(records.clear(&process.key, 1, None).await.is_some());
}

/// A session that no record can hold lives without one.
#[tokio::test]
async fn a_session_too_large_for_a_record_is_refused_and_nothing_is_down() {
    let records = records(&MemoryStore::new());
    let mut huge = record(&key(ALICE, 1), 1, "abc");
    huge.instructions = Some("x".repeat(1 << 20));
    let diagnostic = trouble(records.save(&huge, None).await);
    assert_eq!(diagnostic.code.as_str(), "record-refused");
    assert!(!records.is_down());
}
