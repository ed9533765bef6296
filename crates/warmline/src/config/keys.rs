//! Every key of `warmline.toml`, once: what is read now, and what other parts of Warmline read.

/// Keys of `[servers.NAME]` that are read here.
pub(crate) const SERVER: &[&str] = &[
    "auth_env",
    "ca_file",
    "call_idle_timeout",
    "call_timeout",
    "command",
    "connect_timeout",
    "credential",
    "cwd",
    "env",
    "env_pass",
    "era",
    "handshake_timeout",
    "headers",
    "start_timeout",
    "url",
    "url_env",
];

/// Keys of `[servers.NAME]` that decide about sessions, calls and clients. A single command that
/// opens one session and closes it again has nothing to decide with them.
pub(crate) const SERVER_ELSEWHERE: &[&str] = &[
    "allow",
    "breaker",
    "calls",
    "dedupe",
    "deny",
    "dialects",
    "health_check_interval",
    "idempotent_hint",
    "max_age",
    "max_idle",
    "max_per_key",
    "on_state_loss",
    "read_only_hint",
    "repeatable",
    "serial",
    "session_per",
    "sessions",
    "spares",
    "tools",
];

/// The table at the top that is read here.
pub(crate) const SERVERS: &str = "servers";

/// Tables at the top that the gateway and the library read.
pub(crate) const TOP_ELSEWHERE: &[&str] = &[
    "admin", "audit", "auth", "gateway", "limits", "log", "ops", "runs", "store",
];

/// Keys of `credential`.
pub(crate) const CREDENTIAL: &[&str] = &["env", "file"];

/// Forms of `credential` that need a caller or a running gateway.
pub(crate) const CREDENTIAL_ELSEWHERE: &[&str] = &["as", "command", "form", "header"];

/// Every key somebody may have meant within a server.
pub(crate) fn of_a_server() -> impl Iterator<Item = &'static str> {
    SERVER.iter().chain(SERVER_ELSEWHERE).copied()
}
