//! What a parser of JSON complains about, and what people usually did.
//!
//! Asked by: readers of JSON files, where one cannot be read.

/// What to do about what stands at a line and column of a text, where that is known.
pub(super) fn hint(text: &str, (line, column): (usize, usize)) -> Option<&'static str> {
    let before: usize = text
        .split_inclusive('\n')
        .take(line.saturating_sub(1))
        .map(str::len)
        .sum();
    let at = before + column.saturating_sub(1);
    let rest = text.get(at..)?;
    // Others became blanks before anybody read the text.
    rest.starts_with("/*")
        .then_some("this comment is never closed: end it with `*/`")
}

/// The complaint without its place, and without the value it may repeat.
pub(super) fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.split(" at line ").next().unwrap_or_default();
    match text.split_once("invalid type: ") {
        Some((_, rest)) => {
            let found = rest.split([' ', '`']).next().unwrap_or_default();
            let expected = rest
                .rsplit_once("expected ")
                .map_or("something else", |(_, e)| e);
            format!("expected {expected}, found {found}")
        },
        None if text.contains('"') && !text.starts_with("expected") => text
            .split('"')
            .next()
            .unwrap_or_default()
            .trim_end()
            .to_owned(),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_that_nobody_closed_is_pointed_at() {
        let comment = Some("this comment is never closed: end it with `*/`");
        #[rustfmt::skip]
        let table = [
            ("{ /* no\n}",         (1, 3),  comment),
            ("{\"a\" 1}",          (1, 6),  None),
            ("",                   (9, 9),  None),
        ];
        for (text, at, said) in table {
            assert_eq!(hint(text, at), said, "{text}");
        }
    }
}
