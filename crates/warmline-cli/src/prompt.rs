//! Server requests: elicitation on the terminal, roots, and declining the rest.

use std::path::PathBuf;
use std::sync::{self, Arc};

use bytes::Bytes;
use clap::Args;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;
use warmline_core::exchange::{Notification, ServerRequest, ServerRequestKind, ServerRequestReply};
use warmline_upstream::{ClientProfile, Listener, ReplyFuture};

use crate::output::problem::DeclinedServerRequest;
use crate::output::{CliResult, Problem, Report, first_line, one_line, sanitize, style, truncate};
use crate::values::{RawObject, Schema};

/// Options about server requests.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Questions of the server")]
pub(crate) struct ServerRequestArgs {
    /// A folder to give to a server that asks for roots
    #[arg(long, value_name = "FOLDER")]
    pub(crate) root: Vec<PathBuf>,
    /// Decline every question of the server, also on a terminal
    #[arg(long)]
    pub(crate) no_ask: bool,
}

/// Reports notifications of a server during a call, and answers its requests.
#[derive(Debug)]
pub(crate) struct PromptListener {
    report: &'static Report,
    server: String,
    roots: Vec<Value>,
    mode: PromptMode,
    /// One prompt at a time: there is one terminal.
    prompt_lock: Mutex<()>,
    /// Requests that were declined without asking the user.
    declined: sync::Mutex<Vec<DeclinedServerRequest>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PromptMode {
    Terminal,
    NoTerminal,
    /// By `--no-ask`.
    Disabled,
}

impl PromptListener {
    pub(crate) fn new(
        report: &'static Report,
        server: &str,
        answers: &ServerRequestArgs,
    ) -> CliResult<Arc<Self>> {
        let asks = match (answers.no_ask, report.can_ask()) {
            (true, _) => PromptMode::Disabled,
            (false, true) => PromptMode::Terminal,
            (false, false) => PromptMode::NoTerminal,
        };
        let roots = answers.root.iter().map(|folder| root_entry(folder));
        let roots = roots.collect::<CliResult<_>>()?;
        Ok(Arc::new(Self {
            report,
            server: server.to_owned(),
            roots,
            mode: asks,
            prompt_lock: Mutex::new(()),
            declined: sync::Mutex::default(),
        }))
    }

    pub(crate) fn declined_requests(&self) -> Option<Vec<DeclinedServerRequest>> {
        let declined = self.declined.lock().ok()?;
        Some(declined.clone()).filter(|all| !all.is_empty())
    }

    /// The profile that calls declare. Elicitation always: declining is an answer too.
    pub(crate) fn client_profile(&self) -> ClientProfile {
        let mut capabilities = json!({"elicitation": {"form": {}, "url": {}}});
        if !self.roots.is_empty() {
            capabilities["roots"] = json!({});
        }
        ClientProfile {
            client_name: "warmline".to_owned(),
            client_version: env!("CARGO_PKG_VERSION").to_owned(),
            capabilities: Bytes::from(capabilities.to_string()),
            version: None,
        }
    }

    async fn handle_request(&self, question: ServerRequest) -> ServerRequestReply {
        let turn = self.prompt_lock.lock().await;
        let answer = match question.kind {
            ServerRequestKind::Roots if !self.roots.is_empty() => {
                ServerRequestReply::Result(Bytes::from(json!({ "roots": self.roots }).to_string()))
            },
            ServerRequestKind::Elicitation => self.elicit(&question.params).await,
            ServerRequestKind::Roots | ServerRequestKind::Sampling | ServerRequestKind::Other => {
                self.record_declined(question.kind, &question.method);
                ServerRequestReply::Declined
            },
        };
        drop(turn);
        answer
    }

    async fn elicit(&self, raw: &[u8]) -> ServerRequestReply {
        let params: Value = serde_json::from_slice(raw).unwrap_or_default();
        if self.mode != PromptMode::Terminal {
            self.record_declined(ServerRequestKind::Elicitation, "elicitation/create");
            return ServerRequestReply::Declined;
        }
        let message = params.get("message").and_then(Value::as_str);
        let message = message.unwrap_or_default();
        let head = format!("{} asks:", style::name(&format!("`{}`", self.server)));
        // Text of the server is indented under its name: it cannot look like ours.
        let message = sanitize(message).replace('\n', "\n    ");
        self.report.print_to_stderr(&format!("{head} {message}"));
        let result = match params.get("url").and_then(Value::as_str) {
            Some(url) => self.confirm_url(url).await,
            None => fill_form(self.report, raw).await,
        };
        ServerRequestReply::Result(Bytes::from(result.to_string()))
    }

    /// Shows a URL and never opens it.
    async fn confirm_url(&self, url: &str) -> Value {
        self.report.print_to_stderr(&format!(
            "  it wants you to open {}",
            style::name(&one_line(url))
        ));
        self.report
            .print_to_stderr("  open it yourself if you trust this server; nothing is opened here");
        match self.report.confirm("  go on? [y/N] ").await {
            Some(true) => json!({"action": "accept"}),
            Some(false) => json!({"action": "decline"}),
            None => json!({"action": "cancel"}),
        }
    }

    fn record_declined(&self, kind: ServerRequestKind, method: &str) {
        let why = match kind {
            ServerRequestKind::Elicitation if self.mode == PromptMode::Disabled => "--no-ask",
            ServerRequestKind::Elicitation => "there is no terminal to ask on",
            ServerRequestKind::Sampling => "there is no model here",
            ServerRequestKind::Roots => "no --root was given",
            ServerRequestKind::Other => "this command does not support it",
        };
        // It may be any text of any length.
        let method: String = one_line(method).chars().take(MAX_METHOD_CHARS).collect();
        self.report.print_note(&format!(
            "`{}` asked `{method}`, declined: {why}",
            self.server
        ));
        if let Ok(mut declined) = self.declined.lock()
            && declined.len() < MAX_DECLINED
        {
            declined.push(DeclinedServerRequest { method, why });
        }
    }
}

const MAX_METHOD_CHARS: usize = 100;

const MAX_DECLINED: usize = 16;

impl Listener for PromptListener {
    fn on_notification(&self, news: Notification) {
        let told = |kind: &str, params: &[u8]| {
            let text = sanitize(&String::from_utf8_lossy(params));
            self.report
                .print_verbose(&format!("← {kind} {}", truncate(&text, 400)));
        };
        match news {
            Notification::Progress(params) => {
                self.report.set_server_progress(&progress_text(&params));
                told("progress", &params);
            },
            Notification::Log(params) => told("log", &params),
            Notification::Other(method, params) => told(&sanitize(&method), &params),
        }
    }

    fn on_request(&self, question: ServerRequest) -> ReplyFuture<'_> {
        Box::pin(self.handle_request(question))
    }
}

/// `3 of 10, reading` from the parameters of a notification.
fn progress_text(params: &[u8]) -> String {
    let params: Value = serde_json::from_slice(params).unwrap_or_default();
    let number = |name: &str| params.get(name).filter(|value| value.is_number());
    let message = params.get("message").and_then(Value::as_str);
    let message = message.map(|text| first_line(text, 40));
    let far = match (number("progress"), number("total")) {
        (Some(progress), Some(total)) => Some(format!("{progress} of {total}")),
        (Some(progress), None) => Some(progress.to_string()),
        (None, _) => None,
    };
    let parts: Vec<String> = far.into_iter().chain(message).collect();
    sanitize(&parts.join(", "))
}

fn root_entry(folder: &std::path::Path) -> CliResult<Value> {
    let bad = |why: String| {
        Problem::usage(format!("`{}` cannot be a root", folder.display())).with_cause(why)
    };
    let path = std::fs::canonicalize(folder).map_err(|error| bad(error.to_string()))?;
    let uri = url::Url::from_directory_path(&path).map_err(|()| bad("it has no URL".to_owned()))?;
    let name = path.file_name();
    let name = name.map(|name| name.to_string_lossy().into_owned());
    Ok(json!({"uri": uri.as_str().trim_end_matches('/'), "name": name}))
}

/// Asks for the fields of a form, line by line.
async fn fill_form(report: &Report, params: &[u8]) -> Value {
    let form = requested_schema(params).unwrap_or_default();
    let schema: Value = serde_json::from_str(&form).unwrap_or_default();
    let names = field_names_in_order(&form).unwrap_or_default();
    report.print_to_stderr(&style::dim(
        "  an empty line takes the default; Ctrl-D declines",
    ));
    if names.is_empty() {
        return match report.confirm("  go on? [y/N] ").await {
            Some(true) => json!({"action": "accept", "content": {}}),
            Some(false) | None => json!({"action": "decline"}),
        };
    }
    let mut content = Map::new();
    for name in names {
        match ask_field(report, &FormField::new(&name, &schema)).await {
            FieldInput::Value(value) => drop(content.insert(name, value)),
            FieldInput::Omitted => {},
            FieldInput::Declined => return json!({"action": "decline"}),
        }
    }
    json!({"action": "accept", "content": content})
}

fn requested_schema(params: &[u8]) -> Option<String> {
    let params = RawObject::parse(std::str::from_utf8(params).ok()?).ok()?;
    params.member("requestedSchema").map(str::to_owned)
}

fn field_names_in_order(form: &str) -> Option<Vec<String>> {
    let form = RawObject::parse(form).ok()?;
    let properties = RawObject::parse(form.member("properties")?).ok()?;
    Some(properties.names().map(str::to_owned).collect())
}

#[derive(Debug, PartialEq)]
enum FieldInput {
    Value(Value),
    Omitted,
    Declined,
}

struct FormField<'s> {
    name: &'s str,
    schema: Schema<'s>,
    is_required: bool,
}

impl<'s> FormField<'s> {
    fn new(name: &'s str, form: &'s Value) -> Self {
        let form = Schema::new(form);
        Self {
            name,
            schema: form.property(name),
            is_required: form.required().contains(&name),
        }
    }

    fn schema_text(&self, member: &str) -> Option<&'s str> {
        self.schema.node.get(member).and_then(Value::as_str)
    }

    fn schema_number(&self, member: &str) -> Option<f64> {
        self.schema.node.get(member).and_then(Value::as_f64)
    }

    /// `name (a whole number, 1 to 5, required) [3]: `
    fn prompt(&self) -> String {
        let mut about: Vec<String> = Vec::new();
        let choices = self.choices();
        let labels: Vec<String> = choices.iter().map(FieldChoice::label).collect();
        match labels.is_empty() {
            true => about.extend(self.schema.expected_kind()),
            false => about.push(labels.join(" | ")),
        }
        if self.is_list() {
            about.push("separated by commas".to_owned());
        }
        about.extend(self.bounds());
        about.extend(self.schema_text("format").map(str::to_owned));
        let must = if self.is_required {
            "required"
        } else {
            "optional"
        };
        about.push(must.to_owned());
        let title = self.schema_text("title").unwrap_or(self.name);
        let default = match self.default_value() {
            Some(default) => format!(" [{}]", one_line(&display_default(default))),
            None => String::new(),
        };
        let (title, about) = (style::bold(&one_line(title)), one_line(&about.join(", ")));
        format!("  {title} ({about}){default}: ")
    }

    /// The default. It is sent, because servers rely on every required field.
    fn default_value(&self) -> Option<&'s Value> {
        self.schema.member_value("default")
    }

    /// What an empty line stands for; none if a value is required.
    fn empty_input(&self) -> Option<FieldInput> {
        match (self.default_value(), self.is_required) {
            (Some(default), _) => Some(FieldInput::Value(default.clone())),
            (None, false) => Some(FieldInput::Omitted),
            (None, true) => None,
        }
    }

    fn is_list(&self) -> bool {
        self.schema_text("type") == Some("array")
    }

    /// The allowed values, with the server's titles.
    fn choices(&self) -> Vec<FieldChoice> {
        let items = self.item_schema();
        let (of, typed) = (items.node, items.choice_texts());
        let named = of.get("enumNames").and_then(Value::as_array);
        let mut members = ["oneOf", "anyOf"].iter();
        let titled = members.find_map(|member| of.get(member).and_then(Value::as_array));
        let title = |place: usize| match (named, titled) {
            (Some(names), _) => names.get(place)?.as_str(),
            (None, Some(variants)) => variants.get(place)?.get("title")?.as_str(),
            (None, None) => None,
        };
        let choice = |(place, typed): (usize, String)| FieldChoice {
            title: title(place)
                .filter(|title| *title != typed)
                .map(str::to_owned),
            value: typed,
        };
        typed.into_iter().enumerate().map(choice).collect()
    }

    fn item_schema(&self) -> Schema<'s> {
        match self.is_list() {
            true => self.schema.items(),
            false => self.schema,
        }
    }

    fn bounds(&self) -> Option<String> {
        let first = |members: [&str; 3]| members.iter().find_map(|one| self.schema_number(one));
        let low = first(["minimum", "minLength", "minItems"]);
        let high = first(["maximum", "maxLength", "maxItems"]);
        match (low, high) {
            (Some(low), Some(high)) => Some(format!("{low} to {high}")),
            (Some(low), None) => Some(format!("at least {low}")),
            (None, Some(high)) => Some(format!("at most {high}")),
            (None, None) => None,
        }
    }

    fn parse_input(&self, typed: &str) -> Result<Value, String> {
        let choices = self.choices();
        let parse = |typed: &str| {
            let typed = resolve_choice_title(&choices, typed);
            let raw = self.item_schema().parse_text(typed)?;
            serde_json::from_str(raw.get()).map_err(|error| error.to_string())
        };
        if !self.is_list() {
            return self.check_bounds(parse(typed)?);
        }
        let words = typed.split(',').map(str::trim);
        let values = words.filter(|word| !word.is_empty()).map(parse);
        self.check_bounds(Value::Array(values.collect::<Result<_, _>>()?))
    }

    fn check_bounds(&self, value: Value) -> Result<Value, String> {
        let count = |count: usize| u32::try_from(count).map_or(f64::INFINITY, f64::from);
        let (size, low, high) = match &value {
            Value::Number(number) => (number.as_f64(), "minimum", "maximum"),
            Value::String(text) => (Some(count(text.chars().count())), "minLength", "maxLength"),
            Value::Array(items) => (Some(count(items.len())), "minItems", "maxItems"),
            Value::Null | Value::Bool(_) | Value::Object(_) => return Ok(value),
        };
        let (low, high) = (self.schema_number(low), self.schema_number(high));
        let size = size.unwrap_or_default();
        let is_outside = low.is_some_and(|low| size < low) || high.is_some_and(|high| size > high);
        match (is_outside, self.bounds()) {
            (true, Some(bounds)) => Err(format!("it must be {bounds}")),
            _ => Ok(value),
        }
    }
}

struct FieldChoice {
    value: String,
    title: Option<String>,
}

impl FieldChoice {
    fn label(&self) -> String {
        match &self.title {
            Some(title) => format!("{} ({title})", self.value),
            None => self.value.clone(),
        }
    }
}

fn resolve_choice_title<'t>(choices: &'t [FieldChoice], typed: &'t str) -> &'t str {
    let is_titled = |choice: &&FieldChoice| {
        let title = choice.title.as_deref();
        title.is_some_and(|title| title.eq_ignore_ascii_case(typed))
    };
    let by_value = choices.iter().any(|choice| choice.value == typed);
    match choices.iter().find(is_titled) {
        Some(choice) if !by_value => &choice.value,
        _ => typed,
    }
}

fn display_default(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items
            .iter()
            .map(display_default)
            .collect::<Vec<_>>()
            .join(", "),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) => {
            other.to_string()
        },
    }
}

async fn ask_field(report: &Report, field: &FormField<'_>) -> FieldInput {
    if let Some(description) = field.schema_text("description") {
        report.print_to_stderr(&format!("  {}", style::dim(&one_line(description))));
    }
    loop {
        let Some(typed) = report.ask_line(&field.prompt()).await else {
            return FieldInput::Declined;
        };
        if typed.is_empty() {
            match field.empty_input() {
                Some(filled) => return filled,
                None => report.print_to_stderr("  a value is required"),
            }
            continue;
        }
        match field.parse_input(&typed) {
            Ok(value) => return FieldInput::Value(value),
            Err(why) => report.print_to_stderr(&format!("  invalid: {why}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_reads_as_people_say_it() {
        #[rustfmt::skip]
        let table = [
            (r#"{"progress": 3, "total": 10, "message": "reading"}"#, "3 of 10, reading"),
            (r#"{"progress": 0.5}"#,                                    "0.5"),
            (r#"{"message": "a\u001b[2Jb\nc"}"#,                        "a\u{fffd}[2Jb"),
            ("nonsense",                                                ""),
        ];
        for (params, said) in table {
            assert_eq!(progress_text(params.as_bytes()), said);
        }
    }

    /// A server that calls a field required gets it, also where nobody typed its default.
    #[test]
    fn an_empty_line_sends_a_default_and_leaves_out_what_may_be() {
        let form = json!({
            "properties": {
                "age": {"type": "integer", "default": 30},
                "land": {"$ref": "#/$defs/land"},
                "name": {"type": "string"},
                "size": {"type": "integer", "default": 3},
                "yes": {"type": "boolean"},
            },
            "required": ["age", "land", "name"],
            "$defs": {"land": {"type": "string", "default": "eu"}},
        });
        for (name, filled) in [
            ("age", Some(FieldInput::Value(json!(30)))),
            ("land", Some(FieldInput::Value(json!("eu")))),
            ("name", None),
            ("size", Some(FieldInput::Value(json!(3)))),
            ("yes", Some(FieldInput::Omitted)),
        ] {
            let field = FormField::new(name, &form);
            assert_eq!(field.empty_input(), filled, "{name}");
        }
    }

    #[test]
    fn a_field_says_what_it_wants_and_takes_nothing_else() {
        let form = json!({
            "properties": {
                "age": {"type": "integer", "minimum": 1, "maximum": 150, "default": 30},
                "name": {"type": "string", "title": "Your name", "minLength": 2},
                "size": {"type": "string", "enum": ["s", "m"]},
                "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "maxItems": 1},
                "yes": {"type": "boolean"},
                "play": {"type": "array", "items": {"anyOf": [{"const": "g", "title": "Guitar"}, {"const": "d", "title": "Drums"}]}, "default": ["g", "d"]},
                "land": {"type": "string", "oneOf": [{"const": "eu", "title": "Europe"}, {"const": "us", "title": "us"}]},
                "old": {"type": "string", "enum": ["1", "2"], "enumNames": ["One", "Two"]},
            },
            "required": ["name"],
        });
        #[rustfmt::skip]
        let table = [
            ("age",  "(a whole number, 1 to 150, optional) [30]", "200", Err("it must be 1 to 150")),
            ("age",  "(a whole number, 1 to 150, optional) [30]", "20",  Ok(json!(20))),
            ("age",  "(a whole number, 1 to 150, optional) [30]", "x",   Err("it must be a whole number")),
            ("name", "(a text, at least 2, required)",                     "x",   Err("it must be at least 2")),
            ("size", "(s | m, optional)",                         "l",   Err("it is one of `s`, `m`")),
            ("size", "(s | m, optional)",                         "m",   Ok(json!("m"))),
            ("tags", "(a | b, separated by commas, at most 1, optional)", "a,b", Err("it must be at most 1")),
            ("tags", "(a | b, separated by commas, at most 1, optional)", "a",   Ok(json!(["a"]))),
            ("play", "(g (Guitar) | d (Drums), separated by commas, optional) [g, d]: ", "drums, g", Ok(json!(["d", "g"]))),
            ("land", "(eu (Europe) | us, optional)",              "europe", Ok(json!("eu"))),
            ("old",  "(1 (One) | 2 (Two), optional)",             "Two",    Ok(json!("2"))),
            ("yes",  "(`true` or `false`, optional)",             "true", Ok(json!(true))),
        ];
        for (name, prompt, typed, read) in table {
            let field = FormField::new(name, &form);
            assert!(field.prompt().contains(prompt), "{}", field.prompt());
            assert_eq!(
                field.parse_input(typed),
                read.map_err(str::to_owned),
                "{name}={typed}"
            );
        }
    }
}
