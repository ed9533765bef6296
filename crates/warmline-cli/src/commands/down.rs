//! `warmline down`: stops the background gateway, and waits until it is gone.

use std::time::Duration;

use clap::Args;
use http::Method;
use warmline_core::error::code::Code;
use warmline_platform::clock;

use crate::background::{BackgroundGateway, GatewayLocationArgs};
use crate::output::{CliResult, JsonFields, Problem, Report};

const LONG_HELP: &str = "\
Stop the background gateway.

Calls in flight may finish, within 24 seconds in all; then sessions are closed and programs ended.
Runs with servers over HTTP are kept for the next command; the state of programs is lost. With
--now calls in flight are cut. A gateway that does not answer is ended by signals.";

const EXAMPLES: &str = "\
Examples:
  warmline down
  warmline down --now";

/// Stop the background gateway
#[derive(Debug, Args)]
#[command(long_about = LONG_HELP, after_long_help = EXAMPLES)]
pub(crate) struct DownArgs {
    /// Wait for nothing: calls in flight are cut
    #[arg(long)]
    now: bool,
    #[command(flatten)]
    location: GatewayLocationArgs,
}

/// A gateway that drains is gone after 24 seconds.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a gateway that does not answer has after SIGTERM: without and with `--now`.
const TERM_TIMEOUTS: [Duration; 2] = [Duration::from_secs(25), Duration::from_secs(2)];
const POLL_INTERVAL: Duration = Duration::from_millis(20);

pub(super) async fn run(args: &DownArgs, report: &Report) -> CliResult<u8> {
    let gateway = BackgroundGateway::from_args(&args.location)?;
    let print_result = |text: &str, was_up: bool| {
        report.print_outcome("down", &JsonFields::with("was_up", was_up), text);
        Ok(0)
    };
    if gateway.is_unresponsive().await {
        let grace = TERM_TIMEOUTS[usize::from(args.now)];
        let ending = gateway.terminate_unresponsive(grace);
        let what = "ending a gateway that hangs";
        report.with_progress(what, ending).await?;
        return print_result("down: it did not answer and was ended by a signal", true);
    }
    let path = match args.now {
        true => "/admin/drain?now",
        false => "/admin/drain",
    };
    if gateway.request(Method::POST, path).await?.is_none() {
        gateway.check_absence_allowed()?;
        return print_result("no background gateway is up", false);
    }
    let stopping = wait_until_gone(&gateway);
    let what = "stopping the background gateway";
    report.with_progress(what, stopping).await?;
    print_result("down", true)
}

async fn wait_until_gone(gateway: &BackgroundGateway) -> CliResult<()> {
    let by = clock::after(STOP_TIMEOUT);
    while !gateway.is_gone().await? {
        if clock::now() > by {
            let what = "the background gateway is still stopping";
            return Err(Problem::new(Code::Deadline, what)
                .with_location(gateway.log_path().display().to_string())
                .with_hint("`warmline down --now` waits for no call"));
        }
        clock::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}
