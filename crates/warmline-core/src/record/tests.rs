//! Whatever a store gives back is a record that was written, or refused.

use std::sync::Arc;

use ::bytes::Bytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::pool_key::{
    ClientProfileId, ConfigRevision, CredentialId, Digest, Identity, KeyOwner, KeyScope, RunId,
    TargetKey, Transport,
};

/// A record with everything in it. Its bytes are kept in the fuzz corpus: they are read for ever.
fn whole() -> Record {
    let digest = |byte| Digest::new([byte; 16]);
    let place = TargetKey {
        server: Arc::from("browser"),
        revision: ConfigRevision(digest(1)),
        era: crate::era::Era::Legacy,
        transport: Transport::Http,
    };
    let owner = KeyOwner::Identity(Identity(digest(2)));
    let scope = KeyScope::Run(RunId(digest(4)));
    Record {
        key: PoolKey::new(place, owner, CredentialId(digest(3)), scope),
        generation: 7,
        session_id: Some("3f2a-the-server-chose-it".to_owned()),
        version: Version::V2025_06_18,
        client_profile: StoredClientProfile {
            client_name: "warmline".to_owned(),
            client_version: "0.1.0".to_owned(),
            capabilities: Bytes::from_static(b"{\"roots\":{}}"),
        },
        capabilities: Bytes::from_static(b"{\"tools\":{\"listChanged\":true}}"),
        server_info: Some(Bytes::from_static(b"{\"name\":\"kept\",\"version\":\"1\"}")),
        instructions: Some("Call `open` first.\nThen anything.".to_owned()),
        log_level: Some("warning".to_owned()),
        subscriptions: vec!["file:///a".to_owned(), "file:///b".to_owned()],
        stateful: true,
        unreported_loss: false,
        opened_at: 1_790_000_000,
        last_used_at: 1_790_000_600,
        expires_at: Some(1_790_003_600),
    }
}

fn keys() -> impl Strategy<Value = (PoolKey, Version)> {
    let digests = any::<[[u8; 16]; 4]>();
    let kinds = (any::<bool>(), any::<bool>(), 0..3_usize, 0..5_usize);
    ("[a-z0-9-]{1,24}", digests, kinds).prop_map(|(server, digests, kinds)| {
        let [revision, owner, credential, scope] = digests.map(Digest::new);
        let (is_run, is_owned, transport, version) = kinds;
        let version = Version::ALL[version];
        let place = TargetKey {
            server: Arc::from(server),
            revision: ConfigRevision(revision),
            era: version.era(),
            transport: [Transport::Http, Transport::HttpSse, Transport::Stdio][transport],
        };
        let owner = if is_owned {
            KeyOwner::Identity(Identity(owner))
        } else {
            KeyOwner::AnyIdentity
        };
        let scope = if is_run {
            KeyScope::Run(RunId(scope))
        } else {
            KeyScope::Shared(ClientProfileId(scope))
        };
        (
            PoolKey::new(place, owner, CredentialId(credential), scope),
            version,
        )
    })
}

fn objects() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        Just("{}"),
        Just(" {\"a\":[1,{\"b\":null}]}\n"),
        Just("{\"é\":\"\\u0000\"}")
    ]
    .prop_map(Bytes::from)
}

fn records() -> impl Strategy<Value = Record> {
    let said = (objects(), objects(), option::of(objects()), any::<String>());
    let ids = (any::<u32>(), option::of("[!-~]{1,80}"), any::<[bool; 2]>());
    let texts = (
        option::of(any::<String>()),
        option::of("[a-z]{4,9}"),
        vec(any::<String>(), 0..4),
    );
    let times = (any::<u64>(), any::<u64>(), option::of(any::<u64>()));
    (keys(), said, ids, texts, times).prop_map(|((key, version), said, ids, texts, times)| Record {
        key,
        version,
        generation: ids.0,
        session_id: ids.1,
        stateful: ids.2[0],
        unreported_loss: ids.2[1],
        client_profile: StoredClientProfile {
            client_name: said.3.clone(),
            client_version: said.3,
            capabilities: said.0,
        },
        capabilities: said.1,
        server_info: said.2,
        instructions: texts.0,
        log_level: texts.1,
        subscriptions: texts.2,
        opened_at: times.0,
        last_used_at: times.1,
        expires_at: times.2,
    })
}

proptest! {
    /// A139: what a session needs to go on comes back as it was.
    #[test]
    fn a_record_comes_back_as_it_was_written(record in records()) {
        let bytes = record.encode().expect("it fits");
        prop_assert_eq!(Record::decode(&bytes), Ok(record));
    }

    /// reliability F45: a file cut off at any byte is refused, not used.
    #[test]
    fn a_record_that_is_cut_off_is_refused(record in records(), at in any::<prop::sample::Index>()) {
        let bytes = record.encode().expect("it fits");
        let cut = &bytes[..at.index(bytes.len())];
        // Optional fields at the end may be missing, and nothing else.
        if let Ok(read) = Record::decode(cut) {
            prop_assert_eq!(read.encode().expect("it was read"), cut);
            let (expires_at, untold_loss) = (record.expires_at, record.unreported_loss);
            let whole = Record { expires_at, unreported_loss: untold_loss, ..read };
            prop_assert_eq!(whole, record);
        }
    }

    /// reliability P19: whatever lies in a store.
    #[test]
    fn no_bytes_make_it_panic(bytes in vec(any::<u8>(), 0..400)) {
        if let Ok(record) = Record::decode(&bytes) {
            prop_assert!(record.encode().is_ok());
        }
    }

    #[test]
    fn no_changed_byte_makes_it_panic(record in records(), at in any::<prop::sample::Index>(), bit in 0_u8..8) {
        let mut bytes = record.encode().expect("it fits");
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        if let Ok(read) = Record::decode(&bytes) {
            prop_assert!(read.encode().is_ok());
        }
    }

    /// reliability F50: whatever the wall clocks say, no time is negative, and no promise grows.
    #[test]
    fn clocks_that_jump_make_no_time_out_of_nothing(record in records(), now in any::<u64>()) {
        let idle = record.idle_time_at(now).as_secs();
        prop_assert!(idle <= now);
        prop_assert!(record.last_used_at < now || idle == 0);
        let promised = record.expires_at.map(|at| at.saturating_sub(record.opened_at));
        let left = record.expires_in(now).map(|left| left.as_secs());
        prop_assert_eq!(left.is_some(), promised.is_some());
        prop_assert!(left <= promised);
    }
}

/// Adds a field at the end of a record's bytes.
fn with_field(tag: u8, value: &[u8]) -> Vec<u8> {
    let mut bytes = whole().encode().unwrap();
    bytes.push(tag);
    bytes.extend_from_slice(&u32::try_from(value.len()).unwrap().to_le_bytes());
    bytes.extend_from_slice(value);
    bytes
}

/// reliability F47: what a later version wrote is told apart from what is broken.
#[test]
fn a_record_of_a_later_version_is_too_new_unless_it_only_adds() {
    let mut later = whole().encode().unwrap();
    later[0] = FORMAT_VERSION + 1;
    assert_eq!(Record::decode(&later), Err(RecordDecodeError::TooNew));
    assert_eq!(
        Record::decode(&with_field(24, b"?")),
        Err(RecordDecodeError::TooNew)
    );
    assert_eq!(
        Record::decode(&with_field(127, b"")),
        Err(RecordDecodeError::TooNew)
    );
    assert_eq!(Record::decode(&with_field(128, b"more")), Ok(whole()));
    let mut at_a_later_date = whole().encode().unwrap();
    let date = b"2025-06-18";
    let at = at_a_later_date
        .windows(date.len())
        .position(|window| window == date)
        .unwrap();
    at_a_later_date[at..at + 4].copy_from_slice(b"2027");
    assert_eq!(
        Record::decode(&at_a_later_date),
        Err(RecordDecodeError::TooNew)
    );
}

#[test]
fn what_no_version_writes_is_broken() {
    let table: [(&[u8], &str); 4] = [
        (b"", "version"),
        (&[0], "version"),
        (&[FORMAT_VERSION], "server"),
        (&[FORMAT_VERSION, 1, 9, 0, 0, 0, b'x'], "length"),
    ];
    for (bytes, place) in table {
        assert_eq!(
            Record::decode(bytes),
            Err(RecordDecodeError::Corrupt(place)),
            "{bytes:?}"
        );
    }
    let broken = |bytes: &[u8]| matches!(Record::decode(bytes), Err(RecordDecodeError::Corrupt(_)));
    assert!(broken(&with_field(21, &[0; 8])), "a field twice");
    assert!(broken(&with_field(0, b"")), "no such tag");
    assert!(broken(&vec![FORMAT_VERSION; MAX_BYTES + 1]), "too large");
}

#[test]
fn what_a_reader_would_refuse_is_not_written() {
    let with = |change: fn(&mut Record)| {
        let mut record = whole();
        change(&mut record);
        record.encode().map(|_| ())
    };
    type Change = fn(&mut Record);
    let table: [(Change, &str); 6] = [
        (|it| it.session_id = Some("a\r\nb".to_owned()), "session id"),
        (|it| it.session_id = Some(String::new()), "session id"),
        (|it| it.version = Version::V2026_07_28, "version"),
        (
            |it| it.capabilities = Bytes::from_static(b"[]"),
            "capabilities",
        ),
        (
            |it| it.server_info = Some(Bytes::from_static(b"{")),
            "server info",
        ),
        (|it| it.instructions = Some("x".repeat(MAX_BYTES)), "size"),
    ];
    for (change, part) in table {
        assert_eq!(with(change), Err(RecordEncodeError(part)));
    }
}

/// The format is a promise: bytes written by this version are read by every later one.
#[test]
fn bytes_of_the_first_version_are_still_read_and_written() {
    let kept = include_bytes!("../../../../fuzz/corpus/record/whole");
    assert_eq!(whole().encode().unwrap(), kept);
    assert_eq!(Record::decode(kept), Ok(whole()));
}

#[test]
fn a_later_word_renews_what_changes_and_forgets_no_state() {
    let mut record = Record {
        unreported_loss: true,
        ..whole()
    };
    let mut later = Record {
        stateful: false,
        last_used_at: 1_790_009_999,
        log_level: None,
        instructions: None,
        ..whole()
    };
    later.subscriptions.pop();
    record.update_from(&later);
    assert!(record.stateful, "what was left in the server is left there");
    assert_eq!(record.last_used_at, 1_790_009_999);
    assert_eq!(record.log_level, None);
    assert!(!record.unreported_loss, "somebody was told meanwhile");
    assert_eq!(record.subscriptions, ["file:///a"]);
    assert_eq!(
        record.instructions,
        whole().instructions,
        "fixed at the opening"
    );
}

#[test]
fn a_session_is_the_same_by_key_generation_and_id() {
    let other = |change: fn(&mut Record)| {
        let mut record = whole();
        change(&mut record);
        record
    };
    assert!(whole().is_same_session(&other(|it| it.last_used_at += 1)));
    assert!(!whole().is_same_session(&other(|it| it.generation += 1)));
    assert!(!whole().is_same_session(&other(|it| it.session_id = None)));
}

/// A66, reliability P30: whoever prints a record shows no session id.
#[test]
fn a_printed_record_shows_no_session_id() {
    let shown = format!("{:?}", whole());
    assert!(
        shown.contains("browser") && !shown.contains("server-chose"),
        "{shown}"
    );
}

/// The page that people read and the bytes that are written name the same fields.
#[test]
fn the_reference_page_knows_every_tag() {
    let page = include_str!("../../../../docs/reference/records.md");
    let rows = page.lines().filter_map(|line| {
        let mut cells = line.split('|').map(str::trim).skip(1);
        Some((cells.next()?.parse::<u8>().ok()?, cells.next()?))
    });
    let told: Vec<u8> = rows.map(|(tag, _)| tag).collect();
    let mut written = Vec::new();
    let untold = Record {
        unreported_loss: true,
        ..whole()
    };
    let bytes = untold.encode().unwrap();
    let mut reader = fields::FieldReader::new(&bytes).unwrap();
    while let Some((tag, _)) = reader.next_field(18).unwrap() {
        written.push(tag);
    }
    written.dedup();
    assert_eq!(told, written);
}
