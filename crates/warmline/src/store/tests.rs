//! Stores and records: what they keep, what they refuse, and what a bad one costs.

mod disk;
mod leftovers;
mod outages;
mod sharing;
mod stores;
mod strangers;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use warmline_core::era::{Era, Version};
use warmline_core::key::{
    CredentialId, Digest, Identity, Key, Owner, Place, Revision, RunId, Scope, Transport,
};
use warmline_core::record::{Declared, Record};

use super::*;
use crate::seal::Vault;

const TIMEOUT: Duration = Duration::from_secs(2);

fn vault() -> Arc<Vault> {
    static VAULT: LazyLock<Arc<Vault>> = LazyLock::new(|| Arc::new(Vault::ephemeral().unwrap()));
    Arc::clone(&VAULT)
}

/// Records in a store, as one process sees them.
fn records(store: &(impl SessionStore + Clone + 'static)) -> Records {
    Records::new(Arc::new(store.clone()), vault(), TIMEOUT)
}

const ALICE: u8 = 1;
const BOB: u8 = 2;

/// The key of somebody's run.
fn key(identity: u8, run: u8) -> Key {
    let digest = |byte| Digest::new([byte; 16]);
    let place = Place {
        server: Arc::from("browser"),
        revision: Revision(digest(9)),
        era: Era::Legacy,
        transport: Transport::Http,
    };
    let owner = Owner::Identity(Identity(digest(identity)));
    Key::of(
        place,
        owner,
        CredentialId(digest(7)),
        Scope::Run(RunId(digest(run))),
    )
}

/// The record of a session that was just opened.
fn record(key: &Key, generation: u32, id: &str) -> Record {
    Record {
        key: key.clone(),
        generation,
        session_id: Some(id.to_owned()),
        version: Version::V2025_06_18,
        declared: Declared {
            client_name: "warmline".to_owned(),
            client_version: "0.1.0".to_owned(),
            capabilities: Bytes::from_static(b"{}"),
        },
        capabilities: Bytes::from_static(b"{\"tools\":{}}"),
        server_info: None,
        instructions: None,
        log_level: None,
        subscriptions: Vec::new(),
        left_state: false,
        untold_loss: false,
        opened_at: 1_790_000_000,
        used_at: 1_790_000_000,
        expires_at: None,
    }
}

fn name(byte: u8) -> RecordName {
    RecordName::new(Digest::new([byte; 16]))
}

fn stored(edition: u64, text: &str) -> Stored {
    Stored {
        edition,
        sealed: text.as_bytes().to_vec(),
    }
}

#[track_caller]
fn assert_done(written: &Written) {
    assert!(matches!(written, Written::Done(_)), "{written:?}");
}

#[track_caller]
fn winner(written: Written) -> Record {
    match written {
        Written::Lost(winner) => *winner,
        Written::Done(_) | Written::Not(_) => panic!("{written:?}"),
    }
}

#[track_caller]
fn trouble(written: Written) -> warmline_core::exchange::Trouble {
    match written {
        Written::Not(trouble) => trouble,
        Written::Done(_) | Written::Lost(_) => panic!("{written:?}"),
    }
}
