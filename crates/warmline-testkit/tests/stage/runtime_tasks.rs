//! The tasks of a test's own runtime.

use tokio::runtime::Handle;

use super::census::until;

/// Waits until no task of this runtime is left.
pub(crate) async fn no_task_left() {
    let tasks = || Handle::current().metrics().num_alive_tasks();
    until("no task is left", || tasks() == 0).await;
}
