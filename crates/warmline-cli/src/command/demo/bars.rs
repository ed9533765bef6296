//! Times as bars, the longest as long as there is room.

use std::time::Duration;

use crate::report::text::{padded, seconds};

/// One measured way.
#[derive(Debug)]
pub(super) struct Bar {
    pub(super) label: String,
    pub(super) took: Duration,
}

impl Bar {
    pub(super) fn new(label: &str, took: Duration) -> Self {
        Self {
            label: label.to_owned(),
            took,
        }
    }
}

/// One line each: label, bar, time. A bar is never empty: everything takes some time.
pub(super) fn bars(all: &[Bar]) -> Vec<String> {
    let longest = all
        .iter()
        .map(|bar| bar.took)
        .max()
        .unwrap_or_default()
        .as_micros()
        .max(1);
    let label = all
        .iter()
        .map(|bar| bar.label.chars().count())
        .max()
        .unwrap_or(0);
    all.iter()
        .map(|bar| {
            let share = bar.took.as_micros().saturating_mul(ROOM) / longest;
            let length = usize::try_from(share).unwrap_or(0).max(1);
            let drawn = padded(&"█".repeat(length), usize::try_from(ROOM).unwrap_or(0));
            format!(
                "{}  {drawn}  {}",
                padded(&bar.label, label),
                seconds(bar.took)
            )
        })
        .collect()
}

/// So many signs the longest bar has.
const ROOM: u128 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_drawn_to_scale_and_never_vanish() {
        let bar = |label, ms| Bar::new(label, Duration::from_millis(ms));
        let lines = bars(&[bar("slow", 400), bar("half", 200), bar("fast", 1)]);
        let lengths: Vec<usize> = lines.iter().map(|line| line.matches('█').count()).collect();
        assert_eq!(lengths, [32, 16, 1]);
        assert!(
            lines.iter().all(|line| line.chars().count() <= 60),
            "{lines:?}"
        );
    }
}
