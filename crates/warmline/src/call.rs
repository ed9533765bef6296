//! Types that appear in calls and are rarely named.

/// ```
/// use warmline::call::{CallOutput, Responder, ServerRequestKind};
/// use warmline::{CallBuilder, CallEvent, ServerRequestReply};
///
/// async fn send_twice<T: CallOutput>(
///     make: impl Fn() -> CallBuilder<T>,
/// ) -> warmline::Result<(T, T)> {
///     Ok((make().await?, make().await?))
/// }
///
/// fn accept(kind: ServerRequestKind, responder: Responder) {
///     if kind == ServerRequestKind::Elicitation {
///         responder.reply(ServerRequestReply::Result(r#"{"action":"accept"}"#.into()));
///     }
/// }
/// ```
#[doc(inline)]
pub use {
    warmline_core::exchange::ServerRequestKind,
    warmline_engine::{CallOutput, Responder},
};
