//! Moves the bytes of one connection, as its lanes say.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use super::{Direction, FailureRepeat, LinkConditions, LinkFailure, ProxyState};
use crate::faults::fault::ConnectionEnd;

/// Leads a client to the server until one of them, or a lane, ends the connection.
pub(super) async fn forward_connection(shared: &Arc<ProxyState>, mut client: TcpStream) {
    let Ok(mut server) = TcpStream::connect(shared.target).await else {
        drop(client.set_zero_linger());
        return;
    };
    if client.set_nodelay(true).is_err() || server.set_nodelay(true).is_err() {
        return;
    }
    let mut ended = shared.end_connections.subscribe();
    let end = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let up = DirectionForwarder::new(shared, Direction::Up, from_client, to_server);
        let down = DirectionForwarder::new(shared, Direction::Down, from_server, to_client);
        tokio::select! {
            biased;
            told = ended.recv() => told.unwrap_or(ConnectionEnd::Fin),
            end = run_both(up, down) => end,
        }
    };
    match end {
        ConnectionEnd::Rst => {
            drop(client.set_zero_linger());
            drop(server.set_zero_linger());
        },
        ConnectionEnd::Fin | ConnectionEnd::Clean => {
            close_socket(client).await;
            close_socket(server).await;
        },
    }
}

/// Ends a connection with FIN: bytes left unread would turn it into RST.
async fn close_socket(mut socket: TcpStream) {
    drop(socket.shutdown().await);
    let mut rest = vec![0; 4096];
    while let Ok(1..) = socket.try_read(&mut rest) {}
}

/// Runs both directions; the connection lives until both are over or one of them ends it.
async fn run_both(up: DirectionForwarder<'_>, down: DirectionForwarder<'_>) -> ConnectionEnd {
    let up = up.run();
    let down = down.run();
    let mut up = std::pin::pin!(up);
    let mut down = std::pin::pin!(down);
    let (first, is_up) = tokio::select! {
        end = &mut up => (end, true),
        end = &mut down => (end, false),
    };
    match first {
        Some(end) => end,
        None if is_up => down.await.unwrap_or(ConnectionEnd::Fin),
        None => up.await.unwrap_or(ConnectionEnd::Fin),
    }
}

/// One direction of one connection.
struct DirectionForwarder<'a> {
    shared: &'a ProxyState,
    direction: Direction,
    from: ReadHalf<'a>,
    to: WriteHalf<'a>,
    /// Which setting of the lane is counted against, and what has passed since.
    revision: u64,
    forwarded: u64,
}

impl<'a> DirectionForwarder<'a> {
    fn new(
        shared: &'a ProxyState,
        direction: Direction,
        from: ReadHalf<'a>,
        to: WriteHalf<'a>,
    ) -> Self {
        let (revision, _) = shared.conditions(direction);
        Self {
            shared,
            direction,
            from,
            to,
            revision,
            forwarded: 0,
        }
    }

    /// How the connection ends by this direction; none if only the direction is over.
    async fn run(mut self) -> Option<ConnectionEnd> {
        let mut buffer = vec![0; 16 * 1024];
        loop {
            if let Some(happening) = self.due_failure() {
                match happening {
                    LinkFailure::Swallow => return self.swallow(&mut buffer).await,
                    LinkFailure::HalfClose => return self.shut_down().await,
                    LinkFailure::Fin => return Some(ConnectionEnd::Fin),
                    LinkFailure::Rst => return Some(ConnectionEnd::Rst),
                }
            }
            let count = match self.from.read(&mut buffer).await {
                Ok(0) => return self.shut_down().await,
                Ok(count) => count,
                Err(_) => return Some(ConnectionEnd::Rst),
            };
            let bytes = buffer.get_mut(..count).unwrap_or_default();
            if self.forward(bytes).await.is_err() {
                return Some(ConnectionEnd::Rst);
            }
        }
    }

    /// The lane as it is set now; a new setting counts from zero.
    fn current_conditions(&mut self) -> LinkConditions {
        let (setting, lane) = self.shared.conditions(self.direction);
        if setting != self.revision {
            self.revision = setting;
            self.forwarded = 0;
        }
        lane
    }

    /// What happens now, because the bytes of the lane are used up.
    fn due_failure(&mut self) -> Option<LinkFailure> {
        let lane = self.current_conditions();
        let (limit, happening) = lane.failure?;
        if self.forwarded < limit {
            return None;
        }
        if lane.repeat == FailureRepeat::Once {
            self.shared.set_conditions(
                self.direction,
                LinkConditions {
                    failure: None,
                    ..lane
                },
            );
        }
        Some(happening)
    }

    /// Writes these bytes as the lane says, up to the place where something happens.
    async fn forward(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let lane = self.current_conditions();
            let mut size = rest.len().min(lane.slice.unwrap_or(usize::MAX));
            if lane.bytes_per_second.is_some() {
                size = size.min(lane.slice.unwrap_or(1));
            }
            if let Some((limit, _)) = lane.failure {
                let left =
                    usize::try_from(limit.saturating_sub(self.forwarded)).unwrap_or(usize::MAX);
                if left == 0 {
                    return Ok(());
                }
                size = size.min(left);
            }
            let (piece, after) = rest.split_at_mut(size);
            if let Some(place) = lane.corrupt_byte
                && let Some(offset) = place.checked_sub(self.forwarded)
                && let Ok(offset) = usize::try_from(offset)
                && let Some(byte) = piece.get_mut(offset)
            {
                *byte ^= 0x55;
            }
            self.delay(&lane, size).await;
            self.forwarded += size as u64;
            self.shared.add_bytes(self.direction, size);
            self.to.write_all(piece).await?;
            rest = after;
            if lane.slice.is_some() {
                // Gives the other side a chance to see the piece by itself.
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    async fn delay(&self, lane: &LinkConditions, size: usize) {
        let mut wait = Duration::from_millis(lane.delay_ms);
        if let Some(rate) = lane.bytes_per_second {
            wait += Duration::from_micros((size as u64).saturating_mul(1_000_000) / rate);
        }
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }

    /// Reads on so that the sender notices nothing; ends when the sender does.
    async fn swallow(mut self, buffer: &mut [u8]) -> Option<ConnectionEnd> {
        loop {
            match self.from.read(buffer).await {
                Ok(0) => return self.shut_down().await,
                Ok(_) => {},
                Err(_) => return Some(ConnectionEnd::Rst),
            }
            let setting = self.revision;
            self.current_conditions();
            if setting != self.revision && self.due_failure().is_none() {
                // The lane was mended; what was swallowed is lost, what follows passes.
                return Box::pin(self.run()).await;
            }
        }
    }

    async fn shut_down(mut self) -> Option<ConnectionEnd> {
        drop(self.to.shutdown().await);
        None
    }
}
