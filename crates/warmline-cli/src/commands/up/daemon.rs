//! The background gateway itself: it runs until it is told to stop, or is not needed.

use std::path::Path;
use std::time::Duration;

use warmline_core::error::code::Code;
use warmline_gateway::reload::RunningConfiguration;
use warmline_gateway::{Gateway, GatewayOptions};
use warmline_platform::clock;

use super::UpArgs;
use crate::background::BackgroundGateway;
use crate::gateway_host::{
    ConfigSource, ConfigWatch, GatewayHost, raise_descriptor_limit, run_until_stopped, shutdown,
};
use crate::logging;
use crate::output::{CliResult, Problem};
use crate::signals::Signals;

const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(30 * 60);
const RUN_CHECK_INTERVAL: Duration = Duration::from_secs(15);

/// Runs the gateway of a state folder, unless another does.
pub(super) async fn run(
    args: &UpArgs,
    state: &Path,
    location: &BackgroundGateway,
) -> CliResult<u8> {
    let mut signals = Signals::register();
    let mut watch = ConfigWatch::new(ConfigSource::from_user_files(args.config.clone())?);
    let Some((config, _)) = watch.read_first(&mut signals).await? else {
        return Ok(0);
    };
    let log_lost = logging::start_for_service(&config.gateway);
    // Held to the end: its owner may remove the socket of a gateway that died.
    let Some(lock) = location.try_lock()? else {
        tracing::info!("another gateway was faster");
        return Ok(0);
    };
    detach_from_terminal();
    raise_descriptor_limit();
    let (running, limits) = (RunningConfiguration::new(&config), config.engine.limits);
    let host = GatewayHost::open(state, config)?;
    // On its socket alone, where only its user comes in: addresses and tokens of the configuration
    // are for `serve`.
    let options = GatewayOptions {
        socket: Some(location.socket_path()),
        admin_socket: Some(location.socket_path()),
        adopts_servers: true,
        lost_log_lines: log_lost,
        ..GatewayOptions::from_settings_without_listener(&host.settings, &host.accesses)?
    };
    let gateway = Gateway::start_local(host.warmline, options);
    let what = "the background gateway cannot listen";
    let gateway = gateway.map_err(Problem::caused(Code::ConfigBadValue, what))?;
    tracing::info!(socket = %location.socket_path().display(), "up");
    let why = run_until_stopped(
        (&gateway, gateway.reload_requests()),
        watch,
        &running,
        |config| GatewayOptions::from_settings_without_listener(&config.gateway, &config.access),
        &mut signals,
        wait_until_unused(&gateway, args.idle.unwrap_or(DEFAULT_IDLE_TIMEOUT)),
    );
    let why = why.await;
    tracing::info!(why, "going down");
    let exit = shutdown::shut_down(gateway, limits, &mut signals, None).await;
    drop(lock);
    Ok(exit)
}

fn detach_from_terminal() {
    // It fails only for a process group leader, which has no terminal to lose.
    rustix::process::setsid().ok();
    if let Err(error) = std::env::set_current_dir("/") {
        tracing::debug!(%error, "cannot leave the working folder");
    }
}

async fn wait_until_unused(gateway: &Gateway, limit: Duration) {
    loop {
        match gateway.idle_time() {
            Some(idle) if idle >= limit => return,
            Some(idle) => clock::sleep(limit.saturating_sub(idle)).await,
            // A run is live: the time counts from its end.
            None => clock::sleep(limit.min(RUN_CHECK_INTERVAL)).await,
        }
    }
}
