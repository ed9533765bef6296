//! `warmline.toml`. Every key is known, or it is an error with the nearest right word.

use warmline_engine::settings::config_error::{ConfigError, ExcerptPolicy};
use warmline_engine::settings::{EngineSettings, ServerSettings, SettingsGroup as _};
use warmline_upstream::parse_url;

use crate::declaration::{Declaration, SensitiveText, name_problem};
use crate::document::{Key, Node, file_name, parse_toml};
use crate::expand::{self, Expansion};
use crate::reader::{ParsedFile, Reader};
use crate::server_kind::ServerKind;
use crate::{GatewaySettings, keys};

mod access;
mod settings;

/// Reads a whole file. The reader keeps the errors of single keys.
pub(crate) fn read(reader: &Reader<'_>) -> Result<ParsedFile, ConfigError> {
    let mut read = ParsedFile::default();
    let is_engine = |name| keys::top_level_names::<EngineSettings>().any(|head| head == name);
    let is_gateway = |name| keys::top_level_names::<GatewaySettings>().any(|head| head == name);
    reader.each_member(
        "the file",
        &parse_toml(reader.source)?,
        |key, node| match key.name.as_ref() {
            keys::SERVERS_TABLE => reader.each_member("servers", node, |key, node| {
                read.declarations.extend(reader.server(key, node)?);
                Ok(())
            }),
            name if is_engine(name) => reader.settings_table(name, node, &mut read.engine),
            name if is_gateway(name) => reader.settings_table(name, node, &mut read.gateway),
            _ => Err(reader.unknown_key(key, "table of this file", keys::top_level_keys())),
        },
    )?;
    read.declarations.sort_by_key(|server| server.span.start);
    Ok(read)
}

/// Suggests what to write instead of a variable of that name.
type VariableHint = fn(&str) -> String;

const SUGGEST_CREDENTIAL: VariableHint =
    |variable| format!("use `credential = {{ env = \"{variable}\" }}`, or `url_env`");
const SUGGEST_ENV_PASS: VariableHint =
    |variable| format!("pass the variable on: `env_pass = [\"{variable}\"]`");
const SUGGEST_SHELL: VariableHint = |variable| {
    format!(
        "let a shell fill it in: `command = [\"sh\", \"-c\", \"exec PROGRAM … \\\"${variable}\\\"\"]` \
         with `env_pass = [\"{variable}\"]`"
    )
};

impl Reader<'_> {
    /// One server; none if the reader kept an error about it.
    fn server(&self, key: &Key<'_>, node: &Node<'_>) -> Result<Option<Declaration>, ConfigError> {
        let name = &*key.name;
        let place = (key.span.clone(), ExcerptPolicy::KeyOnly);
        let mut server = Declaration::new(
            self.source,
            name.to_owned(),
            name,
            place,
            Expansion::Disabled,
        );
        if let Some(problem) = name_problem(name) {
            let what = format!("`{name}` cannot be the name of a server: {problem}");
            self.keep::<()>(Err(server.bad_value(what)));
        }
        let (errors, mut kind) = (self.error_count(), None);
        self.each_member(name, node, |key, node| {
            self.server_key(key, node, &mut server, &mut kind)
        })?;
        if self.error_count() > errors {
            // A key may be missing only because of an error; a key that is there can be checked.
            if let Some(Err(why)) = server.url.as_ref().map(|url| parse_url(&url.text)) {
                let what = format!("the `url` of `{name}` is not a URL");
                self.keep::<()>(Err(server.bad_value(what).with_cause(why)));
            }
            return Ok(None);
        }
        server.check_transport(kind).map_err(|error| {
            match (&server.command, &server.url) {
                (None, None) => {
                    error.with_hint("add `url = \"https://…\"` or `command = [\"program\", \"argument\"]`")
                },
                (Some(_), Some(_)) => error.with_hint(
                    "keep `command` for a program that is started here, `url` for a server that runs",
                ),
                _ => error,
            }
        })?;
        Ok(Some(server))
    }

    fn server_key(
        &self,
        key: &Key<'_>,
        node: &Node<'_>,
        server: &mut Declaration,
        kind: &mut Option<ServerKind>,
    ) -> Result<(), ConfigError> {
        let name = &*key.name;
        let literals =
            |hint| self.map(name, node, move |name, node| self.literal(name, node, hint));
        match name {
            "allow" | "deny" => return self.access_list(name, node, server),
            "kind" => {
                let parsed = ServerKind::parse(&self.text(name, node)?, &server.name);
                let show = ExcerptPolicy::KeyAndValue;
                let place = self.source.location(node.span.clone(), show);
                *kind = Some(parsed.map_err(|error| error.with_location(place))?);
            },
            "command" => server.command = Some(self.command(node)?),
            "url" => server.url = Some(self.literal(name, node, SUGGEST_CREDENTIAL)?),
            "headers" => server.headers = literals(SUGGEST_CREDENTIAL)?,
            "ca_file" => server.ca_file = Some(self.text(name, node)?.into()),
            "env" => server.env = literals(SUGGEST_ENV_PASS)?,
            "env_pass" => server.env_pass = self.texts(name, node)?,
            "cwd" => server.cwd = Some(self.text(name, node)?.into()),
            "credential" => server.credential = Some(self.credential(key, node)?),
            "url_env" => server.url_env = Some(self.variable_name(name, node)?),
            "auth_env" => server.auth_env = Some(self.variable_name(name, node)?),
            "id" => server.descriptor.id = Some(self.text(name, node)?),
            "slug" => server.descriptor.slug = Some(self.text(name, node)?),
            "folder" => server.descriptor.folder = Some(self.text(name, node)?),
            "labels" => {
                server.descriptor.labels =
                    self.map(name, node, |name, node| self.text(name, node))?;
            },
            "tools" => return self.tools(node, &mut server.settings.policy.tools),
            _ => {
                if let Some(setting) = ServerSettings::setting(name) {
                    return self.setting(setting, node, &mut server.settings);
                }
                if keys::keys_within::<ServerSettings>(name).next().is_some() {
                    return self.settings_table(name, node, &mut server.settings);
                }
                return Err(self.unknown_key(key, "setting of a server", keys::server_keys()));
            },
        }
        Ok(())
    }

    fn command(&self, node: &Node<'_>) -> Result<Vec<SensitiveText>, ConfigError> {
        if let Some(text) = node.as_text() {
            let what = "`command` is one text, and no shell will split it";
            // The program is no secret; any word behind it may be one.
            let mut words = text.split_whitespace();
            let program = words.next().unwrap_or("npx");
            let rest = ", \"…\"".repeat(words.count());
            let hint = format!("write a list: `command = [{program:?}{rest}]`");
            let error = self.bad_value(what, node, ExcerptPolicy::Hidden);
            return Err(error.with_hint(hint));
        }
        let words = self.texts("command", node)?;
        let items = node.as_list().unwrap_or_default();
        // A shell behind `-c` fills in variables itself.
        if !words.iter().any(|word| word == "-c") {
            for item in items {
                self.literal("command", item, SUGGEST_SHELL)?;
            }
        }
        if words.first().is_none_or(String::is_empty) {
            let what = "`command` names no program";
            return Err(self.bad_value(what, node, ExcerptPolicy::Hidden));
        }
        let words = words.into_iter().zip(items);
        Ok(words
            .map(|(word, item)| self.sensitive_text(word, item))
            .collect())
    }

    /// A text that is sent as it stands. One with a variable is refused: the server would get the
    /// dollar sign.
    fn literal(
        &self,
        name: &str,
        node: &Node<'_>,
        hint: VariableHint,
    ) -> Result<SensitiveText, ConfigError> {
        let text = self.text(name, node)?;
        let Some(variable) = expand::variable_names(&text, Expansion::Variables)
            .into_iter()
            .next()
        else {
            return Ok(self.sensitive_text(text, node));
        };
        let file = file_name(self.source);
        let shown = variable.escape_debug();
        let what = format!("{file} does not fill in `${{{shown}}}`");
        let error = self.bad_value(what, node, ExcerptPolicy::Hidden);
        Err(error.with_hint(hint(&variable)))
    }

    /// The name of a variable. Anything else may be the secret itself, and is not repeated.
    fn variable_name(&self, name: &str, node: &Node<'_>) -> Result<String, ConfigError> {
        let text = self.text(name, node)?;
        let is_name = !text.is_empty()
            && !text.starts_with(|c: char| c.is_ascii_digit())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if is_name {
            return Ok(text);
        }
        let what = format!("`{name}` is not the name of a variable");
        let error = self.bad_value(what, node, ExcerptPolicy::Hidden);
        Err(error.with_hint("put the value into a variable, and name that"))
    }
}
