//! The first contact with a server: what it turned out to be, found out once for all who ask.
//!
//! Asked by: routes, where nothing is known of a server yet.
//!
//! What it opens is a session like any other: it has room before anything goes out, keeps it on
//! the shelf until its caller comes, and goes with the run that it was opened for.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use warmline_core::code::Reason;
use warmline_core::era::Era;
use warmline_core::exchange::Trouble;
use warmline_core::key::{Key, Owner, Scope, Transport};
use warmline_core::plan::Leg;
use warmline_core::policy::Sessions;
use warmline_core::pool::Why;

use super::{Speaking, lacks, other_era};
use crate::clock;
use crate::connect::FirstContact;
use crate::engine::{self, Caller};
use crate::entry::{Contact, ContactKey, Entry, Unmet, Wants, transport_of};
use crate::pool::{Met, Room, Trace, UntilGone};
use crate::run::{self, RunShared};
use crate::upstream::Legs;

/// So long a first contact may still take when its run is over: one that is nearly made is ended
/// in order, because the server may have given it a session already.
const NEARLY_MADE: Duration = Duration::from_secs(2);
/// So many first contacts of others may end with their runs before a caller hears of it.
const MADE_BY_OTHERS: u32 = 16;

/// What the server turned out to be: remembered, told by a record, or found out now, once for
/// all who ask.
pub(super) async fn meet(
    caller: &Caller,
    entry: &Arc<Entry>,
    speaking: &Speaking,
) -> Result<Arc<Contact>, Trouble> {
    let key = key(caller, entry, speaking);
    let wants = key.wants;
    if let Some(contact) = entry.contact(&key) {
        return Ok(contact);
    }
    if let Some(leg) = super::told::leg(caller, entry, speaking, key).await {
        let contact = Arc::new(Contact { leg });
        entry.learn(key, Arc::clone(&contact));
        return Ok(contact);
    }
    if let Wants::Era(era) = wants
        && lacks(caller, entry, speaking, era)
    {
        return Err(other_era(entry, era));
    }
    for _ in 0..MADE_BY_OTHERS {
        let work = || contact(caller.clone(), Arc::clone(entry), speaking.clone(), key);
        match entry.contacting.join("first-contact", key, work).await {
            Some(Ok(contact)) => return Ok(contact),
            Some(Err(Unmet::Failed(trouble))) => return Err(trouble),
            Some(Err(Unmet::RunEnded)) => is_wanted(caller)?,
            None => break,
        }
    }
    let what = format!(
        "the first contact with `{}` ended without a word",
        entry.name
    );
    Err(Trouble::new(Reason::Internal, what))
}

/// Whether it is known what the server is, for such a caller.
pub(super) fn has_met(caller: &Caller, entry: &Entry, speaking: &Speaking) -> bool {
    entry.contact(&key(caller, entry, speaking)).is_some()
}

fn key(caller: &Caller, entry: &Entry, speaking: &Speaking) -> ContactKey {
    ContactKey {
        credential: speaking.id(),
        declared: caller.said.id,
        wants: entry.wants(caller.run.is_some(), caller.era),
    }
}

/// Whether the caller still has a run, if it had one.
fn is_wanted(caller: &Caller) -> Result<(), Trouble> {
    match &caller.run {
        Some(run) if run.is_cut() => Err(run::ended(&run.name)),
        Some(_) | None => Ok(()),
    }
}

/// The first contact itself. The session it opened goes on the shelf, for whoever asked.
async fn contact(
    caller: Caller,
    entry: Arc<Entry>,
    speaking: Speaking,
    key: ContactKey,
) -> Result<Arc<Contact>, Unmet> {
    // Whoever looked for a record meanwhile comes when the others have found out already.
    if let Some(contact) = entry.contact(&key) {
        return Ok(contact);
    }
    let seen = entry.contacts_seen();
    let meeting = std::pin::pin!(met(&caller, &entry, &speaking, key));
    let run = caller.run.as_deref();
    let met = until_over(run, meeting).await.ok_or(Unmet::RunEnded)?;
    let (met, how) = met.map_err(Unmet::Failed)?;
    let facts = Arc::clone(met.line.shared_facts());
    let contact = Contact::of(&facts);
    if let Some(other) = met.other
        && !contact.leg.keeps_session
        && other.keeps_session
    {
        tracing::info!(server = %entry.name, era = %other.era, "the other era of this server keeps state");
    }
    let setup = Arc::new(speaking.setup(&caller, &entry, contact.leg));
    let shelf = speaking.shelf(&caller, &entry, contact.leg);
    let pool = caller.engine.pool();
    pool.shelve(&shelf, &setup, met.line, how);
    end_if_over(&caller);
    // Either whoever withdraws the server sees what lies there, or we see that it is withdrawn.
    fence(Ordering::SeqCst);
    if entry.is_withdrawn() {
        pool.clear_shelf(&shelf, Why::Reloaded);
    }
    super::told::write_down(&caller, &entry, &speaking, key, &facts).await;
    // Last: whoever finds the contact finds the session on the shelf, and opens no second one.
    // Where something else was decided meanwhile, it holds for whoever waited, and for nobody else.
    if entry.contacts_seen() == seen {
        entry.learn(key, Arc::clone(&contact));
    }
    Ok(contact)
}

/// Either the end of the run sees what lies on the shelf, or we see that the run was cut.
fn end_if_over(caller: &Caller) {
    let Some(run) = &caller.run else { return };
    fence(Ordering::SeqCst);
    if run.is_cut() {
        caller.engine.pool().end_met_for(run.id);
    }
}

/// Goes on until the run is over, and a little longer.
async fn until_over<F: Future>(run: Option<&RunShared>, meeting: F) -> Option<F::Output> {
    let Some(run) = run else {
        return Some(meeting.await);
    };
    let mut meeting = std::pin::pin!(meeting);
    match run.until_cut(meeting.as_mut()).await {
        Some(met) => Some(met),
        None => clock::timeout(NEARLY_MADE, meeting).await.ok(),
    }
}

/// Meets the server, if there is room and the breakers let it pass, and tells what came of it.
async fn met(
    caller: &Caller,
    entry: &Arc<Entry>,
    speaking: &Speaking,
    key: ContactKey,
) -> Result<(FirstContact, Met), Trouble> {
    let whose = caller.who.id;
    let (connector, pool) = (caller.engine.connector(), caller.engine.pool());
    let (room, beside) = room(caller, entry, speaking, key)
        .await
        .inspect_err(|blocked| connector.contact_blocked(entry, blocked))?;
    let began = clock::now();
    let (passing, changes) = pool
        .pass(
            &entry.name,
            speaking.found.revision,
            Owner::Identity(whose),
            key.credential,
            entry.policy().breaker,
        )
        .inspect_err(|blocked| connector.contact_blocked(entry, blocked))?;
    connector.breakers_changed(entry, whose, changes);
    let legs = match (key.wants, transport_of(&speaking.found.reach), &beside) {
        (Wants::Any | Wants::Era(_), ..) => Legs::First,
        (Wants::State, Transport::Stdio, None) => Legs::InTurn,
        (Wants::State, ..) => Legs::Both,
    };
    let (trace, traces) = Trace::new();
    // A process that was started for nothing takes up room until it is gone.
    let rooms = UntilGone::new((room, beside), traces);
    let wants = (key.wants, legs);
    let contacting = connector.first_contact(entry, speaking, &caller.said, wants, trace);
    // A server that hangs does not outlive an engine that was closed.
    let met = caller.engine.until_cut(std::pin::pin!(contacting)).await;
    let met = met.unwrap_or_else(|| Err(engine::going_down()));
    let changes = match &met {
        Ok(_) => passing.succeeded(),
        // It answered, in the other era: that is no failure of its own.
        Err(_) if matches!(key.wants, Wants::Era(era) if lacks(caller, entry, speaking, era)) => {
            passing.succeeded()
        },
        Err(trouble) => {
            connector.contact_failed(entry, whose, trouble, began.elapsed());
            passing.failed(trouble)
        },
    };
    connector.breakers_changed(entry, whose, changes);
    let mut met = met?;
    let (room, beside) = rooms.take().unwrap_or_default();
    if let Some(unused) = met.beside.take() {
        // It keeps its room until it is gone.
        clock::spawn_if_running("close", async move {
            unused.close().await;
            drop(beside);
        });
    }
    let run = caller.run.as_ref().map(|run| run.id);
    let took = began.elapsed();
    Ok((met, Met { took, run, room }))
}

/// Room for the session that will be opened, and for a second process where both legs are tried
/// and there is room for it at this moment.
///
/// Whose session it will be is not said yet, so nobody's limit counts but those of the server and
/// of all. Before an HTTP server was met it may give us a session, whatever it is.
async fn room(
    caller: &Caller,
    entry: &Arc<Entry>,
    speaking: &Speaking,
    key: ContactKey,
) -> Result<(Option<Room>, Option<Room>), Trouble> {
    let transport = transport_of(&speaking.found.reach);
    let policy = entry.policy();
    let is_greeted = policy.sessions != Sessions::Never && key.wants != Wants::Era(Era::Modern);
    let leg = Leg {
        era: if is_greeted { Era::Legacy } else { Era::Modern },
        transport,
        keeps_session: true,
    };
    let (most, wait) = (policy.max_sessions, policy.wait);
    drop(policy);
    let place = entry.place(&speaking.found, leg);
    let scope = Scope::Shared(caller.said.shared_by);
    let nobody = Arc::new(Key::of(place, Owner::Everybody, key.credential, scope));
    let pool = caller.engine.pool();
    let waiting = std::pin::pin!(pool.room_to_meet(&nobody, most, clock::after(wait)));
    let room = caller.engine.until_cut(waiting).await;
    let room = room.unwrap_or_else(|| Err(engine::going_down()))?;
    let two = key.wants == Wants::State && transport == Transport::Stdio;
    let beside = two.then(|| pool.room_beside(&nobody, most)).flatten();
    Ok((room, beside))
}
