//! What colours mean: green is good, yellow wants a look, red is broken, cyan can be typed.
//!
//! Nothing is said by colour alone.

use anstyle::{AnsiColor, Style};

pub(crate) fn good(text: &str) -> String {
    painted(AnsiColor::Green.on_default(), text)
}

pub(crate) fn look(text: &str) -> String {
    painted(AnsiColor::Yellow.on_default(), text)
}

pub(crate) fn broken(text: &str) -> String {
    painted(AnsiColor::Red.on_default().bold(), text)
}

/// A name or a command that can be typed.
pub(crate) fn name(text: &str) -> String {
    painted(AnsiColor::Cyan.on_default(), text)
}

pub(crate) fn dim(text: &str) -> String {
    painted(Style::new().dimmed(), text)
}

pub(crate) fn bold(text: &str) -> String {
    painted(Style::new().bold(), text)
}

fn painted(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}
