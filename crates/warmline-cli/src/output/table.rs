//! Tables with columns that fit their content.

use super::style;
use super::text::{one_line, pad, truncate};

/// The title of a column, and its text in a row.
pub(crate) type Column<T> = (&'static str, fn(&T) -> String);

const COLUMN_GAP: &str = "  ";

/// The lines of a table, head first. Cells may hold text of others. The first column can be typed and
/// is cut last.
pub(super) fn table_lines(head: &[&str], rows: &[Vec<String>], width: usize) -> Vec<String> {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|text| one_line(text)).collect())
        .collect();
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
