//! Text for a terminal: sanitized, aligned, in tables, with readable durations.

use std::time::Duration;

use super::style;

/// Text of others without control characters. Line breaks stay.
pub(crate) fn sanitize(text: &str) -> String {
    let harmless = |c: char| match c {
        '\n' | '\t' => c,
        c if c.is_control() => '\u{fffd}',
        // Marks that reorder or hide text.
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        c => c,
    };
    text.replace("\r\n", "\n").chars().map(harmless).collect()
}

/// Text of others on one line: line breaks are escaped.
pub(crate) fn one_line(text: &str) -> String {
    sanitize(text).replace('\n', "\\n").replace('\t', "\\t")
}

/// Text of others on one line: line breaks and gaps become blanks.
pub(crate) fn collapse_whitespace(text: &str) -> String {
    let text = sanitize(text);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub(crate) fn first_line(text: &str, width: usize) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    truncate(line, width)
}

/// Cuts a text to a width, with `…` at the end.
pub(crate) fn truncate(text: &str, width: usize) -> String {
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

pub(crate) fn pad(text: &str, width: usize) -> String {
    let missing = width.saturating_sub(text.chars().count());
    format!("{text}{}", " ".repeat(missing))
}

/// The rows with their first texts padded to one width.
pub(crate) fn pad_first<T>(rows: Vec<(String, T)>) -> impl Iterator<Item = (String, T)> {
    let widest = rows.iter().map(|(first, _)| first.chars().count()).max();
    let widest = widest.unwrap_or_default();
    rows.into_iter()
        .map(move |(first, rest)| (pad(&first, widest), rest))
}

/// `84 ms`, `1.2 s`, `3 min 12 s`.
pub(crate) fn format_duration(duration: Duration) -> String {
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
pub(crate) fn pluralize(number: impl ToString, noun: &str) -> String {
    let number = number.to_string();
    let ending = if number == "1" { "" } else { "s" };
    format!("{number} {noun}{ending}")
}

/// The title of a column, and its text in a row.
pub(crate) type Column<T> = (&'static str, fn(&T) -> String);

const COLUMN_GAP: &str = "  ";

/// The lines of a table, head first. Cells may hold text of others. The first column can be typed and
/// is cut last.
pub(super) fn table_lines(head: &[&str], rows: &[Vec<String>], width: usize) -> Vec<String> {
    let cells = |row: &Vec<String>| row.iter().map(|text| one_line(text)).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
    let widths = column_widths(head, &rows, width);
    let line = |texts: &[String], paint: &dyn Fn(usize, &str) -> String| {
        let cells = texts.iter().zip(&widths).enumerate();
        let cells =
            cells.map(|(at, (text, width))| paint(at, &pad(&truncate(text, *width), *width)));
        let line: Vec<String> = cells.collect();
        line.join(COLUMN_GAP).trim_end().to_owned()
    };
    let head: Vec<String> = head.iter().map(|text| (*text).to_owned()).collect();
    let mut lines = vec![style::dim(&line(&head, &|_, text| text.to_owned()))];
    lines.extend(rows.iter().map(|row| {
        line(row, &|at, text| match at {
            0 => style::name(text),
            _ => text.to_owned(),
        })
    }));
    lines
}

fn column_widths(head: &[&str], rows: &[Vec<String>], width: usize) -> Vec<usize> {
    let of_column = |at: usize, title: &str| {
        let texts = rows.iter().filter_map(|row| row.get(at));
        let widest = texts.map(|text| text.chars().count()).max();
        widest.unwrap_or_default().max(title.chars().count())
    };
    let titles = head.iter().enumerate();
    let mut widths: Vec<usize> = titles.map(|(at, title)| of_column(at, title)).collect();
    let gaps = COLUMN_GAP.len() * head.len().saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > width {
        match widths.iter_mut().rev().max_by_key(|width| **width) {
            Some(widest) if *widest > MIN_COLUMN_WIDTH => *widest -= 1,
            _ => break,
        }
    }
    widths
}

const MIN_COLUMN_WIDTH: usize = 8;

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
            assert_eq!(sanitize(text), shown);
        }
    }

    #[test]
    fn times_read_as_people_say_them() {
        #[rustfmt::skip]
        let table = [(0, "0 µs"), (84, "84 ms"), (1_250, "1.2 s"), (60_000, "1 min 0 s"), (11_520_000, "3 h 12 min")];
        for (millis, said) in table {
            assert_eq!(format_duration(Duration::from_millis(millis)), said);
        }
        assert_eq!(format_duration(Duration::from_micros(130)), "130 µs");
    }

    #[test]
    fn cut_text_says_that_it_is_cut() {
        assert_eq!(
            (truncate("abc", 3).as_str(), truncate("abcd", 3).as_str()),
            ("abc", "ab…")
        );
        assert_eq!(first_line("\n one\ntwo", 10), "one");
        assert_eq!(
            (pluralize(1, "tool"), pluralize(2, "tool")),
            ("1 tool".into(), "2 tools".into())
        );
    }

    fn plain(lines: &[String]) -> Vec<String> {
        let strip = |line: &String| anstream::adapter::strip_str(line).to_string();
        lines.iter().map(strip).collect()
    }

    #[test]
    fn columns_fit_what_stands_in_them_and_the_widest_gives_way() {
        let rows = vec![
            vec![
                "trip".to_owned(),
                "a-server-with-a-long-name".to_owned(),
                "1".to_owned(),
            ],
            vec!["a\nb".to_owned(), "x".to_owned(), "20".to_owned()],
        ];
        let head = ["RUN", "SERVER", "CALLS"];
        assert_eq!(
            plain(&table_lines(&head, &rows, 80)),
            [
                "RUN   SERVER                     CALLS",
                "trip  a-server-with-a-long-name  1",
                "a\\nb  x                          20",
            ]
        );
        assert_eq!(
            plain(&table_lines(&head, &rows, 24)),
            [
                "RUN   SERVER       CALLS",
                "trip  a-server-w…  1",
                "a\\nb  x            20"
            ]
        );
    }
}
