//! Errors of configuration files, with their places.

use std::ops::Range;
use std::path::{Path, PathBuf};

use warmline_core::error::code::{Code, Reason};
use warmline_core::exchange::Diagnostic;

/// The error of a setting or a configuration file.
#[derive(Clone, Debug)]
pub struct ConfigError {
    /// The stable name of the error; one of the `config-…` codes or `server-unknown`.
    pub code: Code,
    /// One line: what is wrong.
    pub message: String,
    /// The place in the file.
    pub location: Option<Box<FileLocation>>,
    /// The cause, in the words of the system or the parser.
    pub cause: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
}

/// A place in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileLocation {
    /// The file.
    pub file: PathBuf,
    /// Line and column, counted from 1; none means the whole file.
    pub position: Option<(usize, usize)>,
    /// The line, without values that may be secret.
    pub excerpt: Option<Excerpt>,
}

/// A line of a file with a marked part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The text of the line.
    pub line: String,
    /// The number of characters before the marked part.
    pub offset: usize,
    /// The length of the marked part in characters; at least one.
    pub width: usize,
}

impl ConfigError {
    /// An error with a code and a message.
    pub fn new(code: Code, what: impl Into<String>) -> Self {
        Self {
            code,
            message: what.into(),
            location: None,
            cause: None,
            hint: None,
        }
    }

    /// Adds the place.
    pub fn with_location(mut self, place: FileLocation) -> Self {
        self.location = Some(Box::new(place));
        self
    }

    /// Adds the cause.
    pub fn with_cause(mut self, why: impl Into<String>) -> Self {
        self.cause = Some(why.into());
        self
    }

    /// Adds the hint.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// A diagnostic at a place of a file.
    pub fn from_diagnostic(diagnostic: Diagnostic, place: &FileLocation) -> Self {
        Self {
            code: diagnostic.code,
            message: diagnostic.message,
            location: Some(Box::new(place.clone())),
            cause: diagnostic.cause,
            hint: diagnostic.hint,
        }
    }
}

impl From<ConfigError> for Diagnostic {
    fn from(error: ConfigError) -> Self {
        let what = match &error.location {
            Some(place) => format!("{place}: {}", error.message),
            None => error.message,
        };
        let mut diagnostic = Self::new(Reason::InvalidRequest, what).with_code(error.code);
        (diagnostic.cause, diagnostic.hint) = (error.cause, error.hint);
        diagnostic
    }
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ConfigError {}

impl FileLocation {
    /// The whole file.
    pub fn whole_file(file: &Path) -> Self {
        Self {
            file: file.to_owned(),
            ..Self::default()
        }
    }
}

impl std::fmt::Display for FileLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.file.display())?;
        match self.position {
            Some((line, column)) => write!(f, ":{line}:{column}"),
            None => Ok(()),
        }
    }
}

/// A file with its text, to turn offsets into places.
#[derive(Clone, Copy, Debug)]
pub struct SourceFile<'a> {
    /// Its path.
    pub file: &'a Path,
    /// Its whole text.
    pub text: &'a str,
}

/// The part of a line that may be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExcerptPolicy {
    /// Keys and values: the value is one of a few words, or a duration.
    KeyAndValue,
    /// Up to the first `=` or `:`: the value may be secret.
    KeyOnly,
    /// Nothing: the end of the key is unknown.
    Hidden,
}

impl SourceFile<'_> {
    /// The place of a byte range.
    pub fn location(&self, span: Range<usize>, show: ExcerptPolicy) -> FileLocation {
        let start = floor_char_boundary(self.text, span.start);
        let (before, after) = self.text.split_at(start);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.matches('\n').count() + 1;
        let head = before.get(line_start..).unwrap_or_default();
        let rest = after.split(['\n', '\r']).next().unwrap_or_default();
        let column = head.chars().count() + 1;
        let meant = self
            .text
            .get(start..floor_char_boundary(self.text, span.end))
            .unwrap_or_default();
        let meant = meant.split(['\n', '\r']).next().unwrap_or_default();
        FileLocation {
            file: self.file.to_owned(),
            position: Some((line, column)),
            excerpt: excerpt(head, meant, rest, show),
        }
    }
}

fn excerpt(head: &str, meant: &str, rest: &str, show: ExcerptPolicy) -> Option<Excerpt> {
    let shown = match show {
        ExcerptPolicy::KeyOnly if head.trim_start().is_empty() => {
            let sign = rest.get(meant.len()..)?.find(['=', ':']);
            match sign {
                Some(sign) => format!("{head}{} …", rest.get(..=meant.len() + sign)?),
                None => format!("{head}{meant}"),
            }
        },
        // Only if the value's own key is before it: an inline table may hold secrets, too.
        ExcerptPolicy::KeyAndValue if !head.contains('{') => format!("{head}{meant}"),
        ExcerptPolicy::KeyOnly | ExcerptPolicy::KeyAndValue | ExcerptPolicy::Hidden => return None,
    };
    // Very long lines do not help, and a terminal obeys control characters.
    if shown.chars().count() > 160 || shown.chars().any(char::is_control) {
        return None;
    }
    let before = head.chars().count();
    Some(Excerpt {
        line: shown,
        offset: before,
        width: meant.chars().count().max(1),
    })
}

fn floor_char_boundary(text: &str, mut at: usize) -> usize {
    at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_counts_lines_and_columns_and_hides_values() {
        let text = "a = 1\nätöken = \"canary\"\n";
        let source = SourceFile {
            file: Path::new("warmline.toml"),
            text,
        };
        let key = source.location(6..14, ExcerptPolicy::KeyOnly);
        assert_eq!(key.position, Some((2, 1)));
        assert_eq!(
            key.excerpt,
            Some(Excerpt {
                line: "ätöken = …".into(),
                offset: 0,
                width: 6
            })
        );
        assert_eq!(source.location(6..14, ExcerptPolicy::Hidden).excerpt, None);
        let line = source.location(4..5, ExcerptPolicy::KeyAndValue);
        assert_eq!(line.to_string(), "warmline.toml:1:5");
        assert_eq!(
            line.excerpt,
            Some(Excerpt {
                line: "a = 1".into(),
                offset: 4,
                width: 1
            })
        );
        let inline = SourceFile {
            text: "x = { A = \"canary\", b = 1 }",
            ..source
        };
        assert_eq!(
            inline.location(20..21, ExcerptPolicy::KeyOnly).excerpt,
            None
        );
        assert_eq!(
            inline.location(24..25, ExcerptPolicy::KeyAndValue).excerpt,
            None
        );
        assert_eq!(
            source
                .location(900..1000, ExcerptPolicy::KeyAndValue)
                .position,
            Some((3, 1))
        );
    }
}
