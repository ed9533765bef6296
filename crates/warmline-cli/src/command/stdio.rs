//! `warmline stdio`: an MCP server over stdio, in front of others.

use warmline::core::code::Code;
use warmline::{Run, clock};
use warmline_gateway::{Auth, Options, Pipe, settings};

use crate::args;
use crate::gate::{Kept, Source};
use crate::interrupt::until_interrupted;
use crate::problem::{Outcome, Problem};
use crate::report::Report;
use crate::target::state_folder;

/// How long sessions may take to close: whoever started us does not wait for long.
const TO_CLOSE: std::time::Duration = std::time::Duration::from_secs(5);

/// Speaks with whoever started us, until it closes its end.
pub(super) async fn run(typed: &args::Stdio, report: &Report) -> Outcome<u8> {
    if let Some(run) = &typed.run {
        Run::check_name(run).map_err(|error| {
            Problem::usage("that cannot be the name of a run")
                .hint(error.hint().unwrap_or_default())
        })?;
    }
    let (wanted, cautions) = Source::of(&typed.served)?.read()?;
    for caution in cautions {
        report.caution(&caution);
    }
    let state = state_folder(typed.served.state_dir.as_deref())?;
    let kept = Kept::open(&state, wanted)?;
    settings::check(&kept.settings, &kept.accesses)?;
    let options = Options {
        // A pipe leads to whoever started us: nobody else can speak here.
        auth: Auth::None,
        rules: settings::rules(&kept.settings, &kept.accesses)?,
        max_request: kept.settings.max_request,
        list_share: kept.settings.list_share,
        ..Options::default()
    };
    let mut pipe = Pipe::new(kept.warm.clone(), options);
    if let Some(audit) = settings::audit(&kept.settings) {
        pipe = pipe.audited(audit).map_err(|error| {
            Problem::new(Code::ConfigBadValue, "the audit cannot be written")
                .because(error.to_string())
                .hint("decide another `audit.file`, or none")
        })?;
    }
    if let [server] = kept.warm.servers().as_slice() {
        pipe = pipe.to(server);
    }
    if let Some(run) = &typed.run {
        pipe = pipe.in_run(run);
    }
    let speaking = Box::pin(pipe.serve(tokio::io::stdin(), tokio::io::stdout()));
    let spoke = until_interrupted(speaking).await;
    clock::timeout(TO_CLOSE, kept.warm.close()).await.ok();
    if let Ok(Err(error)) = spoke {
        tracing::debug!(%error, "the client left in the middle of a word");
    }
    Ok(0)
}
