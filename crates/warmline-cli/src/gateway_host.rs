//! Runs a gateway in this process: where sessions are kept, and its configuration, read at the start and
//! again while it runs.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use warmline_config::ConfigError;
use warmline_config::gateway_settings::GatewaySettings;
use warmline_core::delivery::Delivery;
use warmline_core::error::code::Code;
use warmline_engine::Warmline;
use warmline_engine::admin::EngineSetup as _;
use warmline_engine::settings::{SettingOrigin, SettingsGroup as _};
pub(crate) use warmline_gateway::auth::token_store::TokenStore;
use warmline_gateway::options::AccessByServer;
use warmline_gateway::reload::{
    FileStamps, FileWatch, LoadedConfiguration, ReloadError, RunningConfiguration,
};
use warmline_gateway::{Gateway, GatewayOptions, ReloadFailure, ReloadRequest};
use warmline_platform::clock::{self, Instant};
use warmline_store::FileStore;
use warmline_store::keyring::Keyring;

use crate::output::{CliResult, Problem};
use crate::signals::{Signal, Signals};
use crate::target::records_folder;

mod config_source;
pub(crate) mod shutdown;

pub(crate) use config_source::{ConfigSource, GatewayArgs, ListenOverrides};

/// An engine for a gateway, with its settings and what its state folder holds.
pub(crate) struct GatewayHost {
    pub(crate) warmline: Warmline,
    pub(crate) tokens: TokenStore,
    pub(crate) settings: GatewaySettings,
    pub(crate) accesses: AccessByServer,
    pub(crate) records_folder: PathBuf,
}

impl GatewayHost {
    pub(crate) fn open(state: &Path, config: LoadedConfiguration) -> CliResult<Self> {
        let vault = Keyring::in_folder(state).map_err(|diagnostic| {
            Problem::from_diagnostic(&diagnostic, Delivery::Unsent).with_hint(
                "keys and sessions are kept there; choose another folder with --state-dir",
            )
        })?;
        let store = config.engine.store.clone();
        // `memory` is explicit: such sessions must not be on a disk.
        let is_default = config.engine.origin("store.path") == SettingOrigin::Default;
        let in_memory = store.is_none() && !is_default;
        let records_folder = store.unwrap_or_else(|| records_folder(state));
        let mut builder = Warmline::builder()
            .settings(config.engine)
            .servers(config.servers)
            .vault(vault);
        if !in_memory {
            builder = builder.store(FileStore::in_folder(&records_folder));
        }
        Ok(Self {
            warmline: builder.build()?,
            tokens: TokenStore::in_state_folder(state),
            settings: config.gateway,
            accesses: config.access,
            records_folder,
        })
    }
}

/// Runs a gateway until it is told to stop, or is `unused`. Returns why.
pub(crate) async fn run_until_stopped(
    (gateway, mut reload_requests): (&Gateway, mpsc::Receiver<ReloadRequest>),
    mut config: ConfigWatch,
    running: &RunningConfiguration,
    options: impl Fn(&LoadedConfiguration) -> Result<GatewayOptions, ConfigError>,
    signals: &mut Signals,
    unused: impl Future<Output = ()>,
) -> &'static str {
    let mut unused = pin!(unused);
    loop {
        tokio::select! {
            signal = signals.next_signal() => match signal {
                Signal::Interrupt | Signal::Terminate => return "a signal",
                Signal::Hangup => config.start_read(),
            },
            _ = gateway.shutdown_requested() => return "asked to",
            Some(request) = reload_requests.recv() => config.start_read_for(request),
            update = config.next_update() => {
                let outcome = apply_update(gateway, update, running, &options);
                config.answer_waiters(&outcome);
            },
            () = &mut unused => return "nobody needs it",
        }
    }
}

/// Applies a configuration as a whole, or not at all.
fn apply_update(
    gateway: &Gateway,
    update: CliResult<ConfigUpdate>,
    running: &RunningConfiguration,
    options: impl Fn(&LoadedConfiguration) -> Result<GatewayOptions, ConfigError>,
) -> CliResult<()> {
    let outcome = update.and_then(|(config, warnings)| {
        warnings.iter().for_each(|warning| log_warning(warning));
        let reloaded = gateway.reload(config, running, options);
        reloaded.map(drop).map_err(|error| match error {
            ReloadError::Gateway(error) => Problem::from(*error),
            ReloadError::Server(error) => Problem::from(error),
        })
    });
    if let Err(problem) = &outcome {
        gateway.record_reload_failure();
        let parts = problem.parts();
        tracing::error!(
            code = %parts.code,
            what = parts.message,
            place = parts.location,
            why = parts.cause,
            hint = parts.hint,
            "configuration not read again, what runs goes on"
        );
    }
    outcome
}

pub(crate) fn log_warning(caution: &str) {
    tracing::warn!(caution, "the setup deserves a look");
}

/// Raises the limit as far as the system allows: each connection is a descriptor.
pub(crate) fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "cannot raise the limit of descriptors");
    }
}

/// A read that takes longer is reported.
const SLOW_READ: Duration = Duration::from_secs(10);

type ConfigUpdate = (LoadedConfiguration, Vec<String>);

/// Reads the configuration when it changes, or on request: in a blocking task, because its disk may not
/// answer, and the main loop must react to signals.
pub(crate) struct ConfigWatch {
    files: FileWatch,
    /// None during a read.
    source: Option<ConfigSource>,
    pending_read: Option<PendingRead>,
    is_reread_requested: bool,
    /// Requests that wait for the pending read, and for the one after it.
    waiters: Vec<ReloadRequest>,
    next_waiters: Vec<ReloadRequest>,
    due_waiters: Vec<ReloadRequest>,
}

struct PendingRead {
    task: JoinHandle<(ConfigSource, FileStamps, CliResult<ConfigUpdate>)>,
    late_at: Instant,
    is_late_reported: bool,
}

impl ConfigWatch {
    pub(crate) fn new(source: ConfigSource) -> Self {
        Self {
            files: FileWatch::new(source.watched_paths()),
            source: Some(source),
            pending_read: None,
            is_reread_requested: false,
            waiters: Vec::new(),
            next_waiters: Vec::new(),
            due_waiters: Vec::new(),
        }
    }

    /// Reads it for the first time; none if a signal stops the gateway meanwhile.
    pub(crate) async fn read_first(
        &mut self,
        signals: &mut Signals,
    ) -> CliResult<Option<ConfigUpdate>> {
        self.start_read();
        tokio::select! {
            read = self.next_update() => read.map(Some),
            () = signals.wait_for_stop() => Ok(None),
        }
    }

    pub(crate) fn stop_watching(&mut self) {
        self.files = FileWatch::new(Vec::new());
    }

    pub(crate) fn start_read(&mut self) {
        let Some(mut source) = self.source.take() else {
            self.is_reread_requested = true;
            return;
        };
        // From before the read, so that later changes are noticed.
        let look = self.files.snapshot();
        let reading = clock::spawn_blocking("configuration", move || {
            let seen = look();
            let read = source.read();
            (source, seen, read)
        });
        self.pending_read = Some(PendingRead {
            task: reading,
            late_at: clock::after(SLOW_READ),
            is_late_reported: false,
        });
    }

    /// Starts a read whose outcome answers the request. A read that began earlier may not see what the
    /// request is about.
    pub(crate) fn start_read_for(&mut self, request: ReloadRequest) {
        match self.source {
            Some(_) => self.waiters.push(request),
            None if self.pending_read.is_some() => self.next_waiters.push(request),
            // No read is possible any more; dropping the request tells so.
            None => return,
        }
        self.start_read();
    }

    pub(crate) fn answer_waiters(&mut self, outcome: &CliResult<()>) {
        for request in self.due_waiters.drain(..) {
            request.respond(outcome.as_ref().map_err(reload_failure).copied());
        }
    }

    /// The configuration, each time it was read; once per read the error that it takes long. Dropping it
    /// loses nothing.
    pub(crate) async fn next_update(&mut self) -> CliResult<ConfigUpdate> {
        let under_way = loop {
            match &mut self.pending_read {
                Some(under_way) => break under_way,
                None => {
                    self.files.changed().await;
                    self.start_read();
                },
            }
        };
        let is_told = under_way.is_late_reported;
        let read = tokio::select! {
            read = &mut under_way.task => read,
            () = clock::sleep_until(under_way.late_at), if !is_told => {
                under_way.is_late_reported = true;
                self.due_waiters.append(&mut self.waiters);
                return Err(slow_read_error());
            },
        };
        self.pending_read = None;
        self.due_waiters.append(&mut self.waiters);
        self.waiters.append(&mut self.next_waiters);
        let (source, seen, read) = read.map_err(|error| {
            // There is no read after this one.
            self.due_waiters.append(&mut self.waiters);
            Problem::new(Code::Bug, "cannot read the configuration").with_cause(error.to_string())
        })?;
        self.source = Some(source);
        self.files.mark_read(seen);
        if std::mem::take(&mut self.is_reread_requested) {
            self.start_read();
        }
        read
    }
}

fn reload_failure(problem: &Problem) -> ReloadFailure {
    let parts = problem.parts();
    let place = parts.location.as_ref().map(|place| format!("{place}: "));
    let why = parts.cause.as_ref().map(|why| format!(" ({why})"));
    let (place, why) = (place.unwrap_or_default(), why.unwrap_or_default());
    ReloadFailure {
        code: parts.code,
        what: format!("{place}{}{why}", parts.message),
        hint: parts.hint.clone(),
    }
}

fn slow_read_error() -> Problem {
    let what = format!(
        "reading the configuration takes longer than {} s",
        SLOW_READ.as_secs()
    );
    Problem::new(Code::ConfigUnreadable, what)
        .with_cause("a file of it, or one that it names, does not answer")
        .with_hint("check the disks of the file, of its `file` credentials and of `ca_file`")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reading that takes as long as somebody says.
    fn reading(release: std::sync::mpsc::Receiver<()>) -> PendingRead {
        let source = ConfigSource::from_user_files(None).unwrap();
        let reading = clock::spawn_blocking("configuration", move || {
            release.recv().unwrap();
            let read = Err(Problem::usage("it was read"));
            (source, FileWatch::new(Vec::new()).snapshot()(), read)
        });
        PendingRead {
            task: reading,
            late_at: clock::after(Duration::ZERO),
            is_late_reported: false,
        }
    }

    /// DESIGN 9: a disk that does not answer is told once; what was read counts when it comes, and
    /// what was asked for meanwhile is read after it.
    #[tokio::test]
    async fn a_reading_that_hangs_is_told_and_waited_for_by_nobody() {
        let mut rereading = ConfigWatch::new(ConfigSource::from_user_files(None).unwrap());
        rereading.source = None;
        let (release, held) = std::sync::mpsc::channel();
        rereading.pending_read = Some(reading(held));
        let said =
            |read: CliResult<ConfigUpdate>| read.err().map(|error| error.parts().message.clone());
        let late = said(rereading.next_update().await).unwrap_or_default();
        assert!(late.contains("takes longer than 10 s"), "{late}");
        rereading.start_read();
        let quiet = tokio::time::timeout(Duration::from_millis(50), rereading.next_update()).await;
        assert!(quiet.is_err(), "it is told once");
        release.send(()).unwrap();
        assert_eq!(
            said(rereading.next_update().await).as_deref(),
            Some("it was read")
        );
        assert!(rereading.pending_read.is_some(), "it was asked for again");
    }
}
