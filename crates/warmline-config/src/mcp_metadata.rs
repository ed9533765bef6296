//! Declarations of capabilities that name their MCP server in `mcp_metadata`.
//!
//! A file holds one of them, a list, or a table of them by id. Several may name the same server, one
//! for each of its tools; they must agree about it.

use warmline_core::error::code::Code;
use warmline_engine::settings::config_error::{ConfigError, ExcerptPolicy};
use warmline_engine::settings::{ServerSettings, SettingOrigin, SettingsGroup as _};
use warmline_upstream::parse_url;

use crate::declaration::{Declaration, normalize_name};
use crate::document::Node;
use crate::expand::Expansion;
use crate::json::check_unique_names;
use crate::reader::{ParsedFile, Reader};

/// Reads the capabilities of a part of the file. Those without `mcp_metadata` are skipped.
pub(crate) fn read(reader: &Reader<'_>, root: &Node<'_>) -> Result<ParsedFile, ConfigError> {
    check_unique_names(reader.source, root)?;
    let entries: Vec<&Node<'_>> = if let Some(items) = root.as_list() {
        items.iter().collect()
    } else if root.member(&["mcp_metadata"]).is_some() {
        vec![root]
    } else {
        let members = reader.table("capabilities", root)?.iter();
        members.map(|(_, node)| node).collect()
    };
    let mut read = ParsedFile::default();
    for entry in entries {
        reader.table("a capability", entry)?;
        if let Some(metadata) = entry.member(&["mcp_metadata"]) {
            reader.table("mcp_metadata", metadata)?;
            let server = to_declaration(reader, entry, metadata)?;
            add_declaration(&mut read.declarations, server)?;
        }
    }
    read.declarations.sort_by_key(|server| server.span.start);
    Ok(read)
}

fn to_declaration(
    reader: &Reader<'_>,
    entry: &Node<'_>,
    metadata: &Node<'_>,
) -> Result<Declaration, ConfigError> {
    let text = |node: &Node<'_>, key: &str| {
        let node = node.member(&[key]);
        node.map(|node| reader.text(key, node)).transpose()
    };
    let url = text(metadata, "server_url")?;
    let (name, original_name) = names(text(metadata, "server_name")?, url.as_deref())
        .map_err(|what| reader.bad_value(what, entry, ExcerptPolicy::Hidden))?;
    let place = (entry.span.clone(), ExcerptPolicy::Hidden);
    let mut server = Declaration::new(
        reader.source,
        name,
        &original_name,
        place,
        Expansion::Disabled,
    );
    let url = metadata.member(&["server_url"]).zip(url);
    server.url = url.map(|(node, url)| reader.sensitive_text(url, node));
    let variable = |key, default: &str| {
        let name = text(entry, key)?;
        Ok::<_, ConfigError>(Some(name.unwrap_or_else(|| default.to_owned())))
    };
    server.url_env = variable("mcp_server_url_override_env", "MCP_SERVER_URL")?;
    server.auth_env = variable("mcp_auth_env_var", "MCP_AUTH_TOKEN")?;
    for (holder, key, setting) in [
        (entry, "mcp_requires_session", "sessions"),
        (metadata, "protocol_version", "protocol_version"),
    ] {
        let node = holder.member(&[key]);
        if let (Some(setting), Some(node)) = (ServerSettings::setting(setting), node) {
            let name = format!("{key}` of `{original_name}");
            let value = reader.setting_value(&name, &setting.kind, node)?;
            let origin = SettingOrigin::from_location(&server.location);
            server.settings.set_value(setting, value, origin);
        }
    }
    Ok(server)
}

/// The name here and the original name of a server, which the host of its URL replaces.
fn names(name: Option<String>, url: Option<&str>) -> Result<(String, String), String> {
    let original_name = match (name, url.map(parse_url)) {
        (Some(name), _) => name,
        (None, None) => {
            return Err("a capability has neither a `server_name` nor a `server_url`".to_owned());
        },
        (None, Some(url)) => {
            let host = url.ok().and_then(|url| url.host_str().map(str::to_owned));
            host.ok_or("a capability has no `server_name`, and its `server_url` names no host")?
        },
    };
    let shown = original_name.escape_debug();
    let name = normalize_name(&original_name)
        .ok_or_else(|| format!("`{shown}` holds no letter or digit to make a name of"))?;
    Ok((name, original_name))
}

/// Adds a server. One that is there already must be declared the same.
fn add_declaration(all: &mut Vec<Declaration>, new: Declaration) -> Result<(), ConfigError> {
    let Some(known) = all.iter().find(|known| known.name == new.name) else {
        all.push(new);
        return Ok(());
    };
    let url = |server: &Declaration| server.url.as_ref().map(|url| url.text.clone());
    let (old_policy, new_policy) = (&known.settings.policy, &new.settings.policy);
    let differences = [
        ("server_name", known.original_name != new.original_name),
        ("server_url", url(known) != url(&new)),
        (
            "mcp_requires_session",
            old_policy.sessions != new_policy.sessions,
        ),
        ("protocol_version", old_policy.version != new_policy.version),
        ("mcp_auth_env_var", known.auth_env != new.auth_env),
        ("mcp_server_url_override_env", known.url_env != new.url_env),
    ];
    let Some((key, _)) = differences.iter().find(|(_, differs)| *differs) else {
        return Ok(());
    };
    let name = &new.original_name;
    let what = format!("two capabilities of `{name}` differ in `{key}`");
    Err(ConfigError::new(Code::ConfigBadValue, what)
        .with_location(new.location)
        .with_hint("declare a server the same everywhere, or give it two names"))
}
