//! `warmline.toml`: every key is known, or it is an error with the nearest right word.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};
use warmline_core::code::Code;

use super::access::Access;
use super::credential::DeclaredCredential;
use super::declaration::{Declaration, DeclaredReach, Described, Written};
use super::expand::Expand;
use super::kinds::{ServerKind, missing};
use super::{Read, keys, name_problem, parse_url};
use crate::settings::place::{ConfigError, Place, Show, Source};
use crate::settings::{EngineSettings, GatewaySettings, Group, ServerSettings};

mod access;
mod decided;
mod reader;

use access::List;
use reader::{Instead, Key, Reader, Value, name_of};

/// What a `warmline.toml` declares and decides. What is wrong in one place is a fault, and the rest
/// is read.
pub(crate) fn read(source: Source<'_>, faults: &mut Vec<ConfigError>) -> Result<Read, ConfigError> {
    let table = DeTable::parse(source.text).map_err(|error| {
        let what = format!("{} is not TOML", name_of(source.file));
        let broken = ConfigError::new(Code::ConfigUnreadable, what).because(error.message());
        match error.span() {
            Some(span) => broken.at(source.place(span, Show::Nothing)),
            None => broken.at(Place::whole(source.file)),
        }
    })?;
    let reader = Reader::of(source);
    let mut read = Read::default();
    for (key, value) in table.get_ref() {
        if reader.is_full() {
            break;
        }
        let understood = match key.get_ref().as_ref() {
            keys::SERVERS => reader.servers(value, &mut read.declarations),
            name if keys::heads::<EngineSettings>().any(|head| head == name) => {
                reader.decided_in(name, value, &mut read.engine)
            },
            name if keys::heads::<GatewaySettings>().any(|head| head == name) => {
                reader.decided_in(name, value, &mut read.gateway)
            },
            _ => Err(reader.unknown(key, "table of this file", keys::of_the_top())),
        };
        reader.told(understood);
    }
    faults.extend(reader.faults.into_inner());
    read.declarations
        .sort_by_key(|declaration| declaration.span.start);
    Ok(read)
}

const BY_CREDENTIAL: Instead =
    |variable| format!("use `credential = {{ env = \"{variable}\" }}`, or `url_env`");
const BY_PASSING: Instead =
    |variable| format!("pass the variable on: `env_pass = [\"{variable}\"]`");
const BY_A_SHELL: Instead = |variable| {
    format!(
        "let a shell fill it in: `command = [\"sh\", \"-c\", \"exec PROGRAM … \\\"${variable}\\\"\"]` \
         with `env_pass = [\"{variable}\"]`"
    )
};

/// What has been read of one server so far.
#[derive(Default)]
struct Draft {
    kind: Option<ServerKind>,
    command: Option<Vec<Written>>,
    url: Option<Written>,
    headers: Vec<(String, Written)>,
    ca_file: Option<PathBuf>,
    env: BTreeMap<String, Written>,
    env_pass: Vec<String>,
    cwd: Option<PathBuf>,
    credential: Option<DeclaredCredential>,
    settings: ServerSettings,
    access: Access,
    url_env: Option<String>,
    auth_env: Option<String>,
    described: Described,
}

impl Draft {
    /// How the server is reached; or what contradicts itself.
    fn reach(&self, whose: &str) -> Result<DeclaredReach, String> {
        let is_program = !self.env.is_empty() || !self.env_pass.is_empty() || self.cwd.is_some();
        let is_http =
            !self.headers.is_empty() || self.ca_file.is_some() || self.credential.is_some();
        // A variable of its own or a resolver may tell the URL as well.
        let has_url = self.url.is_some() || self.url_env.is_some() || self.described.slug.is_some();
        let reach = match (&self.command, has_url) {
            (Some(_), true) if self.url.is_some() => Err(format!(
                "`{whose}` has a `command` and a `url`; a server has one of them"
            )),
            (None, false) => Err(missing(self.kind, whose)),
            (Some(_), _) if is_http => Err(format!(
                "`{whose}` is a program: `headers`, `credential` and `ca_file` are for a `url`"
            )),
            (None, true) if is_program => Err(format!(
                "`{whose}` is a URL: `env`, `env_pass` and `cwd` are for a `command`"
            )),
            (Some(argv), _) => Ok(DeclaredReach::Command {
                argv: argv.clone(),
                env: self.env.clone(),
                env_pass: self.env_pass.clone(),
                cwd: self.cwd.clone(),
            }),
            (None, true) => Ok(DeclaredReach::Url {
                url: self.url.clone(),
                headers: self.headers.clone(),
                ca_file: self.ca_file.clone(),
            }),
        }?;
        match self.kind.and_then(|kind| kind.contradicts(&reach, whose)) {
            Some(what) => Err(what),
            None => Ok(reach),
        }
    }
}

impl Reader<'_> {
    fn servers(&self, value: &Value<'_>, out: &mut Vec<Declaration>) -> Result<(), ConfigError> {
        for (name, server) in self.table("servers", value)? {
            if self.is_full() {
                break;
            }
            if let Some(problem) = name_problem(name.get_ref()) {
                let what = format!(
                    "`{}` cannot be the name of a server: {problem}",
                    name.get_ref()
                );
                self.told::<()>(Err(self.bad(what, name.span(), Show::Key)));
            }
            out.extend(self.told(self.server(name, server)).flatten());
        }
        Ok(())
    }

    /// One server; none, if something about it is wrong and was told.
    fn server(
        &self,
        name: &Key<'_>,
        value: &Value<'_>,
    ) -> Result<Option<Declaration>, ConfigError> {
        let mut draft = Draft::default();
        let faults = self.faults.borrow().len();
        for (key, value) in self.table(name.get_ref(), value)? {
            if self.is_full() {
                break;
            }
            self.told(self.key_of_a_server(name.get_ref(), key, value, &mut draft));
        }
        if self.faults.borrow().len() > faults {
            // What is missing may be missing only because of them; what is there can be looked at.
            if let Some(Err(why)) = draft.url.as_ref().map(|url| parse_url(&url.text)) {
                let what = format!("the `url` of `{}` is not a URL", name.get_ref());
                let bad = self.bad(what, name.span(), Show::Key);
                self.told::<()>(Err(bad.because(why)));
            }
            return Ok(None);
        }
        let whose = name.get_ref();
        let reach = draft.reach(whose).map_err(|what| {
            let bad = self.bad(what, name.span(), Show::Key);
            match (&draft.command, &draft.url) {
                (None, None) => {
                    bad.hint("add `url = \"https://…\"` or `command = [\"program\", \"argument\"]`")
                },
                (Some(_), Some(_)) => bad.hint(
                    "keep `command` for a program that is started here, `url` for a server that runs",
                ),
                _ => bad,
            }
        })?;
        Ok(Some(Declaration {
            name: whose.to_string(),
            written: whose.to_string(),
            place: self.source.place(name.span(), Show::Key),
            span: name.span(),
            reach,
            credential: draft.credential,
            settings: draft.settings,
            access: draft.access,
            url_env: draft.url_env,
            auth_env: draft.auth_env,
            described: draft.described,
            expand: Expand::Nothing,
            off: None,
            refusal: None,
            base: self.base().to_owned(),
        }))
    }

    fn key_of_a_server(
        &self,
        whose: &str,
        key: &Key<'_>,
        value: &Value<'_>,
        draft: &mut Draft,
    ) -> Result<(), ConfigError> {
        let name = key.get_ref().as_ref();
        if List::parse(name) == Some(List::Allow) && access::is_empty(value) {
            let what = format!("`allow` of `{whose}` is empty, which would allow everything");
            let bad = self.bad(what, value.span(), Show::Line);
            return Err(bad.hint("leave it out to allow all; to allow nobody, `enabled = false`"));
        }
        if let Some(list) = List::parse(name).filter(|_| access::is_about_callers(value)) {
            return self.rules(list, key, value, &mut draft.access, &mut draft.settings);
        }
        match name {
            "kind" => {
                let word = self.text(name, value)?;
                draft.kind = Some(ServerKind::parse(&word, whose).map_err(|refusal| {
                    let bad = self.bad(refusal.what, value.span(), Show::Line);
                    refusal.hint.into_iter().fold(bad, ConfigError::hint)
                })?);
            },
            "command" => draft.command = Some(self.command(value)?),
            "url" => draft.url = Some(self.written(name, value, BY_CREDENTIAL)?),
            "headers" => {
                draft.headers = self
                    .texts(name, value, BY_CREDENTIAL)?
                    .into_iter()
                    .collect();
            },
            "ca_file" => draft.ca_file = Some(self.text(name, value)?.into()),
            "env" => draft.env = self.texts(name, value, BY_PASSING)?,
            "env_pass" => draft.env_pass = self.words(name, value)?,
            "cwd" => draft.cwd = Some(self.text(name, value)?.into()),
            "credential" => draft.credential = Some(self.credential(key, value)?),
            "url_env" => draft.url_env = Some(self.variable(name, value)?),
            "auth_env" => draft.auth_env = Some(self.variable(name, value)?),
            "id" => draft.described.id = Some(self.text(name, value)?),
            "slug" => draft.described.slug = Some(self.text(name, value)?),
            "folder" => draft.described.folder = Some(self.text(name, value)?),
            "labels" => draft.described.labels = self.labels(value)?,
            "tools" => self.tools(value, &mut draft.settings.policy.tools)?,
            _ => return self.setting_of_a_server(key, value, &mut draft.settings),
        }
        Ok(())
    }

    fn setting_of_a_server(
        &self,
        key: &Key<'_>,
        value: &Value<'_>,
        settings: &mut ServerSettings,
    ) -> Result<(), ConfigError> {
        let name = key.get_ref().as_ref();
        if let Some(setting) = ServerSettings::setting(name) {
            return self.decide(setting, value, settings);
        }
        if keys::within::<ServerSettings>(name).next().is_some() {
            return self.decided_in(name, value, settings);
        }
        Err(self.unknown(key, "setting of a server", keys::of_a_server()))
    }

    fn command(&self, value: &Value<'_>) -> Result<Vec<Written>, ConfigError> {
        if let DeValue::String(text) = value.get_ref() {
            let what = "`command` is one text, and no shell will split it";
            // The program is no secret; any word behind it may be one.
            let mut words = text.split_whitespace();
            let program = words.next().unwrap_or("npx");
            let rest = ", \"…\"".repeat(words.count());
            let hint = format!("write a list: `command = [{program:?}{rest}]`");
            return Err(self.bad(what, value.span(), Show::Nothing).hint(hint));
        }
        let words = self.words("command", value)?;
        // A shell behind `-c` fills in variables itself.
        if let DeValue::Array(list) = value.get_ref()
            && !words.iter().any(|word| word == "-c")
        {
            for word in list.iter() {
                self.literal("command", word, BY_A_SHELL)?;
            }
        }
        if words.first().is_none_or(String::is_empty) {
            return Err(self.bad("`command` names no program", value.span(), Show::Nothing));
        }
        let mut written: Vec<Written> = words.into_iter().map(Written::new).collect();
        if let DeValue::Array(list) = value.get_ref() {
            let both = written.iter_mut().zip(list.iter());
            both.for_each(|(one, word)| one.at = self.at(word));
        }
        Ok(written)
    }

    /// The folder that relative paths start from.
    fn base(&self) -> &Path {
        self.source.file.parent().unwrap_or(Path::new(""))
    }
}
