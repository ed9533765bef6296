//! Unix sockets for the user who runs the gateway.
//!
//! The folder and the mode of the file keep other users away; the peer credentials decide.

use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream as Blocking;
use std::path::{Path, PathBuf};
use std::{fs, io};

use tokio::net::{UnixListener, UnixStream};

/// A Unix socket listener. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct LocalListener {
    listener: UnixListener,
    path: PathBuf,
}

impl LocalListener {
    /// Binds a path. Replaces a socket without a listener.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        let metadata = fs::symlink_metadata(path);
        if metadata.is_ok_and(|metadata| metadata.file_type().is_socket()) {
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

    /// The next connection of the same user. Connections of other users are closed.
    pub(crate) async fn accept(&self) -> io::Result<UnixStream> {
        let own = rustix::process::geteuid().as_raw();
        loop {
            let (socket, _) = self.listener.accept().await?;
            match socket.peer_cred() {
                Ok(peer) if peer.uid() == own => return Ok(socket),
                Ok(peer) => {
                    let uid = peer.uid();
                    tracing::warn!(uid, "rejected another user at the local socket");
                },
                Err(error) => {
                    tracing::warn!(%error, "failed to identify the peer of the local socket");
                },
            }
        }
    }
}

impl Drop for LocalListener {
    fn drop(&mut self) {
        fs::remove_file(&self.path).ok();
    }
}
