//! Files of other programs: `{"mcpServers": {…}}`, `{"servers": {…}}` as editors write it, and declarations
//! of capabilities that name their servers.
//!
//! Unknown keys belong to the other program and are no error; a value that we need and cannot read
//! is one.

use std::collections::BTreeMap;

use warmline_core::error::code::Code;
use warmline_engine::settings::config_error::{ConfigError, ExcerptPolicy, FileLocation};
use warmline_engine::settings::{
    ServerSettings, SettingOrigin, SettingValue, SettingsGroup as _, closest_match,
};
use warmline_upstream::parse_url;

use crate::declaration::{Declaration, SensitiveText, ServerKind, normalize_name};
use crate::document::{Node, Value};
use crate::expand::{self, Expansion};
use crate::json::{check_unique_names, duplicate_error, is_blank_json, parse_json};
use crate::reader::{NearMiss, ParsedFile, Reader};

/// Reads a whole file: `mcpServers`, or capabilities that name their servers. The reader keeps the
/// errors of single servers.
pub(crate) fn read(reader: &Reader<'_>) -> Result<ParsedFile, ConfigError> {
    let source = reader.source;
    let root = parse_json(source)?;
    let (capabilities, servers) = find_parts(reader, &root)?;
    if let Some(capabilities) = capabilities {
        return read_capabilities(reader, capabilities);
    }
    let Some(servers) = servers else {
        let what = "the file has neither `mcpServers` nor `servers` at its top";
        return Err(ConfigError::new(Code::ConfigBadValue, what)
            .with_location(FileLocation::whole_file(source.file)));
    };
    let mut servers: Vec<_> = reader.table("mcpServers", servers)?.iter().collect();
    servers.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
    let (mut read, mut last) = (ParsedFile::default(), None);
    for (key, node) in servers {
        if reader.is_full() {
            break;
        }
        let is_first = last.replace(&key.name) != Some(&key.name);
        let server = match is_first {
            true => check_unique_names(source, node),
            false => Err(duplicate_error(source, key)),
        };
        let server = server
            .and_then(|()| read_server(reader, &key.name, node, &mut read.near_misses))
            .and_then(|server| check_unique_name(server, &read.declarations));
        read.declarations.extend(reader.keep(server));
    }
    read.declarations.sort_by_key(|server| server.span.start);
    Ok(read)
}

/// Whether a file is empty, or about something else altogether.
pub(crate) fn declares_nothing(reader: &Reader<'_>) -> bool {
    is_blank_json(reader.source)
        || parse_json(reader.source)
            .is_ok_and(|root| matches!(find_parts(reader, &root), Ok((None, None))))
}

type FileParts<'n, 't> = (Option<&'n Node<'t>>, Option<&'n Node<'t>>);

/// The parts of a file that hold capabilities, and servers.
fn find_parts<'n, 't>(
    reader: &Reader<'_>,
    root: &'n Node<'t>,
) -> Result<FileParts<'n, 't>, ConfigError> {
    const KEYS: [&str; 4] = ["mcp_metadata", "capabilities", "mcpServers", "servers"];
    if root.as_list().is_some() {
        return Ok((Some(root), None));
    }
    let mut seen = Vec::new();
    for (key, node) in reader.table("the file", root)? {
        if matches!(node.value, Value::Null) {
            continue;
        }
        if KEYS.contains(&&*key.name) && seen.contains(&&key.name) {
            return Err(duplicate_error(reader.source, key));
        }
        seen.push(&key.name);
    }
    let metadata = root.member(&["mcp_metadata"]).map(|_| root);
    Ok((
        metadata.or_else(|| root.member(&["capabilities"])),
        root.member(&["mcpServers", "servers"]),
    ))
}

/// The server, unless another one has its name here.
fn check_unique_name(
    server: Declaration,
    known: &[Declaration],
) -> Result<Declaration, ConfigError> {
    let Some(other) = known.iter().find(|other| other.name == server.name) else {
        return Ok(server);
    };
    let (name, original, other) = (&server.name, &server.original_name, &other.original_name);
    let what = format!("`{original}` and `{other}` both become `{name}` here");
    Err(server.bad_value(what).with_hint("rename one of them"))
}

/// Keys of an entry that we read.
const KEYS: &[&str] = &[
    "command", "args", "env", "cwd", "url", "headers", "type", "disabled", "enabled",
];

/// Keys that are no misspelling, whether we or other programs read them.
const FOREIGN_KEYS: &str = "transport kind name id slug folder dev auth icon tools timeout";

/// The key that another word for it means.
fn key_of_alias(alias: &str) -> Option<&'static str> {
    match alias {
        "cmd" | "program" => Some("command"),
        "argv" | "arguments" => Some("args"),
        "environment" => Some("env"),
        "serverUrl" | "endpoint" => Some("url"),
        _ => None,
    }
}

/// Keys of an entry that are nearly some that we read, where those are missing.
fn find_near_misses(server: &str, entry: &Node<'_>) -> Vec<NearMiss> {
    let Value::Table(members) = &entry.value else {
        return Vec::new();
    };
    let has = |name: &str| members.iter().any(|(key, _)| key.name == name);
    let misses = members.iter().filter_map(|(key, _)| {
        let key = key.name.as_ref();
        let is_known = KEYS.contains(&key) || FOREIGN_KEYS.split(' ').any(|known| known == key);
        let near = || closest_match(key, KEYS.iter().copied()).filter(|_| !is_known);
        let suggestion = key_of_alias(key).or_else(near)?;
        (!has(suggestion)).then(|| NearMiss {
            server: server.to_owned(),
            key: key.to_owned(),
            suggestion,
        })
    });
    misses.collect()
}

fn read_server(
    reader: &Reader<'_>,
    written: &str,
    entry: &Node<'_>,
    near_misses: &mut Vec<NearMiss>,
) -> Result<Declaration, ConfigError> {
    let entry = Entry {
        reader,
        server: written,
        node: entry,
    };
    reader.table(&written.escape_debug().to_string(), entry.node)?;
    let misses = find_near_misses(written, entry.node);
    let near = misses.first().cloned();
    near_misses.extend(misses);
    let place = (entry.node.span.clone(), ExcerptPolicy::Hidden);
    let name = normalize_name(written).unwrap_or_default();
    let mut server = Declaration::new(reader.source, name, written, place);
    server.expansion = Expansion::Variables;
    let command = entry.text("command")?;
    let command = command.filter(|command| !command.text.is_empty());
    let args = entry.read(&["args"], |path, node| entry.texts(path, node))?;
    server.command = command.map(|command| [vec![command], args.unwrap_or_default()].concat());
    server.url = entry.text("url")?;
    let text = |path: &str, node: &Node<'_>| reader.text(path, node);
    let headers = entry.read(&["headers"], |path, node| {
        reader.map(path, node, |path, node| entry.expandable(path, node))
    });
    let (headers, env) = (headers?.unwrap_or_default(), entry.env(&mut server)?);
    let cwd = entry.read(&["cwd"], text)?;
    match server.command {
        Some(_) => (server.env, server.cwd) = (env, cwd.map(Into::into)),
        None => server.headers = headers,
    }
    server.descriptor.id = entry.node.member(&["id"]).and_then(|id| entry.scalar(id));
    server.descriptor.slug = entry.read(&["slug"], text)?;
    server.descriptor.folder = entry.read(&["folder", "folder_path", "folderPath"], text)?;
    entry.read_switches(&mut server);
    let kind = entry.node.member(&["type", "transport", "kind"]);
    let kind = kind.map(|kind| {
        let word = kind.as_text().unwrap_or_else(|| entry.source_text(kind));
        ServerKind::parse(word, written)
    });
    let kind = kind.transpose().unwrap_or_else(|error| {
        server.unusable_reason = Some(error.with_location(server.location.clone()));
        None
    });
    server.check_transport(kind).map_err(|error| match near {
        Some(near) => {
            let (meant, key) = (near.suggestion, near.key.escape_debug());
            error.with_hint(format!("did you mean `{meant}` by `{key}`?"))
        },
        None => error,
    })?;
    if server.name.is_empty() {
        let what = format!("`{written}` holds no letter or digit to make a name of");
        return Err(server.bad_value(what));
    }
    Ok(server)
}

/// An entry of `mcpServers`.
struct Entry<'e> {
    reader: &'e Reader<'e>,
    server: &'e str,
    node: &'e Node<'e>,
}

impl Entry<'_> {
    fn path(&self, key: &str) -> String {
        format!("{}.{}", self.server.escape_debug(), key.escape_debug())
    }

    fn source_text(&self, node: &Node<'_>) -> &str {
        let text = self.reader.source.text.get(node.span.clone());
        text.unwrap_or_default()
    }

    /// A text in which variables are expanded.
    fn expandable(&self, path: &str, node: &Node<'_>) -> Result<SensitiveText, ConfigError> {
        let text = self.reader.text(path, node)?;
        self.check_variables_closed(&text, node)?;
        Ok(self.reader.sensitive_text(text, node))
    }

    fn check_variables_closed(&self, text: &str, node: &Node<'_>) -> Result<(), ConfigError> {
        if !expand::has_unclosed_variable(text) {
            return Ok(());
        }
        let raw = self.source_text(node);
        let mut starts = raw.match_indices("${");
        let is_open = |at: usize| !raw.get(at..).unwrap_or_default().contains('}');
        let at = starts.find(|(at, _)| is_open(*at)).map_or(0, |(at, _)| at);
        let start = node.span.start + at;
        let source = self.reader.source;
        let place = source.location(start..start + 2, ExcerptPolicy::Hidden);
        let what = format!("a `${{` of `{}` is not closed by a `}}`", self.server);
        Err(ConfigError::new(Code::ConfigBadValue, what)
            .with_location(place)
            .with_hint("write `${NAME}`; a `$` without a `{` behind it is a dollar sign"))
    }

    /// The value of the first of these keys that is there.
    fn read<T>(
        &self,
        keys: &[&str],
        read: impl FnOnce(&str, &Node<'_>) -> Result<T, ConfigError>,
    ) -> Result<Option<T>, ConfigError> {
        let path = self.path(keys.first().copied().unwrap_or_default());
        let node = self.node.member(keys);
        node.map(|node| read(&path, node)).transpose()
    }

    fn text(&self, key: &str) -> Result<Option<SensitiveText>, ConfigError> {
        self.read(&[key], |path, node| self.expandable(path, node))
    }

    fn texts(&self, path: &str, node: &Node<'_>) -> Result<Vec<SensitiveText>, ConfigError> {
        let items = node.as_list();
        let items = items.ok_or_else(|| self.reader.type_error(path, "a list of texts", node))?;
        let texts = items.iter().map(|item| self.expandable(path, item));
        texts.collect()
    }

    /// Values of `env` are texts, but people write numbers and truth values as well.
    fn env(
        &self,
        server: &mut Declaration,
    ) -> Result<BTreeMap<String, SensitiveText>, ConfigError> {
        let mut env = BTreeMap::new();
        let Some(node) = self.node.member(&["env"]) else {
            return Ok(env);
        };
        for (key, node) in self.reader.table(&self.path("env"), node)? {
            let Some(text) = self.scalar(node) else {
                let (name, server_name, found) = (&key.name, self.server, node.type_name());
                let what = format!("`env.{name}` of `{server_name}` is {found}, not a text");
                server.unusable_reason = Some(server.bad_value(what));
                continue;
            };
            self.check_variables_closed(&text, node)?;
            let text = self.reader.sensitive_text(text, node);
            env.insert(key.name.to_string(), text);
        }
        Ok(env)
    }

    fn scalar(&self, node: &Node<'_>) -> Option<String> {
        match &node.value {
            Value::Text(text) => Some(text.to_string()),
            Value::Integer(_) | Value::Fraction | Value::Switch(_) => {
                Some(self.source_text(node).to_owned())
            },
            Value::Null | Value::Date | Value::Unreadable(_) | Value::List(_) | Value::Table(_) => {
                None
            },
        }
    }

    /// Notes whether the entry switches its server off.
    fn read_switches(&self, server: &mut Declaration) {
        let is = |names: &[&str], wanted: bool| {
            let node = self.node.member(names);
            node.is_some_and(|node| matches!(node.value, Value::Switch(on) if on == wanted))
        };
        let (written, hint) = if is(&["disabled"], true) {
            (
                "\"disabled\": true",
                "remove `disabled`, or set it to `false`",
            )
        } else if is(&["enabled", "is_enabled", "isEnabled"], false) {
            (
                "\"enabled\": false",
                "remove `enabled`, or set it to `true`",
            )
        } else {
            return;
        };
        let what = format!("`{}` is switched off by `{written}`", self.server);
        server.disabled_reason = Some(server.bad_value(what).with_hint(hint));
        if let Some(enabled) = ServerSettings::setting("enabled") {
            let origin = SettingOrigin::from_location(&server.location);
            server
                .settings
                .set_value(enabled, SettingValue::Switch(false), origin);
        }
    }
}

/// Reads capabilities that name their server in `mcp_metadata`; those without it are skipped. There is
/// one of them, a list, or a table of them by id. Several may name the same server, one for each of its
/// tools; they must agree about it.
fn read_capabilities(reader: &Reader<'_>, root: &Node<'_>) -> Result<ParsedFile, ConfigError> {
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
    let (name, original_name) = capability_names(text(metadata, "server_name")?, url.as_deref())
        .map_err(|what| reader.bad_value(what, entry, ExcerptPolicy::Hidden))?;
    let place = (entry.span.clone(), ExcerptPolicy::Hidden);
    let mut server = Declaration::new(reader.source, name, &original_name, place);
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
fn capability_names(name: Option<String>, url: Option<&str>) -> Result<(String, String), String> {
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
