//! How many files and sockets this process may hold: as many as the system lets it.

/// Raises the limit as far as it goes. A connection of a client is a descriptor, and so is one to
/// a server; the usual limit is for programs that open a few files.
#[cfg(unix)]
pub(crate) fn raise() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit of descriptors stays as it is");
    }
}

#[cfg(not(unix))]
pub(crate) fn raise() {}
