//! The protocol between owner and warden over the control socket.
//!
//! The owner sends one message with the server's standard input as a descriptor, then commands of one
//! byte each; the end of the socket means that the owner is gone. The warden sends frames of five bytes,
//! a letter and a number.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, send, sendmsg,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WardenCommand {
    /// TERM to the server's group.
    Terminate,
    /// Kill everything now.
    Kill,
}

impl WardenCommand {
    const fn to_byte(self) -> u8 {
        match self {
            Self::Terminate => b't',
            Self::Kill => b'k',
        }
    }

    const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            b't' => Some(Self::Terminate),
            b'k' => Some(Self::Kill),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WardenReport {
    /// The server runs under this process id, which is also the id of its group.
    Started(i32),
    /// It could not be started; the error number of the system.
    Failed(i32),
    /// It ended with this wait status, and nothing of its tree is left.
    Exited(i32),
    /// So many processes outlived it and were killed. Sent last: an owner that does not know this letter
    /// has all it needs by then.
    OrphansKilled(i32),
}

impl WardenReport {
    pub(crate) const FRAME_BYTES: usize = 5;

    fn encode(self) -> [u8; Self::FRAME_BYTES] {
        let (letter, number) = match self {
            Self::Started(pid) => (b's', pid),
            Self::Failed(errno) => (b'e', errno),
            Self::Exited(status) => (b'x', status),
            Self::OrphansKilled(number) => (b'l', number),
        };
        let [a, b, c, d] = number.to_le_bytes();
        [letter, a, b, c, d]
    }

    pub(crate) const fn decode([letter, a, b, c, d]: [u8; Self::FRAME_BYTES]) -> Option<Self> {
        let number = i32::from_le_bytes([a, b, c, d]);
        match letter {
            b's' => Some(Self::Started(number)),
            b'e' => Some(Self::Failed(number)),
            b'x' => Some(Self::Exited(number)),
            b'l' => Some(Self::OrphansKilled(number)),
            _ => None,
        }
    }
}

/// Owner: passes the server's standard input to the warden.
pub(crate) fn send_stdin(control: BorrowedFd<'_>, input: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut attached = SendAncillaryBuffer::new(&mut space);
    let inputs = [input];
    attached.push(SendAncillaryMessage::ScmRights(&inputs));
    sendmsg(
        control,
        &[IoSlice::new(&[PROTOCOL_VERSION])],
        &mut attached,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

pub(crate) fn send_command(control: &impl AsFd, order: WardenCommand) -> io::Result<()> {
    send(
        control,
        &[order.to_byte()],
        SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    )?;
    Ok(())
}

/// Owner: the next frame of a warden that has ended, if there is one.
pub(crate) fn read_report(control: &impl AsFd) -> Option<WardenReport> {
    let mut frame = [0; WardenReport::FRAME_BYTES];
    match recv(control, &mut frame[..], RecvFlags::DONTWAIT) {
        Ok((WardenReport::FRAME_BYTES, _)) => WardenReport::decode(frame),
        Ok(_) | Err(_) => None,
    }
}

/// Warden: the next command, if there is one; an error means that the owner is gone.
pub(super) fn next_command(control: &impl AsFd) -> io::Result<Option<WardenCommand>> {
    let mut byte = [0];
    match recv(control, &mut byte[..], RecvFlags::DONTWAIT) {
        Ok((0, _)) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => Ok(WardenCommand::from_byte(byte[0])),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Warden: waits for the server's standard input.
pub(super) fn receive_stdin(control: BorrowedFd<'_>) -> io::Result<OwnedFd> {
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
        Some(input) if received.bytes == 1 && greeting == [PROTOCOL_VERSION] => Ok(input),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

pub(super) fn send_report(control: &impl AsFd, told: WardenReport) {
    // If the owner is gone, the sweep goes on all the same.
    send(control, &told.encode(), SendFlags::NOSIGNAL).ok();
}

/// A binary with another protocol refuses this one.
const PROTOCOL_VERSION: u8 = 1;
