//! Where in a file something is wrong, and how that is said.

use std::ops::Range;
use std::path::{Path, PathBuf};

use warmline_core::code::{Code, Reason};
use warmline_core::exchange::Trouble;

/// A setting or a file that cannot be used: what, where, and the nearest right word.
#[derive(Clone, Debug)]
pub struct ConfigError {
    /// The stable name of the error; one of the `config-…` codes or `server-unknown`.
    pub code: Code,
    /// One line: what is wrong, with names.
    pub what: String,
    /// The file, and where in it.
    pub place: Option<Box<Place>>,
    /// The cause as the system or the parser put it.
    pub why: Option<String>,
    /// One thing to do about it.
    pub hint: Option<String>,
}

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// Line and column, both counted from 1; none speaks of the file as a whole.
    pub at: Option<(usize, usize)>,
    /// The line as it may be shown: values that could be secret are struck out.
    pub excerpt: Option<Excerpt>,
}

/// A line of a file with a part of it pointed at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The text of the line.
    pub line: String,
    /// How many characters stand before the part that is meant.
    pub before: usize,
    /// How many characters are meant; at least one.
    pub width: usize,
}

impl ConfigError {
    pub(crate) fn new(code: Code, what: impl Into<String>) -> Self {
        Self {
            code,
            what: what.into(),
            place: None,
            why: None,
            hint: None,
        }
    }

    pub(crate) fn at(mut self, place: Place) -> Self {
        self.place = Some(Box::new(place));
        self
    }

    pub(crate) fn because(mut self, why: impl Into<String>) -> Self {
        self.why = Some(why.into());
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl ConfigError {
    /// What another part complains about, at the place of a file that said so.
    pub(crate) fn of_trouble(trouble: Trouble, place: &Place) -> Self {
        Self {
            code: trouble.code,
            what: trouble.what,
            place: Some(Box::new(place.clone())),
            why: trouble.why,
            hint: trouble.hint,
        }
    }
}

impl From<ConfigError> for Trouble {
    fn from(error: ConfigError) -> Self {
        let what = match &error.place {
            Some(place) => format!("{place}: {}", error.what),
            None => error.what,
        };
        let mut trouble = Self::new(Reason::InvalidRequest, what).coded(error.code);
        (trouble.why, trouble.hint) = (error.why, error.hint);
        trouble
    }
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for ConfigError {}

impl Place {
    /// The file as a whole.
    pub fn whole(file: &Path) -> Self {
        Self {
            file: file.to_owned(),
            at: None,
            excerpt: None,
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.file.display())?;
        match self.at {
            Some((line, column)) => write!(f, ":{line}:{column}"),
            None => Ok(()),
        }
    }
}

/// The text of a file beside its name, so that offsets become places.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) file: &'a Path,
    pub(crate) text: &'a str,
}

/// What of a line may be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    /// Keys and values: the value is one of a few words, or a duration.
    Line,
    /// What stands up to the first `=` or `:`: the value may be a secret.
    Key,
    /// Nothing: where a key ends cannot be told.
    Nothing,
}

impl Source<'_> {
    /// The place of a stretch of bytes.
    pub(crate) fn place(&self, span: Range<usize>, show: Show) -> Place {
        let start = floor(self.text, span.start);
        let (before, after) = self.text.split_at(start);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.matches('\n').count() + 1;
        let head = before.get(line_start..).unwrap_or_default();
        let rest = after.split(['\n', '\r']).next().unwrap_or_default();
        let column = head.chars().count() + 1;
        let meant = self
            .text
            .get(start..floor(self.text, span.end))
            .unwrap_or_default();
        let meant = meant.split(['\n', '\r']).next().unwrap_or_default();
        Place {
            file: self.file.to_owned(),
            at: Some((line, column)),
            excerpt: excerpt(head, meant, rest, show),
        }
    }

    /// The place of a line and a column as a parser counts them.
    pub(crate) fn place_at(&self, line: usize, column: usize) -> Place {
        Place {
            file: self.file.to_owned(),
            at: Some((line.max(1), column.max(1))),
            excerpt: None,
        }
    }
}

fn excerpt(head: &str, meant: &str, rest: &str, show: Show) -> Option<Excerpt> {
    let shown = match show {
        Show::Key if head.trim_start().is_empty() => {
            let sign = rest.get(meant.len()..)?.find(['=', ':']);
            match sign {
                Some(sign) => format!("{head}{} …", rest.get(..=meant.len() + sign)?),
                None => format!("{head}{meant}"),
            }
        },
        // Before a value only its own key may stand: an inline table may hold secrets as well.
        Show::Line if !head.contains('{') => format!("{head}{meant}"),
        Show::Key | Show::Line | Show::Nothing => return None,
    };
    // A line that is as long as a book helps nobody, and a terminal obeys control characters.
    if shown.chars().count() > 160 || shown.chars().any(char::is_control) {
        return None;
    }
    let before = head.chars().count();
    Some(Excerpt {
        line: shown,
        before,
        width: meant.chars().count().max(1),
    })
}

fn floor(text: &str, mut at: usize) -> usize {
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
        let source = Source {
            file: Path::new("warmline.toml"),
            text,
        };
        let key = source.place(6..14, Show::Key);
        assert_eq!(key.at, Some((2, 1)));
        assert_eq!(
            key.excerpt,
            Some(Excerpt {
                line: "ätöken = …".into(),
                before: 0,
                width: 6
            })
        );
        assert_eq!(source.place(6..14, Show::Nothing).excerpt, None);
        let line = source.place(4..5, Show::Line);
        assert_eq!(line.to_string(), "warmline.toml:1:5");
        assert_eq!(
            line.excerpt,
            Some(Excerpt {
                line: "a = 1".into(),
                before: 4,
                width: 1
            })
        );
        let inline = Source {
            text: "x = { A = \"canary\", b = 1 }",
            ..source
        };
        assert_eq!(inline.place(20..21, Show::Key).excerpt, None);
        assert_eq!(inline.place(24..25, Show::Line).excerpt, None);
        assert_eq!(source.place(900..1000, Show::Line).at, Some((3, 1)));
    }
}
