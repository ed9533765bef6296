//! The metrics of the gateway: one row each, with its value; and the text format of Prometheus, version
//! 0.0.4.

use std::fmt::{Display, Write as _};

use rustix::process::getrlimit;
use warmline_engine::metrics::{
    HistogramSnapshot, HistogramUnit, LabeledCounter, Metric, MetricKind, SampleValue, Snapshot,
    TwoLabelCounter, WordEnum,
};

use super::process_health;
use crate::GatewayState;
use crate::limits::Resource;
use crate::metrics::ReloadResult;
use crate::ops::is_draining;
use crate::response::replay_store::MAX_REPLAY_BYTES;

type WriteMetric = fn(&mut MetricLines<'_>, &GatewayState);

macro_rules! gateway_metrics {
    ($($kind:ident $name:literal [$($label:literal),*] $help:literal => $write:expr;)+) => {
        /// The metrics of the gateway, besides those of its engine.
        pub const METRICS: &[Metric] =
            &[$(Metric::new(MetricKind::$kind, $name, &[$($label),*], $help)),+];

        const WRITERS: &[WriteMetric] = &[$($write),+];
    };
}

gateway_metrics! {
    Counter "gateway_requests_total" ["face", "status"]
        "Client requests by era and class of status"
        => |lines, gateway| lines.by_two_labels(&gateway.counters.requests);
    Counter "gateway_refused_total" ["reason"]
        "Connections and requests that were rejected before their message was parsed"
        => |lines, gateway| lines.by_label(&gateway.counters.rejected);
    Gauge "gateway_connections" []
        "Client connections"
        => |lines, gateway| lines.value(gateway.limiter.used(Resource::Connections));
    Gauge "gateway_connections_limit" []
        "Limit on client connections"
        => |lines, gateway| lines.value(gateway.limiter.limits().max_connections);
    Gauge "gateway_requests_under_way" []
        "Client requests in flight, including calls whose client left"
        => |lines, gateway| lines.value(gateway.limiter.used(Resource::Requests));
    Gauge "gateway_requests_limit" []
        "Limit on client requests in flight"
        => |lines, gateway| lines.value(gateway.limiter.limits().max_requests);
    Gauge "gateway_clients" []
        "Client sessions that were used recently"
        => |lines, gateway| lines.value(gateway.clients.len());
    Gauge "gateway_streams" []
        "Streams that are held for clients that may return"
        => |lines, gateway| lines.value(gateway.clients.replay.len());
    Counter "gateway_left_calls_total" ["then"]
        "Calls whose clients left or cancelled them, by what happened to them"
        => |lines, gateway| lines.by_label(&gateway.counters.abandoned_calls);
    Counter "dropped_replies_total" ["why"]
        "Replies that reached no client"
        => |lines, gateway| lines.by_label(&gateway.counters.undelivered);
    Counter "dropped_notices_total" []
        "Notifications that were dropped because their clients did not read for too long, or were away"
        => |lines, gateway| lines.value(gateway.counters.dropped_notifications.count());
    Gauge "buffer_bytes" ["kind"]
        "Bytes held: of requests until their calls end, of large replies until their clients have read them, of streams for clients that may return"
        => |lines, gateway| {
            lines.with_labels(&["requests"], gateway.limiter.used(Resource::RequestBytes));
            lines.with_labels(&["replies"], gateway.limiter.used(Resource::ReplyBytes));
            lines.with_labels(&["streams"], gateway.clients.replay.bytes());
        };
    Gauge "buffer_limit_bytes" ["kind"]
        "Limit on bytes held"
        => |lines, gateway| {
            lines.with_labels(&["requests"], gateway.limiter.limits().max_request_bytes);
            lines.with_labels(&["replies"], gateway.limiter.limits().max_request_bytes);
            lines.with_labels(&["streams"], MAX_REPLAY_BYTES);
        };
    Counter "audit_lines_total" []
        "Lines for the audit"
        => |lines, gateway| lines.value(gateway.counters.audit_lines.count());
    Counter "audit_lost_total" []
        "Lines of the audit that were not written"
        => |lines, gateway| lines.value(gateway.counters.audit_lines_lost.count());
    Counter "log_lost_total" []
        "Lines of the log that were not written"
        => |lines, gateway| {
            let lost = gateway.options.lost_log_lines.as_ref();
            lines.value(lost.map_or(0, |lost| lost.count()));
        };
    Counter "reload_total" ["result"]
        "Reloads of the configuration"
        => |lines, gateway| lines.by_label(&gateway.counters.reloads);
    Gauge "config_epoch" []
        "Number of the configuration in force: 1 at the start, one more after each reload"
        => |lines, gateway| {
            lines.value(1 + gateway.counters.reloads.count(ReloadResult::Applied));
        };
    Gauge "draining" []
        "1 while no new requests are accepted, else 0"
        => |lines, gateway| lines.value(u8::from(is_draining(gateway)));
    Gauge "memory_bytes" []
        "Resident memory of the process"
        => |lines, _| lines.known_value(process_health::resident_memory());
    Gauge "fds" []
        "Open file descriptors of the process"
        => |lines, _| lines.known_value(process_health::open_descriptors());
    Gauge "fds_limit" []
        "Limit on open file descriptors of the process"
        => |lines, _| lines.known_value(getrlimit(rustix::process::Resource::Nofile).current);
    Gauge "tasks" []
        "Tasks of the runtime"
        => |lines, _| {
            let runtime = tokio::runtime::Handle::try_current().ok();
            lines.known_value(runtime.map(|runtime| runtime.metrics().num_alive_tasks()));
        };
    Gauge "loop_lag_seconds" []
        "Delay of the runtime's last heartbeat"
        => |lines, gateway| lines.value(gateway.process_health.lag().as_secs_f64());
    Counter "clock_jumps_total" []
        "Jumps of the wall clock against monotonic time: it was set, or the machine slept"
        => |lines, gateway| lines.value(gateway.process_health.clock_jumps.count());
    Gauge "start_time_seconds" []
        "Start time of the gateway, in seconds since 1970"
        => |lines, gateway| lines.value(gateway.process_health.started_at_seconds);
    Gauge "build_info" ["version"]
        "Always 1, with the running version"
        => |lines, _| lines.with_labels(&[env!("CARGO_PKG_VERSION")], 1);
}

pub(super) fn metrics_page(shared: &GatewayState) -> String {
    let mut page = PrometheusText::default();
    page.write_engine(&shared.warmline.snapshot());
    for (metric, write) in METRICS.iter().zip(WRITERS) {
        write(&mut page.metric(metric), shared);
    }
    page.0
}

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
    use warmline_engine::metrics::MetricKind;

    use super::*;

    static ONE: Metric = Metric::new(MetricKind::Counter, "one_total", &["word"], "a \\ \"b\"\nc");

    #[test]
    fn line_ends_and_quotes_are_escaped() {
        let mut page = PrometheusText::default();
        page.metric(&ONE).with_labels(&["a\\\"\nb"], 7);
        assert_eq!(
            page.0,
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
