//! The keys of `warmline.toml` that are no settings. Settings are rows of the tables in
//! [`settings`](warmline_engine::settings).

use warmline_engine::settings::{EngineSettings, ServerSettings, SettingsGroup};

use crate::GatewaySettings;

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

/// Keys of `credential` that name its source; one of them.
pub(crate) const CREDENTIAL: &[&str] = &["command", "env", "file", "header"];

/// Keys of `credential` that say how it is sent.
pub(crate) const CREDENTIAL_HEADER: &[&str] = &["as", "form"];

/// Keys of a rule in `allow` and `deny`.
pub(crate) const RULE: &[&str] = &["claim", "has", "identity", "tools"];

/// The table that declares servers.
pub(crate) const SERVERS_TABLE: &str = "servers";

/// Every key of `[servers.NAME]`.
pub(crate) fn server_keys() -> impl Iterator<Item = &'static str> {
    let keys = SERVER.iter().copied();
    keys.chain(top_level_names::<ServerSettings>())
}

/// Every table of a file.
pub(crate) fn top_level_keys() -> impl Iterator<Item = &'static str> {
    std::iter::once(SERVERS_TABLE)
        .chain(top_level_names::<EngineSettings>())
        .chain(top_level_names::<GatewaySettings>())
}

/// The names of a group's settings up to the first dot.
pub(crate) fn top_level_names<T: SettingsGroup>() -> impl Iterator<Item = &'static str> {
    T::TABLE.iter().map(|setting| head(setting.key))
}

/// The keys of a table of settings, and the tables within it.
pub(crate) fn keys_within<T: SettingsGroup>(table: &str) -> impl Iterator<Item = &'static str> {
    T::TABLE.iter().filter_map(move |setting| {
        let rest = setting.key.strip_prefix(table)?.strip_prefix('.')?;
        Some(head(rest))
    })
}

fn head(key: &'static str) -> &'static str {
    key.split_once('.').map_or(key, |(head, _)| head)
}
