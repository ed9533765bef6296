//! Every setting from every source, in their order, right and wrong.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use warmline_core::policy::ToolPolicy;
use warmline_core::protocol::session_gone::SessionGoneMatching;

use warmline_core::error::code::Code;
use warmline_engine::settings::environment::RETIRED_VARIABLES;
use warmline_engine::settings::value::{RawSettingValue, ValueFormat};
use warmline_engine::settings::{
    ConfigError, EngineSettings, ServerSettings, Setting, SettingOrigin, SettingValue,
    SettingsGroup,
};

use crate::GatewaySettings;
use crate::ignored_variables::find_ignored_variables;
use crate::reader::ParsedFile;

/// An environment of these variables and no others.
fn environment(variables: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> + use<> {
    let variables: BTreeMap<String, String> = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    move |name| variables.get(name).cloned()
}

fn server_with(variables: &[(&str, &str)]) -> Result<ServerSettings, ConfigError> {
    let mut settings = ServerSettings::default();
    settings.apply_environment(&environment(variables))?;
    settings.normalize()?;
    Ok(settings)
}

fn engine_with(variables: &[(&str, &str)]) -> Result<EngineSettings, ConfigError> {
    let mut settings = EngineSettings::default();
    settings.apply_environment(&environment(variables))?;
    settings.normalize()?;
    Ok(settings)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A value of this setting that is not its default, as a variable holds it.
fn another<T: SettingsGroup>(setting: &Setting<T>) -> String {
    let usual = (setting.get)(&T::default()).to_string();
    let candidates: Vec<String> = match &setting.kind.format {
        ValueFormat::Count(_) => vec!["3".into(), "4".into()],
        ValueFormat::Time(_) => vec!["7s".into()],
        ValueFormat::Size(_) => vec!["64KiB".into()],
        ValueFormat::Switch => vec!["true".into(), "false".into()],
        ValueFormat::Word => setting.kind.words.iter().map(|w| (*w).to_owned()).collect(),
        ValueFormat::Text => vec!["https://one.example.com".into()],
        ValueFormat::Texts => vec!["one, two".into()],
        ValueFormat::Path => vec!["somewhere".into()],
        ValueFormat::Address => vec!["0.0.0.0:9000".into()],
    };
    let mut other = candidates.into_iter().filter(|value| *value != usual);
    other.next().unwrap()
}

/// The value as `warmline.toml` writes it.
fn in_a_file<T: SettingsGroup>(setting: &Setting<T>, value: &str) -> String {
    match &setting.kind.format {
        ValueFormat::Count(_) | ValueFormat::Switch => value.to_owned(),
        ValueFormat::Texts => format!(
            "[{}]",
            value
                .split(", ")
                .map(|text| format!("{text:?}"))
                .collect::<Vec<_>>()
                .join(", ")
        ),
        ValueFormat::Time(_)
        | ValueFormat::Size(_)
        | ValueFormat::Word
        | ValueFormat::Text
        | ValueFormat::Path
        | ValueFormat::Address => {
            format!("{value:?}")
        },
    }
}

fn each_by_variable<T: SettingsGroup + std::fmt::Debug>() {
    for setting in T::TABLE {
        let value = another(setting);
        let variable = setting.variable();
        let mut settings = T::default();
        settings
            .apply_environment(&environment(&[(&variable, &value)]))
            .unwrap();
        assert_eq!((setting.get)(&settings).to_string(), value, "{variable}");
        assert_eq!(
            settings.origin(setting.key),
            SettingOrigin::Environment(variable)
        );
        let others = T::TABLE.iter().filter(|other| other.key != setting.key);
        for other in others {
            assert_eq!(
                (other.get)(&settings),
                (other.get)(&T::default()),
                "{} changed {}",
                setting.key,
                other.key
            );
        }
    }
}

/// A111, P42: each setting can be set by a variable, and its origin is kept.
#[test]
fn every_setting_can_be_set_by_its_variable() {
    each_by_variable::<ServerSettings>();
    each_by_variable::<EngineSettings>();
    each_by_variable::<GatewaySettings>();
}

fn each_by_file<T: SettingsGroup>(head: &str, group: fn(&ParsedFile) -> &T) {
    let expected = format!("conf/warmline.toml:{}", head.lines().count() + 1);
    for setting in T::TABLE {
        let value = another(setting);
        let line = format!("{} = {}", setting.key, in_a_file(setting, &value));
        let text = format!("{head}{line}\n");
        let read = crate::parse_text(Path::new("conf/warmline.toml"), &text).unwrap();
        let settings = group(&read);
        let shown = (setting.get)(settings).to_string();
        assert_eq!(shown.trim_start_matches("conf/"), value, "{line}");
        let origin = settings.origin(setting.key).to_string();
        assert_eq!(origin, expected, "{line}");
    }
}

/// A111, P42: each setting can be set by a file, and its origin is kept.
#[test]
fn every_setting_can_be_set_by_a_file() {
    let head = "[servers.a]\nurl = 'http://127.0.0.1/'\n";
    each_by_file::<ServerSettings>(head, |read| &read.declarations[0].settings);
    each_by_file::<EngineSettings>("", |read| &read.engine);
    each_by_file::<GatewaySettings>("", |read| &read.gateway);
}

/// A default is one of the values that may be said.
#[test]
fn every_default_is_sensible_and_can_be_written_down() {
    fn look<T: SettingsGroup>() {
        let usual = T::default();
        usual.check_ranges().unwrap();
        for setting in T::TABLE {
            let value = (setting.get)(&usual);
            // A list that is empty has no text of its own.
            if value == SettingValue::Texts(Vec::new()) {
                continue;
            }
            let read = setting
                .kind
                .parse(&RawSettingValue::Variable(&value.to_string()));
            assert_eq!(read, Ok(value), "{}", setting.key);
            assert!(!setting.help.is_empty() && !setting.help.ends_with('.'));
        }
    }
    look::<ServerSettings>();
    look::<EngineSettings>();
    look::<GatewaySettings>();
}

#[test]
fn no_two_settings_have_the_same_variable() {
    let server = ServerSettings::TABLE.iter().map(Setting::variable);
    let mut all: Vec<String> = server
        .chain(EngineSettings::TABLE.iter().map(Setting::variable))
        .chain(GatewaySettings::TABLE.iter().map(Setting::variable))
        .collect();
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), count);
}

/// S1 to S13: the variables of the pool people come from mean here what they mean there.
#[test]
fn variables_of_other_programs_are_honoured_as_they_name_them() {
    let server = server_with(&[
        ("MCP_SESSION_POOL_MAX_PER_KEY", "20"),
        ("MCP_SESSION_POOL_TTL", "120.0"),
        ("MCP_SESSION_POOL_HEALTH_CHECK_INTERVAL", "40.0"),
        ("HEALTH_CHECK_INTERVAL", "50"),
        ("HEALTH_CHECK_TIMEOUT", "5"),
        ("MCP_SESSION_POOL_TRANSPORT_TIMEOUT", "25.5"),
        ("MCP_SESSION_POOL_ACQUIRE_TIMEOUT", "11.0"),
        ("MCP_SESSION_POOL_CREATE_TIMEOUT", "12.0"),
        ("MCP_SESSION_POOL_CIRCUIT_BREAKER_THRESHOLD", "3"),
        ("MCP_SESSION_POOL_CIRCUIT_BREAKER_RESET", "90.0"),
        ("MCP_SESSION_POOL_EXPLICIT_HEALTH_RPC", "true"),
    ])
    .unwrap();
    let policy = &server.policy;
    assert_eq!(policy.max_per_key, 20);
    assert_eq!(policy.max_age, Some(secs(120)));
    assert_eq!(policy.check_after, secs(40));
    assert_eq!(policy.health_check_interval, secs(50));
    assert_eq!(policy.health_check_timeout, secs(5));
    assert_eq!(policy.wait, secs(11));
    assert_eq!(policy.create, Some(secs(12)));
    assert_eq!(
        (policy.breaker.threshold, policy.breaker.reset),
        (3, secs(90))
    );
    assert_eq!(
        policy.breaker.longest,
        secs(90),
        "no shorter than the first"
    );
    assert!(policy.explicit_health_rpc);
    let engine = engine_with(&[
        ("MCP_SESSION_POOL_ENABLED", "false"),
        ("MCP_SESSION_POOL_IDLE_EVICTION", "33.0"),
    ])
    .unwrap();
    assert!(!engine.limits.pool_enabled);
    assert_eq!(engine.limits.evict_after, secs(33));
}

/// S7, A97: one limit for connecting, reading and writing becomes two for opening, and none for a
/// call.
#[test]
fn a_transport_timeout_limits_opening_and_never_a_call() {
    let usual = ServerSettings::default();
    let server = server_with(&[("MCP_SESSION_POOL_TRANSPORT_TIMEOUT", "5.0")]).unwrap();
    assert_eq!(server.timeouts.connect, secs(5));
    assert_eq!(server.timeouts.handshake, secs(5));
    assert_eq!(server.timeouts.start, usual.timeouts.start);
    assert_eq!(server.policy.deadlines, usual.policy.deadlines);
}

/// A96, S4, S5: the smaller of two check intervals counts, and the origin is that of the smaller.
#[test]
fn the_smaller_check_interval_counts_with_its_origin() {
    let server = server_with(&[("HEALTH_CHECK_INTERVAL", "15")]).unwrap();
    assert_eq!(server.policy.check_after, secs(15));
    assert_eq!(
        server.origin("check_after"),
        SettingOrigin::Environment("HEALTH_CHECK_INTERVAL".into())
    );
    let server = server_with(&[("MCP_SESSION_POOL_HEALTH_CHECK_INTERVAL", "600")]).unwrap();
    assert_eq!(server.policy.check_after, secs(60));
    assert_eq!(server.origin("check_after"), SettingOrigin::Default);
}

/// A111: command line or builder, then environment, then file, then default.
#[test]
fn the_nearest_source_wins() {
    let text = "[servers.a]\nurl = 'http://127.0.0.1/'\nwait = '4s'\nspares = 2\nmax_per_key = 5\n";
    let read = crate::parse_text(Path::new("warmline.toml"), text).unwrap();
    let mut settings = read.declarations[0].settings.clone();
    settings.policy.spares = 7;
    settings.mark_set_by_builder("spares");
    let variables = [
        ("WARMLINE_SPARES", "8"),
        ("WARMLINE_MAX_PER_KEY", "6"),
        ("MCP_SESSION_POOL_MAX_PER_KEY", "9"),
    ];
    settings
        .apply_environment(&environment(&variables))
        .unwrap();
    settings.normalize().unwrap();
    let effective = settings.effective_settings();
    let find = |key: &str| {
        let found = effective.iter().find(|one| one.key == key).unwrap();
        (found.value.clone(), found.origin.as_str())
    };
    assert_eq!(find("spares"), ("7".into(), "builder"));
    assert_eq!(find("max_per_key"), ("6".into(), "environment"));
    assert_eq!(find("wait"), ("4s".into(), "file"));
    assert_eq!(find("serial"), ("false".into(), "default"));
    assert_eq!(
        settings.origin("max_per_key"),
        SettingOrigin::Environment("WARMLINE_MAX_PER_KEY".into()),
        "our own name wins over another program's"
    );
}

#[test]
fn what_a_program_set_without_saying_so_counts_as_its_own() {
    let mut settings = ServerSettings::default();
    settings.policy.dialects = SessionGoneMatching::Wide;
    settings.mark_changes_as_builder();
    let variables = [("WARMLINE_DIALECTS", "sure"), ("WARMLINE_WAIT", "1s")];
    settings
        .apply_environment(&environment(&variables))
        .unwrap();
    assert_eq!(settings.policy.dialects, SessionGoneMatching::Wide);
    assert_eq!(settings.policy.wait, secs(1));
}

/// A111: a value that cannot be used is an error that names the variable, the value and the way
/// out.
#[test]
fn a_bad_value_names_its_variable() {
    #[rustfmt::skip]
    let table = [
        ("WARMLINE_WAIT", "10",                 "is not a duration: `10`",         "write a number and a unit: `500ms`, `30s`, `2min`, `1h`"),
        ("WARMLINE_MAX_PER_KEY", "0",           "cannot be 0",                     "1 to 10000 is possible"),
        ("MCP_SESSION_POOL_MAX_PER_KEY", "ten", "is not a whole number: `ten`",    ""),
        ("MCP_SESSION_POOL_TTL", "soon",        "is not a duration: `soon`",       "write seconds above 0: `30`, `300.0`"),
        ("MCP_SESSION_POOL_TTL", "0",           "is not a duration: `0`",          "write seconds above 0: `30`, `300.0`"),
        ("MCP_SESSION_POOL_EXPLICIT_HEALTH_RPC", "2", "is not `true` or `false`: `2`", "write `true` or `false`"),
        ("WARMLINE_SESSIONS", "alwys",          "cannot be `alwys`",               "did you mean `always`?"),
        ("WARMLINE_SESSION_PER", "user",        "cannot be `user`",                "write `auto`, `run`, `identity`, `call` or `server`"),
        ("WARMLINE_PROTOCOL_VERSION", "2025",   "cannot be `2025`",                ""),
        ("WARMLINE_KEEP_ALIVE", "0s",           "is not a duration: `0s`",         "write a number and a unit: `500ms`, `30s`, `2min`, `1h`; or `off`"),
    ];
    for (variable, value, what, hint) in table {
        let error = server_with(&[(variable, value)]).unwrap_err();
        assert_eq!(error.code, Code::ConfigBadValue);
        assert_eq!(error.message, format!("the variable `{variable}` {what}"));
        if !hint.is_empty() {
            assert_eq!(error.hint.as_deref(), Some(hint), "{variable}");
        }
    }
}

/// S23, S24, A180: variables that name no server are never read, and told if they are set.
#[test]
fn retired_variables_are_never_looked_at() {
    let lookup = |name: &str| -> Option<String> {
        assert!(!RETIRED_VARIABLES.contains(&name), "{name} was read");
        None
    };
    ServerSettings::default()
        .apply_environment(&lookup)
        .unwrap();
    EngineSettings::default()
        .apply_environment(&lookup)
        .unwrap();
    let names = [
        "HOME",
        "MCP_USE_SESSION_MGMT",
        "GITHUB_PAT",
        "WARMLINE_LOG",
        "WARMLINE_RUN",
        "WARMLINE_MAX_PERKEY",
        "WARMLINE_SPARES",
        "WARMLINE_ZZZ",
    ];
    let found = find_ignored_variables(names.iter().map(|name| (*name).to_owned()));
    let told: Vec<(&str, Option<&str>)> = found
        .iter()
        .map(|stray| (stray.variable.as_str(), stray.suggestion.as_deref()))
        .collect();
    assert_eq!(
        told,
        [
            ("GITHUB_PAT", None),
            ("MCP_USE_SESSION_MGMT", None),
            ("WARMLINE_MAX_PERKEY", Some("WARMLINE_MAX_PER_KEY")),
            ("WARMLINE_ZZZ", None),
        ]
    );
}

/// S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11, S12, S13, S15, S19, S22, S25, S27, S28, S29, S30,
/// S31, S32: each has a setting of its own.
#[test]
fn every_setting_of_the_seeds_has_a_name_here() {
    let server = ServerSettings::TABLE.iter().filter_map(|one| one.case_id);
    let engine = EngineSettings::TABLE.iter().filter_map(|one| one.case_id);
    let rows: std::collections::BTreeSet<&str> = server.chain(engine).collect();
    let wanted = [
        "S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9", "S10", "S11", "S12", "S13", "S15",
        "S19", "S22", "S25", "S27", "S28", "S29", "S30", "S31", "S32",
    ];
    assert_eq!(rows, wanted.into_iter().collect());
}

/// P129: how long sessions and runs may rest can be set, also to no limit at all.
#[test]
fn every_limit_of_rest_can_be_set() {
    let server = server_with(&[
        ("WARMLINE_MAX_IDLE", "none"),
        ("WARMLINE_KEEP_ALIVE", "20s"),
        ("WARMLINE_CONNECTION_IDLE", "4s"),
    ])
    .unwrap();
    assert_eq!(server.policy.max_idle, Some(Duration::ZERO));
    assert_eq!(server.policy.keep_alive, secs(20));
    assert_eq!(server.timeouts.connection_idle, secs(4));
    let engine = engine_with(&[("WARMLINE_RUNS_IDLE", "12h")]).unwrap();
    assert_eq!(engine.limits.run_idle, secs(12 * 3600));
}

/// S15: the headers that tell callers apart by default are those of the rule for identities.
#[test]
fn the_default_headers_of_an_identity_are_those_of_its_rule() {
    use warmline_engine::identity::{HeaderRule, IdentityExtractor as _};
    let rule = HeaderRule::from_names(&EngineSettings::default().identity_headers).unwrap();
    let all = [
        "authorization",
        "cookie",
        "x-api-key",
        "x-tenant-id",
        "x-user-id",
    ];
    for name in all.into_iter().chain(["x-other"]) {
        let mut headers = http::HeaderMap::new();
        headers.insert(name, "somebody".parse().unwrap());
        let ours = rule.identity(&headers).unwrap();
        let usual = HeaderRule::default().identity(&headers).unwrap();
        assert!(ours == usual, "{name}");
    }
}

proptest! {
    /// Whatever stands in a variable, it is a value within its range or an error that names it.
    #[test]
    fn no_value_of_a_variable_ends_in_surprise(which in 0..200_usize, value in ".{0,60}") {
        let server = ServerSettings::TABLE.iter().map(Setting::variable);
        let elsewhere = ServerSettings::TABLE.iter().filter_map(|one| one.foreign_variable.map(str::to_owned));
        let engine = EngineSettings::TABLE.iter().map(Setting::variable);
        let names: Vec<String> = server.chain(elsewhere).chain(engine).collect();
        let name = &names[which % names.len()];
        let outcome = server_with(&[(name, &value)]).map(|_| ())
            .and_then(|()| engine_with(&[(name, &value)]).map(|_| ()));
        if let Err(error) = outcome {
            prop_assert_eq!(error.code, Code::ConfigBadValue);
            prop_assert!(error.message.contains(name.as_str()), "{}", error.message);
            prop_assert!(!error.message.chars().any(char::is_control), "{:?}", error.message);
        }
    }
}

/// Bad input: a limit of zero is told also where it is said of one tool.
#[test]
fn a_tool_without_time_cannot_be_decided() {
    let none = Some(Duration::ZERO);
    let (idle, total) = (
        ToolPolicy {
            idle: none,
            ..ToolPolicy::default()
        },
        ToolPolicy {
            total: none,
            ..ToolPolicy::default()
        },
    );
    for tool in [idle, total] {
        let mut settings = ServerSettings::default();
        settings.policy.tools.insert("slow".to_owned(), tool);
        let error = settings.normalize().unwrap_err();
        assert_eq!(error.code, Code::ConfigBadValue);
        assert!(error.to_string().contains("`slow`"), "{error}");
    }
}
