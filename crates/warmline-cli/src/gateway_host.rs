//! Runs a gateway in this process: which servers it serves, and where sessions are kept.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;

use tokio::sync::mpsc;
use warmline_config::ConfigError;
use warmline_config::gateway_settings::GatewaySettings;
use warmline_core::delivery::Delivery;
use warmline_engine::Warmline;
use warmline_engine::admin::EngineSetup as _;
use warmline_engine::settings::{SettingOrigin, SettingsGroup as _};
pub(crate) use warmline_gateway::auth::token_store::TokenStore;
use warmline_gateway::options::AccessByServer;
use warmline_gateway::reload::{LoadedConfiguration, ReloadError, RunningConfiguration};
use warmline_gateway::{Gateway, GatewayOptions, ReloadRequest};
use warmline_store::FileStore;
use warmline_store::keyring::Keyring;

use crate::output::problem::{CliResult, Problem};
use crate::signals::{Signal, Signals};
use crate::target::records_folder;

mod config_source;
pub(crate) mod config_watch;
mod server_selection;
pub(crate) mod shutdown;

use config_watch::{ConfigUpdate, ConfigWatch};

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
