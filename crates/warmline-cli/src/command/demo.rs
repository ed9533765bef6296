//! `warmline demo` (in the making).
use crate::problem::Outcome;
use crate::report::Report;
pub(super) async fn run(report: &Report) -> Outcome<u8> {
    report.note("…");
    Ok(0)
}
