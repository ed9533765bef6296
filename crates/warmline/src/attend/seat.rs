//! The place of somebody who attends: it holds a stream where one is needed, on whatever session
//! serves the key, and sees to it that there is one where they want what only a session tells.
//!
//! Begun by: [`attend`](super).  Told by: the sessions of the key that come and go, and the orders
//! that are given on them.
//!
//! Who only listens calls nothing, so nobody else would notice that a session is gone, or that there
//! never was one to tell of lists. It is opened through the same door as for a call, where limits
//! and breakers count; what was lost with an old one is told to the next call. No program is started
//! for who never called anything.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Notify;
use warmline_core::code::Reason;
use warmline_core::era::Era;
use warmline_core::exchange::Trouble;

use super::repeats::{By, LISTS, Repeats};
use super::{Place, Telling};
use crate::call;
use crate::clock::{self, Instant};
use crate::connect::{Connect, Line};
use crate::engine::Caller;
use crate::entry::{Entry, governing};
use crate::pool::{CellOf, KeepAlive, Seen};
use crate::route::{self, Route};
use crate::run::Stay;
use crate::servers::Declarations;
use crate::upstream::{Facts, Notices, Stood};

/// How long to wait before a server that could not be met is looked for again: twice as long each
/// time, up to the longest.
const AGAIN_AFTER: Duration = Duration::from_secs(5);
const LONGEST_AFTER: Duration = Duration::from_secs(120);
/// The same before a session that is gone is opened again.
const OPEN_AFTER: Duration = Duration::from_secs(1);
/// How long to wait before a server that refused a credential is asked for a stream again, and
/// twice as long each time.
const DENIED_FOR: Duration = Duration::from_secs(1);

/// Attends on whatever key serves the caller, as long as the caller can be served.
///
/// Whoever would be called is who is heard: the server may be reached otherwise by now, or have been
/// taken away and be declared again.
pub(super) async fn stand(
    caller: Caller,
    declared: Arc<Entry>,
    ear: Arc<dyn Notices>,
    mut away: Option<Instant>,
) {
    let mut declarations = Declarations::of(&caller.engine);
    let mut again_after = AGAIN_AFTER;
    let mut before: Option<Heard> = None;
    while caller.run.as_ref().is_none_or(|run| run.is_live()) {
        match way(&caller, &declared).await {
            Ok((entry, Route::Held(cell))) => {
                let leg = cell.setup().leg;
                if leg.era != Era::Legacy || !leg.keeps_session {
                    return;
                }
                again_after = AGAIN_AFTER;
                let ear = Arc::clone(&ear);
                let mut seat = Seat::take(&caller, Arc::clone(&entry), &cell, ear);
                seat.known = known(&caller, &entry).await;
                seat.tell_other_server(before.as_ref());
                if let Some(away) = away.take() {
                    seat.tell_missed(away);
                }
                let facts = seat.known.clone();
                before = Some(Heard { entry, facts });
                seat.sit().await;
                drop(seat);
                // Its key is over; who begins it again begins another.
                clock::sleep(OPEN_AFTER).await;
            },
            // Nothing is held that could tell anything.
            Ok((_, Route::Once(_))) => return,
            // It speaks another era; to look again would start it again.
            Err(trouble) if trouble.reason == Reason::Version => return,
            Err(trouble) => {
                tracing::debug!(server = %declared.name, %trouble, "nobody to attend yet");
                let changed = clock::timeout(again_after, declarations.changed()).await;
                again_after = match changed {
                    Ok(()) => AGAIN_AFTER,
                    Err(_) => LONGEST_AFTER.min(again_after * 2),
                };
            },
        }
    }
}

/// The server that a call of this caller goes to now, and the way there.
async fn way(caller: &Caller, declared: &Arc<Entry>) -> Result<(Arc<Entry>, Route), Trouble> {
    let entry = governing(caller, declared)?;
    entry.may_be_used(&caller.engine)?;
    let route = route::route(caller, &entry, None).await?;
    Ok((entry, route))
}

/// A server that was heard, and what it said of itself.
struct Heard {
    entry: Arc<Entry>,
    facts: Option<Arc<Facts>>,
}

/// What a server that was met said of itself to anybody.
async fn known(caller: &Caller, entry: &Arc<Entry>) -> Option<Arc<Facts>> {
    let speaking = route::speaking(caller, entry).await.ok()?;
    let connector = caller.engine.connector();
    let known = connector.remembered(entry, &speaking, &caller.said)?;
    known.leg(Era::Legacy).cloned()
}

/// The place of somebody who attends; dropping it leaves it.
struct Seat<'a> {
    caller: &'a Caller,
    entry: Arc<Entry>,
    cell: Arc<CellOf<Connect>>,
    place: Arc<Place>,
    /// What is known of the server before there is a session.
    known: Option<Arc<Facts>>,
}

/// What is known of the last session that was listened to.
struct Before {
    line: Weak<Line>,
    facts: Arc<Facts>,
}

/// The same time and up to a quarter more, so that many do not come at once.
fn spread(time: Duration) -> Duration {
    time + time.mul_f64(fastrand::f64() / 4.0)
}

/// How often something was tried in vain, as the pause before it is tried again.
struct Pause {
    first: Duration,
    next: Duration,
}

impl Pause {
    const fn new(first: Duration) -> Self {
        Self { first, next: first }
    }

    /// The pause to make now; the next one is longer. What went well for longer than that is
    /// forgiven.
    fn take(&mut self, went_well: Duration) -> Duration {
        if went_well > self.next {
            self.next = self.first;
        }
        let now = self.next;
        self.next = LONGEST_AFTER.min(now * 2);
        now
    }
}

impl<'a> Seat<'a> {
    fn take(
        caller: &'a Caller,
        entry: Arc<Entry>,
        cell: &Arc<CellOf<Connect>>,
        ear: Arc<dyn Notices>,
    ) -> Self {
        let attendance = &entry.attendance;
        let place = Arc::new(Place {
            who: caller.who.id,
            number: attendance.numbers.fetch_add(1, Ordering::Relaxed),
            ear,
            streams: AtomicBool::new(false),
            lists: AtomicBool::new(false),
            repeats: Repeats::default(),
            changed: Notify::new(),
        });
        let seat = (place.who, place.number);
        attendance.places.lock().insert(seat, Arc::clone(&place));
        let audience = &cell.setup().aside().audience;
        audience.places.lock().push(Arc::clone(&place));
        Self {
            caller,
            entry,
            cell: Arc::clone(cell),
            place,
            known: None,
        }
    }

    /// Holds a stream as long as one is needed, on whatever session serves the key. Ends with the
    /// key.
    async fn sit(&self) {
        let mut before: Option<Before> = None;
        let mut stay: Option<Stay> = None;
        let (mut denied, mut opening) = (Pause::new(DENIED_FOR), Pause::new(OPEN_AFTER));
        let mut failing = Pause::new(OPEN_AFTER);
        let mut stood_for = Duration::ZERO;
        while self.cell.is_live() {
            // What somebody wants of a session of their own keeps their run from resting.
            stay = match self.is_of_its_own() {
                true => stay.or_else(|| self.stay()),
                false => None,
            };
            let heard = self.heard();
            if !self.is_needed(heard.as_ref(), before.as_ref()) {
                // Whoever has nothing to hear on hears for nobody.
                self.entry.attendance.disclaim(&self.place);
                self.place.changed.notified().await;
                continue;
            }
            let Some(seen) = heard else {
                self.open(opening.take(stood_for)).await;
                stood_for = Duration::ZERO;
                continue;
            };
            let line = Arc::clone(&seen.session);
            self.compare(before.as_ref(), &seen);
            before = Some(Before {
                line: Arc::downgrade(&line),
                facts: Arc::clone(line.shared_facts()),
            });
            let began = clock::now();
            let epoch = self.credential_epoch();
            let stood = self.listen(&line).await;
            stood_for = began.elapsed();
            let Some(stood) = stood else { continue };
            // Another of the same identity may hear meanwhile.
            self.entry.attendance.disclaim(&self.place);
            match stood {
                Stood::Denied => {
                    self.renew(epoch).await;
                    let pause = clock::after(denied.take(stood_for));
                    self.until_replaced(&line, Some(pause)).await;
                },
                Stood::Failing => {
                    let pause = clock::after(spread(failing.take(stood_for)));
                    self.until_replaced(&line, Some(pause)).await;
                },
                // Another session may have one.
                Stood::Never => {
                    self.until_replaced(&line, None).await;
                },
                // The server may have forgotten the session, or have no stream for it.
                Stood::Doubtful => {
                    self.check(seen).await;
                    self.until_replaced(&line, None).await;
                },
                Stood::Over => {
                    self.check(seen).await;
                    if self.heard().is_some() {
                        self.open(opening.take(stood_for)).await;
                    }
                },
            }
        }
    }

    /// A session that takes the place of another may have other lists. Whoever notices first tells
    /// all who attend it.
    fn compare(&self, before: Option<&Before>, seen: &Seen<Connect>) {
        let is_other = before.is_some_and(|it| it.line.as_ptr() != Arc::as_ptr(&seen.session));
        let audience = &self.cell.setup().aside().audience;
        if is_other && audience.is_replaced_by(seen.generation) {
            self.lists_may_differ(&seen.session);
        }
    }

    /// Listens to a session until its stream is over, or something else is different.
    async fn listen(&self, line: &Arc<Line>) -> Option<Stood> {
        self.place.streams.store(true, Ordering::Relaxed);
        let stood = tokio::select! {
            stood = line.stand(|| self.lists_may_differ(line)) => Some(stood),
            () = self.place.changed.notified() => None,
        };
        self.place.streams.store(false, Ordering::Relaxed);
        if stood.is_some() {
            self.place.repeats.forget();
        }
        stood
    }

    /// Looks whether a session is still there, and tells its key.
    async fn check(&self, seen: Seen<Connect>) {
        if self.cell.is_live() {
            KeepAlive::of(&self.cell, seen).run().await;
        }
    }

    /// Has a session opened after a while, unless there is one by then. One that cannot be had is
    /// asked for again later.
    async fn open(&self, after: Duration) {
        let by = clock::after(spread(after));
        let is_there = || {
            self.heard()
                .is_some_and(|seen| seen.session.retired().is_none())
        };
        while clock::timeout_at(by, self.place.changed.notified())
            .await
            .is_ok()
        {
            if is_there() || !self.cell.is_live() {
                return;
            }
        }
        let Ok(_turn) = self.entry.attendance.openings.acquire().await else {
            return;
        };
        if !is_there()
            && let Err(error) = call::facts(self.caller, &self.entry).await
        {
            tracing::debug!(server = %self.entry.name, %error, "no session to listen to yet");
            // Another of the same identity may have one to hear on.
            self.entry.attendance.disclaim(&self.place);
        }
    }

    fn stay(&self) -> Option<Stay> {
        let run = self.caller.run.as_ref()?;
        run.hold(&self.caller.engine).ok()
    }

    fn credential_epoch(&self) -> u64 {
        let credential = self.cell.setup().credential.as_ref();
        credential.map_or(0, |credential| credential.epoch())
    }

    /// Asks for another credential than the one that was refused.
    async fn renew(&self, refused: u64) {
        if let Some(credential) = &self.cell.setup().credential
            && credential.can_refresh()
            && let Err(trouble) = credential.refresh(refused).await
        {
            tracing::debug!(server = %self.entry.name, %trouble, "no fresh credential to listen with");
        }
    }

    /// Waits until another session serves the key, or until then.
    async fn until_replaced(&self, line: &Arc<Line>, by: Option<Instant>) {
        let is_heard = || {
            let heard = self.heard();
            heard.is_some_and(|heard| Arc::ptr_eq(&heard.session, line))
        };
        while is_heard() {
            let changed = self.place.changed.notified();
            match by {
                None => changed.await,
                Some(by) => {
                    if clock::timeout_at(by, changed).await.is_err() {
                        return;
                    }
                },
            }
        }
    }

    /// What the server said of its lists was not heard for a while: they may be others by now, for
    /// all who attend this session.
    fn lists_may_differ(&self, line: &Line) {
        self.entry.forget_lists();
        for changed in changes_told_by(line.facts()) {
            Telling::of(self.cell.setup()).tell(&changed, b"{}", By::Ourselves);
        }
    }

    /// Another server than before is heard from now on: it has other lists than those of which the
    /// one before said that it would tell.
    fn tell_other_server(&self, before: Option<&Heard>) {
        let other = before.filter(|before| !Arc::ptr_eq(&before.entry, &self.entry));
        let facts = other.and_then(|other| other.facts.as_deref());
        for changed in facts.into_iter().flat_map(changes_told_by) {
            self.place.tell(&changed, b"{}", By::Ourselves);
        }
    }

    /// Somebody is back: others were told meanwhile that lists changed, or there is another server.
    fn tell_missed(&self, away: Instant) {
        let attendance = &self.entry.attendance;
        let is_other = attendance.since > away;
        let facts = self.known.as_deref().filter(|_| is_other);
        let others = facts.into_iter().flat_map(changes_told_by);
        let changed = attendance.changed_since(away).map(change_of);
        for changed in others.chain(changed) {
            self.place.tell(&changed, b"{}", By::Ourselves);
        }
    }

    /// The session that is heard here.
    fn heard(&self) -> Option<Seen<Connect>> {
        let audience = &self.cell.setup().aside().audience;
        audience.heard_of(self.cell.sessions())
    }

    /// Whether a session is needed, and a stream of it. Where there is none, one is missing only if
    /// there was one, if somebody comes back to it, or if nobody else hears of lists.
    fn is_needed(&self, heard: Option<&Seen<Connect>>, before: Option<&Before>) -> bool {
        match (heard, before) {
            (Some(seen), _) => self.needs_stream(seen.session.facts()),
            (None, Some(before)) => self.needs_stream(&before.facts),
            (None, None) => self.cell.setup().is_missed() || self.needs_first(),
        }
    }

    /// Whether a first session is needed to hear of lists.
    fn needs_first(&self) -> bool {
        let known = self.known.as_deref();
        let tells = known.is_some_and(tells_of_lists) && !self.cell.setup().is_process();
        tells && self.entry.attendance.claim(&self.place)
    }

    /// Whether a stream is needed: for what only this session is told, or for the lists of all.
    fn needs_stream(&self, facts: &Facts) -> bool {
        let of_its_own = self.is_of_its_own();
        let hears_of_lists =
            (tells_of_lists(facts) || of_its_own) && self.entry.attendance.claim(&self.place);
        of_its_own || hears_of_lists
    }

    /// Whether something is wanted that only this key's session tells.
    fn is_of_its_own(&self) -> bool {
        let setup = self.cell.setup();
        let may_be_asked =
            self.cell.key().run().is_some() && setup.said.declared.declares_anything();
        may_be_asked || setup.has_orders()
    }
}

/// What a server says that it tells when a list of it changed.
fn changes_told_by(facts: &Facts) -> impl Iterator<Item = String> + use<> {
    let declared: Option<Value> = serde_json::from_slice(&facts.capabilities).ok();
    LISTS.into_iter().filter_map(move |list| {
        let says_so = &declared.as_ref()?[list]["listChanged"];
        (*says_so == true).then(|| change_of(list))
    })
}

/// How it is told that a list changed.
fn change_of(list: &str) -> String {
    format!("notifications/{list}/list_changed")
}

/// Whether a server says that it tells of changes of its lists.
fn tells_of_lists(facts: &Facts) -> bool {
    memchr::memmem::find(&facts.capabilities, b"\"listChanged\"").is_some()
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let attendance = &self.entry.attendance;
        let seat = (self.place.who, self.place.number);
        attendance.places.lock().remove(&seat);
        if let Some(audience) = self.cell.setup().audience() {
            let mut places = audience.places.lock();
            places.retain(|place| !Arc::ptr_eq(place, &self.place));
        }
        attendance.disclaim(&self.place);
    }
}
