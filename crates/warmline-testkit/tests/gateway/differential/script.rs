//! Scripts: what a client says, step by step, made from a seed.

use crate::prelude::*;

use std::fmt;

use fastrand::Rng;

/// The versions that begin with `initialize`. The oldest has a transport of its own.
const LEGACY_VERSIONS: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];

/// Outside of every run, and inside of one.
const PATHS: [&str; 2] = ["/servers/ledger/mcp", "/runs/one/servers/ledger/mcp"];

/// What a client says to which kind of server.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    kind: Kind,
    form: Form,
    page_size: Option<usize>,
    version: &'static str,
    path: &'static str,
    steps: Vec<ScriptStep>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Legacy,
    LegacyWithoutSessions,
    Modern,
    DualAsLegacy,
    DualAsModern,
}

#[derive(Clone, Copy, Debug)]
enum Form {
    Json,
    Plain,
    Python,
    Rust,
    Resumable,
}

/// One message of a client.
#[derive(Clone, Debug)]
pub(crate) struct ScriptStep {
    /// None for a notice.
    pub(crate) id: Option<Value>,
    pub(crate) method: String,
    pub(crate) params: Value,
    /// Headers beside those of every message.
    pub(crate) headers: Vec<(String, String)>,
    /// Answers to what the result before asked, with the state it gave.
    pub(crate) answers: Option<Value>,
    /// Whether it asks for the page after the one before.
    pub(crate) goes_on: bool,
}

impl fmt::Display for ScriptStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.params)
    }
}

impl ScriptStep {
    fn request(rng: &mut Rng, method: &str, params: Value) -> Self {
        Self {
            id: Some(new_id(rng)),
            ..Self::notice(method, params)
        }
    }

    fn notice(method: &str, params: Value) -> Self {
        Self {
            id: None,
            method: method.to_owned(),
            params,
            headers: Vec::new(),
            answers: None,
            goes_on: false,
        }
    }
}

/// An id as some client would draw it.
fn new_id(rng: &mut Rng) -> Value {
    match rng.u8(0..5) {
        0 => json!(format!("id \"{}\" ä", rng.u16(..))),
        1 => json!(-rng.i64(1..1_000_000)),
        2 => json!(9_007_199_254_740_993_u64 + rng.u64(..1000)),
        _ => json!(rng.u32(..)),
    }
}

impl Script {
    /// The script of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let kinds = [
            Kind::Legacy,
            Kind::Legacy,
            Kind::LegacyWithoutSessions,
            Kind::Modern,
            Kind::Modern,
            Kind::DualAsLegacy,
            Kind::DualAsModern,
        ];
        let kind = kinds[rng.usize(..kinds.len())];
        let forms = [
            Form::Json,
            Form::Plain,
            Form::Python,
            Form::Rust,
            Form::Resumable,
        ];
        let version = if kind.era() == Era::Legacy {
            LEGACY_VERSIONS[rng.usize(..LEGACY_VERSIONS.len())]
        } else {
            "2026-07-28"
        };
        let mut script = Self {
            kind,
            form: forms[rng.usize(..forms.len())],
            page_size: rng.bool().then(|| rng.usize(1..8)),
            version,
            path: PATHS[rng.usize(..PATHS.len())],
            steps: Vec::new(),
        };
        script.begin(&mut rng);
        for _ in 0..rng.usize(4..14) {
            script.go_on(&mut rng);
        }
        script.repeat_no_id(&mut rng);
        script
    }

    /// A client never uses an id of its own twice, and servers count it against who does.
    fn repeat_no_id(&mut self, rng: &mut Rng) {
        let mut seen = BTreeSet::new();
        for id in self.steps.iter_mut().filter_map(|step| step.id.as_mut()) {
            while !seen.insert(id.to_string()) {
                *id = new_id(rng);
            }
        }
    }

    pub(crate) fn personality(&self) -> Personality {
        let kind = match self.kind {
            Kind::Legacy => Personality::legacy(),
            Kind::LegacyWithoutSessions => Personality::legacy_stateless(),
            Kind::Modern => Personality::modern(),
            Kind::DualAsLegacy | Kind::DualAsModern => Personality::dual(),
        };
        let kind = match self.form {
            Form::Json => kind.reply(ReplyFormat::Json),
            Form::Plain => kind.reply(ReplyFormat::Sse(SseFormat::plain())),
            Form::Python => kind.reply(ReplyFormat::Sse(SseFormat::python())),
            Form::Rust => kind.reply(ReplyFormat::Sse(SseFormat::rmcp())),
            Form::Resumable => kind.reply(ReplyFormat::Sse(SseFormat::resumable())),
        };
        match self.page_size {
            Some(size) => kind.page_size(size),
            None => kind,
        }
    }

    pub(crate) fn era(&self) -> Era {
        self.kind.era()
    }

    pub(crate) fn version(&self) -> &'static str {
        self.version
    }

    /// Where the server is found at the gateway.
    pub(crate) fn path(&self) -> &'static str {
        self.path
    }

    pub(crate) fn len(&self) -> usize {
        self.steps.len()
    }

    pub(crate) fn step(&self, at: usize) -> &ScriptStep {
        &self.steps[at]
    }

    /// What the client says that it answers.
    pub(crate) fn capabilities(&self) -> Value {
        json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {"listChanged": true}})
    }

    /// What it answers.
    pub(crate) fn answer(&self, method: &str) -> Value {
        match method {
            "roots/list" => json!({"roots": [{"uri": "file:///home/ä", "name": "home"}]}),
            "sampling/createMessage" => json!({
                "role": "assistant", "model": "none",
                "content": {"type": "text", "text": "said \"so\""},
            }),
            _ => json!({"action": "accept", "content": {"name": "Ada", "age": 36}}),
        }
    }

    fn begin(&mut self, rng: &mut Rng) {
        if self.era() == Era::Modern {
            let asks = ScriptStep::request(rng, "server/discover", json!({}));
            self.steps.push(asks);
            return;
        }
        let hello = json!({
            "protocolVersion": self.version,
            "capabilities": self.capabilities(),
            "clientInfo": {"name": "script", "version": "1"},
        });
        self.steps
            .push(ScriptStep::request(rng, "initialize", hello));
        self.steps
            .push(ScriptStep::notice("notifications/initialized", json!({})));
    }

    fn go_on(&mut self, rng: &mut Rng) {
        match rng.u8(0..14) {
            0 => self.list(rng),
            1 => self.ask(rng),
            2 => self.routed(rng),
            3 => self.unusual(rng),
            4 => {
                let uri = ["ledger://page/1", "ledger://ä/\"2\"", "file:///nowhere"];
                let params = json!({"uri": uri[rng.usize(..3)]});
                self.steps
                    .push(ScriptStep::request(rng, "resources/read", params));
            },
            5 => {
                let name = ["greet", "plain", "missing"][rng.usize(..3)];
                let params = json!({"name": name, "arguments": {"who": "Ada \\ ä"}});
                self.steps
                    .push(ScriptStep::request(rng, "prompts/get", params));
            },
            6 => {
                let reference = json!({"type": "ref/prompt", "name": "greet"});
                let argument = json!({"name": "who", "value": "A"});
                let params = json!({"ref": reference, "argument": argument});
                self.steps
                    .push(ScriptStep::request(rng, "completion/complete", params));
            },
            _ => self.call(rng),
        }
    }

    /// All pages of a list.
    fn list(&mut self, rng: &mut Rng) {
        let lists = [
            "tools/list",
            "resources/list",
            "resources/templates/list",
            "prompts/list",
        ];
        let method = lists[rng.usize(..lists.len())];
        for page in 0..rng.usize(1..4) {
            let mut step = ScriptStep::request(rng, method, json!({}));
            step.goes_on = page > 0;
            self.steps.push(step);
        }
    }

    fn call(&mut self, rng: &mut Rng) {
        let (tool, arguments) = tool(rng);
        let mut params = json!({"name": tool, "arguments": arguments});
        if tool == "log" && self.era() == Era::Modern {
            params["_meta"] = json!({"io.modelcontextprotocol/logLevel": "debug"});
        }
        if ["progress", "echo"].contains(&tool) && rng.bool() {
            let token = if rng.bool() {
                json!("tök \"en\"")
            } else {
                json!(rng.u32(..))
            };
            params["_meta"] = json!({"progressToken": token, "example.com/own": [1, {"a": null}]});
        }
        self.steps
            .push(ScriptStep::request(rng, "tools/call", params));
    }

    /// A tool that asks its client: in the middle of the call, or in rounds of calls.
    fn ask(&mut self, rng: &mut Rng) {
        let tools = [
            "ask_form",
            "ask_url",
            "ask_sampling",
            "ask_roots",
            "ask_again",
        ];
        let tool = tools[rng.usize(..tools.len())];
        let rounds = rng.u64(1..4);
        let params = json!({"name": tool, "arguments": {"rounds": rounds}});
        self.steps
            .push(ScriptStep::request(rng, "tools/call", params.clone()));
        if self.era() == Era::Legacy {
            return;
        }
        let method = match tool {
            "ask_sampling" => "sampling/createMessage",
            "ask_roots" => "roots/list",
            _ => "elicitation/create",
        };
        for round in 1..=rounds {
            let mut step = ScriptStep::request(rng, "tools/call", params.clone());
            step.answers = Some(json!({format!("question-{round}"): self.answer(method)}));
            self.steps.push(step);
        }
    }

    /// A tool whose arguments also go into headers.
    fn routed(&mut self, rng: &mut Rng) {
        let region = ["north", "west 2"][rng.usize(..2)];
        let (level, dry) = (rng.u8(..), rng.bool());
        let arguments = json!({
            "region": region, "level": level, "dry": dry, "place": {"zone": "b"}, "note": "ä",
        });
        let params = json!({"name": "routed", "arguments": arguments});
        let mut step = ScriptStep::request(rng, "tools/call", params);
        if self.era() == Era::Modern {
            let stated = [
                ("Region", region.to_owned()),
                ("Level", level.to_string()),
                ("Dry", dry.to_string()),
                ("Zone", "b".to_owned()),
            ];
            step.headers = stated
                .map(|(name, value)| (format!("Mcp-Param-{name}"), value))
                .to_vec();
        }
        self.steps.push(step);
    }

    /// What not every server knows, and what none does.
    fn unusual(&mut self, rng: &mut Rng) {
        let step = match rng.u8(0..6) {
            0 => ScriptStep::request(
                rng,
                "vendor/thing",
                json!({"deep": {"er": [null, 1.5e3, "\u{1}"]}}),
            ),
            1 if self.era() == Era::Legacy => ScriptStep::request(rng, "ping", json!({})),
            2 if self.era() == Era::Legacy => {
                ScriptStep::request(rng, "logging/setLevel", json!({"level": "debug"}))
            },
            3 if self.era() == Era::Legacy => ScriptStep::request(
                rng,
                "resources/subscribe",
                json!({"uri": "ledger://page/1"}),
            ),
            4 => ScriptStep::request(rng, "tools/list", json!({"cursor": "nowhere"})),
            _ => ScriptStep::request(
                rng,
                "tools/call",
                json!({"name": "there is none", "arguments": {}}),
            ),
        };
        self.steps.push(step);
    }
}

impl Kind {
    fn era(self) -> Era {
        match self {
            Self::Legacy | Self::LegacyWithoutSessions | Self::DualAsLegacy => Era::Legacy,
            Self::Modern | Self::DualAsModern => Era::Modern,
        }
    }
}

/// A tool that asks nothing, and what it is called with.
fn tool(rng: &mut Rng) -> (&'static str, Value) {
    let key = ["k", "ä", "\"quoted\""][rng.usize(..3)];
    match rng.u8(0..15) {
        0..=2 => ("counter", json!({})),
        3 => ("note_write", json!({"title": key, "text": "so \\ far\n"})),
        4 => ("note_read", json!({"title": key})),
        5 => ("page_open", json!({"url": "https://example.com/?q=ä"})),
        6 => ("page_read", json!({})),
        7 => ("pay", json!({"amount": rng.i32(..), "account": key})),
        8 => ("put", json!({"key": key, "value": value(rng, 3)})),
        9 => ("get", json!({"key": key})),
        10 => ("big", json!({"bytes": rng.u32(..200_000)})),
        11 => ("fail", json!({})),
        12 => (
            "progress",
            json!({"steps": rng.u8(1..4), "pause_ms": rng.u8(..3)}),
        ),
        13 => ("log", json!({"lines": rng.u8(1..4)})),
        _ => ("echo", json!({"given": value(rng, 4)})),
    }
}

/// Any JSON.
fn value(rng: &mut Rng, depth: u8) -> Value {
    match rng.u8(0..8) {
        0 => Value::Null,
        1 => json!(rng.bool()),
        2 => json!(rng.i64(..)),
        3 => json!(rng.f64() * 1e300),
        4 => json!("line\u{2028}\u{0}\r\n\t\"\\/ ü 🦀"),
        5 => json!(u64::MAX - rng.u64(..1000)),
        6 if depth > 0 => (0..rng.u8(0..4)).map(|_| value(rng, depth - 1)).collect(),
        _ if depth > 0 => json!({"a": value(rng, depth - 1), "ä\"": value(rng, depth - 1)}),
        _ => json!(""),
    }
}
