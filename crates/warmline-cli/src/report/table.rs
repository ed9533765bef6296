//! Tables: columns that fit what stands in them, for a terminal and for a pipe alike.

use super::style;
use super::text::{cut, one_line, padded};

/// Between two columns.
const GAP: &str = "  ";

/// The lines of a table, its head first. What stands in it may be anybody's text. The first column
/// is what can be typed; it gives way last where there is little room.
pub(crate) fn lines(head: &[&str], rows: &[Vec<String>], width: usize) -> Vec<String> {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|text| one_line(text)).collect())
        .collect();
    let widths = widths(head, &rows, width);
    let line = |texts: &[String], paint: &dyn Fn(usize, &str) -> String| {
        let cells = texts.iter().zip(&widths).enumerate();
        let cells = cells.map(|(at, (text, width))| paint(at, &padded(&cut(text, *width), *width)));
        let line: Vec<String> = cells.collect();
        line.join(GAP).trim_end().to_owned()
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

/// How wide each column is: as wide as what stands in it, the widest cut until all fit.
fn widths(head: &[&str], rows: &[Vec<String>], width: usize) -> Vec<usize> {
    let of_column = |at: usize, title: &str| {
        let texts = rows.iter().filter_map(|row| row.get(at));
        let widest = texts.map(|text| text.chars().count()).max();
        widest.unwrap_or_default().max(title.chars().count())
    };
    let titles = head.iter().enumerate();
    let mut widths: Vec<usize> = titles.map(|(at, title)| of_column(at, title)).collect();
    let gaps = GAP.len() * head.len().saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > width {
        match widths.iter_mut().rev().max_by_key(|width| **width) {
            Some(widest) if *widest > LEAST => *widest -= 1,
            _ => break,
        }
    }
    widths
}

/// A column is not cut below this.
const LEAST: usize = 8;

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
            plain(&lines(&head, &rows, 80)),
            [
                "RUN   SERVER                     CALLS",
                "trip  a-server-with-a-long-name  1",
                "a\\nb  x                          20",
            ]
        );
        assert_eq!(
            plain(&lines(&head, &rows, 24)),
            [
                "RUN   SERVER       CALLS",
                "trip  a-server-w…  1",
                "a\\nb  x            20"
            ]
        );
    }
}
