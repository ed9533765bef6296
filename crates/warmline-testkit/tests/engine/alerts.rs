//! Numbers, alerts and the runbook against each other.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use warmline_engine::metrics::{Metric, MetricKind};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn metrics() -> impl Iterator<Item = &'static Metric> {
    let of_engine = warmline_engine::metrics::METRICS.iter();
    of_engine.chain(warmline_gateway::METRICS)
}

const PAGE: &str = "docs/reference/metrics.md";

/// The page of numbers names every metric with its kind, its labels and what it says.
#[test]
fn the_page_of_metrics_says_what_the_tables_say() {
    let page = read(PAGE);
    let anew = written(&page);
    if std::env::var_os("WARMLINE_BLESS").is_some() {
        fs::write(root().join(PAGE), &anew).unwrap();
        return;
    }
    assert!(
        anew == page,
        "{PAGE} is behind the tables; `make pages` writes it anew"
    );
}

fn written(page: &str) -> String {
    let mut out = page.to_owned();
    for (name, table) in [
        ("engine", warmline_engine::metrics::METRICS),
        ("gateway", warmline_gateway::METRICS),
    ] {
        let begin = format!("<!-- metrics: {name} -->\n");
        let (before, rest) = out.split_once(&begin).unwrap();
        let (_, after) = rest.split_once("<!-- end -->").unwrap();
        let of_engine = [
            "runs",
            "run_sessions",
            "keys",
            "keys_evicted_total",
            "sessions_limit",
            "children_limit",
            "invariant_failed_total",
            "drift_total",
        ];
        let rows: String = table
            .iter()
            .map(|metric| {
                let has_server = name == "engine" && !of_engine.contains(&metric.name);
                row(metric, has_server.then_some("server"))
            })
            .collect();
        let head = "| metric | kind | labels | says |\n|---|---|---|---|\n";
        out = format!("{before}{begin}{head}{rows}<!-- end -->{after}");
    }
    out
}

fn row(metric: &Metric, server: Option<&str>) -> String {
    let labels: Vec<String> = server
        .into_iter()
        .chain(metric.labels.iter().copied())
        .map(|label| format!("`{label}`"))
        .collect();
    format!(
        "| `warmline_{}` | {} | {} | {} |\n",
        metric.name,
        metric.kind.as_str(),
        labels.join(", "),
        metric.help
    )
}

/// Numbers that somebody has to have at night, by the question they answer, and by the name they go
/// by here. A second name says that the same fact stands there under it.
const QUESTIONS: &[(&str, &[&str])] = &[
    (
        "O11",
        &[
            "calls_total",
            "call_failures_total",
            "attempts_total",
            "resends_total",
        ],
    ),
    ("O12", &["lease_seconds", "leases_over_warn_total"]),
    ("O13", &["wait_seconds", "waiters", "refused_total"]),
    ("O14", &["call_seconds", "overhead_seconds"]),
    (
        "O15",
        &["sessions", "opens_total", "open_seconds", "closes_total"],
    ),
    (
        "O16",
        &[
            "session_gone_total",
            "reinits_total",
            "orphans_possible_total",
        ],
    ),
    (
        "O17",
        &["breaker_state", "breaker_changes_total", "cooldown_seconds"],
    ),
    (
        "O18",
        &[
            "children",
            "child_exits_total",
            "child_restarts_total",
            "orphans_killed_total",
        ],
    ),
    (
        "O19",
        &[
            "buffer_bytes",
            "buffer_limit_bytes",
            "memory_bytes",
            "fds",
            "fds_limit",
            "tasks",
            "sessions_limit",
            "children_limit",
            "gateway_connections_limit",
            "gateway_requests_limit",
        ],
    ),
    (
        "O20",
        &[
            "isolation_violation_total",
            "invariant_failed_total",
            "dropped_replies_total",
            "drift_total",
        ],
    ),
    (
        "O21",
        &[
            "store_operations_total",
            "store_degraded",
            "config_epoch",
            "reload_total",
        ],
    ),
    (
        "O22",
        &[
            "build_info",
            "start_time_seconds",
            "clock_jumps_total",
            "loop_lag_seconds",
        ],
    ),
];

/// reliability O11, O12, O13, O14, O15, O16, O17, O18, O19, O20, O21, O22: each question has its
/// numbers, and the page says which.
#[test]
fn every_question_of_the_night_has_its_numbers() {
    let page = read(PAGE);
    for (question, names) in QUESTIONS {
        let begin = format!("| {question} |");
        let row = page.lines().find(|line| line.starts_with(&begin));
        let row = row.unwrap_or_else(|| panic!("{PAGE} has no row for {question}"));
        for name in *names {
            let holds = metrics().any(|metric| metric.name == *name);
            assert!(holds, "{question}: {name}");
            let holds = row.contains(&format!("`{name}`"));
            assert!(holds, "{question}: {name} in {row}");
        }
    }
}

/// One alert of the file.
struct Alert {
    name: String,
    text: String,
}

fn alerts() -> Vec<Alert> {
    let file = read("docs/ops/alerts.yaml");
    let parts = file.split("      - alert: ").skip(1);
    parts
        .map(|part| Alert {
            name: part.lines().next().unwrap().to_owned(),
            text: part.to_owned(),
        })
        .collect()
}

/// reliability O27, reliability O28: each alert names its section of the runbook and each section
/// its alert; each section says what it means, where to look, what is safe and what is not.
#[test]
fn every_alert_has_its_section_and_every_section_its_alert() {
    let runbook = read("docs/guide/operations.md");
    let sections: Vec<&str> = runbook.split("\n### ").skip(1).collect();
    let titles: BTreeSet<&str> = sections
        .iter()
        .map(|section| section.lines().next().unwrap())
        .collect();
    let alerts = alerts();
    let names: BTreeSet<&str> = alerts.iter().map(|alert| alert.name.as_str()).collect();
    assert_eq!(titles, names);
    assert_eq!(alerts.len(), names.len(), "no alert stands there twice");
    for section in sections {
        for part in ["**Means**:", "**Look**:", "**Safe**:", "**Not**:"] {
            assert!(section.contains(part), "{part} in {section}");
        }
    }
    for Alert { name, text } in &alerts {
        let link = format!("runbook: docs/guide/operations.md#{}", name.to_lowercase());
        for part in [&link, "severity: ", "expr: ", "summary: \""] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}

/// reliability O27: what has to wake somebody does, at the bound that was decided.
#[test]
fn what_has_to_alert_does() {
    let alerts = alerts();
    for (name, parts) in [
        (
            "WarmlineIsolationViolation",
            &["warmline_isolation_violation_total) > 0"][..],
        ),
        (
            "WarmlineCallsUnknown",
            &["delivery=\"unknown\"", "> 0.01", "for: 5m"],
        ),
        (
            "WarmlineBreakerOpen",
            &["warmline_breaker_state{scope=\"server\"}) > 0", "for: 5m"],
        ),
        (
            "WarmlineSlowPool",
            &["0.99", "warmline_wait_seconds_bucket", "> 1\n", "for: 10m"],
        ),
        (
            "WarmlineSessionsLost",
            &["warmline_reinits_total", "> 10 * "],
        ),
        (
            "WarmlineChildrenRestart",
            &["increase(warmline_child_restarts_total[5m])) > 25"],
        ),
        (
            "WarmlineNearItsLimits",
            &["warmline_buffer_bytes", "warmline_buffer_limit_bytes > 0.8"],
        ),
        ("WarmlineLoopLag", &["warmline_loop_lag_seconds > 0.25"]),
        (
            "WarmlineStoreDegraded",
            &["warmline_store_degraded", "> 0\n", "for: 10m"],
        ),
    ] {
        let alert = alerts.iter().find(|alert| alert.name == name);
        let alert = alert.unwrap_or_else(|| panic!("there is no {name}"));
        for part in parts {
            assert!(alert.text.contains(part), "{part} in {}", alert.text);
        }
    }
}

/// reliability O27: an alert on a number that nobody counts never fires. Every metric and label of
/// the alerts and of the runbook exists, as the kind it is used as.
#[test]
fn alerts_and_runbook_name_only_what_is_counted() {
    let runbook = read("docs/guide/operations.md");
    for name in names_in(&runbook) {
        found(&name);
    }
    for Alert { name, text } in alerts() {
        let mut named = 0;
        for used in names_in(&text) {
            let metric = found(&used);
            named += 1;
            let counts = format!("rate(warmline_{used}");
            let grows =
                text.contains(&counts) || text.contains(&format!("increase(warmline_{used}"));
            if grows {
                assert_ne!(metric.kind, MetricKind::Gauge, "{name}: {used}");
            }
            for label in labels_of(&text, &used) {
                let known = metric.labels.contains(&label.as_str()) || label == "server";
                assert!(known, "{name}: {used} has no label {label}");
            }
        }
        assert!(named > 0 || name == "WarmlineDown", "{name}");
    }
}

/// Names of ours in a text, without the prefix.
fn names_in(text: &str) -> BTreeSet<String> {
    let is_name = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    let parts = text.split("warmline_").skip(1);
    parts
        .map(|part| {
            part.split(|letter| !is_name(letter))
                .next()
                .unwrap()
                .to_owned()
        })
        .collect()
}

/// The metric of that name, also by the name of one of its series.
fn found(name: &str) -> &'static Metric {
    let bare = ["_bucket", "_sum", "_count"]
        .iter()
        .find_map(|suffix| name.strip_suffix(suffix));
    let named = |wanted: &str| metrics().find(|metric| metric.name == wanted);
    let histogram = bare
        .and_then(named)
        .filter(|metric| metric.kind == MetricKind::Histogram);
    histogram
        .or_else(|| named(name))
        .unwrap_or_else(|| panic!("nobody counts `warmline_{name}`"))
}

/// Labels by which a metric is chosen in an alert.
fn labels_of(text: &str, name: &str) -> Vec<String> {
    let begin = format!("warmline_{name}{{");
    let chosen = text.split(&begin).skip(1);
    chosen
        .filter_map(|rest| rest.split('}').next())
        .flat_map(|inside| inside.split(','))
        .filter_map(|part| part.split(['=', '!']).next())
        .map(|label| label.trim().to_owned())
        .collect()
}
