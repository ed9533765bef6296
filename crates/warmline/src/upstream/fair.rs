//! Fair share: how much a reader takes in before others have their turn.
//!
//! Asked by: whoever reads what a server sends by itself. A server that never pauses would else
//! keep everybody's calls and timers waiting, on a runtime of one thread for as long as it likes.

use crate::clock;

/// What one reader took in since others had their turn.
#[derive(Debug, Default)]
pub(crate) struct Share(usize);

/// So much is taken in before others have their turn.
const FAIR_SHARE: usize = 64 << 10;
/// What a piece or a message counts beside its bytes: most of the work is not about them.
const EACH: usize = 256;

impl Share {
    /// Notes a piece or a message of that many bytes, and gives way if it was the last of a share.
    pub(crate) async fn took(&mut self, bytes: usize) {
        self.0 = self.0.saturating_add(bytes).saturating_add(EACH);
        if self.0 >= FAIR_SHARE {
            self.0 = 0;
            clock::yield_now().await;
        }
    }
}
