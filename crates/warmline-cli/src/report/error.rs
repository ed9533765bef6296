//! How a problem reads: the lines of the error page, or the fields of an object.

use super::text::one_line;
use super::{Fields, sanitised, style};
use crate::problem::{Parts, Problem};

/// The lines for people. Lines without content are left out. What others wrote cannot make a line
/// of its own.
pub(super) fn in_text(problem: &Problem) -> String {
    let parts = problem.parts();
    let head = style::broken(&format!("error[{}]", parts.code.word()));
    let mut lines = vec![format!("{head}: {}", one_line(&parts.what))];
    if let Some(place) = &parts.place {
        lines.push(format!("  where: {}", one_line(place)));
    }
    if let Some(why) = &parts.why {
        lines.push(format!("  why: {}", indented(&sanitised(why))));
    }
    if let Some(delivery) = parts.delivery {
        lines.push(match delivery.sentence() {
            Some(sentence) => format!("  delivery: {delivery} ({sentence})"),
            None => format!("  delivery: {delivery}"),
        });
    }
    match &parts.excerpt {
        Some(_) => lines.extend(excerpt(parts)),
        None => lines.extend(
            parts
                .hint
                .as_ref()
                .map(|hint| format!("  hint: {}", one_line(hint))),
        ),
    }
    lines.join("\n")
}

/// The line of the file that is meant, with the hint under the word it speaks of.
fn excerpt(parts: &Parts) -> Option<String> {
    let (number, excerpt) = parts.excerpt.as_ref()?;
    let number = number.to_string();
    let margin = " ".repeat(number.len());
    let under = " ".repeat(excerpt.before) + &"^".repeat(excerpt.width);
    let hint = one_line(parts.hint.as_deref().unwrap_or_default());
    let under = format!("{under} {hint}");
    Some(format!(
        "  {margin} |\n  {number} | {}\n  {margin} | {}",
        sanitised(&excerpt.line),
        under.trim_end()
    ))
}

fn indented(text: &str) -> String {
    text.lines().collect::<Vec<_>>().join("\n       ")
}

/// The fields for programs.
pub(super) fn in_fields(problem: &Problem) -> Fields {
    let parts = problem.parts();
    Fields::new()
        .put("code", parts.code.word())
        .put("reason", parts.reason)
        .put("delivery", parts.delivery.map(|delivery| delivery.word()))
        .put("server", &parts.server)
        .put("what", &parts.what)
        .put("where", &parts.place)
        .put("why", &parts.why)
        .put("hint", &parts.hint)
        .put(
            "retry_after_ms",
            parts.retry_after.map(|after| after.as_millis()),
        )
        .put("declined", &parts.declined)
        .put("exit", problem.exit())
}
