//! A file of TOML or JSON as a tree. Every key and value knows its place.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;

use serde_spanned::Spanned;
use toml::de::{DeTable, DeValue};
use warmline_core::error::code::Code;
use warmline_engine::settings::RawSettingValue;
use warmline_engine::settings::config_error::{
    ConfigError, ExcerptPolicy, FileLocation, SourceFile,
};
use warmline_platform::private_file;

/// A value and its place.
#[derive(Clone, Debug)]
pub(crate) struct Node<'t> {
    pub(crate) span: Range<usize>,
    pub(crate) value: Value<'t>,
}

/// A value of either language.
#[derive(Clone, Debug)]
pub(crate) enum Value<'t> {
    Null,
    Switch(bool),
    /// A whole number; none if it is out of range.
    Integer(Option<i64>),
    Fraction,
    Date,
    /// What JSON allows and nothing here can use, in words.
    Unreadable(&'static str),
    Text(Cow<'t, str>),
    List(Vec<Node<'t>>),
    Table(Vec<Member<'t>>),
}

/// A key and its value.
pub(crate) type Member<'t> = (Key<'t>, Node<'t>);

/// A key and its place.
#[derive(Clone, Debug)]
pub(crate) struct Key<'t> {
    pub(crate) name: Cow<'t, str>,
    pub(crate) span: Range<usize>,
}

impl Node<'_> {
    /// The type, with its article.
    pub(crate) fn type_name(&self) -> &'static str {
        match &self.value {
            Value::Null => "null",
            Value::Switch(_) => "a boolean",
            Value::Integer(Some(_)) => "an integer",
            Value::Integer(None) => "a number out of all bounds",
            Value::Fraction => "a number with a fraction",
            Value::Date => "a date",
            Value::Unreadable(what) => what,
            Value::Text(_) => "a string",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
        }
    }

    /// The value as a setting takes it.
    pub(crate) fn as_setting(&self) -> RawSettingValue<'_> {
        match &self.value {
            Value::Text(text) => RawSettingValue::Text(text),
            Value::Switch(on) => RawSettingValue::Switch(*on),
            Value::Integer(Some(number)) => RawSettingValue::Number(*number),
            Value::List(items) => {
                let texts = items.iter().map(|item| item.as_text().map(str::to_owned));
                match texts.collect() {
                    Some(texts) => RawSettingValue::Texts(texts),
                    None => RawSettingValue::Other("a list of other things"),
                }
            },
            Value::Null
            | Value::Integer(None)
            | Value::Fraction
            | Value::Unreadable(_)
            | Value::Date
            | Value::Table(_) => RawSettingValue::Other(self.type_name()),
        }
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        if let Value::Text(text) = &self.value {
            return Some(text);
        }
        None
    }

    /// The items of a list.
    pub(crate) fn as_list(&self) -> Option<&[Self]> {
        if let Value::List(items) = &self.value {
            return Some(items);
        }
        None
    }

    /// The value of the first of these keys that is there. `null` counts as absent.
    pub(crate) fn member(&self, names: &[&str]) -> Option<&Self> {
        let Value::Table(members) = &self.value else {
            return None;
        };
        let find = |name: &&str| members.iter().find(|(key, _)| key.name == *name);
        let mut found = names.iter().filter_map(find).map(|(_, node)| node);
        found.find(|node| !matches!(node.value, Value::Null))
    }
}

/// Reads a text file of at most `limit` bytes.
pub(crate) fn read_bounded(path: &Path, limit: u64) -> Result<String, String> {
    let bytes = private_file::read_limited(path, limit).map_err(|error| {
        let text = error.to_string();
        // The words of the system, without its number.
        let words = text.split(" (os error").next().unwrap_or_default();
        match error.raw_os_error() {
            Some(_) => words.to_lowercase(),
            None => text,
        }
    })?;
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())
}

/// Parses TOML.
pub(crate) fn parse_toml(source: SourceFile<'_>) -> Result<Node<'_>, ConfigError> {
    let table = DeTable::parse(source.text).map_err(|error| {
        let what = format!("{} is not TOML", file_name(source));
        let location = match error.span() {
            Some(span) => source.location(span, ExcerptPolicy::Hidden),
            None => FileLocation::whole_file(source.file),
        };
        ConfigError::new(Code::ConfigUnreadable, what)
            .with_cause(error.message())
            .with_location(location)
    })?;
    let span = table.span();
    let table = DeValue::Table(table.into_inner());
    Ok(Spanned::new(span, table).into())
}

/// The name of the file without its folder.
pub(crate) fn file_name(source: SourceFile<'_>) -> Cow<'_, str> {
    let name = source.file.file_name().unwrap_or_default();
    name.to_string_lossy()
}

impl<'t> From<Spanned<DeValue<'t>>> for Node<'t> {
    fn from(spanned: Spanned<DeValue<'t>>) -> Self {
        let span = spanned.span();
        let value = match spanned.into_inner() {
            DeValue::String(text) => Value::Text(text),
            DeValue::Integer(number) => {
                Value::Integer(i64::from_str_radix(number.as_str(), number.radix()).ok())
            },
            DeValue::Float(_) => Value::Fraction,
            DeValue::Boolean(on) => Value::Switch(on),
            DeValue::Datetime(_) => Value::Date,
            DeValue::Array(items) => Value::List(items.into_iter().map(Self::from).collect()),
            DeValue::Table(table) => {
                let members = table.into_iter().map(|(key, value)| {
                    let span = key.span();
                    let name = key.into_inner();
                    (Key { name, span }, Self::from(value))
                });
                Value::Table(members.collect())
            },
        };
        Self { span, value }
    }
}
