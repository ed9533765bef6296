//! What a setting's value may look like: forms, ranges and words, read and shown in one place.
//!
//! Asked by: every source of settings, with what it found.  A value that cannot be used comes
//! back as [`Wrong`]: what is wrong with it and what to write instead, without saying where.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::{nearest, parse_duration};

#[cfg(test)]
mod tests;

/// A value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// How many.
    Count(u32),
    /// How long.
    Time(Duration),
    /// How large, in bytes.
    Size(usize),
    /// On or off.
    Switch(bool),
    /// One of the setting's words.
    Word(&'static str),
    /// One text.
    Text(String),
    /// A list of texts.
    Texts(Vec<String>),
    /// A file or folder.
    Path(PathBuf),
    /// An address to listen on.
    Address(SocketAddr),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Time(time) => f.write_str(&shown_time(*time)),
            Self::Size(bytes) => f.write_str(&shown_size(*bytes)),
            Self::Switch(on) => write!(f, "{on}"),
            Self::Word(word) => f.write_str(word),
            Self::Text(text) => f.write_str(text),
            Self::Texts(texts) if texts.is_empty() => f.write_str("none"),
            Self::Texts(texts) => f.write_str(&texts.join(", ")),
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Address(address) => write!(f, "{address}"),
        }
    }
}

/// What a source of settings found, before anybody knows whether it fits.
#[derive(Clone, Debug)]
pub(crate) enum Said<'a> {
    /// The value of a variable: everything is text there.
    Variable(&'a str),
    /// The value of a variable of another program: its times are plain seconds.
    Elsewhere(&'a str),
    /// A text of a file.
    Text(&'a str),
    /// A whole number of a file.
    Number(i64),
    /// A truth value of a file.
    Switch(bool),
    /// A list of texts of a file.
    Texts(Vec<String>),
    /// Something else of a file, by the name of its type.
    Other(&'a str),
}

impl Said<'_> {
    /// What was said, if it was said as text.
    fn text(&self) -> Option<&str> {
        match self {
            Said::Variable(text) | Said::Elsewhere(text) | Said::Text(text) => Some(text),
            Said::Number(_) | Said::Switch(_) | Said::Texts(_) | Said::Other(_) => None,
        }
    }

    /// What a variable holds; a file has types of its own.
    fn variable(&self) -> Option<&str> {
        match self {
            Said::Variable(text) | Said::Elsewhere(text) => Some(text),
            Said::Text(_) | Said::Number(_) | Said::Switch(_) | Said::Texts(_) | Said::Other(_) => {
                None
            },
        }
    }
}

/// What a value looks like.
#[derive(Clone, Debug)]
pub(crate) enum Form {
    Count(RangeInclusive<u32>),
    Time(RangeInclusive<Duration>),
    Size(RangeInclusive<usize>),
    Switch,
    /// One of the words and nothing else.
    Word,
    /// Any text that is not empty.
    Text,
    Texts,
    /// A file or folder; in a file it starts from where that file lies.
    Path,
    /// An IP address and a port.
    Address,
}

/// What may be said of a setting: its form, and the words that stand beside or instead of it.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) form: Form,
    pub(crate) words: &'static [&'static str],
    /// Other names of those words: (said, meant).
    pub(crate) also: &'static [(&'static str, &'static str)],
}

/// What is wrong with a value, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// Continues a sentence that begins with the setting's name.
    pub(crate) what: String,
    pub(crate) hint: Option<String>,
}

impl Wrong {
    fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            hint: None,
        }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl Kind {
    /// A number of things.
    pub(crate) const fn count(range: RangeInclusive<u32>) -> Self {
        Self::of(Form::Count(range))
    }

    /// A time, from a millisecond to a week.
    pub(crate) const fn time() -> Self {
        Self::of(Form::Time(Duration::from_millis(1)..=LONGEST))
    }

    /// A number of bytes.
    pub(crate) const fn size(range: RangeInclusive<usize>) -> Self {
        Self::of(Form::Size(range))
    }

    /// On or off.
    pub(crate) const fn switch() -> Self {
        Self::of(Form::Switch)
    }

    /// One of some words.
    pub(crate) const fn words(words: &'static [&'static str]) -> Self {
        Self::of(Form::Word).or(words)
    }

    /// One text.
    pub(crate) const fn text() -> Self {
        Self::of(Form::Text)
    }

    /// A list of texts.
    pub(crate) const fn texts() -> Self {
        Self::of(Form::Texts)
    }

    /// A file or folder.
    pub(crate) const fn path() -> Self {
        Self::of(Form::Path)
    }

    /// An address to listen on.
    pub(crate) const fn address() -> Self {
        Self::of(Form::Address)
    }

    const fn of(form: Form) -> Self {
        Self {
            form,
            words: &[],
            also: &[],
        }
    }

    /// The same, or one of these words.
    pub(crate) const fn or(mut self, words: &'static [&'static str]) -> Self {
        self.words = words;
        self
    }

    /// The same, with other names for its words.
    pub(crate) const fn also(mut self, also: &'static [(&'static str, &'static str)]) -> Self {
        self.also = also;
        self
    }

    /// What was said, as a value within its range.
    pub(crate) fn read(&self, said: &Said<'_>) -> Result<Value, Wrong> {
        if let Some(word) = self.word(said) {
            return Ok(Value::Word(word));
        }
        let value = match &self.form {
            Form::Count(_) => self.read_count(said),
            Form::Time(_) => self.read_time(said),
            Form::Size(_) => self.read_size(said),
            Form::Switch => self.read_switch(said),
            Form::Word => Err(self.no_word(said)),
            Form::Text => match said.text().map(str::trim) {
                Some(text) if !text.is_empty() => Ok(Value::Text(text.to_owned())),
                Some(_) | None => Err(self.not(said)),
            },
            Form::Texts => self.read_texts(said),
            Form::Path => match said.text() {
                Some(text) if !text.trim().is_empty() => Ok(Value::Path(text.into())),
                Some(_) | None => Err(self.not(said)),
            },
            Form::Address => self.read_address(said),
        }?;
        self.check(&value)?;
        Ok(value)
    }

    /// Whether a value lies within the range.
    pub(crate) fn check(&self, value: &Value) -> Result<(), Wrong> {
        let wrong = |least: String, most: String| {
            Wrong::new(format!("cannot be {value}")).hint(format!("{least} to {most} is possible"))
        };
        match (&self.form, value) {
            (Form::Count(range), Value::Count(count)) if !range.contains(count) => {
                Err(wrong(range.start().to_string(), range.end().to_string()))
            },
            (Form::Time(range), Value::Time(time)) if !range.contains(time) => {
                Err(wrong(shown_time(*range.start()), shown_time(*range.end())))
            },
            (Form::Size(range), Value::Size(size)) if !range.contains(size) => {
                Err(wrong(shown_size(*range.start()), shown_size(*range.end())))
            },
            _ => Ok(()),
        }
    }

    /// What may be said, for people.
    #[cfg(test)]
    pub(crate) fn described(&self) -> String {
        let words = self.words.iter().map(|word| format!("`{word}`"));
        let form = match &self.form {
            Form::Count(range) => Some(format!("{} to {}", range.start(), range.end())),
            Form::Time(_) => Some("time".to_owned()),
            Form::Size(_) => Some("size".to_owned()),
            Form::Switch => Some("`true`, `false`".to_owned()),
            Form::Word => None,
            Form::Text => Some("text".to_owned()),
            Form::Texts => Some("list of texts".to_owned()),
            Form::Path => Some("path".to_owned()),
            Form::Address => Some("address".to_owned()),
        };
        form.into_iter().chain(words).collect::<Vec<_>>().join(", ")
    }

    fn word(&self, said: &Said<'_>) -> Option<&'static str> {
        let said = match said {
            Said::Variable(text) | Said::Elsewhere(text) => text.trim(),
            Said::Text(text) => text,
            Said::Switch(true) => "true",
            Said::Switch(false) => "false",
            Said::Number(_) | Said::Texts(_) | Said::Other(_) => return None,
        };
        let meant = self.also.iter().find(|(also, _)| *also == said);
        let said = meant.map_or(said, |(_, meant)| meant);
        self.words.iter().find(|word| **word == said).copied()
    }

    fn read_count(&self, said: &Said<'_>) -> Result<Value, Wrong> {
        let number = match (said, said.variable()) {
            (Said::Number(number), _) => Some(*number),
            (_, Some(text)) => text.trim().parse::<i64>().ok(),
            (_, None) => None,
        };
        let number = number.ok_or_else(|| self.not(said))?;
        // What does not fit is out of range as well, and said so.
        u32::try_from(number).map(Value::Count).map_err(|_| {
            let Form::Count(range) = &self.form else {
                return self.not(said);
            };
            Wrong::new(format!("cannot be {number}")).hint(format!(
                "{} to {} is possible",
                range.start(),
                range.end()
            ))
        })
    }

    fn read_time(&self, said: &Said<'_>) -> Result<Value, Wrong> {
        let seconds = match said {
            Said::Elsewhere(text) => plain_seconds(text),
            Said::Variable(_)
            | Said::Text(_)
            | Said::Number(_)
            | Said::Switch(_)
            | Said::Texts(_)
            | Said::Other(_) => None,
        };
        let time = seconds.or_else(|| said.text().and_then(parse_duration));
        time.map(Value::Time).ok_or_else(|| {
            let hint = match (said, self.words) {
                (Said::Elsewhere(_), _) => "write seconds above 0: `30`, `300.0`".to_owned(),
                (_, []) => UNITS.to_owned(),
                (_, words) => format!("{UNITS}; or {}", listed(words)),
            };
            self.not(said).hint(hint)
        })
    }

    fn read_size(&self, said: &Said<'_>) -> Result<Value, Wrong> {
        let size = said.text().and_then(parse_size);
        size.map(Value::Size).ok_or_else(|| {
            self.not(said)
                .hint("write a number and a unit: `64KiB`, `16MiB`")
        })
    }

    fn read_switch(&self, said: &Said<'_>) -> Result<Value, Wrong> {
        let on = match (said, said.variable()) {
            (Said::Switch(on), _) => Some(*on),
            (_, Some(text)) => match text.trim().to_ascii_lowercase().as_str() {
                "true" | "1" | "yes" | "on" => Some(true),
                "false" | "0" | "no" | "off" => Some(false),
                _ => None,
            },
            (_, None) => None,
        };
        on.map(Value::Switch)
            .ok_or_else(|| self.not(said).hint("write `true` or `false`"))
    }

    fn read_texts(&self, said: &Said<'_>) -> Result<Value, Wrong> {
        match (said, said.variable()) {
            (Said::Texts(texts), _) => Ok(Value::Texts(texts.clone())),
            (_, Some(text)) => Ok(Value::Texts(
                text.split(',')
                    .map(str::trim)
                    .filter(|text| !text.is_empty())
                    .map(str::to_owned)
                    .collect(),
            )),
            (_, None) => Err(self.not(said)),
        }
    }

    fn read_address(&self, said: &Said<'_>) -> Result<Value, Wrong> {
        let address = said.text().and_then(parse_address);
        address.map(Value::Address).ok_or_else(|| {
            self.not(said)
                .hint("write an IP address and a port: `127.0.0.1:8484`, `[::1]:8484`")
        })
    }

    fn no_word(&self, said: &Said<'_>) -> Wrong {
        let Some(text) = said.text() else {
            return self.not(said).hint(format!("write {}", listed(self.words)));
        };
        let wrong = Wrong::new(format!("cannot be `{}`", shortened(text)));
        wrong.hint(match nearest(text.trim(), self.words.iter().copied()) {
            Some(word) => format!("did you mean `{word}`?"),
            None => format!("write {}", listed(self.words)),
        })
    }

    /// The value has another form than this setting.
    fn not(&self, said: &Said<'_>) -> Wrong {
        let wanted = match &self.form {
            Form::Count(_) => "a whole number",
            Form::Time(_) => "a duration",
            Form::Size(_) => "a size",
            Form::Switch => "`true` or `false`",
            Form::Word | Form::Text => "a text",
            Form::Path => "a path",
            Form::Address => "an address",
            Form::Texts => "a list of texts",
        };
        let found = match said {
            Said::Variable(text) | Said::Elsewhere(text) | Said::Text(text) => {
                return Wrong::new(format!("is not {wanted}: `{}`", shortened(text)));
            },
            Said::Number(number) => {
                return Wrong::new(format!("is not {wanted}: {number}"));
            },
            Said::Switch(_) => "a truth value",
            Said::Texts(_) => "a list",
            Said::Other(kind) => kind,
        };
        Wrong::new(format!("is {wanted}, not {found}"))
    }
}

/// What somebody wrote, so short that it can be repeated, and without what a terminal would obey.
fn shortened(text: &str) -> String {
    let mut letters = text.chars();
    let head: String = letters.by_ref().take(REPEATED).collect();
    let more = if letters.next().is_some() { "…" } else { "" };
    format!("{}{more}", head.escape_debug())
}

fn listed(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match words.as_slice() {
        [before @ .., last] if !before.is_empty() => format!("{} or {last}", before.join(", ")),
        _ => words.concat(),
    }
}

/// Seconds as other programs write them: `60`, `300.0`.
fn plain_seconds(text: &str) -> Option<Duration> {
    let seconds: f64 = text.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|time| !time.is_zero())
}

fn parse_size(text: &str) -> Option<usize> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at_checked(digits)?;
    let shift = match unit.trim_start() {
        "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    number.parse::<usize>().ok()?.checked_mul(1 << shift)
}

/// An IP address and a port; `localhost` means the loopback address, and a port alone means it too.
pub fn parse_address(text: &str) -> Option<SocketAddr> {
    let text = text.trim();
    let port = text.strip_prefix("localhost:").unwrap_or(text);
    match port.parse::<u16>() {
        Ok(port) => Some(SocketAddr::from(([127, 0, 0, 1], port))),
        Err(_) => text.parse().ok(),
    }
}

/// A time in the largest unit that says it without a fraction.
fn shown_time(time: Duration) -> String {
    let millis = time.as_millis();
    for (unit, size) in [("h", 3_600_000), ("min", 60_000), ("s", 1_000)] {
        if millis >= size && millis.is_multiple_of(size) {
            return format!("{}{unit}", millis / size);
        }
    }
    format!("{millis}ms")
}

fn shown_size(bytes: usize) -> String {
    for (unit, shift) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    format!("{bytes}B")
}

const UNITS: &str = "write a number and a unit: `500ms`, `30s`, `2min`, `1h`";
/// How much of a wrong value is repeated.
const REPEATED: usize = 40;
/// Longer times are slips of the hand, and would overflow a deadline.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);
