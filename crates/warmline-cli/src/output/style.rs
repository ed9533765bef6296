//! Colors: green is good, yellow a warning, red broken, cyan can be typed. No meaning depends on color
//! alone.

use anstyle::{AnsiColor, Style};

pub(crate) fn success(text: &str) -> String {
    paint(AnsiColor::Green.on_default(), text)
}

pub(crate) fn warning(text: &str) -> String {
    paint(AnsiColor::Yellow.on_default(), text)
}

pub(crate) fn failure(text: &str) -> String {
    paint(AnsiColor::Red.on_default().bold(), text)
}

pub(crate) fn name(text: &str) -> String {
    paint(AnsiColor::Cyan.on_default(), text)
}

pub(crate) fn dim(text: &str) -> String {
    paint(Style::new().dimmed(), text)
}

pub(crate) fn bold(text: &str) -> String {
    paint(Style::new().bold(), text)
}

fn paint(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}
