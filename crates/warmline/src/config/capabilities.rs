//! Declarations of capabilities that name their MCP server: `mcp_metadata` and what stands beside it.
//!
//! A file holds one of them, a list, or a table of them by id. Several may name the same server,
//! one for each of its tools; they must agree about it.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use warmline_core::code::Code;

use super::Read;
use super::access::Access;
use super::declaration::{Declaration, DeclaredReach, Described, Written};
use super::expand::Expand;
use super::mcp_servers::{broken, parse, plain_name, span};
use super::members::Members;
use crate::settings::place::{ConfigError, Place, Show, Source};
use crate::settings::{Group as _, Origin, Said, ServerSettings};
use crate::upstream::parse_url;

/// What the capabilities of a file declare about servers. Parts without `mcp_metadata` are no
/// business of ours.
pub(crate) fn read(source: Source<'_>, parts: &[&str]) -> Result<Read, ConfigError> {
    let mut read = Read::default();
    for part in parts {
        for raw in entries(source, part)? {
            let entry: Capability = parse(raw).map_err(|error| broken(source, raw, &error))?;
            if let Some(metadata) = &entry.mcp_metadata {
                let place = source.place(span(source.text, raw), Show::Nothing);
                let declared = declaration(source, &entry, metadata, place, raw)?;
                add(&mut read.declarations, declared)?;
            }
        }
    }
    read.declarations
        .sort_by_key(|declaration| declaration.span.start);
    Ok(read)
}

#[derive(Deserialize)]
struct Capability {
    mcp_metadata: Option<Metadata>,
    mcp_requires_session: Option<Value>,
    mcp_auth_env_var: Option<String>,
    mcp_server_url_override_env: Option<String>,
}

#[derive(Deserialize)]
struct Metadata {
    server_url: Option<String>,
    server_name: Option<String>,
    protocol_version: Option<String>,
}

/// The capabilities of a part of the file: itself, those of a list, or those of a table.
fn entries<'t>(source: Source<'_>, part: &'t str) -> Result<Vec<&'t str>, ConfigError> {
    let complain = |error: serde_json::Error| broken(source, part, &error);
    if part.trim_start().starts_with('[') {
        let list: Vec<&RawValue> = parse(part).map_err(complain)?;
        return Ok(list.into_iter().map(RawValue::get).collect());
    }
    let table: Members<'_, &RawValue> = parse(part).map_err(complain)?;
    let mut twice = Vec::new();
    let table = table.by_name(source, &mut twice);
    if let Some(fault) = twice.into_iter().next() {
        return Err(fault);
    }
    if table.contains_key("mcp_metadata") {
        return Ok(vec![part]);
    }
    Ok(table.into_values().map(RawValue::get).collect())
}

fn declaration(
    source: Source<'_>,
    entry: &Capability,
    metadata: &Metadata,
    place: Place,
    raw: &str,
) -> Result<Declaration, ConfigError> {
    let bad = |what: String| ConfigError::new(Code::ConfigBadValue, what).at(place.clone());
    let written = match (&metadata.server_name, &metadata.server_url) {
        (Some(name), _) => name.clone(),
        (None, Some(url)) => host(url).ok_or_else(|| {
            bad("a capability has no `server_name`, and its `server_url` names no host".to_owned())
        })?,
        (None, None) => {
            let what = "a capability has neither a `server_name` nor a `server_url`";
            return Err(bad(what.to_owned()));
        },
    };
    let Some(name) = plain_name(&written) else {
        let what = format!(
            "`{}` holds no letter or digit to make a name of",
            written.escape_debug()
        );
        return Err(bad(what));
    };
    Ok(Declaration {
        name,
        settings: decided(entry, metadata, &written, &place)?,
        written,
        span: span(source.text, raw),
        reach: DeclaredReach::Url {
            url: metadata.server_url.clone().map(Written::new),
            headers: Vec::new(),
            ca_file: None,
        },
        credential: None,
        access: Access::default(),
        url_env: Some(variable(
            &entry.mcp_server_url_override_env,
            "MCP_SERVER_URL",
        )),
        auth_env: Some(variable(&entry.mcp_auth_env_var, "MCP_AUTH_TOKEN")),
        described: Described::default(),
        expand: Expand::Nothing,
        off: None,
        refusal: None,
        base: source.file.parent().unwrap_or(Path::new("")).to_owned(),
        place,
    })
}

/// A variable by the name it was given, or the one such declarations mean otherwise.
fn variable(said: &Option<String>, usual: &str) -> String {
    said.clone().unwrap_or_else(|| usual.to_owned())
}

/// What stands in the hints about sessions and the version.
fn decided(
    entry: &Capability,
    metadata: &Metadata,
    whose: &str,
    place: &Place,
) -> Result<ServerSettings, ConfigError> {
    let mut settings = ServerSettings::default();
    let hints = [
        (
            "mcp_requires_session",
            "sessions",
            entry.mcp_requires_session.clone(),
        ),
        (
            "protocol_version",
            "protocol_version",
            metadata.protocol_version.clone().map(Value::String),
        ),
    ];
    for (key, meant, value) in hints {
        let (Some(value), Some(setting)) = (value, ServerSettings::setting(meant)) else {
            continue;
        };
        let said = match &value {
            Value::String(text) => Said::Text(text),
            Value::Bool(on) => Said::Switch(*on),
            Value::Number(_) => Said::Other("a number"),
            Value::Null => continue,
            Value::Array(_) => Said::Other("a list"),
            Value::Object(_) => Said::Other("an object"),
        };
        let value = setting.kind.read(&said).map_err(|wrong| {
            let what = format!("`{key}` of `{whose}` {}", wrong.what);
            let bad = ConfigError::new(Code::ConfigBadValue, what).at(place.clone());
            wrong.hint.into_iter().fold(bad, ConfigError::hint)
        })?;
        settings.put(setting, value, Origin::of_place(place));
    }
    Ok(settings)
}

/// Adds a server, or finds that what is said of it is known already.
fn add(all: &mut Vec<Declaration>, new: Declaration) -> Result<(), ConfigError> {
    let Some(known) = all.iter().find(|known| known.name == new.name) else {
        all.push(new);
        return Ok(());
    };
    let url = |of: &Declaration| match &of.reach {
        DeclaredReach::Url { url, .. } => url.clone(),
        DeclaredReach::Command { .. } => None,
    };
    let differs = [
        (known.written != new.written, "server_name"),
        (url(known) != url(&new), "server_url"),
        (
            known.settings.policy.sessions != new.settings.policy.sessions,
            "mcp_requires_session",
        ),
        (
            known.settings.policy.version != new.settings.policy.version,
            "protocol_version",
        ),
        (known.auth_env != new.auth_env, "mcp_auth_env_var"),
        (known.url_env != new.url_env, "mcp_server_url_override_env"),
    ];
    match differs.iter().find(|(differs, _)| *differs) {
        None => Ok(()),
        Some((_, key)) => {
            let what = format!("two capabilities of `{}` differ in `{key}`", new.written);
            Err(ConfigError::new(Code::ConfigBadValue, what)
                .at(new.place)
                .hint("say the same of a server everywhere, or give it two names"))
        },
    }
}

fn host(url: &str) -> Option<String> {
    let url = parse_url(url).ok()?;
    url.host_str().map(str::to_owned)
}
