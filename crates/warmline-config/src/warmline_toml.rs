//! `warmline.toml`. Every key is known, or it is an error with the nearest right word.

use std::collections::BTreeMap;
use std::time::Duration;

use warmline_core::policy::{SessionScope, ToolPolicy};
use warmline_engine::settings::config_error::{ConfigError, ExcerptPolicy};
use warmline_engine::settings::{
    self, EngineSettings, ServerSettings, Setting, SettingField as _, SettingKind, SettingOrigin,
    SettingsGroup, closest_match,
};
use warmline_upstream::parse_url;

use crate::access::{AccessRule, AccessSubject};
use crate::declaration::{
    Declaration, DeclaredCredential, DeclaredSecret, SensitiveText, ServerKind, name_problem,
};
use crate::document::{Key, Node, Value, file_name, parse_toml};
use crate::expand::{self, Expansion};
use crate::reader::{ParsedFile, Reader};
use crate::{GatewaySettings, keys};

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
        let mut server = Declaration::new(self.source, name.to_owned(), name, place);
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
        let words = words.map(|(word, item)| self.sensitive_text(word, item));
        Ok(words.collect())
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
        let variables = expand::variable_names(&text, Expansion::Variables);
        let Some(variable) = variables.first() else {
            return Ok(self.sensitive_text(text, node));
        };
        let file = file_name(self.source);
        let shown = variable.escape_debug();
        let what = format!("{file} does not fill in `${{{shown}}}`");
        let error = self.bad_value(what, node, ExcerptPolicy::Hidden);
        Err(error.with_hint(hint(variable)))
    }

    /// The name of a variable. Anything else may be the secret itself, and is not repeated.
    fn variable_name(&self, name: &str, node: &Node<'_>) -> Result<String, ConfigError> {
        let text = self.text(name, node)?;
        if expand::is_variable_name(&text) {
            return Ok(text);
        }
        let what = format!("`{name}` is not the name of a variable");
        let error = self.bad_value(what, node, ExcerptPolicy::Hidden);
        Err(error.with_hint("put the value into a variable, and name that"))
    }

    /// The settings of one table, such as `breaker` or `limits`, and of tables within it.
    fn settings_table<T: SettingsGroup>(
        &self,
        table: &str,
        node: &Node<'_>,
        into: &mut T,
    ) -> Result<(), ConfigError> {
        self.each_member(table, node, |key, node| {
            let path = format!("{table}.{}", key.name);
            if let Some(setting) = T::setting(&path) {
                return self.setting(setting, node, into);
            }
            if keys::keys_within::<T>(&path).next().is_some() {
                return self.settings_table(&path, node, into);
            }
            let what = format!("setting of `{table}`");
            Err(self.unknown_key(key, &what, keys::keys_within::<T>(table)))
        })
    }

    fn setting<T: SettingsGroup>(
        &self,
        setting: &Setting<T>,
        node: &Node<'_>,
        into: &mut T,
    ) -> Result<(), ConfigError> {
        let value = self.setting_value(setting.key, &setting.kind, node)?;
        let value = settings::resolve_path(value, self.base_folder());
        let origin = SettingOrigin::from_location(&self.place(node));
        into.set_value(setting, value, origin);
        Ok(())
    }

    /// `[servers.NAME.tools.TOOL]`: settings of single tools.
    fn tools(
        &self,
        node: &Node<'_>,
        out: &mut BTreeMap<String, ToolPolicy>,
    ) -> Result<(), ConfigError> {
        self.each_member("tools", node, |tool, node| {
            let policy = out.entry(tool.name.to_string()).or_default();
            self.each_member(&tool.name, node, |key, node| {
                self.tool_key(key, node, policy)
            })
        })
    }

    fn tool_key(
        &self,
        key: &Key<'_>,
        node: &Node<'_>,
        policy: &mut ToolPolicy,
    ) -> Result<(), ConfigError> {
        let value = |kind| self.setting_value(&key.name, &kind, node);
        match key.name.as_ref() {
            "repeatable" => policy.repeatable = bool::from_value(value(SettingKind::switch())?),
            "session_per" => {
                let scope = value(SettingKind::words(SessionScope::WORDS))?;
                policy.session_per = SessionScope::from_value(scope);
            },
            "call_timeout" => policy.total = Duration::from_value(value(SettingKind::time())?),
            "call_idle_timeout" => policy.idle = Duration::from_value(value(SettingKind::time())?),
            _ => {
                let known = keys::TOOL.iter().copied();
                return Err(self.unknown_key(key, "setting of a tool", known));
            },
        }
        Ok(())
    }

    /// `credential = { … }`: the source of a secret, and the header that carries it.
    fn credential(
        &self,
        key: &Key<'_>,
        node: &Node<'_>,
    ) -> Result<DeclaredCredential, ConfigError> {
        let (mut found, mut header, mut format) = (Vec::new(), None, None);
        let members = self.table("credential", node);
        for (key, node) in members.map_err(|error| error.with_hint(CREDENTIAL_HINT))? {
            let name = &format!("credential.{}", key.name);
            match key.name.as_ref() {
                "env" => found.push(DeclaredSecret::Env(self.variable_name(name, node)?)),
                "file" => found.push(DeclaredSecret::File(
                    self.credential_file(name, node)?.into(),
                )),
                "command" => found.push(DeclaredSecret::Command(self.texts(name, node)?)),
                "header" => found.push(DeclaredSecret::Header(self.text(name, node)?)),
                "as" => header = Some(self.text(name, node)?),
                "form" => format = Some(self.text(name, node)?),
                _ => {
                    let known = keys::CREDENTIAL.iter().chain(keys::CREDENTIAL_HEADER);
                    return Err(self.unknown_key(key, "part of a credential", known.copied()));
                },
            }
        }
        let fail = |what: &str| {
            let error = self.bad_value(what, node, ExcerptPolicy::Hidden);
            Err(error.with_hint(CREDENTIAL_HINT))
        };
        let secret = match (found.pop(), found.is_empty()) {
            (None, _) => return fail("`credential` does not say where it comes from"),
            (Some(_), false) => return fail("`credential` comes from more than one place"),
            (Some(DeclaredSecret::Command(words)), true)
                if words.first().is_none_or(String::is_empty) =>
            {
                return fail("the `command` of `credential` names no program");
            },
            (Some(secret), true) => secret,
        };
        let credential = DeclaredCredential {
            secret,
            header,
            format,
            location: self
                .source
                .location(key.span.clone(), ExcerptPolicy::KeyOnly),
        };
        // A credential that cannot work is an error of the file, not of the first call.
        credential.to_credential_source(self.base_folder())?;
        Ok(credential)
    }

    /// The path of a token. `{identity}` is the only word that stands for something in it.
    fn credential_file(&self, name: &str, node: &Node<'_>) -> Result<String, ConfigError> {
        const KNOWN: &str = "identity";
        let text = self.text(name, node)?;
        let words = text.split('{').skip(1);
        let mut words = words.filter_map(|rest| rest.split_once('}').map(|(word, _)| word));
        let Some(word) = words.find(|word| *word != KNOWN) else {
            return Ok(text);
        };
        let what = format!(
            "`{{{}}}` stands for nothing in `{name}`",
            word.escape_debug()
        );
        let hint = match closest_match(word, [KNOWN]) {
            Some(near) => format!("did you mean `{{{near}}}`?"),
            None => format!("only `{{{KNOWN}}}` stands for something: the name of the caller"),
        };
        let error = self.bad_value(what, node, ExcerptPolicy::Hidden);
        Err(error.with_hint(hint))
    }

    /// A list without rules is a setting like any other. Of a list with rules, what holds for
    /// everyone is the setting as well, so that it holds where callers have no names.
    fn access_list(
        &self,
        list: &str,
        node: &Node<'_>,
        server: &mut Declaration,
    ) -> Result<(), ConfigError> {
        let items = node.as_list().unwrap_or_default();
        let is_allow = list == "allow";
        if is_allow && items.is_empty() && node.as_list().is_some() {
            let what = format!(
                "`allow` of `{}` is empty, which would allow everything",
                server.name
            );
            let error = self.bad_value(what, node, ExcerptPolicy::KeyAndValue);
            let hint = "leave it out to allow all; to allow nobody, `enabled = false`";
            return Err(error.with_hint(hint));
        }
        let Some(setting) = ServerSettings::setting(list) else {
            return Ok(());
        };
        let is_rule = |item: &Node<'_>| matches!(item.value, Value::Table(_));
        if !items.iter().any(is_rule) {
            return self.setting(setting, node, &mut server.settings);
        }
        let rules = items.iter().map(|item| self.access_rule(list, item));
        let rules = rules.collect::<Result<_, _>>()?;
        let policy = &mut server.settings.policy;
        if is_allow {
            server.access.allow = rules;
            policy.allow = server.access.all_allowed_tools().unwrap_or_default();
        } else {
            server.access.deny = rules;
            policy.deny = server.access.tools_denied_to_everyone();
        }
        let origin = SettingOrigin::from_location(&self.place(node));
        server.settings.origins_mut().insert(setting.key, origin);
        Ok(())
    }

    fn access_rule(&self, list: &str, item: &Node<'_>) -> Result<AccessRule, ConfigError> {
        if let Some(tool) = item.as_text() {
            return Ok(AccessRule {
                subject: AccessSubject::Everyone,
                tools: Some(vec![tool.to_owned()]),
            });
        }
        let (mut identity, mut claim, mut has, mut tools) = (None, None, None, None);
        for (key, node) in self.table(list, item)? {
            let name = format!("{list}.{}", key.name);
            match key.name.as_ref() {
                "identity" => identity = Some(self.nonempty_text(&name, node)?),
                "claim" => claim = Some(self.nonempty_text(&name, node)?),
                "has" => has = Some(self.nonempty_text(&name, node)?),
                "tools" => tools = Some(self.texts(&name, node)?),
                _ => {
                    let known = keys::RULE.iter().copied();
                    return Err(self.unknown_key(key, "part of a rule", known));
                },
            }
        }
        let fail = |what: &str| {
            let what = format!("a rule of `{list}` {what}");
            let error = self.bad_value(what, item, ExcerptPolicy::KeyAndValue);
            Err(error.with_hint(ACCESS_RULE_HINT))
        };
        let subject = match (identity, claim, has) {
            (None, None, None) => AccessSubject::Everyone,
            (Some(name), None, None) => AccessSubject::Identity(name),
            (None, Some(claim), Some(value)) => AccessSubject::Claim { claim, value },
            (None, Some(_), None) => return fail("does not say what its claim has"),
            (None, None, Some(_)) => return fail("does not say which claim has it"),
            (Some(_), _, _) => return fail("is about an identity and about a claim"),
        };
        if tools.as_ref().is_some_and(Vec::is_empty) {
            return fail("is about no tool at all");
        }
        Ok(AccessRule { subject, tools })
    }

    fn nonempty_text(&self, name: &str, node: &Node<'_>) -> Result<String, ConfigError> {
        let text = self.text(name, node)?;
        if text.trim().is_empty() {
            let what = format!("`{name}` is empty");
            return Err(self.bad_value(what, node, ExcerptPolicy::KeyAndValue));
        }
        Ok(text)
    }
}

const CREDENTIAL_HINT: &str = "use one of `credential = { env = \"NAME\" }`, `{ file = \"path\" }`, \
     `{ command = [\"program\"] }` or `{ header = \"X-Name\" }`";

const ACCESS_RULE_HINT: &str = "write `\"tool_*\"`, `{ identity = \"alice\" }` or \
     `{ claim = \"groups\", has = \"finance\" }`, with `tools = [\"read_*\"]` for some tools alone";
