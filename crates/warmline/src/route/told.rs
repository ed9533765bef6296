//! What records tell of a server before anybody asks it.
//!
//! Asked by: a call that knows nothing of its server yet.  Told by: first contacts, and sessions
//! that were written down.
//!
//! That a server keeps sessions is worth a record of its own (A171): who starts later then opens
//! one at once. Such a record has no session. Its key cannot be one of a session: what belongs to
//! everybody belongs to no run, and here it belongs to one that nobody can name.

use std::sync::Arc;

use warmline_core::era::Era;
use warmline_core::key::{Key, Owner, RunId, Scope};
use warmline_core::plan::Leg;
use warmline_core::record::{self, Record};

use super::Speaking;
use crate::clock;
use crate::engine::Caller;
use crate::entry::{ContactKey, Entry, Wants, transport_of};
use crate::seal::{Purpose, Vault};
use crate::store::{Records, Written};
use crate::upstream::Facts;

/// There is one such record per key, and it is never replaced by a later one.
const GENERATION: u32 = 1;

/// Whether a record tells of a server, and not of a session.
pub(crate) const fn is_of_a_server(key: &Key) -> bool {
    matches!(key.owner(), Owner::Everybody) && key.run().is_some()
}

/// The leg that a record names: that of the run's own session, or the one that an earlier process
/// found out. Nothing goes over the wire.
pub(super) async fn leg(
    caller: &Caller,
    entry: &Arc<Entry>,
    speaking: &Speaking,
    key: ContactKey,
) -> Option<Leg> {
    let records = caller.engine.shared().records_of(entry)?;
    // Records speak of the legacy leg alone. Where something spoke against what was known of this
    // server, it is asked, not its records.
    if entry.contacts_seen() > 0 || key.wants == Wants::Era(Era::Modern) {
        return None;
    }
    let vault = &caller.engine.shared().vault;
    let leg = leg_with_sessions(speaking);
    let of_server = key_of_server(vault, entry, speaking, key, key.wants);
    if records.outlives_process() && is_there(&records, &of_server).await {
        return Some(leg);
    }
    if let Some(run) = &caller.run {
        let of_session = Key::of(
            entry.place(&speaking.found, leg),
            Owner::Identity(caller.who.id),
            speaking.id(),
            Scope::Run(run.id),
        );
        if is_there(&records, &of_session).await {
            return Some(leg);
        }
    }
    // Before anything of ours is written there.
    let connector = caller.engine.connector();
    connector.look_for_strangers(entry, &records).await;
    None
}

/// Whether a record says that the server keeps sessions. One of a session that it forgot says
/// nothing of what it does by now.
async fn is_there(records: &Records, key: &Key) -> bool {
    let found = records.load(key).await.ok().flatten();
    found.is_some_and(|record| !record.is_word_of_loss())
}

/// Writes down what a first contact found out, or crosses out what it disproved.
pub(super) async fn write_down(
    caller: &Caller,
    entry: &Arc<Entry>,
    speaking: &Speaking,
    key: ContactKey,
    facts: &Facts,
) {
    let records = caller.engine.shared().records_of(entry);
    let Some(records) = records.filter(|records| records.outlives_process()) else {
        return;
    };
    let leg = leg_with_sessions(speaking);
    let keeps_sessions =
        facts.keeps_session && (facts.era, facts.transport) == (leg.era, leg.transport);
    // A server that is met in the legacy era by who wants any has no other to offer.
    let wants: &[Wants] = match key.wants {
        Wants::Any => &[Wants::Any, Wants::State],
        Wants::State => &[Wants::State],
        Wants::Era(Era::Legacy) => &[Wants::Era(Era::Legacy)],
        Wants::Era(Era::Modern) => &[],
    };
    for wants in wants {
        let vault = &caller.engine.shared().vault;
        let of_server = key_of_server(vault, entry, speaking, key, *wants);
        if keeps_sessions {
            let record = record_of(caller, of_server, facts);
            if let Written::Not(trouble) = records.save(&record, None).await {
                tracing::debug!(server = %entry.name, %trouble, "what it is was not written down");
            }
        } else if entry.contacts_seen() > 0 {
            records.clear(&of_server, GENERATION, None).await;
        }
    }
}

/// The only leg that a record speaks of.
fn leg_with_sessions(speaking: &Speaking) -> Leg {
    Leg {
        era: Era::Legacy,
        transport: transport_of(&speaking.found.reach),
        keeps_session: true,
    }
}

fn key_of_server(
    vault: &Vault,
    entry: &Arc<Entry>,
    speaking: &Speaking,
    key: ContactKey,
    wants: Wants,
) -> Key {
    let wanted: &[u8] = match wants {
        Wants::Any => b"any",
        Wants::State => b"state",
        Wants::Era(Era::Legacy) => b"legacy",
        Wants::Era(Era::Modern) => b"modern",
    };
    let nobodys = vault.digest(Purpose::Contact, &[key.declared.0.bytes(), wanted]);
    Key::of(
        entry.place(&speaking.found, leg_with_sessions(speaking)),
        Owner::Everybody,
        key.credential,
        Scope::Run(RunId(nobodys)),
    )
}

fn record_of(caller: &Caller, key: Key, facts: &Facts) -> Record {
    let now = clock::wall_seconds();
    let said = &caller.said.declared;
    Record {
        key,
        generation: GENERATION,
        session_id: None,
        version: facts.version,
        declared: record::Declared {
            client_name: said.client_name.clone(),
            client_version: said.client_version.clone(),
            capabilities: said.capabilities.clone(),
        },
        capabilities: facts.capabilities.clone(),
        server_info: facts.server_info.clone(),
        instructions: facts.instructions.clone(),
        log_level: None,
        subscriptions: Vec::new(),
        left_state: false,
        untold_loss: false,
        opened_at: now,
        used_at: now,
        expires_at: None,
    }
}
