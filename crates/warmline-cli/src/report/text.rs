//! Text for a terminal: harmless, aligned, with times as people say them.

use std::time::Duration;

/// Text of somebody else, without what a terminal would obey. Lines stay lines.
pub(crate) fn sanitised(text: &str) -> String {
    let harmless = |c: char| match c {
        '\n' | '\t' => c,
        c if c.is_control() => '\u{fffd}',
        // Marks that reorder or hide what stands around them.
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        c => c,
    };
    text.replace("\r\n", "\n").chars().map(harmless).collect()
}

/// Text of somebody else on one line: line breaks are shown, not obeyed.
pub(crate) fn one_line(text: &str) -> String {
    sanitised(text).replace('\n', "\\n").replace('\t', "\\t")
}

/// Text of somebody else as one running line: line breaks and gaps become blanks.
pub(crate) fn one_sentence(text: &str) -> String {
    let text = sanitised(text);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Something worth knowing beside an answer: what it is, and lines with a word each below.
pub(crate) fn note(code: Option<&str>, what: &str, below: &[(&str, Option<&str>)]) -> String {
    let code = code.map(|code| format!("[{code}]")).unwrap_or_default();
    let mut text = format!("note{code}: {}", one_line(what));
    for (word, said) in below {
        text.extend(said.map(|said| format!("\n  {word}: {}", one_line(said))));
    }
    text
}

/// The first line, cut to a width.
pub(crate) fn first_line(text: &str, width: usize) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    cut(line, width)
}

/// A text cut to a width, with a mark where something is missing.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    if width == 0 {
        return String::new();
    }
    let mut out: String = text.chars().take(width.saturating_sub(1)).collect();
    out.push('…');
    out
}

/// A text filled up with blanks to a width.
pub(crate) fn padded(text: &str, width: usize) -> String {
    let missing = width.saturating_sub(text.chars().count());
    format!("{text}{}", " ".repeat(missing))
}

/// A duration as people say it: `84 ms`, `1.2 s`, `3 min 12 s`.
pub(crate) fn seconds(duration: Duration) -> String {
    let millis = duration.as_millis();
    match millis {
        0 => format!("{} µs", duration.as_micros()),
        1..1_000 => format!("{millis} ms"),
        1_000..60_000 => format!("{}.{} s", millis / 1_000, millis % 1_000 / 100),
        60_000..3_600_000 => format!("{} min {} s", millis / 60_000, millis % 60_000 / 1_000),
        _ => format!(
            "{} h {} min",
            millis / 3_600_000,
            millis % 3_600_000 / 60_000
        ),
    }
}

/// `1 tool`, `2 tools`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    if number == 1 {
        format!("1 {noun}")
    } else {
        format!("{number} {noun}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_obeys_nothing_that_a_server_says() {
        #[rustfmt::skip]
        let table = [
            ("plain\ntext\twith äöü", "plain\ntext\twith äöü"),
            ("a\r\nb",                "a\nb"),
            ("\u{1b}[31mred",         "\u{fffd}[31mred"),
            ("x\u{202e}y\u{7}",       "x\u{fffd}y\u{fffd}"),
        ];
        for (text, shown) in table {
            assert_eq!(sanitised(text), shown);
        }
    }

    #[test]
    fn times_read_as_people_say_them() {
        #[rustfmt::skip]
        let table = [(0, "0 µs"), (84, "84 ms"), (1_250, "1.2 s"), (60_000, "1 min 0 s"), (11_520_000, "3 h 12 min")];
        for (millis, said) in table {
            assert_eq!(seconds(Duration::from_millis(millis)), said);
        }
        assert_eq!(seconds(Duration::from_micros(130)), "130 µs");
    }

    #[test]
    fn cut_text_says_that_it_is_cut() {
        assert_eq!(
            (cut("abc", 3).as_str(), cut("abcd", 3).as_str()),
            ("abc", "ab…")
        );
        assert_eq!(first_line("\n one\ntwo", 10), "one");
        assert_eq!(
            (count(1, "tool"), count(2, "tool")),
            ("1 tool".into(), "2 tools".into())
        );
    }
}
