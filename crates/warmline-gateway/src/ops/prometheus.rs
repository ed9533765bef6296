//! The text format of Prometheus, version 0.0.4.

use std::fmt::{Display, Write as _};

use warmline_engine::metrics::{
    HistogramSnapshot, HistogramUnit, LabeledCounter, Metric, SampleValue, Snapshot,
    TwoLabelCounter, WordEnum,
};

const PREFIX: &str = "warmline_";

pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Debug, Default)]
pub(crate) struct PrometheusText(String);

#[derive(Debug)]
pub(crate) struct MetricLines<'p> {
    text: &'p mut String,
    metric: &'static Metric,
}

impl PrometheusText {
    pub(crate) fn into_text(self) -> String {
        self.0
    }

    pub(crate) fn metric(&mut self, metric: &'static Metric) -> MetricLines<'_> {
        let Metric { name, help, .. } = metric;
        let kind = metric.kind.as_str();
        let help = escape(help);
        // Writing to a string does not fail.
        writeln!(self.0, "# HELP {PREFIX}{name} {help}").ok();
        writeln!(self.0, "# TYPE {PREFIX}{name} {kind}").ok();
        MetricLines {
            text: &mut self.0,
            metric,
        }
    }

    pub(crate) fn write_engine(&mut self, snapshot: &Snapshot) {
        for metric in warmline_engine::metrics::METRICS {
            let mut lines = self.metric(metric);
            let of_engine = snapshot.engine.iter().map(|number| (None, number));
            let of_servers = snapshot.servers.iter().flat_map(|server| {
                let numbers = server.samples.iter();
                numbers.map(|number| (Some(&*server.server), number))
            });
            for (server, number) in of_engine.chain(of_servers) {
                if number.name == metric.name {
                    match &number.value {
                        SampleValue::Count(count) => {
                            lines.labelled_value(server, &number.label_values, count);
                        },
                        SampleValue::Histogram(histogram) => lines.histogram(server, histogram),
                        _ => {},
                    }
                }
            }
        }
    }
}

impl MetricLines<'_> {
    pub(crate) fn value(&mut self, number: impl Display) {
        self.write_sample("", &[], &number);
    }

    pub(crate) fn known_value(&mut self, number: Option<impl Display>) {
        if let Some(number) = number {
            self.value(number);
        }
    }

    pub(crate) fn with_labels(&mut self, words: &[&str], number: impl Display) {
        self.labelled_value(None, words, &number);
    }

    pub(crate) fn by_label<W: WordEnum>(&mut self, counts: &LabeledCounter<W>) {
        for word in W::ALL {
            self.with_labels(&[word.as_str()], counts.count(*word));
        }
    }

    pub(crate) fn by_two_labels<V: WordEnum, W: WordEnum>(
        &mut self,
        counts: &TwoLabelCounter<V, W>,
    ) {
        for first in V::ALL {
            for second in W::ALL {
                let count = counts.count(*first, *second);
                self.with_labels(&[first.as_str(), second.as_str()], count);
            }
        }
    }

    fn labelled_value(&mut self, server: Option<&str>, words: &[&str], number: &dyn Display) {
        let names = self.metric.labels.iter().copied();
        let labels = server.map(|server| ("server", server)).into_iter();
        let labels: Vec<_> = labels.chain(names.zip(words.iter().copied())).collect();
        self.write_sample("", &labels, number);
    }

    fn histogram(&mut self, server: Option<&str>, histogram: &HistogramSnapshot) {
        let server = server.map(|server| ("server", server));
        let mut so_far = 0_u64;
        for (place, count) in histogram.buckets.iter().enumerate() {
            so_far = so_far.saturating_add(*count);
            let bound = match histogram.bounds().get(place) {
                Some(bound) => format_value(*bound, histogram.unit()),
                None => "+Inf".to_owned(),
            };
            let labels: Vec<_> = server.into_iter().chain([("le", &*bound)]).collect();
            self.write_sample("_bucket", &labels, &so_far);
        }
        let labels = server.as_slice();
        let sum = format_value(histogram.sum, histogram.unit());
        self.write_sample("_sum", labels, &sum);
        self.write_sample("_count", labels, &so_far);
    }

    fn write_sample(&mut self, suffix: &str, labels: &[(&str, &str)], number: &dyn Display) {
        let page = &mut *self.text;
        page.push_str(PREFIX);
        page.push_str(self.metric.name);
        page.push_str(suffix);
        for (place, (name, value)) in labels.iter().enumerate() {
            page.push(if place == 0 { '{' } else { ',' });
            page.push_str(name);
            page.push_str("=\"");
            page.push_str(&escape(value).replace('"', "\\\""));
            page.push('"');
        }
        if !labels.is_empty() {
            page.push('}');
        }
        // Writing to a string does not fail.
        writeln!(page, " {number}").ok();
    }
}

/// A value of a histogram: a time in seconds, exactly.
fn format_value(value: u64, unit: HistogramUnit) -> String {
    match unit {
        HistogramUnit::Count => value.to_string(),
        HistogramUnit::Time | HistogramUnit::ShortTime => {
            let (seconds, micros) = (value / 1_000_000, value % 1_000_000);
            let text = format!("{seconds}.{micros:06}");
            let short = text.trim_end_matches('0');
            short.trim_end_matches('.').to_owned()
        },
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmline_engine::metrics::MetricKind;

    static ONE: Metric = Metric::new(MetricKind::Counter, "one_total", &["word"], "a \\ \"b\"\nc");

    #[test]
    fn line_ends_and_quotes_are_escaped() {
        let mut page = PrometheusText::default();
        page.metric(&ONE).with_labels(&["a\\\"\nb"], 7);
        assert_eq!(
            page.into_text(),
            "# HELP warmline_one_total a \\\\ \"b\"\\nc\n# TYPE warmline_one_total counter\n\
             warmline_one_total{word=\"a\\\\\\\"\\nb\"} 7\n"
        );
    }

    #[test]
    fn times_are_exact_seconds() {
        for (micros, seconds) in [
            (0, "0"),
            (100, "0.0001"),
            (1_000_000, "1"),
            (10_000_000, "10"),
            (3_600_000_000, "3600"),
            (1_234_567, "1.234567"),
        ] {
            assert_eq!(format_value(micros, HistogramUnit::Time), seconds);
            assert_eq!(
                format_value(micros, HistogramUnit::Count),
                micros.to_string()
            );
        }
    }
}
