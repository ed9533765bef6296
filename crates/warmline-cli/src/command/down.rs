//! `warmline down`: stops the background gateway, and waits until it is gone.

use std::time::Duration;

use http::Method;
use warmline::clock;
use warmline::core::code::Code;

use crate::args;
use crate::background::Home;
use crate::problem::{Outcome, Problem};
use crate::report::{Fields, Report};

/// A gateway that drains is gone after 24 seconds.
const TO_END: Duration = Duration::from_secs(30);
/// What a gateway that does not answer has to end by a signal, before it is killed.
const TO_DRAIN: Duration = Duration::from_secs(25);
/// The same where nothing is waited for.
const AT_ONCE: Duration = Duration::from_secs(2);
/// How often it is looked whether it is gone.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Stops the gateway.
pub(super) async fn run(typed: &args::Down, report: &Report) -> Outcome<u8> {
    let home = Home::typed(typed.state_dir.as_deref(), typed.socket.as_deref())?;
    let path = match typed.now {
        true => "/admin/drain?now",
        false => "/admin/drain",
    };
    if home.is_hung().await {
        let grace = match typed.now {
            true => AT_ONCE,
            false => TO_DRAIN,
        };
        report
            .while_waiting("ending a gateway that hangs", home.end_hung(grace))
            .await?;
        tell(
            "down: it did not answer, and was ended by a signal",
            true,
            report,
        );
        return Ok(0);
    }
    let Some(_) = home.ask(Method::POST, path).await? else {
        home.absent()?;
        tell("no background gateway is up", false, report);
        return Ok(0);
    };
    report
        .while_waiting("stopping the background gateway", gone(&home))
        .await?;
    tell("down", true, report);
    Ok(0)
}

/// Ends when nobody is the gateway of this home any more.
async fn gone(home: &Home) -> Outcome<()> {
    let by = clock::after(TO_END);
    while !home.is_left().await? {
        if clock::now() > by {
            let what = "the background gateway is still going down";
            return Err(Problem::new(Code::Deadline, what)
                .at(home.log().display().to_string())
                .hint("`warmline down --now` waits for no call"));
        }
        clock::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

fn tell(text: &str, was_up: bool, report: &Report) {
    let fields = Fields::new().put("was_up", was_up);
    match report.is_json() {
        true => report.object("down", &fields),
        false => report.note(text),
    }
}
