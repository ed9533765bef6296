//! Reading the message of somebody, within what they may take up.
//!
//! Asked by: [`door`](crate::door), once it is known whose a request is.  Who has too much under way
//! asks for nothing more; but what answers a question or gives a call up is heard, or nothing would
//! ever get less.

use bytes::Bytes;
use http_body::Body as _;
use hyper::body::Incoming;
use warmline::core::protocol::envelope::{Kind, Message};

use super::limits::{NoRoom, Room};
use super::refusing::{Refusal, not_read, too_much};
use crate::body;
use crate::face::Visit;

/// Nothing larger is read of somebody who has too much under way.
const MAX_RELIEF: usize = 16 << 10;

/// What somebody may still send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Welcome {
    /// Anything.
    Any,
    /// Nothing that asks for something.
    Relief,
}

/// Reads a message of at most so many bytes.
///
/// # Errors
/// There is no room for it, or it did not come as it should.
pub(super) async fn read(
    visit: &Visit<'_>,
    unread: &mut Option<Incoming>,
    most: usize,
) -> Result<Bytes, Refusal> {
    // A body that does not say how large it is may be as large as any.
    let stated = unread.as_ref().and_then(|body| body.size_hint().exact());
    let stated = stated.and_then(|stated| usize::try_from(stated).ok());
    let wanted = stated.map_or(most, |stated| stated.min(most));
    let welcome = take_room(visit, wanted).map_err(too_much)?;
    let gate = &visit.shared.gate;
    let read = match unread {
        None => Bytes::new(),
        Some(body) => {
            let read = body::read(body, most, gate.limits().body_within).await;
            read.map_err(not_read)?
        },
    };
    *unread = None;
    visit.burden.lock().has_read(read.len());
    if welcome == Welcome::Relief && asks(&read) {
        return Err(too_much(NoRoom::OfTheirs));
    }
    Ok(read)
}

/// Takes a place and room for a message of so many bytes, as part of the share of whose it is.
fn take_room(visit: &Visit<'_>, bytes: usize) -> Result<Welcome, NoRoom> {
    let gate = &visit.shared.gate;
    let whose = visit.subject.whose();
    let claimed = whose.map_or(Ok(()), |whose| gate.claim(visit.burden, whose));
    let taken = claimed.and_then(|()| gate.room(visit.burden, bytes, Room::OfShare));
    match taken {
        Ok(()) => Ok(Welcome::Any),
        Err(NoRoom::OfTheirs) if bytes <= MAX_RELIEF => {
            gate.room(visit.burden, bytes, Room::BesideShare)?;
            Ok(Welcome::Relief)
        },
        Err(no_room) => Err(no_room),
    }
}

/// Whether a message, or several in one, may ask for something.
fn asks(body: &Bytes) -> bool {
    let message = Message::split(body.clone());
    message.map_or(true, |message| message.kind() == Kind::Request)
}
