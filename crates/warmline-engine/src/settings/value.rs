//! Values of settings: formats, ranges and words, parsed and shown. An [`InvalidValue`] says what is
//! wrong and what to write instead, not where.

use std::fmt::{self, Display};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use warmline_core::error::code::Code;

use super::{ConfigError, closest_match};

#[cfg(test)]
mod tests;

/// A value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingValue {
    /// A number.
    Count(u32),
    /// A duration.
    Time(Duration),
    /// A number of bytes.
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

impl Display for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Time(time) => f.write_str(&format_time(*time)),
            Self::Size(bytes) => f.write_str(&format_size(*bytes)),
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

/// A value as its source gives it.
#[derive(Clone, Debug)]
pub enum RawSettingValue<'a> {
    /// The text of a variable.
    Variable(&'a str),
    /// The text of another program's variable: its times are plain seconds.
    ForeignVariable(&'a str),
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

impl RawSettingValue<'_> {
    /// The text of a variable or of a text in a file.
    fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self {
            return Some(text);
        }
        self.as_variable()
    }

    /// The text of a variable. In a file, a text is not a number.
    fn as_variable(&self) -> Option<&str> {
        if let Self::Variable(text) | Self::ForeignVariable(text) = self {
            return Some(text);
        }
        None
    }

    fn as_number(&self) -> Option<i64> {
        if let Self::Number(number) = self {
            return Some(*number);
        }
        self.as_variable()?.trim().parse().ok()
    }

    fn as_switch(&self) -> Option<bool> {
        if let Self::Switch(on) = self {
            return Some(*on);
        }
        match self.as_variable()?.trim().to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Some(true),
            "false" | "0" | "no" | "off" => Some(false),
            _ => None,
        }
    }

    fn as_texts(&self) -> Option<Vec<String>> {
        if let Self::Texts(texts) = self {
            return Some(texts.clone());
        }
        let texts = self.as_variable()?.split(',').map(str::trim);
        Some(
            texts
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
                .collect(),
        )
    }

    fn as_duration(&self) -> Option<Duration> {
        let seconds = if let Self::ForeignVariable(text) = self {
            parse_seconds(text)
        } else {
            None
        };
        seconds.or_else(|| parse_duration(self.as_text()?))
    }
}

/// The type and range of a value.
#[derive(Clone, Debug)]
pub enum ValueFormat {
    /// A number.
    Count(RangeInclusive<u32>),
    /// A duration.
    Time(RangeInclusive<Duration>),
    /// A number of bytes.
    Size(RangeInclusive<usize>),
    /// `true` or `false`.
    Switch,
    /// One of the words and nothing else.
    Word,
    /// Any text that is not empty.
    Text,
    /// A list of texts.
    Texts,
    /// A file or folder, relative to the file that names it.
    Path,
    /// An IP address and a port.
    Address,
}

/// The format of a setting, and its words.
#[derive(Clone, Debug)]
pub struct SettingKind {
    /// Its type and range.
    pub format: ValueFormat,
    /// Words that are also valid.
    pub words: &'static [&'static str],
    /// Aliases of words: (alias, word).
    pub aliases: &'static [(&'static str, &'static str)],
}

/// What is wrong with a value, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidValue {
    /// The problem, after the name of the setting.
    pub message: String,
    /// What to write instead.
    pub hint: Option<String>,
}

impl ValueFormat {
    fn read(&self, said: &RawSettingValue<'_>) -> Option<SettingValue> {
        let text = said.as_text();
        let full_text = text.filter(|text| !text.trim().is_empty());
        Some(match self {
            Self::Count(_) => SettingValue::Count(u32::try_from(said.as_number()?).ok()?),
            Self::Time(_) => SettingValue::Time(said.as_duration()?),
            Self::Size(_) => SettingValue::Size(parse_size(text?)?),
            Self::Switch => SettingValue::Switch(said.as_switch()?),
            Self::Word => return None,
            Self::Text => SettingValue::Text(full_text?.trim().to_owned()),
            Self::Texts => SettingValue::Texts(said.as_texts()?),
            Self::Path => SettingValue::Path(full_text?.into()),
            Self::Address => SettingValue::Address(parse_address(text?)?),
        })
    }
}

impl SettingKind {
    /// A number of things.
    pub const fn count(range: RangeInclusive<u32>) -> Self {
        Self::new(ValueFormat::Count(range))
    }

    /// A time, from a millisecond to a week.
    pub const fn time() -> Self {
        Self::new(ValueFormat::Time(Duration::from_millis(1)..=MAX_TIME))
    }

    /// A number of bytes.
    pub const fn size(range: RangeInclusive<usize>) -> Self {
        Self::new(ValueFormat::Size(range))
    }

    /// On or off.
    pub const fn switch() -> Self {
        Self::new(ValueFormat::Switch)
    }

    /// One of some words.
    pub const fn words(words: &'static [&'static str]) -> Self {
        Self::new(ValueFormat::Word).with_words(words)
    }

    /// One text.
    pub const fn text() -> Self {
        Self::new(ValueFormat::Text)
    }

    /// A list of texts.
    pub const fn texts() -> Self {
        Self::new(ValueFormat::Texts)
    }

    /// A file or folder.
    pub const fn path() -> Self {
        Self::new(ValueFormat::Path)
    }

    /// An address to listen on.
    pub const fn address() -> Self {
        Self::new(ValueFormat::Address)
    }

    const fn new(format: ValueFormat) -> Self {
        Self {
            format,
            words: &[],
            aliases: &[],
        }
    }

    /// Adds words.
    pub const fn with_words(mut self, words: &'static [&'static str]) -> Self {
        self.words = words;
        self
    }

    pub(crate) const fn with_aliases(
        mut self,
        also: &'static [(&'static str, &'static str)],
    ) -> Self {
        self.aliases = also;
        self
    }

    /// Parses a value and checks its range.
    pub fn parse(&self, said: &RawSettingValue<'_>) -> Result<SettingValue, InvalidValue> {
        if let Some(word) = self.find_word(said) {
            return Ok(SettingValue::Word(word));
        }
        let value = self.format.read(said);
        let value = value.ok_or_else(|| self.wrong_type(said))?;
        self.check(&value)?;
        Ok(value)
    }

    pub(crate) fn check(&self, value: &SettingValue) -> Result<(), InvalidValue> {
        let (least, most) = match (&self.format, value) {
            (ValueFormat::Count(range), SettingValue::Count(count)) if !range.contains(count) => (
                SettingValue::Count(*range.start()),
                SettingValue::Count(*range.end()),
            ),
            (ValueFormat::Time(range), SettingValue::Time(time)) if !range.contains(time) => (
                SettingValue::Time(*range.start()),
                SettingValue::Time(*range.end()),
            ),
            (ValueFormat::Size(range), SettingValue::Size(size)) if !range.contains(size) => (
                SettingValue::Size(*range.start()),
                SettingValue::Size(*range.end()),
            ),
            _ => return Ok(()),
        };
        Err(InvalidValue::out_of_range(value, &least, &most))
    }

    /// The valid values, for people.
    pub fn describe(&self) -> String {
        let words = self.words.iter().map(|word| format!("`{word}`"));
        let form = match &self.format {
            ValueFormat::Count(range) => Some(format!("{} to {}", range.start(), range.end())),
            ValueFormat::Time(_) => Some("time".to_owned()),
            ValueFormat::Size(_) => Some("size".to_owned()),
            ValueFormat::Switch => Some("`true`, `false`".to_owned()),
            ValueFormat::Word => None,
            ValueFormat::Text => Some("text".to_owned()),
            ValueFormat::Texts => Some("list of texts".to_owned()),
            ValueFormat::Path => Some("path".to_owned()),
            ValueFormat::Address => Some("address".to_owned()),
        };
        form.into_iter().chain(words).collect::<Vec<_>>().join(", ")
    }

    fn find_word(&self, said: &RawSettingValue<'_>) -> Option<&'static str> {
        let said = match said {
            RawSettingValue::Variable(text) | RawSettingValue::ForeignVariable(text) => text.trim(),
            RawSettingValue::Text(text) => text,
            RawSettingValue::Switch(true) => "true",
            RawSettingValue::Switch(false) => "false",
            RawSettingValue::Number(_) | RawSettingValue::Texts(_) | RawSettingValue::Other(_) => {
                return None;
            },
        };
        let meant = self.aliases.iter().find(|(also, _)| *also == said);
        let said = meant.map_or(said, |(_, meant)| meant);
        self.words.iter().find(|word| **word == said).copied()
    }

    fn wrong_type(&self, said: &RawSettingValue<'_>) -> InvalidValue {
        let (wanted, hint) = match (&self.format, said.as_number(), said.as_text()) {
            // A number that does not fit is out of range, too.
            (ValueFormat::Count(range), Some(number), _) => {
                return InvalidValue::out_of_range(&number, range.start(), range.end());
            },
            (ValueFormat::Count(_), None, _) => ("a whole number", None),
            (ValueFormat::Time(_), ..) => ("a duration", Some(self.time_hint(said))),
            (ValueFormat::Size(_), ..) => ("a size", Some(SIZE_HINT.to_owned())),
            (ValueFormat::Switch, ..) => (
                "`true` or `false`",
                Some("write `true` or `false`".to_owned()),
            ),
            (ValueFormat::Word, _, Some(text)) => return self.unknown_word(text),
            (ValueFormat::Word, _, None) => ("a text", Some(self.words_hint())),
            (ValueFormat::Text, ..) => ("a text", None),
            (ValueFormat::Path, ..) => ("a path", None),
            (ValueFormat::Address, ..) => ("an address", Some(ADDRESS_HINT.to_owned())),
            (ValueFormat::Texts, ..) => ("a list of texts", None),
        };
        let message = match said {
            RawSettingValue::Variable(text)
            | RawSettingValue::ForeignVariable(text)
            | RawSettingValue::Text(text) => format!("is not {wanted}: `{}`", shorten(text)),
            RawSettingValue::Number(number) => format!("is not {wanted}: {number}"),
            RawSettingValue::Switch(_) => format!("is {wanted}, not a truth value"),
            RawSettingValue::Texts(_) => format!("is {wanted}, not a list"),
            RawSettingValue::Other(kind) => format!("is {wanted}, not {kind}"),
        };
        InvalidValue { message, hint }
    }

    fn time_hint(&self, said: &RawSettingValue<'_>) -> String {
        match (said, self.words) {
            (RawSettingValue::ForeignVariable(_), _) => {
                "write seconds above 0: `30`, `300.0`".to_owned()
            },
            (_, []) => TIME_HINT.to_owned(),
            (_, words) => format!("{TIME_HINT}; or {}", list_words(words)),
        }
    }

    fn words_hint(&self) -> String {
        format!("write {}", list_words(self.words))
    }

    fn unknown_word(&self, text: &str) -> InvalidValue {
        let near = closest_match(text.trim(), self.words.iter().copied());
        let near = near.map(|word| format!("did you mean `{word}`?"));
        InvalidValue {
            message: format!("cannot be `{}`", shorten(text)),
            hint: Some(near.unwrap_or_else(|| self.words_hint())),
        }
    }
}

impl InvalidValue {
    /// The error of a setting, or of the variable that sets it.
    pub fn into_error(self, subject: &str) -> ConfigError {
        let what = format!("{subject} {}", self.message);
        ConfigError {
            hint: self.hint,
            ..ConfigError::new(Code::ConfigBadValue, what)
        }
    }

    fn out_of_range(value: &dyn Display, least: &dyn Display, most: &dyn Display) -> Self {
        Self {
            message: format!("cannot be {value}"),
            hint: Some(format!("{least} to {most} is possible")),
        }
    }
}

fn shorten(text: &str) -> String {
    let mut letters = text.chars();
    let head: String = letters.by_ref().take(MAX_ECHOED_CHARS).collect();
    let more = if letters.next().is_some() { "…" } else { "" };
    format!("{}{more}", head.escape_debug())
}

fn list_words(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match words.as_slice() {
        [before @ .., last] if !before.is_empty() => format!("{} or {last}", before.join(", ")),
        _ => words.concat(),
    }
}

/// Reads a duration: a number and a unit (`ms`, `s`, `min` or `m`, `h`).
///
/// A bare number is refused, because `30` may mean seconds or milliseconds. So is zero.
pub fn parse_duration(written: &str) -> Option<Duration> {
    let written = written.trim();
    let digits = written.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = written.split_at_checked(digits)?;
    let number: f64 = number.parse().ok()?;
    let millis = match unit.trim_start() {
        "ms" => 1.0,
        "s" => 1e3,
        "min" | "m" => 60e3,
        "h" => 3_600e3,
        _ => return None,
    };
    let duration = Duration::try_from_secs_f64(number * millis / 1e3).ok()?;
    (duration > Duration::ZERO && duration <= MAX_TIME).then_some(duration)
}

/// Seconds as other programs write them: `60`, `300.0`.
fn parse_seconds(text: &str) -> Option<Duration> {
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

/// An IP address and a port; `localhost`, or no address, is the loopback address.
pub fn parse_address(text: &str) -> Option<SocketAddr> {
    let text = text.trim();
    let port = text.strip_prefix("localhost:").unwrap_or(text);
    match port.parse::<u16>() {
        Ok(port) => Some(SocketAddr::from(([127, 0, 0, 1], port))),
        Err(_) => text.parse().ok(),
    }
}

/// A duration in the largest unit without a fraction.
fn format_time(time: Duration) -> String {
    let millis = time.as_millis();
    for (unit, size) in [("h", 3_600_000), ("min", 60_000), ("s", 1_000)] {
        if millis >= size && millis.is_multiple_of(size) {
            return format!("{}{unit}", millis / size);
        }
    }
    format!("{millis}ms")
}

fn format_size(bytes: usize) -> String {
    for (unit, shift) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    format!("{bytes}B")
}

const TIME_HINT: &str = "write a number and a unit: `500ms`, `30s`, `2min`, `1h`";
const SIZE_HINT: &str = "write a number and a unit: `64KiB`, `16MiB`";
const ADDRESS_HINT: &str = "write an IP address and a port: `127.0.0.1:8484`, `[::1]:8484`";
const MAX_ECHOED_CHARS: usize = 40;
/// Longer times are typing errors, and would overflow a deadline.
const MAX_TIME: Duration = Duration::from_secs(7 * 24 * 3600);
