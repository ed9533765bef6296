//! Moves the bytes of one connection, as its lanes say.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use super::{Direction, Happening, Lane, Lasts, Shared};
use crate::fault::End;

/// Leads a client to the server until one of them, or a lane, ends the connection.
pub(super) async fn connect(shared: &Arc<Shared>, mut client: TcpStream) {
    let Ok(mut server) = TcpStream::connect(shared.target).await else {
        drop(client.set_zero_linger());
        return;
    };
    if client.set_nodelay(true).is_err() || server.set_nodelay(true).is_err() {
        return;
    }
    let mut ended = shared.end_all.subscribe();
    let end = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let up = Pump::new(shared, Direction::Up, from_client, to_server);
        let down = Pump::new(shared, Direction::Down, from_server, to_client);
        tokio::select! {
            biased;
            told = ended.recv() => told.unwrap_or(End::Fin),
            end = both(up, down) => end,
        }
    };
    match end {
        End::Rst => {
            drop(client.set_zero_linger());
            drop(server.set_zero_linger());
        },
        End::Fin | End::Clean => {
            finish(client).await;
            finish(server).await;
        },
    }
}

/// Ends a connection with FIN: bytes left unread would turn it into RST.
async fn finish(mut socket: TcpStream) {
    drop(socket.shutdown().await);
    let mut rest = vec![0; 4096];
    while let Ok(1..) = socket.try_read(&mut rest) {}
}

/// Runs both directions; the connection lives until both are over or one of them ends it.
async fn both(up: Pump<'_>, down: Pump<'_>) -> End {
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
        None if is_up => down.await.unwrap_or(End::Fin),
        None => up.await.unwrap_or(End::Fin),
    }
}

/// One direction of one connection.
struct Pump<'a> {
    shared: &'a Shared,
    direction: Direction,
    from: ReadHalf<'a>,
    to: WriteHalf<'a>,
    /// Which setting of the lane is counted against, and what has passed since.
    setting: u64,
    passed: u64,
}

impl<'a> Pump<'a> {
    fn new(
        shared: &'a Shared,
        direction: Direction,
        from: ReadHalf<'a>,
        to: WriteHalf<'a>,
    ) -> Self {
        let (setting, _) = shared.lane(direction);
        Self {
            shared,
            direction,
            from,
            to,
            setting,
            passed: 0,
        }
    }

    /// How the connection ends by this direction; none if only the direction is over.
    async fn run(mut self) -> Option<End> {
        let mut buffer = vec![0; 16 * 1024];
        loop {
            if let Some(happening) = self.due() {
                match happening {
                    Happening::Swallow => return self.swallow(&mut buffer).await,
                    Happening::HalfClose => return self.finish().await,
                    Happening::Fin => return Some(End::Fin),
                    Happening::Rst => return Some(End::Rst),
                }
            }
            let count = match self.from.read(&mut buffer).await {
                Ok(0) => return self.finish().await,
                Ok(count) => count,
                Err(_) => return Some(End::Rst),
            };
            let bytes = buffer.get_mut(..count).unwrap_or_default();
            if self.pass(bytes).await.is_err() {
                return Some(End::Rst);
            }
        }
    }

    /// The lane as it is set now; a new setting counts from zero.
    fn lane(&mut self) -> Lane {
        let (setting, lane) = self.shared.lane(self.direction);
        if setting != self.setting {
            self.setting = setting;
            self.passed = 0;
        }
        lane
    }

    /// What happens now, because the bytes of the lane are used up.
    fn due(&mut self) -> Option<Happening> {
        let lane = self.lane();
        let (limit, happening) = lane.then?;
        if self.passed < limit {
            return None;
        }
        if lane.lasts == Lasts::Once {
            self.shared.set(self.direction, Lane { then: None, ..lane });
        }
        Some(happening)
    }

    /// Writes these bytes as the lane says, up to the place where something happens.
    async fn pass(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let lane = self.lane();
            let mut size = rest.len().min(lane.slice.unwrap_or(usize::MAX));
            if lane.bytes_per_second.is_some() {
                size = size.min(lane.slice.unwrap_or(1));
            }
            if let Some((limit, _)) = lane.then {
                let left = usize::try_from(limit.saturating_sub(self.passed)).unwrap_or(usize::MAX);
                if left == 0 {
                    return Ok(());
                }
                size = size.min(left);
            }
            let (piece, after) = rest.split_at_mut(size);
            if let Some(place) = lane.corrupt
                && let Some(offset) = place.checked_sub(self.passed)
                && let Ok(offset) = usize::try_from(offset)
                && let Some(byte) = piece.get_mut(offset)
            {
                *byte ^= 0x55;
            }
            self.wait(&lane, size).await;
            self.passed += size as u64;
            self.shared.count(self.direction, size);
            self.to.write_all(piece).await?;
            rest = after;
            if lane.slice.is_some() {
                // Gives the other side a chance to see the piece by itself.
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    async fn wait(&self, lane: &Lane, size: usize) {
        let mut wait = Duration::from_millis(lane.delay_ms);
        if let Some(rate) = lane.bytes_per_second {
            wait += Duration::from_micros((size as u64).saturating_mul(1_000_000) / rate);
        }
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }

    /// Reads on so that the sender notices nothing; ends when the sender does.
    async fn swallow(mut self, buffer: &mut [u8]) -> Option<End> {
        loop {
            match self.from.read(buffer).await {
                Ok(0) => return self.finish().await,
                Ok(_) => {},
                Err(_) => return Some(End::Rst),
            }
            let setting = self.setting;
            self.lane();
            if setting != self.setting && self.due().is_none() {
                // The lane was mended; what was swallowed is lost, what follows passes.
                return Box::pin(self.run()).await;
            }
        }
    }

    async fn finish(mut self) -> Option<End> {
        drop(self.to.shutdown().await);
        None
    }
}
