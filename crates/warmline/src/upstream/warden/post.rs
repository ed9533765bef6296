//! What owner and warden say to each other over the control socket.
//!
//! Owner: one greeting that carries the server's standard input as a descriptor, then orders of
//! one byte each; the end of the socket means that the owner is gone.
//! Warden: frames of five bytes, a letter and a number.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, send, sendmsg,
};

/// What the owner wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// TERM to the server's group.
    Terminate,
    /// Kill everything now.
    Kill,
}

impl Order {
    const fn byte(self) -> u8 {
        match self {
            Self::Terminate => b't',
            Self::Kill => b'k',
        }
    }

    const fn parse(byte: u8) -> Option<Self> {
        match byte {
            b't' => Some(Self::Terminate),
            b'k' => Some(Self::Kill),
            _ => None,
        }
    }
}

/// What the warden tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// The server runs under this process id, which is also the id of its group.
    Started(i32),
    /// It could not be started: the error number of the system.
    Failed(i32),
    /// It ended with this wait status, and nothing of its tree is left.
    Swept(i32),
    /// So many had outlived it, and were killed. Told after the sweep: an owner that does not know
    /// this word has heard all it asks for by then.
    LeftBehind(i32),
}

impl Told {
    pub(crate) const BYTES: usize = 5;

    fn frame(self) -> [u8; Self::BYTES] {
        let (letter, number) = match self {
            Self::Started(pid) => (b's', pid),
            Self::Failed(errno) => (b'e', errno),
            Self::Swept(status) => (b'x', status),
            Self::LeftBehind(number) => (b'l', number),
        };
        let [a, b, c, d] = number.to_le_bytes();
        [letter, a, b, c, d]
    }

    pub(crate) const fn parse([letter, a, b, c, d]: [u8; Self::BYTES]) -> Option<Self> {
        let number = i32::from_le_bytes([a, b, c, d]);
        match letter {
            b's' => Some(Self::Started(number)),
            b'e' => Some(Self::Failed(number)),
            b'x' => Some(Self::Swept(number)),
            b'l' => Some(Self::LeftBehind(number)),
            _ => None,
        }
    }
}

/// Owner: hands the server's standard input to the warden.
pub(crate) fn greet(control: BorrowedFd<'_>, input: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut attached = SendAncillaryBuffer::new(&mut space);
    let inputs = [input];
    attached.push(SendAncillaryMessage::ScmRights(&inputs));
    sendmsg(
        control,
        &[IoSlice::new(&[GREETING])],
        &mut attached,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Owner: tells the warden what to do.
pub(crate) fn order(control: &impl AsFd, order: Order) -> io::Result<()> {
    send(
        control,
        &[order.byte()],
        SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    )?;
    Ok(())
}

/// Owner: what a warden that has ended said last, word by word, if it came to say anything.
pub(crate) fn last_word(control: &impl AsFd) -> Option<Told> {
    let mut frame = [0; Told::BYTES];
    match recv(control, &mut frame[..], RecvFlags::DONTWAIT) {
        Ok((Told::BYTES, _)) => Told::parse(frame),
        Ok(_) | Err(_) => None,
    }
}

/// Warden: the next order, if there is one; an error is the end of the owner.
pub(super) fn next_order(control: &impl AsFd) -> io::Result<Option<Order>> {
    let mut byte = [0];
    match recv(control, &mut byte[..], RecvFlags::DONTWAIT) {
        Ok((0, _)) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => Ok(Order::parse(byte[0])),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Warden: waits for the server's standard input.
pub(super) fn receive(control: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut attached = RecvAncillaryBuffer::new(&mut space);
    let mut greeting = [0];
    let mut slices = [IoSliceMut::new(&mut greeting)];
    let received = recvmsg(control, &mut slices, &mut attached, RecvFlags::CMSG_CLOEXEC)?;
    let mut input = None;
    for message in attached.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            input = descriptors.last();
        }
    }
    match input {
        Some(input) if received.bytes == 1 && greeting == [GREETING] => Ok(input),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Warden: tells the owner, who may be gone.
pub(super) fn tell(control: &impl AsFd, told: Told) {
    // Nobody to tell it to is no reason to stop: the sweep comes first.
    send(control, &told.frame(), SendFlags::NOSIGNAL).ok();
}

/// Names this way of talking. A binary that talks another way refuses it.
const GREETING: u8 = 1;
