//! Numbers in the text format of Prometheus, version 0.0.4.
//!
//! Asked by: [`page`](super::page).  Lines of one metric stand together, below what it is; label
//! values are escaped, though no caller and no server ever makes one.

use std::fmt::Write as _;

use warmline::metrics::{
    ClosedSet, CountBy, CountByTwo, Metric, Snapshot, SpreadRead, Unit, Value,
};

/// What every name begins with.
const PREFIX: &str = "warmline_";

/// The type of what is written here.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page that is being written.
#[derive(Debug, Default)]
pub(crate) struct Page(String);

/// The lines of one metric.
#[derive(Debug)]
pub(crate) struct Lines<'p> {
    page: &'p mut String,
    metric: &'static Metric,
}

impl Page {
    /// What was written.
    pub(crate) fn into_text(self) -> String {
        self.0
    }

    /// Begins the lines of a metric.
    pub(crate) fn metric(&mut self, metric: &'static Metric) -> Lines<'_> {
        let Metric { name, help, .. } = metric;
        let kind = metric.kind.word();
        let help = escaped(help, Quotes::Plain);
        self.line(format_args!("# HELP {PREFIX}{name} {help}"));
        self.line(format_args!("# TYPE {PREFIX}{name} {kind}"));
        Lines {
            page: &mut self.0,
            metric,
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // A text takes everything that is written to it.
        writeln!(self.0, "{line}").ok();
    }

    /// All numbers of an engine.
    pub(crate) fn engine(&mut self, snapshot: &Snapshot) {
        for metric in warmline::metrics::METRICS {
            let mut lines = self.metric(metric);
            let of_engine = snapshot.engine.iter().map(|number| (None, number));
            let of_servers = snapshot.servers.iter().flat_map(|server| {
                let numbers = server.numbers.iter();
                numbers.map(|number| (Some(&*server.server), number))
            });
            for (server, number) in of_engine.chain(of_servers) {
                if number.name == metric.name {
                    match &number.value {
                        Value::Count(count) => lines.of(server, &number.words, *count),
                        Value::Spread(spread) => lines.spread(server, spread),
                        _ => {},
                    }
                }
            }
        }
    }
}

impl Lines<'_> {
    /// A number that has no labels.
    pub(crate) fn number(&mut self, number: impl std::fmt::Display) {
        self.sample("", &[], &number);
    }

    /// A number with the words of the metric's labels.
    pub(crate) fn with(&mut self, words: &[&str], number: impl std::fmt::Display) {
        let labels: Vec<_> = self.labelled(words).collect();
        self.sample("", &labels, &number);
    }

    /// One number for each word.
    pub(crate) fn by<W: ClosedSet>(&mut self, counts: &CountBy<W>) {
        for word in W::ALL {
            self.with(&[word.word()], counts.count(*word));
        }
    }

    /// One number for each pair of words.
    pub(crate) fn by_two<V: ClosedSet, W: ClosedSet>(&mut self, counts: &CountByTwo<V, W>) {
        for first in V::ALL {
            for second in W::ALL {
                let count = counts.count(*first, *second);
                self.with(&[first.word(), second.word()], count);
            }
        }
    }

    fn of(&mut self, server: Option<&str>, words: &[&str], count: u64) {
        let server = server.map(|server| ("server", server));
        let labels: Vec<_> = server.into_iter().chain(self.labelled(words)).collect();
        self.sample("", &labels, &count);
    }

    fn spread(&mut self, server: Option<&str>, spread: &SpreadRead) {
        let server = server.map(|server| ("server", server));
        let mut so_far = 0_u64;
        for (place, count) in spread.buckets.iter().enumerate() {
            so_far = so_far.saturating_add(*count);
            let bound = match spread.bounds().get(place) {
                Some(bound) => shown(*bound, spread.unit()),
                None => "+Inf".to_owned(),
            };
            let labels: Vec<_> = server.into_iter().chain([("le", &*bound)]).collect();
            self.sample("_bucket", &labels, &so_far);
        }
        let labels = server.as_slice();
        self.sample("_sum", labels, &shown(spread.sum, spread.unit()));
        self.sample("_count", labels, &so_far);
    }

    fn labelled<'w>(&self, words: &'w [&str]) -> impl Iterator<Item = (&'static str, &'w str)> {
        let labels = self.metric.labels.iter().copied();
        labels.zip(words.iter().copied())
    }

    fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], number: &dyn std::fmt::Display) {
        let page = &mut *self.page;
        page.push_str(PREFIX);
        page.push_str(self.metric.name);
        page.push_str(suffix);
        for (place, (name, value)) in labels.iter().enumerate() {
            page.push(if place == 0 { '{' } else { ',' });
            page.push_str(name);
            page.push_str("=\"");
            page.push_str(&escaped(value, Quotes::Escaped));
            page.push('"');
        }
        if !labels.is_empty() {
            page.push('}');
        }
        // A text takes everything that is written to it.
        writeln!(page, " {number}").ok();
    }
}

/// A value of a spread: seconds where it is a time, without a rounding of ours.
fn shown(value: u64, unit: Unit) -> String {
    match unit {
        Unit::Number => value.to_string(),
        Unit::Time | Unit::ShortTime => {
            let (seconds, micros) = (value / 1_000_000, value % 1_000_000);
            let text = format!("{seconds}.{micros:06}");
            let short = text.trim_end_matches('0');
            short.trim_end_matches('.').to_owned()
        },
    }
}

/// Whether quotes have to be escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quotes {
    Plain,
    Escaped,
}

fn escaped(text: &str, quotes: Quotes) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes == Quotes::Escaped => out.push_str("\\\""),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmline::metrics::Kind;

    static ONE: Metric = Metric::of(Kind::Counter, "one_total", &["word"], "a \\ \"b\"\nc");

    #[test]
    fn what_would_end_a_line_or_a_label_is_escaped() {
        let mut page = Page::default();
        page.metric(&ONE).with(&["a\\\"\nb"], 7);
        assert_eq!(
            page.into_text(),
            "# HELP warmline_one_total a \\\\ \"b\"\\nc\n# TYPE warmline_one_total counter\n\
             warmline_one_total{word=\"a\\\\\\\"\\nb\"} 7\n"
        );
    }

    #[test]
    fn times_are_seconds_to_the_last_microsecond() {
        for (micros, seconds) in [
            (0, "0"),
            (100, "0.0001"),
            (1_000_000, "1"),
            (10_000_000, "10"),
            (3_600_000_000, "3600"),
            (1_234_567, "1.234567"),
        ] {
            assert_eq!(shown(micros, Unit::Time), seconds);
            assert_eq!(shown(micros, Unit::Number), micros.to_string());
        }
    }
}
