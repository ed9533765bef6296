//! The background gateway of this user: where it lives, and how commands talk to it.
//!
//! Only the user can enter its folder. The owner of its socket is checked before anything is sent.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::future::Future;
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::Value;
use warmline_config::process_variable;
use warmline_core::delivery::Delivery;
use warmline_core::error::code::{Audience, Code, Reason};
use warmline_core::exchange::Diagnostic;
use warmline_gateway::admin::socket_client::{SocketClient, SocketClientError, SocketResponse};
use warmline_platform::clock;

use crate::leftover_runs::LeftoverRunStore;
use crate::output::{CliResult, Problem};
use crate::target::state_folder;

/// A gateway of another version is not used.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What the system allows for the path of a socket.
const MAX_SOCKET_PATH: usize = 100;
/// A larger log is renamed when a gateway starts.
const MAX_LOG_BYTES: u64 = 1 << 20;
/// How long a gateway that closes connections may take to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long a gateway may be silent before it is probed.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Where to find a gateway of this user.
#[derive(Clone, Debug, Args)]
pub(crate) struct GatewayLocationArgs {
    /// The state folder of the gateway
    #[arg(long, value_name = "FOLDER")]
    state_dir: Option<PathBuf>,
    /// The admin socket of another gateway of this user, such as that of `serve --admin`
    #[arg(long, value_name = "FILE", conflicts_with = "state_dir")]
    pub(crate) socket: Option<PathBuf>,
}

#[derive(Clone, Debug)]
pub(crate) struct BackgroundGateway {
    folder: PathBuf,
    /// The admin socket of another gateway, which commands cannot start.
    admin_socket: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct GatewayInfo {
    pub(crate) version: String,
    pub(crate) pid: u32,
    pub(crate) up_seconds: u64,
    #[serde(default)]
    draining: bool,
}

enum NoResponse {
    Failed(SocketClientError),
    /// It listens and does not answer.
    Unresponsive,
}

impl BackgroundGateway {
    pub(crate) fn in_state_folder(state: &Path) -> Self {
        Self {
            folder: state.join("up"),
            admin_socket: None,
        }
    }

    pub(crate) fn from_args(args: &GatewayLocationArgs) -> CliResult<Self> {
        Ok(Self {
            admin_socket: args.socket.clone(),
            ..Self::in_state_folder(&state_folder(args.state_dir.as_deref())?)
        })
    }

    pub(crate) fn state_folder(&self) -> &Path {
        self.folder.parent().unwrap_or(&self.folder)
    }

    /// The notes of runs that commands left beside it; none for an admin socket.
    pub(crate) fn leftover_runs(&self) -> CliResult<Option<LeftoverRunStore>> {
        match self.admin_socket {
            None => LeftoverRunStore::in_state_folder(self.state_folder()),
            Some(_) => Ok(None),
        }
    }

    pub(crate) fn socket_path(&self) -> PathBuf {
        if let Some(socket) = &self.admin_socket {
            return socket.clone();
        }
        let socket = self.folder.join("socket");
        let short = is_socket_path_too_long(&socket).then(|| self.short_socket_path());
        short.flatten().unwrap_or(socket)
    }

    /// A path for the socket in the user's runtime folder, derived from the gateway's folder.
    fn short_socket_path(&self) -> Option<PathBuf> {
        let folder = fs::metadata(&self.folder).ok()?;
        let runtime = process_variable("XDG_RUNTIME_DIR").map(PathBuf::from)?;
        let name = format!("warmline-{:x}-{:x}", folder.dev(), folder.ino());
        Some(runtime.join(name)).filter(|path| path.is_absolute() && !is_socket_path_too_long(path))
    }

    /// Whether no gateway need be up: an admin socket names one that is.
    pub(crate) fn check_absence_allowed(&self) -> CliResult<()> {
        let Some(socket) = &self.admin_socket else {
            return Ok(());
        };
        let what = format!("nothing listens on the socket `{}`", socket.display());
        Err(Problem::new(Code::CannotReach, what)
            .with_delivery(Delivery::Unsent)
            .with_hint("name the socket of a running `warmline serve --admin FILE`"))
    }

    pub(crate) fn log_path(&self) -> PathBuf {
        self.folder.join("log")
    }

    pub(crate) fn socket_client(&self) -> SocketClient {
        SocketClient::new(self.socket_path())
    }

    /// Creates the folder, for this user only, or checks that it is so.
    pub(crate) fn ensure_folder(&self) -> CliResult<()> {
        let unusable = |error: io::Error| self.unusable_folder_error(error);
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(&self.folder);
        made.map_err(unusable)?;
        let folder = fs::symlink_metadata(&self.folder).map_err(unusable)?;
        if !folder.is_dir() || folder.uid() != rustix::process::geteuid().as_raw() {
            return Err(self.unusable_folder_error("it is not a folder of this user"));
        }
        let private = fs::Permissions::from_mode(0o700);
        fs::set_permissions(&self.folder, private).map_err(unusable)?;
        let socket = self.socket_path();
        if is_socket_path_too_long(&socket) {
            let why = format!(
                "its socket would be `{}`, and the system allows {MAX_SOCKET_PATH} characters",
                socket.display()
            );
            let short = "set XDG_RUNTIME_DIR to a short folder of yours for the socket; or choose a \
                 shorter state folder with --state-dir, in every command";
            return Err(self.unusable_folder_error(why).with_hint(short));
        }
        Ok(())
    }

    /// Claims the folder until the lock is dropped; none while another gateway has it.
    pub(crate) fn try_lock(&self) -> CliResult<Option<File>> {
        let lock = self.open_private_file("lock")?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(lock)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(self.unusable_folder_error(error)),
        }
    }

    /// Whether no gateway has the folder; for an admin socket, whether nothing answers.
    pub(crate) async fn is_gone(&self) -> CliResult<bool> {
        match self.admin_socket {
            None => Ok(self.try_lock()?.is_some()),
            Some(_) => Ok(self.info().await?.is_none()),
        }
    }

    pub(crate) fn open_log(&self) -> CliResult<File> {
        let path = self.log_path();
        if fs::metadata(&path).is_ok_and(|log| log.len() > MAX_LOG_BYTES) {
            fs::rename(path, self.folder.join("log.old"))
                .map_err(|error| self.unusable_folder_error(error))?;
        }
        self.open_private_file("log")
    }

    fn open_private_file(&self, name: &str) -> CliResult<File> {
        let mut options = OpenOptions::new();
        let options = options.create(true).append(true).mode(0o600);
        let opened = options.open(self.folder.join(name));
        opened.map_err(|error| self.unusable_folder_error(error))
    }

    fn unusable_folder_error(&self, why: impl ToString) -> Problem {
        let folder = self.folder.display();
        let what = format!("the background gateway cannot use its folder `{folder}`");
        Problem::new(Code::StoreUnavailable, what)
            .with_cause(why.to_string())
            .with_hint("choose another state folder with --state-dir")
    }

    /// The gateway that is up; none while it drains.
    pub(crate) async fn info(&self) -> CliResult<Option<GatewayInfo>> {
        let Some(response) = self.request(Method::GET, "/admin").await? else {
            return Ok(None);
        };
        match serde_json::from_slice::<GatewayInfo>(&response.body) {
            Ok(info) => Ok(Some(info).filter(|info| !info.draining)),
            Err(_) => Err(self.unexpected_response_error(&response)),
        }
    }

    pub(crate) async fn get_json(&self, path: &str) -> CliResult<Option<Value>> {
        match self.request(Method::GET, path).await? {
            Some(response) => self.parse_response(&response).map(Some),
            None => Ok(None),
        }
    }

    pub(crate) fn parse_response(&self, response: &SocketResponse) -> CliResult<Value> {
        check_version(response.version.as_deref())?;
        let value: Value = serde_json::from_slice(&response.body)
            .map_err(|_| self.unexpected_response_error(response))?;
        match value.get("error") {
            Some(error) => {
                let what = string_member(error, "what");
                let what = what.unwrap_or("the background gateway refused");
                Err(problem_from_fields(error, what))
            },
            None => Ok(value),
        }
    }

    /// Sends an idempotent request; none if no gateway is up. One that closes the connection is
    /// exiting: a moment later it is gone, or another is there.
    pub(crate) async fn request(
        &self,
        method: Method,
        path: &str,
    ) -> CliResult<Option<SocketResponse>> {
        let by = clock::after(EXIT_TIMEOUT);
        loop {
            let gateway = self.socket_client();
            let request = gateway.request(method.clone(), path, None);
            match self.wait_while_responsive(request).await {
                Err(NoResponse::Failed(SocketClientError::Broken(_))) if clock::now() < by => {
                    clock::sleep(POLL_INTERVAL).await;
                },
                response => return self.response_or_absent(response).await,
            }
        }
    }

    pub(crate) async fn is_unresponsive(&self) -> bool {
        let gateway = self.socket_client();
        let request = gateway.request(Method::GET, "/admin", None);
        let response = self.wait_while_responsive(request).await;
        matches!(response, Err(NoResponse::Unresponsive))
    }

    pub(crate) async fn post(&self, path: &str, body: Bytes) -> CliResult<Option<SocketResponse>> {
        let gateway = self.socket_client();
        let request = gateway.request(Method::POST, path, Some(body));
        let response = self.wait_while_responsive(request).await;
        let response = self.response_or_absent(response).await?;
        Ok(response.filter(|response| !is_draining_response(response)))
    }

    /// Waits for an answer for as long as the gateway answers anything.
    async fn wait_while_responsive<T>(
        &self,
        request: impl Future<Output = Result<T, SocketClientError>>,
    ) -> Result<T, NoResponse> {
        let mut request = pin!(request);
        loop {
            if let Ok(response) = clock::timeout(PROBE_TIMEOUT, &mut request).await {
                return response.map_err(NoResponse::Failed);
            }
            let gateway = self.socket_client();
            let probe = gateway.request(Method::GET, "/admin", None);
            if clock::timeout(PROBE_TIMEOUT, probe).await.is_err() {
                return Err(NoResponse::Unresponsive);
            }
        }
    }

    async fn unresponsive_error(&self) -> Problem {
        let process = match self.socket_client().peer_pid().await {
            Some(pid) => format!("process {pid}"),
            None => "a process".to_owned(),
        };
        let what = format!("the background gateway hangs: {process} listens and does not answer");
        Problem::new(Code::CannotReach, what)
            .with_location(self.socket_path().display().to_string())
            .with_delivery(Delivery::Unsent)
            .with_hint("`warmline down` ends it; `warmline down --now` does not wait for it")
    }

    /// Ends a gateway that hangs: by SIGTERM, and after `grace` by SIGKILL. The process that listens
    /// on the socket is looked up before each signal.
    pub(crate) async fn terminate_unresponsive(&self, grace: Duration) -> CliResult<()> {
        let Some(pid) = self.socket_client().peer_pid().await else {
            return Ok(());
        };
        for (signal, time) in [(Signal::TERM, grace), (Signal::KILL, KILL_TIMEOUT)] {
            if self.socket_client().peer_pid().await != Some(pid) {
                return Ok(());
            }
            let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
            if let Some(process) = process {
                // It may have exited meanwhile.
                kill_process(process, signal).ok();
            }
            let by = clock::after(time);
            while clock::now() < by {
                if self.socket_client().peer_pid().await != Some(pid) {
                    return Ok(());
                }
                clock::sleep(POLL_INTERVAL).await;
            }
        }
        Err(self.unresponsive_error().await)
    }

    async fn response_or_absent(
        &self,
        response: Result<SocketResponse, NoResponse>,
    ) -> CliResult<Option<SocketResponse>> {
        match response {
            Ok(response) => Ok(Some(response)),
            Err(NoResponse::Failed(SocketClientError::NotListening(error)))
                if is_not_listening(&error) || is_socket_path_too_long(&self.socket_path()) =>
            {
                Ok(None)
            },
            Err(NoResponse::Unresponsive) => Err(self.unresponsive_error().await),
            Err(NoResponse::Failed(error)) => {
                let what = "cannot reach the background gateway";
                Err(Problem::new(Code::CannotReach, what)
                    .with_location(self.socket_path().display().to_string())
                    .with_cause(error.to_string())
                    .with_delivery(Delivery::Unsent)
                    .with_hint("see its log, or start another: `warmline up`"))
            },
        }
    }

    fn unexpected_response_error(&self, response: &SocketResponse) -> Problem {
        let what = "the program that listens on the background gateway's socket is no gateway";
        Problem::new(Code::OpenFailed, what)
            .with_location(self.socket_path().display().to_string())
            .with_cause(format!("it answered with status {}", response.status))
            .with_delivery(Delivery::Unsent)
    }
}

pub(crate) fn check_version(version: Option<&str>) -> CliResult<()> {
    if version == Some(VERSION) {
        return Ok(());
    }
    let what = format!(
        "the background gateway has version {}, this command {VERSION}",
        version.unwrap_or("unknown")
    );
    Err(Problem::new(Code::OpenFailed, what)
        .with_delivery(Delivery::Unsent)
        .with_hint(
            "restart it: `warmline down`, then `warmline up`; the state of programs is lost",
        ))
}

/// Whether no socket can have this path, so that nothing listens there.
fn is_socket_path_too_long(path: &Path) -> bool {
    path.as_os_str().len() > MAX_SOCKET_PATH
}

fn is_not_listening(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::NotADirectory
    )
}

/// Whether the gateway accepts nothing new because it is stopping.
fn is_draining_response(answered: &SocketResponse) -> bool {
    let said: Option<Value> = serde_json::from_slice(&answered.body).ok();
    let error = said.as_ref().and_then(|said| said.get("error"));
    error.and_then(|error| string_member(error, "code")) == Some(Code::Draining.as_str())
}

/// Why the gateway could not open a session, and its name of the server; none if it refused for
/// another reason. Its advice for remote callers is dropped.
pub(crate) fn parse_open_failure(answer: &[u8]) -> Option<(Diagnostic, String)> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    let error = answer.get("error")?;
    let server = string_member(error, "server")?.to_owned();
    let mut diagnostic = diagnostic_from_fields(error, string_member(error, "what")?);
    let delivery = delivery_from_fields(error);
    let general = diagnostic.code.advice(Audience::Gateway, delivery);
    diagnostic.hint = diagnostic.hint.filter(|hint| hint != general);
    Some((diagnostic, server))
}

/// An error of the gateway itself; none if it is the server's.
pub(crate) fn problem_from_rpc_error(raw: &[u8]) -> Option<Problem> {
    let error: Value = serde_json::from_slice(raw).ok()?;
    let fields = error.pointer("/data/warmline")?;
    let message = string_member(&error, "message").unwrap_or("the call failed");
    // The delivery has its own line.
    let known = delivery_from_fields(fields).description();
    let known = known.map(|known| format!("; {known}"));
    let what = known.and_then(|known| message.strip_suffix(&*known));
    Some(problem_from_fields(fields, what.unwrap_or(message)))
}

/// An error of the gateway as a problem: with code, delivery and hint.
fn problem_from_fields(fields: &Value, what: &str) -> Problem {
    Problem::from_diagnostic(
        &diagnostic_from_fields(fields, what),
        delivery_from_fields(fields),
    )
}

fn diagnostic_from_fields(fields: &Value, what: &str) -> Diagnostic {
    let reason = string_member(fields, "reason").and_then(Reason::parse);
    let code = string_member(fields, "code").and_then(Code::parse);
    let mut diagnostic = Diagnostic::new(reason.unwrap_or(Reason::Rejected), what);
    diagnostic.code = code.unwrap_or(diagnostic.code);
    diagnostic.cause = string_member(fields, "why").map(str::to_owned);
    diagnostic.hint = string_member(fields, "hint").map(str::to_owned);
    let after = fields.get("retryAfterMs").and_then(Value::as_u64);
    diagnostic.retry_after = after.map(Duration::from_millis);
    diagnostic
}

fn delivery_from_fields(fields: &Value) -> Delivery {
    let word = string_member(fields, "delivery");
    word.and_then(Delivery::parse).unwrap_or(Delivery::Unsent)
}

fn string_member<'v>(value: &'v Value, member: &str) -> Option<&'v str> {
    value.get(member).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_keeps_what_is_known_of_it() {
        let raw = r#"{"code":7503,"message":"`x` broke off; may have been executed, check before calling again",
            "data":{"warmline":{"code":"answer-lost","reason":"cut","delivery":"unknown","hint":"look","retryAfterMs":70}}}"#;
        let problem = problem_from_rpc_error(raw.as_bytes()).unwrap();
        let parts = problem.parts();
        assert_eq!(parts.message, "`x` broke off");
        assert_eq!(parts.code, Code::AnswerLost);
        assert_eq!(parts.delivery, Some(Delivery::Unknown));
        assert_eq!(parts.hint.as_deref(), Some("look"));
        assert_eq!(parts.retry_after, Some(Duration::from_millis(70)));
        assert_eq!(problem.exit_code(), 4);
        let of_server = br#"{"code":-32602,"message":"no","data":{"warm":1}}"#;
        assert!(problem_from_rpc_error(of_server).is_none());
    }
}
