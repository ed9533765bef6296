//! Every key of `warmline.toml` that is no setting of a table in [`settings`](crate::settings).

use crate::settings::{EngineSettings, GatewaySettings, Group, ServerSettings, Setting};

/// Keys of `[servers.NAME]` that say what the server is.
pub(crate) const SERVER: &[&str] = &[
    "auth_env",
    "ca_file",
    "command",
    "credential",
    "cwd",
    "env",
    "env_pass",
    "folder",
    "headers",
    "id",
    "kind",
    "labels",
    "slug",
    "tools",
    "url",
    "url_env",
];

/// Keys of `[servers.NAME.tools.TOOL]`.
pub(crate) const TOOL: &[&str] = &[
    "call_idle_timeout",
    "call_timeout",
    "repeatable",
    "session_per",
];

/// Keys of `credential` that say where it comes from; one of them.
pub(crate) const CREDENTIAL: &[&str] = &["command", "env", "file", "header"];

/// Keys of `credential` that say how it is shown.
pub(crate) const CREDENTIAL_SHOWN: &[&str] = &["as", "form"];

/// Keys of a rule in `allow` and `deny`.
pub(crate) const RULE: &[&str] = &["claim", "has", "identity", "tools"];

/// The table at the top that declares servers.
pub(crate) const SERVERS: &str = "servers";

/// Every key somebody may have meant within a server.
pub(crate) fn of_a_server() -> impl Iterator<Item = &'static str> {
    SERVER.iter().copied().chain(heads::<ServerSettings>())
}

/// Every table somebody may have meant at the top.
pub(crate) fn of_the_top() -> impl Iterator<Item = &'static str> {
    std::iter::once(SERVERS)
        .chain(heads::<EngineSettings>())
        .chain(heads::<GatewaySettings>())
}

/// What stands before the dot of a group's settings, or the whole name where there is none.
pub(crate) fn heads<T: Group>() -> impl Iterator<Item = &'static str> {
    T::TABLE.iter().map(head)
}

fn head<T>(setting: &Setting<T>) -> &'static str {
    setting
        .key
        .split_once('.')
        .map_or(setting.key, |(head, _)| head)
}

/// What may stand in a table: settings, and tables within it.
pub(crate) fn within<T: Group>(table: &str) -> impl Iterator<Item = &'static str> {
    T::TABLE.iter().filter_map(move |setting| {
        let rest = setting.key.strip_prefix(table)?.strip_prefix('.')?;
        Some(rest.split_once('.').map_or(rest, |(head, _)| head))
    })
}
