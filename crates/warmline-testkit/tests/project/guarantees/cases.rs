//! Which cases there are. Numbers are never given twice and never change their meaning.

use std::fmt;

/// One case: the page it is from, its letter and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Case {
    pub(crate) page: Source,
    pub(crate) letter: char,
    pub(crate) number: u16,
}

/// Where a number is from: two lists number their lines, and share some letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// Promises, invariants and threats, cited as `reliability P1`.
    Reliability,
    /// Acceptance cases, cited by their number alone.
    Acceptance,
}

/// All there are: source, letter, first and last number.
const RANGES: &[(Source, char, u16, u16)] = &[
    (Source::Reliability, 'P', 1, 35),
    (Source::Reliability, 'I', 1, 40),
    (Source::Reliability, 'T', 1, 24),
    (Source::Acceptance, 'A', 1, 57),
    (Source::Acceptance, 'A', 60, 112),
    (Source::Acceptance, 'A', 115, 163),
    (Source::Acceptance, 'A', 165, 195),
    (Source::Acceptance, 'A', 200, 207),
    (Source::Acceptance, 'S', 1, 33),
    (Source::Acceptance, 'E', 1, 27),
    (Source::Acceptance, 'M', 1, 14),
    (Source::Acceptance, 'P', 1, 135),
];

/// Every case there is.
pub(crate) fn every_case() -> impl Iterator<Item = Case> {
    RANGES.iter().flat_map(|(page, letter, first, last)| {
        (*first..=*last).map(|number| Case {
            page: *page,
            letter: *letter,
            number,
        })
    })
}

impl Case {
    /// Whether there is such a case.
    pub(crate) fn exists(self) -> bool {
        RANGES.iter().any(|(page, letter, first, last)| {
            *page == self.page && *letter == self.letter && (*first..=*last).contains(&self.number)
        })
    }

    /// Reads `A24` or `reliability I12`; none for anything else.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (page, rest) = match text.strip_prefix("reliability ") {
            Some(rest) => (Source::Reliability, rest),
            None => (Source::Acceptance, text),
        };
        let mut letters = rest.chars();
        let letter = letters.next().filter(char::is_ascii_uppercase)?;
        let digits = letters.as_str();
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = is_number.then(|| digits.parse().ok()).flatten()?;
        Some(Self {
            page,
            letter,
            number,
        })
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let page = match self.page {
            Source::Reliability => "reliability ",
            Source::Acceptance => "",
        };
        write!(f, "{page}{}{}", self.letter, self.number)
    }
}

#[test]
fn a_case_is_read_as_it_is_written() {
    for case in every_case() {
        assert_eq!(Case::read(&case.to_string()), Some(case));
        assert!(case.exists());
    }
    for text in ["", "A", "24", "a24", "A24b", "reliability 4.1", "A-1"] {
        assert_eq!(Case::read(text), None, "{text}");
    }
    for text in ["A58", "A0", "P136", "I1", "reliability P36"] {
        assert!(!Case::read(text).unwrap().exists(), "{text}");
    }
}
