//! Stores and records: what they keep, what they refuse, and what a bad one costs.

mod abandoned;
mod availability;
mod file_format;
mod foreign_records;
mod shared_store;
mod stores;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use warmline_core::era::{Era, Version};
use warmline_core::pool_key::{
    ConfigRevision, CredentialId, Digest, Identity, KeyOwner, KeyScope, PoolKey, RunId, TargetKey,
    Transport,
};
use warmline_core::record::{Record, StoredClientProfile};

use super::*;
use crate::keyring::Keyring;

const TIMEOUT: Duration = Duration::from_secs(2);

fn vault() -> Arc<Keyring> {
    static VAULT: LazyLock<Arc<Keyring>> =
        LazyLock::new(|| Arc::new(Keyring::ephemeral().unwrap()));
    Arc::clone(&VAULT)
}

/// Records in a store, as one process sees them.
fn records(store: &(impl SessionStore + Clone + 'static)) -> Records {
    Records::new(Arc::new(store.clone()), vault(), TIMEOUT)
}

const ALICE: u8 = 1;
const BOB: u8 = 2;

/// The key of somebody's run.
fn key(identity: u8, run: u8) -> PoolKey {
    let digest = |byte| Digest::new([byte; 16]);
    let place = TargetKey {
        server: Arc::from("browser"),
        revision: ConfigRevision(digest(9)),
        era: Era::Legacy,
        transport: Transport::Http,
    };
    let owner = KeyOwner::Identity(Identity(digest(identity)));
    PoolKey::new(
        place,
        owner,
        CredentialId(digest(7)),
        KeyScope::Run(RunId(digest(run))),
    )
}

/// The record of a session that was just opened.
fn record(key: &PoolKey, generation: u32, id: &str) -> Record {
    Record {
        key: key.clone(),
        generation,
        session_id: Some(id.to_owned()),
        version: Version::V2025_06_18,
        client_profile: StoredClientProfile {
            client_name: "warmline".to_owned(),
            client_version: "0.1.0".to_owned(),
            capabilities: Bytes::from_static(b"{}"),
        },
        capabilities: Bytes::from_static(b"{\"tools\":{}}"),
        server_info: None,
        instructions: None,
        log_level: None,
        subscriptions: Vec::new(),
        stateful: false,
        unreported_loss: false,
        opened_at: 1_790_000_000,
        last_used_at: 1_790_000_000,
        expires_at: None,
    }
}

fn name(byte: u8) -> RecordName {
    RecordName::new(Digest::new([byte; 16]))
}

fn stored(edition: u64, text: &str) -> StoredRecord {
    StoredRecord {
        edition,
        sealed: text.as_bytes().to_vec(),
    }
}

#[track_caller]
fn assert_done(written: &WriteOutcome) {
    assert!(matches!(written, WriteOutcome::Written(_)), "{written:?}");
}

#[track_caller]
fn winner(written: WriteOutcome) -> Record {
    match written {
        WriteOutcome::Conflict(winner) => *winner,
        WriteOutcome::Written(_) | WriteOutcome::Failed(_) => panic!("{written:?}"),
    }
}

#[track_caller]
fn trouble(written: WriteOutcome) -> warmline_core::exchange::Diagnostic {
    match written {
        WriteOutcome::Failed(diagnostic) => diagnostic,
        WriteOutcome::Written(_) | WriteOutcome::Conflict(_) => panic!("{written:?}"),
    }
}
