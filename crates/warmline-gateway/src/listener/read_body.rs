//! Reads the message of a request, within what its caller may use.
//!
//! A caller over its quota can still reply to server requests and cancel calls: that is what frees
//! its quota.

use bytes::Bytes;
use http_body::Body as _;
use hyper::body::Incoming;
use warmline_core::message::envelope::{Message, MessageKind};

use super::rejection::{Rejection, body_read_failed, limit_exceeded};
use crate::downstream::RequestContext;
use crate::limits::LimitExceeded;
use crate::response::body;

/// The largest body that is read from a caller over its quota.
const MAX_NON_REQUEST_BODY: usize = 16 << 10;

/// Reads a message of at most `limit` bytes.
pub(super) async fn read_message(
    context: &RequestContext<'_>,
    unread: &mut Option<Incoming>,
    limit: usize,
) -> Result<Bytes, Rejection> {
    let limiter = &context.shared.limiter;
    // A body of unknown length may be as large as the limit.
    let stated = unread.as_ref().and_then(|body| body.size_hint().exact());
    let stated = stated.and_then(|stated| usize::try_from(stated).ok());
    let expected = stated.map_or(limit, |stated| stated.min(limit));
    let identity = context.subject.quota_key();
    let reserved = identity
        .map_or(Ok(()), |identity| {
            limiter.charge_identity(context.permit, identity)
        })
        .and_then(|()| limiter.reserve_bytes(context.permit, expected, identity));
    let is_over_quota = match reserved {
        Ok(()) => false,
        Err(LimitExceeded::Identity) if expected <= MAX_NON_REQUEST_BODY => {
            limiter
                .reserve_bytes(context.permit, expected, None)
                .map_err(limit_exceeded)?;
            true
        },
        Err(limit) => return Err(limit_exceeded(limit)),
    };
    let read = match unread {
        None => Bytes::new(),
        Some(body) => {
            let read = body::read_body(body, limit, limiter.limits().body_timeout).await;
            read.map_err(body_read_failed)?
        },
    };
    *unread = None;
    context.permit.lock().shrink_to(read.len());
    if is_over_quota && may_contain_request(&read) {
        return Err(limit_exceeded(LimitExceeded::Identity));
    }
    Ok(read)
}

fn may_contain_request(body: &Bytes) -> bool {
    let message = Message::parse(body.clone());
    message.map_or(true, |message| message.kind() == MessageKind::Request)
}
