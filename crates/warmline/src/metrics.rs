//! A snapshot of all numbers, sessions and runs.
//!
//! Fields with a fixed set of words print as that word.

/// ```
/// use warmline::metrics::{
///     HistogramSnapshot, MetricSample, RunStatus, SampleValue, ServerFailure, ServerSamples,
///     ServerStatus, SessionStatus, Snapshot,
/// };
///
/// fn print(snapshot: &Snapshot) {
///     let of_servers = snapshot.servers.iter().flat_map(|ServerSamples { samples, .. }| samples);
///     for MetricSample { name, value, .. } in snapshot.engine.iter().chain(of_servers) {
///         match value {
///             SampleValue::Count(count) => println!("{name} {count}"),
///             SampleValue::Histogram(HistogramSnapshot { count, .. }) => println!("{name} {count}"),
///             _ => {},
///         }
///     }
///     for ServerStatus { server, last_failure, .. } in &snapshot.server_statuses {
///         let failure: Option<&ServerFailure> = last_failure.as_ref();
///         println!("{server}: {}", failure.map_or("no failure", |failure| failure.code));
///     }
///     let busy = |session: &&SessionStatus| session.calls > 0;
///     let (runs, sessions): (&[RunStatus], _) = (&snapshot.runs, snapshot.sessions.iter());
///     println!("{} runs, {} busy sessions", runs.len(), sessions.filter(busy).count());
/// }
/// # print(&warmline::Warmline::builder().build().unwrap().snapshot());
/// ```
#[doc(inline)]
pub use warmline_engine::metrics::{
    HistogramSnapshot, MetricSample, RunStatus, SampleValue, ServerFailure, ServerSamples,
    ServerStatus, SessionStatus, Snapshot,
};
