//! Subscriptions: a task per subscriber that holds a stream where the server needs one.
//!
//! A stream stays open only while somebody is subscribed: one per session whose client may be asked
//! or has subscribed to resources or set a log level; else one for all subscribers of the same
//! identity at the same server, because list changes concern all of them.
//!
//! A client that only listens makes no calls, so no call would notice that its session is lost, or
//! that it never had one to receive list changes on. The task opens one as a call would: limits and
//! breakers apply, and the next call learns what was lost with the old one. It never starts a program
//! for a client that made no call.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::Value;
use tokio::task::JoinHandle;
use warmline_core::era::Era;
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::retry::backoff::Backoff;

use crate::call::lists;
use crate::call::route::{self, Route};
use crate::call::server_handle::{CallerContext, ServerHandle};
use crate::engine::ServerSetWatcher;
use crate::error::Result;
use crate::listener::{Listener, ListenerAdapter};
use crate::notifications::Subscriber;
use crate::notifications::dedup::{LISTS, ListChangeSource};
use crate::run_state::{RunGuard, RunUse};
use crate::server_state::ServerState;
use crate::session_factory::{PooledSession, SessionEntry, SessionFactory, SessionSetup};
use warmline_platform::clock::{self, Instant};
use warmline_pool::{KeepAliveCheck, SessionSnapshot};
use warmline_upstream::{ServerFacts, StreamHoldOutcome, UnsolicitedListener};

/// The first pause before a server that could not be reached is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(5);
const MAX_RETRY_AFTER: Duration = Duration::from_secs(120);
/// The first pause before a lost session is opened, or a server is asked for a stream again.
const REOPEN_AFTER: Duration = Duration::from_secs(1);

/// Receives notifications until it is dropped.
#[derive(Debug)]
#[must_use = "dropping it unsubscribes"]
pub struct Subscription(JoinHandle<()>);

impl Subscription {
    /// Whether it will receive nothing more: no session of this caller can tell anything.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ServerHandle {
    /// Sends what the server says outside calls to a listener, until the subscription is dropped: the
    /// notifications and server requests of the session that serves this caller. It opens no first
    /// session.
    ///
    /// ```
    /// # async fn example(server: warmline::ServerHandle) -> warmline::Result<()> {
    /// struct Log;
    /// impl warmline::Listener for Log {
    ///     fn on_notification(&self, notification: warmline::Notification) {
    ///         println!("{notification:?}");
    ///     }
    /// }
    /// let subscription = server.subscribe(Log)?; // until it is dropped
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As a call of a server that may not be called.
    pub fn subscribe(&self, listener: impl Listener + 'static) -> Result<Subscription> {
        let sink = Arc::new(ListenerAdapter::new(listener));
        let server = self.server_state()?;
        Ok(subscribe(self.caller.clone(), server, (sink, None)))
    }
}

/// Subscribes a caller until the subscription is dropped. `away` says since when a caller that
/// comes back was away.
pub(crate) fn subscribe(
    caller: CallerContext,
    declared: Arc<ServerState>,
    (sink, away): (Arc<dyn UnsolicitedListener>, Option<Instant>),
) -> Subscription {
    let task = run_subscriber(caller, declared, sink, away);
    Subscription(clock::spawn("subscriber", task))
}

/// Subscribes on the key that serves the caller, as long as the caller can be served. It follows
/// calls: the server may be reached in another way meanwhile, or be removed and declared again.
async fn run_subscriber(
    caller: CallerContext,
    declared: Arc<ServerState>,
    sink: Arc<dyn UnsolicitedListener>,
    mut away: Option<Instant>,
) {
    let mut declarations = ServerSetWatcher::new(&caller.engine);
    let mut retry = Backoff::new(RETRY_AFTER, MAX_RETRY_AFTER);
    let mut before: Option<PreviousServer> = None;
    while caller.run.as_ref().is_none_or(|run| run.is_live()) {
        match resolve_route(&caller, &declared).await {
            Ok((server, Route::Pooled(entry))) => {
                let profile = entry.setup.server_profile;
                if profile.era != Era::Legacy || !profile.has_sessions {
                    return;
                }
                retry.reset();
                let sink = Arc::clone(&sink);
                let mut task = SubscriberTask::register(&caller, Arc::clone(&server), &entry, sink);
                task.known_facts = fetch_known_facts(&caller, &server).await;
                task.notify_server_replaced(before.as_ref());
                if let Some(away) = away.take() {
                    task.notify_missed_changes(away);
                }
                before = Some((server, task.known_facts.clone()));
                task.run().await;
                drop(task);
                // The key ended; another one follows.
                clock::sleep(REOPEN_AFTER).await;
            },
            // No session is kept that could tell anything.
            Ok((_, Route::PerCall(_))) => return,
            // The server speaks another era; another attempt would start it again.
            Err(diagnostic) if diagnostic.reason == Reason::Version => return,
            Err(diagnostic) => {
                tracing::debug!(server = %declared.name, trouble = %diagnostic, "no server to subscribe to yet");
                let changed = clock::timeout(retry.next_pause(), declarations.changed()).await;
                if changed.is_ok() {
                    retry.reset();
                }
            },
        }
    }
}

/// The server that a call of this caller goes to now, and its route.
async fn resolve_route(
    caller: &CallerContext,
    declared: &Arc<ServerState>,
) -> Result<(Arc<ServerState>, Route), Diagnostic> {
    let entry = caller.governing_server(declared)?;
    caller.engine.check_usable(&entry)?;
    let route = route::find_route(caller, &entry, None).await?;
    Ok((entry, route))
}

/// The server that the subscriber was at before, and its facts.
type PreviousServer = (Arc<ServerState>, Option<Arc<ServerFacts>>);
/// The last session that had the stream, and its facts.
type PreviousSession = (Weak<PooledSession>, Arc<ServerFacts>);

/// What is known of a server, whoever asked it.
async fn fetch_known_facts(
    caller: &CallerContext,
    entry: &Arc<ServerState>,
) -> Option<Arc<ServerFacts>> {
    let speaking = route::server_access(caller, entry).await.ok()?;
    let connector = &caller.engine.session_factory;
    let known = connector.known_eras(entry, &speaking, &caller.client_profile)?;
    known.facts_of(Era::Legacy).cloned()
}

/// One subscriber at one key; dropping it unregisters the subscriber.
struct SubscriberTask<'a> {
    caller: &'a CallerContext,
    server: Arc<ServerState>,
    pool_entry: Arc<SessionEntry>,
    subscriber: Arc<Subscriber>,
    known_facts: Option<Arc<ServerFacts>>,
}

/// Adds up to a quarter, so that many subscribers do not come at once.
fn with_jitter(time: Duration) -> Duration {
    time + time.mul_f64(fastrand::f64() / 4.0)
}

impl<'a> SubscriberTask<'a> {
    fn register(
        caller: &'a CallerContext,
        server: Arc<ServerState>,
        entry: &Arc<SessionEntry>,
        sink: Arc<dyn UnsolicitedListener>,
    ) -> Self {
        let subscriber = server.subscribers.add(caller.identity.id, sink);
        entry
            .setup
            .subscription_state()
            .subscribers
            .add(&subscriber);
        Self {
            caller,
            server,
            pool_entry: Arc::clone(entry),
            subscriber,
            known_facts: None,
        }
    }

    /// Holds a stream while one is needed, on the session that serves the key. Ends with the key.
    async fn run(&self) {
        let mut before: Option<PreviousSession> = None;
        let mut stay: Option<RunGuard> = None;
        let backoff = || Backoff::new(REOPEN_AFTER, MAX_RETRY_AFTER);
        // Each kind of failure has its own: what worked since says nothing of the others.
        let (mut denied, mut opening, mut failing) = (backoff(), backoff(), backoff());
        let mut stood_for = Duration::ZERO;
        while self.pool_entry.is_live() {
            // Wishes at a session of its own keep a run from becoming idle.
            stay = match self.has_own_interest() {
                true => stay.or_else(|| {
                    let run = self.caller.run.as_ref()?;
                    run.admit(&self.caller.engine.context, RunUse::Session).ok()
                }),
                false => None,
            };
            let heard = self.stream_session();
            if !self.needs_session_or_stream(heard.as_ref(), before.as_ref()) {
                // Without a stream it receives list changes for nobody.
                self.release_list_listener();
                self.subscriber.wake.notified().await;
                continue;
            }
            let Some(seen) = heard else {
                let pause = with_jitter(opening.next_pause_after(stood_for));
                self.open_session_after(pause).await;
                stood_for = Duration::ZERO;
                continue;
            };
            let line = Arc::clone(&seen.session);
            self.note_replacement(before.as_ref(), &seen);
            before = Some((Arc::downgrade(&line), Arc::clone(line.shared_facts())));
            let began = clock::now();
            let epoch = self.credential_epoch();
            let stood = self.hold_stream(&line).await;
            stood_for = began.elapsed();
            let Some(stood) = stood else { continue };
            // Another subscriber of the identity may take over meanwhile.
            self.release_list_listener();
            self.repair_after(stood, epoch, seen).await;
            match stood {
                StreamHoldOutcome::Unauthorized | StreamHoldOutcome::Failed => {
                    let is_denied = matches!(stood, StreamHoldOutcome::Unauthorized);
                    let kind = if is_denied { &mut denied } else { &mut failing };
                    let by = clock::after(with_jitter(kind.next_pause_after(stood_for)));
                    self.wait_until_replaced(&line, Some(by)).await;
                },
                // Another session may have one.
                StreamHoldOutcome::Unsupported | StreamHoldOutcome::NotFound => {
                    self.wait_until_replaced(&line, None).await;
                },
                StreamHoldOutcome::SessionEnded if self.stream_session().is_some() => {
                    let pause = with_jitter(opening.next_pause_after(stood_for));
                    self.open_session_after(pause).await;
                },
                StreamHoldOutcome::SessionEnded => {},
            }
        }
    }

    /// Renews what the end of a stream put in doubt.
    async fn repair_after(
        &self,
        stood: StreamHoldOutcome,
        epoch: u64,
        seen: SessionSnapshot<SessionFactory>,
    ) {
        match stood {
            StreamHoldOutcome::Unauthorized => self.refresh_credential(epoch).await,
            // The server may have lost the session, or have no stream for it.
            StreamHoldOutcome::NotFound | StreamHoldOutcome::SessionEnded => {
                self.check_session(seen).await;
            },
            StreamHoldOutcome::Failed | StreamHoldOutcome::Unsupported => {},
        }
    }

    /// A session that replaces another may have other lists. The first subscriber that notices
    /// notifies all.
    fn note_replacement(
        &self,
        before: Option<&PreviousSession>,
        seen: &SessionSnapshot<SessionFactory>,
    ) {
        let is_other =
            before.is_some_and(|(session, _)| session.as_ptr() != Arc::as_ptr(&seen.session));
        if is_other && self.setup().is_new_replacement(seen.generation) {
            self.announce_list_changes(&seen.session);
        }
    }

    /// Holds the stream of a session until it ends, or until the task is woken.
    async fn hold_stream(&self, line: &Arc<PooledSession>) -> Option<StreamHoldOutcome> {
        self.subscriber.has_stream.store(true, Ordering::Relaxed);
        let stood = tokio::select! {
            stood = line.hold_stream(|| self.announce_list_changes(line)) => Some(stood),
            () = self.subscriber.wake.notified() => None,
        };
        self.subscriber.has_stream.store(false, Ordering::Relaxed);
        if stood.is_some() {
            self.subscriber.dedup.reset();
        }
        stood
    }

    async fn check_session(&self, seen: SessionSnapshot<SessionFactory>) {
        if self.pool_entry.is_live() {
            KeepAliveCheck::for_session(&self.pool_entry, seen)
                .run()
                .await;
        }
    }

    /// Opens a session after a pause, unless there is one by then.
    async fn open_session_after(&self, after: Duration) {
        let by = clock::after(after);
        let is_there = || {
            self.stream_session()
                .is_some_and(|seen| seen.session.retired_reason().is_none())
        };
        while clock::timeout_at(by, self.subscriber.wake.notified())
            .await
            .is_ok()
        {
            if is_there() || !self.pool_entry.is_live() {
                return;
            }
        }
        let Ok(_turn) = self.server.subscribers.opening_permits.acquire().await else {
            return;
        };
        if !is_there()
            && let Err(error) = lists::session_facts(self.caller, &self.server).await
        {
            tracing::debug!(server = %self.server.name, %error, "no session for notifications yet");
            // Another of the same identity may have one to hear on.
            self.release_list_listener();
        }
    }

    fn setup(&self) -> &Arc<SessionSetup> {
        &self.pool_entry.setup
    }

    fn claim_list_listener(&self) -> bool {
        let subscribers = &self.server.subscribers;
        subscribers.claim_list_listener(&self.subscriber)
    }

    fn release_list_listener(&self) {
        let subscribers = &self.server.subscribers;
        subscribers.release_list_listener(&self.subscriber);
    }

    fn credential_epoch(&self) -> u64 {
        let credential = self.setup().credential.as_ref();
        credential.map_or(0, |credential| credential.epoch())
    }

    async fn refresh_credential(&self, refused: u64) {
        if let Some(credential) = &self.setup().credential
            && credential.can_refresh()
            && let Err(diagnostic) = credential.refresh(refused).await
        {
            tracing::debug!(server = %self.server.name, trouble = %diagnostic, "no fresh credential for the stream");
        }
    }

    /// Waits until another session serves the key, or until `by`.
    async fn wait_until_replaced(&self, line: &Arc<PooledSession>, by: Option<Instant>) {
        let is_heard = || {
            let heard = self.stream_session();
            heard.is_some_and(|heard| Arc::ptr_eq(&heard.session, line))
        };
        while is_heard() {
            let changed = self.subscriber.wake.notified();
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

    /// Announces list changes to all subscribers of the session: some may have been missed.
    fn announce_list_changes(&self, line: &PooledSession) {
        self.server.forget_lists();
        for list in declared_list_changes(line.facts()) {
            let method = list_changed_method(list);
            self.setup()
                .notify_subscribers(&method, b"{}", ListChangeSource::Engine);
        }
    }

    /// Notifies the subscriber of list changes after another server took the place of its server.
    fn notify_server_replaced(&self, before: Option<&PreviousServer>) {
        let other = before.filter(|(server, _)| !Arc::ptr_eq(server, &self.server));
        self.deliver_declared_changes(other.and_then(|(_, facts)| facts.as_deref()));
    }

    fn notify_missed_changes(&self, away: Instant) {
        let subscribers = &self.server.subscribers;
        let is_other_server = subscribers.created_at > away;
        self.deliver_declared_changes(self.known_facts.as_deref().filter(|_| is_other_server));
        for list in subscribers.lists_changed_since(away) {
            self.deliver_list_change(list);
        }
    }

    fn deliver_declared_changes(&self, facts: Option<&ServerFacts>) {
        for list in facts.into_iter().flat_map(declared_list_changes) {
            self.deliver_list_change(list);
        }
    }

    fn deliver_list_change(&self, list: &str) {
        let method = list_changed_method(list);
        self.subscriber
            .deliver_if_new(&method, b"{}", ListChangeSource::Engine);
    }

    fn stream_session(&self) -> Option<SessionSnapshot<SessionFactory>> {
        self.setup()
            .select_stream_session(self.pool_entry.sessions())
    }

    /// Whether a session with a stream is needed. Where there is none, one is needed only if there was
    /// one, if a client comes back to it, or if no other subscriber receives list changes.
    fn needs_session_or_stream(
        &self,
        heard: Option<&SessionSnapshot<SessionFactory>>,
        before: Option<&PreviousSession>,
    ) -> bool {
        match (heard, before) {
            (Some(seen), _) => self.needs_stream(seen.session.facts()),
            (None, Some((_, facts))) => self.needs_stream(facts),
            (None, None) => self.setup().needs_session() || self.needs_first_session(),
        }
    }

    fn needs_first_session(&self) -> bool {
        let known = self.known_facts.as_deref();
        let tells = known.is_some_and(declares_list_changed) && !self.setup().is_process();
        tells && self.claim_list_listener()
    }

    /// Whether a stream is needed: for this key alone, or for list changes of the identity.
    fn needs_stream(&self, facts: &ServerFacts) -> bool {
        let of_its_own = self.has_own_interest();
        let hears_of_lists =
            (declares_list_changed(facts) || of_its_own) && self.claim_list_listener();
        of_its_own || hears_of_lists
    }

    /// Whether something is wanted that only a session of this key tells.
    fn has_own_interest(&self) -> bool {
        let setup = self.setup();
        let may_be_asked =
            self.pool_entry.key.run().is_some() && setup.client_profile.profile.has_capabilities();
        may_be_asked || setup.has_client_state()
    }
}

fn declared_list_changes(facts: &ServerFacts) -> impl Iterator<Item = &'static str> + use<> {
    let declared: Value = serde_json::from_slice(&facts.capabilities).unwrap_or_default();
    let declares = move |list: &&str| declared[list]["listChanged"] == true;
    LISTS.into_iter().filter(declares)
}

fn list_changed_method(list: &str) -> String {
    format!("notifications/{list}/list_changed")
}

fn declares_list_changed(facts: &ServerFacts) -> bool {
    memchr::memmem::find(&facts.capabilities, b"\"listChanged\"").is_some()
}

impl Drop for SubscriberTask<'_> {
    fn drop(&mut self) {
        if let Some(subscribers) = self.setup().subscribers() {
            subscribers.remove(&self.subscriber);
        }
        self.server.subscribers.remove(&self.subscriber);
    }
}
