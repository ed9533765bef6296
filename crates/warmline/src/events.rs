//! Events of an engine: sessions, calls, breakers, runs, stores.
//!
//! Fields with a fixed set of words print as that word.

/// ```
/// use warmline::events::{Event, EventItem, EventSubscription, SessionRef};
///
/// # async fn example(warm: &warmline::Warmline) {
/// let mut events: EventSubscription = warm.events();
/// while let Some(item) = events.next().await {
///     if let EventItem::Event(event) = item
///         && let Event::SessionHealed { session, state_lost, .. } = event
///     {
///         let SessionRef { server, generation, .. } = session;
///         println!("{server}: session {generation:?}, state lost: {state_lost}");
///     }
/// }
/// # }
/// ```
#[doc(inline)]
pub use warmline_engine::events::{Event, EventItem, EventSubscription, SessionRef};

/// ```
/// use warmline::events::{Event, Fingerprint};
///
/// fn describe(event: &Event) -> Option<String> {
///     let Event::RunEnded { run, why, .. } = event else { return None };
///     let run: &Fingerprint = run;
///     Some(format!("{run} ended: {}", why.as_str()))
/// }
/// ```
#[doc(inline)]
pub use warmline_engine::events::Fingerprint;
