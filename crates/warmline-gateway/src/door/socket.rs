//! A socket of this machine: only our own user comes in by it.
//!
//! Asked by: [`door`](crate::door).  The folder and the mode of the file keep others away; the
//! system's word about who is at the other end decides.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream as Blocking;
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

/// A listener at a path. The file goes when it is dropped.
#[derive(Debug)]
pub(crate) struct LocalListener {
    listener: UnixListener,
    path: PathBuf,
}

impl LocalListener {
    /// Listens at a path. A socket that nobody listens on any more is replaced.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        let seen = fs::symlink_metadata(path);
        if seen.is_ok_and(|seen| seen.file_type().is_socket()) {
            if Blocking::connect(path).is_ok() {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        Ok(Self {
            listener,
            path: path.to_owned(),
        })
    }

    /// The next connection of our own user. Those of others are closed.
    pub(crate) async fn accept(&self) -> io::Result<UnixStream> {
        let own = rustix::process::geteuid().as_raw();
        loop {
            let (socket, _) = self.listener.accept().await?;
            match socket.peer_cred() {
                Ok(peer) if peer.uid() == own => return Ok(socket),
                Ok(peer) => {
                    let uid = peer.uid();
                    tracing::warn!(uid, "another user was turned away at the local socket");
                },
                Err(error) => tracing::warn!(%error, "nobody can say who came to the local socket"),
            }
        }
    }
}

impl Drop for LocalListener {
    fn drop(&mut self) {
        // Somebody may have removed it before; then nothing is left to do.
        fs::remove_file(&self.path).ok();
    }
}
