//! The roots of several clients of one session, where all of them agree.
//!
//! Roots are the one thing that needs no known asker: whatever client the server meant, what all of
//! them answer is true.

use std::sync::Arc;

use futures_util::future;
use serde_json::Value;
use warmline_core::exchange::{ServerRequest, ServerRequestKind, ServerRequestReply};

use super::{Subscriber, Subscribers};
use warmline_upstream::ReplyFuture;

/// More subscribers are not asked for one reply.
const MAX_SUBSCRIBERS: usize = 16;

/// Asks all of them; `refused` runs if they do not agree. None if one of them cannot be asked: its
/// reply may differ.
pub(crate) fn merged_roots(
    subscribers: &Arc<Subscribers>,
    several: &[Arc<Subscriber>],
    request: &ServerRequest,
    refused: impl FnOnce() + Send + 'static,
) -> Option<ReplyFuture<'static>> {
    if request.kind != ServerRequestKind::Roots || several.len() > MAX_SUBSCRIBERS {
        return None;
    }
    let replies = several
        .iter()
        .map(|one| subscribers.forward_request(one, request.clone()));
    let replies: Vec<ReplyFuture<'static>> = replies.collect::<Option<_>>()?;
    Some(Box::pin(async move {
        common_reply(future::join_all(replies).await).unwrap_or_else(|| {
            refused();
            ServerRequestReply::Declined
        })
    }))
}

/// The reply that all of them gave; order of members and blanks do not matter.
fn common_reply(replies: Vec<ServerRequestReply>) -> Option<ServerRequestReply> {
    let read = |reply: &ServerRequestReply| match reply {
        ServerRequestReply::Result(raw) => serde_json::from_slice::<Value>(raw).ok(),
        ServerRequestReply::Error(_) | ServerRequestReply::Declined => None,
    };
    let all: Vec<Value> = replies.iter().map(read).collect::<Option<_>>()?;
    let are_equal = all.windows(2).all(|pair| pair.first() == pair.last());
    replies.into_iter().next().filter(|_| are_equal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_agreed_on_where_all_say_the_same() {
        let said = |raw: &'static str| ServerRequestReply::Result(raw.into());
        let one = r#"{"roots":[{"uri":"file:///a","name":"a"}]}"#;
        let same = r#"{ "roots": [{"name":"a", "uri":"file:///a"}] }"#;
        let other = r#"{"roots":[]}"#;
        let first = |answers| match common_reply(answers) {
            Some(ServerRequestReply::Result(raw)) => Some(raw),
            _ => None,
        };
        assert_eq!(first(vec![said(one), said(same)]).unwrap(), one);
        assert_eq!(first(vec![said(one), said(same), said(other)]), None);
        assert_eq!(first(vec![said(one), ServerRequestReply::Declined]), None);
        assert_eq!(
            first(vec![ServerRequestReply::Error("{}".into()), said(one)]),
            None
        );
        assert_eq!(first(vec![said("{"), said("{")]), None);
    }
}
