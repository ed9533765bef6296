//! The background gateway of this user: where it lives, and how commands speak with it.
//!
//! Asked by: `up`, `down`, `ps`, `end`, and by commands of a run, which go through it while it is
//! up.  Its folder is the user's alone; who listens on its socket is looked at before a word is
//! said.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde::Deserialize;
use serde_json::Value;
use warmline::clock;
use warmline::config::process_variable;
use warmline::core::code::Code;
use warmline::core::delivery::Delivery;
use warmline_gateway::local::{Answered, LocalGateway, Unanswered};

use crate::kept::Notes;
use crate::problem::{Outcome, Problem};
use crate::target::state_folder;

mod hung;
mod wording;

use hung::Silence;
pub(crate) use wording::{of_error, of_rpc_error, unopened};

/// Our own version: a gateway of another one is not spoken with.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// What the system allows for the path of a socket.
const LONGEST: usize = 100;
/// A log that is larger is put aside when a gateway starts.
const LARGE_LOG: u64 = 1 << 20;

/// So long a gateway that breaks off may take to be gone.
const TO_GO: Duration = Duration::from_secs(2);
/// How often it is looked whether it is.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Where a background gateway lives.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    folder: PathBuf,
    socket: PathBuf,
    named: Named,
}

/// By what a home was named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    /// Its folder: whoever is not up there can be started.
    ByFolder,
    /// The socket of a gateway that somebody else starts.
    BySocket,
}

/// What a gateway says of itself.
#[derive(Debug, Deserialize)]
pub(crate) struct Hello {
    pub(crate) version: String,
    pub(crate) pid: u32,
    pub(crate) up_seconds: u64,
    /// It takes no new call any more.
    #[serde(default)]
    draining: bool,
}

impl Home {
    /// The home in a state folder.
    pub(crate) fn of(state: &Path) -> Self {
        let folder = state.join("up");
        Self {
            socket: folder.join("socket"),
            folder,
            named: Named::ByFolder,
        }
    }

    /// The home that was typed: by its state folder, or by the socket of a gateway that lives
    /// elsewhere.
    pub(crate) fn typed(state: Option<&Path>, socket: Option<&Path>) -> Outcome<Self> {
        let home = Self::of(&state_folder(state)?);
        Ok(match socket {
            Some(socket) => Self {
                socket: socket.to_owned(),
                named: Named::BySocket,
                ..home
            },
            None => home,
        })
    }

    /// The state folder that it lives in.
    pub(crate) fn state(&self) -> &Path {
        self.folder.parent().unwrap_or(&self.folder)
    }

    /// The notes of runs that commands left beside it; none where it was named by a socket.
    pub(crate) fn notes(&self) -> Outcome<Option<Notes>> {
        match self.named {
            Named::ByFolder => Notes::in_state(self.state()),
            Named::BySocket => Ok(None),
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        let shorter = match self.named {
            Named::ByFolder if is_too_long(&self.socket) => self.shorter(),
            Named::ByFolder | Named::BySocket => None,
        };
        shorter.unwrap_or_else(|| self.socket.clone())
    }

    /// A place for the socket where the path of the folder is too long for one: in the folder of
    /// this user's sockets, if there is one. Whoever means the same folder finds it there.
    fn shorter(&self) -> Option<PathBuf> {
        let folder = fs::metadata(&self.folder).ok()?;
        let runtime = process_variable("XDG_RUNTIME_DIR").map(PathBuf::from)?;
        let name = format!("warmline-{:x}-{:x}", folder.dev(), folder.ino());
        Some(runtime.join(name)).filter(|path| path.is_absolute() && !is_too_long(path))
    }

    /// Nobody is there. Where a background gateway may be up or not that is no fault; who names
    /// the socket of a gateway means one that is.
    pub(crate) fn absent(&self) -> Outcome<()> {
        match self.named {
            Named::ByFolder => Ok(()),
            Named::BySocket => {
                let what = format!("nothing listens at the socket `{}`", self.socket.display());
                Err(Problem::new(Code::CannotReach, what)
                    .delivered(Delivery::Unsent)
                    .hint("name the one that `warmline serve --admin FILE` was given, as long as it runs"))
            },
        }
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    pub(crate) fn gateway(&self) -> LocalGateway {
        LocalGateway::at(self.socket())
    }

    /// Makes the folder, for this user alone, or looks whether it is so.
    pub(crate) fn make(&self) -> Outcome<()> {
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder);
        made.map_err(|error| self.unusable(error.to_string()))?;
        let seen = fs::symlink_metadata(&self.folder);
        let seen = seen.map_err(|error| self.unusable(error.to_string()))?;
        if !seen.is_dir() || seen.uid() != rustix::process::geteuid().as_raw() {
            return Err(self.unusable("it is not a folder of this user"));
        }
        let private = fs::Permissions::from_mode(0o700);
        fs::set_permissions(&self.folder, private)
            .map_err(|error| self.unusable(error.to_string()))?;
        let socket = self.socket();
        if is_too_long(&socket) {
            let why = format!(
                "its socket would be `{}`, and the system allows {LONGEST} characters",
                socket.display()
            );
            let short = "set XDG_RUNTIME_DIR to a short folder of yours, which sockets go to \
                 then; or name a shorter one with --state-dir, in every command";
            return Err(self.unusable(why).hint(short));
        }
        Ok(())
    }

    /// The right to be the gateway of this home, until it is dropped; none while another has it.
    pub(crate) fn claim(&self) -> Outcome<Option<File>> {
        let lock = self.private_file("lock")?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(lock)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(self.unusable(error.to_string())),
        }
    }

    /// Whether nobody is the gateway of this home; elsewhere, whether nobody answers any more.
    pub(crate) async fn is_left(&self) -> Outcome<bool> {
        if self.named == Named::ByFolder {
            return Ok(self.claim()?.is_some());
        }
        Ok(self.hello().await?.is_none())
    }

    /// The log, to be added to. One that has grown large is put aside.
    pub(crate) fn open_log(&self) -> Outcome<File> {
        let is_large = fs::metadata(self.log()).is_ok_and(|seen| seen.len() > LARGE_LOG);
        if is_large {
            let old = self.folder.join("log.old");
            fs::rename(self.log(), old).map_err(|error| self.unusable(error.to_string()))?;
        }
        self.private_file("log")
    }

    fn private_file(&self, name: &str) -> Outcome<File> {
        OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(self.folder.join(name))
            .map_err(|error| self.unusable(error.to_string()))
    }

    fn unusable(&self, why: impl Into<String>) -> Problem {
        let what = format!(
            "the background gateway cannot live in `{}`",
            self.folder.display()
        );
        Problem::new(Code::StoreUnavailable, what)
            .because(why)
            .hint("name another folder with --state-dir")
    }

    /// The gateway that is up, if one is. One that is going down is not.
    pub(crate) async fn hello(&self) -> Outcome<Option<Hello>> {
        let Some(answered) = self.ask(Method::GET, "/admin").await? else {
            return Ok(None);
        };
        match serde_json::from_slice::<Hello>(&answered.body) {
            Ok(hello) => Ok(Some(hello).filter(|hello| !hello.draining)),
            Err(_) => Err(self.strange(&answered)),
        }
    }

    /// Asks the gateway for something that it has in JSON; none where none is up.
    pub(crate) async fn look(&self, path: &str) -> Outcome<Option<Value>> {
        let Some(answered) = self.ask(Method::GET, path).await? else {
            return Ok(None);
        };
        self.understood(&answered).map(Some)
    }

    /// What a gateway of our own version answered.
    pub(crate) fn understood(&self, answered: &Answered) -> Outcome<Value> {
        if answered.version.as_deref() != Some(VERSION) {
            return Err(of_another_version(answered.version.as_deref()));
        }
        let value: Value =
            serde_json::from_slice(&answered.body).map_err(|_| self.strange(answered))?;
        match value.get("error") {
            Some(error) => Err(of_error(error)),
            None => Ok(value),
        }
    }

    /// Asks the gateway for something that may be asked twice; none where none is up. One that
    /// breaks off is going: a moment later it is gone, or another is there.
    pub(crate) async fn ask(&self, method: Method, path: &str) -> Outcome<Option<Answered>> {
        let by = clock::after(TO_GO);
        loop {
            let gateway = self.gateway();
            let asked = self.unless_it_hangs(gateway.ask(method.clone(), path, None));
            match asked.await {
                Err(Silence::Unanswered(Unanswered::Broken(_))) if clock::now() < by => {
                    clock::sleep(LOOK_EVERY).await;
                },
                answered => return self.heard(answered).await,
            }
        }
    }

    /// Whether a gateway listens there that answers nothing.
    pub(crate) async fn is_hung(&self) -> bool {
        let gateway = self.gateway();
        let asked = gateway.ask(Method::GET, "/admin", None);
        matches!(self.unless_it_hangs(asked).await, Err(Silence::Hangs))
    }

    /// Hands something to the gateway, once; none where none is up, or it is going down.
    pub(crate) async fn hand(&self, path: &str, body: Bytes) -> Outcome<Option<Answered>> {
        let gateway = self.gateway();
        let asked = self.unless_it_hangs(gateway.ask(Method::POST, path, Some(body)));
        let answered = self.heard(asked.await).await?;
        Ok(answered.filter(|answered| !wording::says_it_goes(answered)))
    }

    async fn heard(&self, asked: Result<Answered, Silence>) -> Outcome<Option<Answered>> {
        match asked {
            Ok(answered) => Ok(Some(answered)),
            Err(Silence::Unanswered(Unanswered::Nobody(error)))
                if is_absence(&error) || is_too_long(&self.socket()) =>
            {
                Ok(None)
            },
            Err(Silence::Hangs) => Err(self.hangs().await),
            Err(Silence::Unanswered(unanswered)) => {
                let what = "the background gateway cannot be asked";
                Err(Problem::new(Code::CannotReach, what)
                    .at(self.socket().display().to_string())
                    .because(unanswered.to_string())
                    .delivered(Delivery::Unsent)
                    .hint("look at its log, or start another: `warmline up`"))
            },
        }
    }

    fn strange(&self, answered: &Answered) -> Problem {
        let what = "what listens on the background gateway's socket is none";
        Problem::new(Code::OpenFailed, what)
            .at(self.socket().display().to_string())
            .because(format!("it answered with status {}", answered.status))
            .delivered(Delivery::Unsent)
    }
}

/// A gateway of another version is up.
pub(crate) fn of_another_version(version: Option<&str>) -> Problem {
    let version = version.unwrap_or("unknown");
    let what =
        format!("the background gateway is of version {version}, and this command of {VERSION}");
    Problem::new(Code::OpenFailed, what)
        .delivered(Delivery::Unsent)
        .hint("start it anew: `warmline down`, then `warmline up`; what programs remember ends with it")
}

/// Whether no socket can have this path, so that nobody listens there.
fn is_too_long(path: &Path) -> bool {
    path.as_os_str().len() > LONGEST
}

/// Whether a socket is not there, or nobody listens on it any more.
fn is_absence(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::NotADirectory
    )
}
