//! A client that plays a script at one URL, and writes down what it hears.

use crate::prelude::*;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use warmline_core::message::params::Params;
use warmline_core::protocol::headers::mcp_name;

use super::raw_http::{Reply, send};
use super::script::{Script, ScriptStep};

/// What was heard at one step.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StepReply {
    status: u16,
    messages: Vec<Message>,
}

/// A message, in the bytes it came in.
#[derive(Debug, PartialEq, Eq)]
enum Message {
    /// With the id it answers.
    Result(String, String),
    Error(String, String),
    /// A question or a notice; the id of a question is its server's affair.
    Said(String, Option<String>),
}

/// The members of a message, as they stand there.
#[derive(Deserialize)]
struct Members<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// A client at a URL.
pub(crate) struct ScriptPlayer<'a> {
    url: &'a str,
    script: &'a Script,
    session: Option<String>,
    /// `requestState` of the last result that asked for more.
    state: Option<String>,
    /// `nextCursor` of the last list.
    cursor: Option<String>,
}

impl<'a> ScriptPlayer<'a> {
    pub(crate) fn at(url: &'a str, script: &'a Script) -> Self {
        Self {
            url,
            script,
            session: None,
            state: None,
            cursor: None,
        }
    }

    /// Plays the whole script.
    pub(crate) fn play(mut self) -> Vec<StepReply> {
        let mut heard = Vec::new();
        for at in 0..self.script.len() {
            let step = self.script.step(at).clone();
            heard.push(self.take(&step));
        }
        heard
    }

    fn take(&mut self, step: &ScriptStep) -> StepReply {
        let params = self.params(step);
        let mut message = json!({"jsonrpc": "2.0", "method": step.method, "params": params});
        if let Some(id) = &step.id {
            message["id"] = id.clone();
        }
        let headers = self.headers(step, &params);
        let mut reply = send(self.url, "POST", &headers, message.to_string().as_bytes());
        if step.method == "initialize" {
            self.session = reply.header("mcp-session-id").map(str::to_owned);
        }
        let messages = self.listen(&mut reply);
        StepReply {
            status: reply.status,
            messages,
        }
    }

    /// The parameters of a step, with what the server gave us to bring back.
    fn params(&self, step: &ScriptStep) -> Value {
        let mut params = step.params.clone();
        if let (Some(given), Some(state)) = (&step.answers, &self.state) {
            params["inputResponses"] = given.clone();
            params["requestState"] = json!(state);
        }
        if let (true, Some(cursor)) = (step.goes_on, &self.cursor) {
            params["cursor"] = json!(cursor);
        }
        if self.script.era() == Era::Modern {
            let meta = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": {"name": "script", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": self.script.capabilities(),
            });
            for (name, value) in meta.as_object().unwrap() {
                params["_meta"][name] = value.clone();
            }
        }
        params
    }

    fn headers(&self, step: &ScriptStep, params: &Value) -> Vec<(String, String)> {
        let mut headers = vec![
            ("Content-Type", "application/json".to_owned()),
            ("Accept", "application/json, text/event-stream".to_owned()),
        ];
        if step.method != "initialize" {
            headers.push(("MCP-Protocol-Version", self.script.version().to_owned()));
        }
        if let Some(session) = &self.session {
            headers.push(("Mcp-Session-Id", session.clone()));
        }
        if self.script.era() == Era::Modern {
            headers.push(("Mcp-Method", step.method.clone()));
            let params = Params::parse(Bytes::from(params.to_string())).unwrap();
            if let Some(name) = mcp_name(&step.method, &params) {
                headers.push(("Mcp-Name", name.to_str().unwrap().to_owned()));
            }
        }
        let own = step
            .headers
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()));
        let headers = headers
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value));
        headers.chain(own).collect()
    }

    /// Reads a reply to its end, and answers what is asked on the way.
    fn listen(&mut self, reply: &mut Reply) -> Vec<Message> {
        let mut heard = Vec::new();
        while let Some(raw) = reply.message() {
            let text = String::from_utf8(raw).unwrap();
            let members: Members<'_> =
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
            if let (Some(id), Some(method)) = (members.id, &members.method) {
                self.answer(id, method);
            }
            heard.push(self.note(&members));
        }
        heard
    }

    fn note(&mut self, members: &Members<'_>) -> Message {
        let raw = |value: Option<&RawValue>| value.map(|value| value.get().to_owned());
        let id = raw(members.id).unwrap_or_default();
        if let Some(method) = &members.method {
            return Message::Said(method.clone(), raw(members.params));
        }
        match members.result {
            Some(result) => Message::Result(id, self.note_result(result.get())),
            None => Message::Error(id, raw(members.error).unwrap_or_default()),
        }
    }

    /// Keeps what is to be brought back. A state is for its server alone: the one that came is as
    /// good as any.
    fn note_result(&mut self, raw: &str) -> String {
        let mut result: Value = serde_json::from_str(raw).unwrap();
        self.cursor = result["nextCursor"].as_str().map(str::to_owned);
        self.state = result["requestState"].as_str().map(str::to_owned);
        if self.state.is_none() {
            return raw.to_owned();
        }
        result["requestState"] = json!("a state");
        result.to_string()
    }

    fn answer(&self, id: &RawValue, method: &str) {
        let result = self.script.answer(method);
        let message = json!({"jsonrpc": "2.0", "id": id, "result": result});
        let mut headers = vec![
            ("Content-Type".to_owned(), "application/json".to_owned()),
            (
                "Accept".to_owned(),
                "application/json, text/event-stream".to_owned(),
            ),
            (
                "MCP-Protocol-Version".to_owned(),
                self.script.version().to_owned(),
            ),
        ];
        if let Some(session) = &self.session {
            headers.push(("Mcp-Session-Id".to_owned(), session.clone()));
        }
        let taken = send(self.url, "POST", &headers, message.to_string().as_bytes());
        assert_eq!(taken.status, 202, "an answer to {method}");
    }
}
