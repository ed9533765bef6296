//! `warmline explain`: the page of an error code, or what a number or a reason means that somebody
//! saw.

use warmline::config::nearest;
use warmline::core::code::Code;
use warmline::core::delivery::Delivery;

use self::numbers::Number;
use self::reasons::Word;
use self::rows::Row;
use crate::args;
use crate::problem::{Outcome, Problem};
use crate::report::text::padded;
use crate::report::{Fields, Report, style};

mod numbers;
mod reasons;
mod rows;

/// Prints the page of a code, or the list of all of them.
pub(super) fn run(typed: &args::Explain, report: &Report) -> Outcome<u8> {
    match &typed.code {
        Some(word) => match (Number::find(word), Row::find(word)) {
            (Some(number), _) => number.page(report),
            (None, Some(row)) => row.page(report),
            (None, None) => word_of_the_log(word, report)?,
        },
        None => list(report),
    }
    Ok(0)
}

/// A code, or else a reason, which may mean something in several places.
fn word_of_the_log(word: &str, report: &Report) -> Outcome<()> {
    // People paste what they saw.
    let plain = word
        .trim()
        .trim_start_matches("error[")
        .trim_end_matches(':')
        .trim_end_matches(']');
    if let Some(code) = Code::parse(plain) {
        page(code, report);
        return Ok(());
    }
    let meant = Word::find(plain);
    if meant.is_empty() {
        return Err(unknown(plain));
    }
    meant.iter().for_each(|one| one.page(report));
    Ok(())
}

fn unknown(plain: &str) -> Problem {
    let what = format!("`{}` is no error code, and no reason", plain.escape_debug());
    let reasons = Word::all().into_iter().map(|one| one.word());
    let known = Code::ALL.into_iter().map(Code::word).chain(reasons);
    Problem::usage(what).hint(match nearest(plain, known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`warmline explain` lists all codes".to_owned(),
    })
}

fn list(report: &Report) {
    let width = Code::ALL
        .iter()
        .map(|code| code.word().len())
        .max()
        .unwrap_or(0);
    for code in Code::ALL {
        if report.is_json() {
            report.object("code", &fields(code));
        } else {
            report.data(&format!(
                "{}  {}",
                style::name(&padded(code.word(), width)),
                code.meaning()
            ));
        }
    }
}

fn page(code: Code, report: &Report) {
    if report.is_json() {
        let fields = fields(code)
            .put("causes", code.causes())
            .put("try", code.try_this());
        return report.object("code", &fields);
    }
    let mut lines = vec![
        style::bold(code.word()),
        format!("  {}", code.meaning()),
        String::new(),
    ];
    lines.push(format!("  whom it concerns: {}", code.party()));
    if let Some(delivery) = code.usual_delivery() {
        let sentence = delivery
            .sentence()
            .map_or(String::new(), |sentence| format!(" ({sentence})"));
        lines.push(format!("  delivery, as a rule: {delivery}{sentence}"));
        lines.push(format!("  exit code, as a rule: {}", code.exit(delivery)));
    } else {
        lines.push(format!("  exit code: {}", exits(code)));
    }
    section(&mut lines, "usual causes", code.causes());
    section(&mut lines, "what to try", code.try_this());
    report.data(&lines.join("\n"));
}

/// The exit code of a code that says nothing of delivery by itself.
fn exits(code: Code) -> String {
    match (code.exit(Delivery::Unsent), code.exit(Delivery::Unknown)) {
        (always, other) if always == other => always.to_string(),
        (unsent, unknown) => {
            format!("{unsent} if it was not sent, {unknown} if it may have been executed")
        },
    }
}

fn section(lines: &mut Vec<String>, title: &str, items: &[&str]) {
    if !items.is_empty() {
        lines.push(format!("\n  {title}:"));
        lines.extend(items.iter().map(|item| format!("  - {item}")));
    }
}

fn fields(code: Code) -> Fields {
    Fields::new()
        .put("code", code.word())
        .put("meaning", code.meaning())
        .put("party", code.party().word())
        .put(
            "delivery",
            code.usual_delivery().map(|delivery| delivery.word()),
        )
}
