//! Durations as people write them: `500ms`, `30s`, `2min`, `1h`.

use std::time::Duration;

/// Reads a duration: a number and a unit (`ms`, `s`, `min` or `m`, `h`).
///
/// A bare number is refused: nobody can tell whether `30` means seconds or milliseconds. So is
/// no time at all: nothing can be done in it.
pub fn parse_duration(written: &str) -> Option<Duration> {
    let written = written.trim();
    let digits = written.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = written.split_at_checked(digits)?;
    let number: f64 = number.parse().ok()?;
    let millis = match unit.trim_start() {
        "ms" => 1.0,
        "s" => 1e3,
        "min" | "m" => 60e3,
        "h" => 3_600e3,
        _ => return None,
    };
    let duration = Duration::try_from_secs_f64(number * millis / 1e3).ok()?;
    (duration > Duration::ZERO && duration <= LONGEST).then_some(duration)
}

/// Longer ones are slips of the hand, and would overflow a deadline.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_needs_a_number_and_a_unit() {
        #[rustfmt::skip]
        let table = [
            ("500ms", Some(500)), ("30s", Some(30_000)), ("1.5s", Some(1_500)), ("2min", Some(120_000)),
            ("2m", Some(120_000)), ("1h", Some(3_600_000)), (" 5 s ", Some(5_000)),
            ("30", None), ("", None), ("s", None), ("-1s", None), ("1d", None), ("99999h", None), ("1..2s", None), ("0s", None), ("0.0ms", None),
        ];
        for (written, millis) in table {
            assert_eq!(
                parse_duration(written),
                millis.map(Duration::from_millis),
                "{written}"
            );
        }
    }
}
