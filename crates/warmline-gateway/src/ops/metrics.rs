//! The metrics of the gateway: one row each, with its value.

use warmline_engine::metrics::{Metric, MetricKind};

use super::pages::is_draining;
use super::process_health;
use super::prometheus::{MetricLines, PrometheusText};
use crate::GatewayState;
use crate::limits::Resource;
use crate::metrics::ReloadResult;
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
        => |lines, gateway| lines.value(gateway.counters.audit.lines.count());
    Counter "audit_lost_total" []
        "Lines of the audit that were not written"
        => |lines, gateway| lines.value(gateway.counters.audit.lost.count());
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
        => |lines, _| lines.known_value(process_health::descriptors_limit());
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
    page.into_text()
}
