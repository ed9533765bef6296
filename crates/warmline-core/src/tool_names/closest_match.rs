//! The nearest right word: what somebody probably meant to type.

/// The candidate that is closest to what was typed, if any is close enough to be worth naming.
///
/// Close enough means: at most a third of the letters differ, and at least one is right.
pub fn closest_match<'a>(
    typed: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let typed_lower = typed.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| {
            (
                edit_distance(&typed_lower, &candidate.to_lowercase()),
                candidate,
            )
        })
        .filter(|(steps, candidate)| *steps <= max_distance(typed, candidate))
        .min_by_key(|(steps, _)| *steps)
        .map(|(_, candidate)| candidate)
}

fn max_distance(typed: &str, candidate: &str) -> usize {
    let longer = typed.chars().count().max(candidate.chars().count());
    // Two letters changed places in a word of three would allow nothing: one step always counts.
    (longer / 3).clamp(1, 4)
}

/// How many letters must be added, removed, replaced or swapped with their neighbour.
fn edit_distance(from: &str, to: &str) -> usize {
    let from: Vec<char> = from.chars().take(MAX_COMPARED_CHARS).collect();
    let to: Vec<char> = to.chars().take(MAX_COMPARED_CHARS).collect();
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (row, letter) in from.iter().enumerate() {
        let mut next = vec![row + 1];
        for (column, other) in to.iter().enumerate() {
            let replaced = last[column] + usize::from(letter != other);
            let mut best = replaced.min(last[column + 1] + 1).min(next[column] + 1);
            let swapped =
                row > 0 && column > 0 && from[row - 1] == *other && *letter == to[column - 1];
            if swapped {
                best = best.min(before[column - 1] + 1);
            }
            next.push(best);
        }
        before = std::mem::replace(&mut last, next);
    }
    last.last().copied().unwrap_or(0)
}

/// Names longer than this are compared by their beginnings.
const MAX_COMPARED_CHARS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_hand_finds_the_word_that_was_meant() {
        let words = [
            "command",
            "env",
            "env_pass",
            "max_per_key",
            "url",
            "headers",
        ];
        #[rustfmt::skip]
        let table = [
            ("comand",     Some("command")),
            ("max_perkey", Some("max_per_key")),
            ("ulr",        Some("url")),
            ("Headers",    Some("headers")),
            ("envpass",    Some("env_pass")),
            ("colour",     None),
            ("",           None),
        ];
        for (typed, meant) in table {
            assert_eq!(closest_match(typed, words), meant, "{typed}");
        }
    }

    #[test]
    fn the_distance_counts_single_steps() {
        #[rustfmt::skip]
        let table = [
            ("", "", 0), ("a", "", 1), ("", "abc", 3), ("abc", "abc", 0),
            ("abc", "acb", 1), ("kitten", "sitting", 3),
        ];
        for (from, to, steps) in table {
            assert_eq!(edit_distance(from, to), steps, "{from} {to}");
        }
    }
}
