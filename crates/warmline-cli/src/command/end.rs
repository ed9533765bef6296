//! `warmline end`: ends a run of the background gateway.

use http::{Method, StatusCode};
use warmline::core::code::Code;
use warmline::core::delivery::Delivery;

use crate::args;
use crate::background::{Home, VERSION, of_another_version};
use crate::problem::{Outcome, Problem};
use crate::report::{Fields, Report};

/// Ends the run, which must live.
pub(super) async fn run(typed: &args::End, report: &Report) -> Outcome<u8> {
    let name = &typed.run;
    warmline::Run::check_name(name).map_err(|error| {
        Problem::usage("that cannot be the name of a run").hint(error.hint().unwrap_or_default())
    })?;
    let home = Home::typed(typed.state_dir.as_deref(), typed.socket.as_deref())?;
    let path = format!("/admin/runs/{name}");
    let Some(answered) = home.ask(Method::DELETE, &path).await? else {
        home.absent()?;
        return Err(unknown(name).because("no background gateway is up"));
    };
    if answered.version.as_deref() != Some(VERSION) {
        return Err(of_another_version(answered.version.as_deref()));
    }
    if answered.status == StatusCode::NOT_FOUND {
        return Err(unknown(name).hint("`warmline ps` shows those that live"));
    }
    home.understood(&answered)?;
    let fields = Fields::new().put("run", name);
    match report.is_json() {
        true => report.object("ended", &fields),
        false => report.note(&format!("run `{name}` is ended")),
    }
    Ok(0)
}

fn unknown(name: &str) -> Problem {
    Problem::new(Code::RunUnknown, format!("no run `{name}` is live")).delivered(Delivery::Unsent)
}
