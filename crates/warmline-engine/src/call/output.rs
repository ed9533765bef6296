//! What a tool call returns.

use bytes::Bytes;
use serde::de::DeserializeOwned;
use warmline_core::delivery::Delivery;
use warmline_core::error::code::{Code, Reason};
use warmline_core::exchange::Diagnostic;

use super::builder::{CallOutput, CallResponse};
use crate::error::{Error, Result};

/// The result of a tool call. A failed tool has a result, too: [`ToolResult::ok`] turns it into an
/// error.
///
/// ```
/// #![deny(unused_must_use)]
/// async fn pay(server: &warmline::ServerHandle) -> warmline::Result<()> {
///     server.call("pay", ()).await?.ok()?;
///     Ok(())
/// }
/// ```
///
/// The compiler warns without `.ok()?`:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// async fn pay(server: &warmline::ServerHandle) -> warmline::Result<()> {
///     server.call("pay", ()).await?;
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a failed tool has a result, too: `.ok()?` turns it into an error"]
pub struct ToolResult(CallResponse);

impl ToolResult {
    /// The raw JSON of the result.
    pub fn raw(&self) -> &Bytes {
        &self.0.result
    }

    /// Whether the tool says that it failed.
    pub fn is_error(&self) -> bool {
        self.parse_body().is_ok_and(|body| body.is_error)
    }

    /// The result, unless the tool says that it failed.
    ///
    /// # Errors
    /// `tool-failed`, delivery `answered`, with the text of the tool; `tool-unknown`, where the text
    /// says that the server has no such tool.
    pub fn ok(self) -> Result<ToolOutput> {
        if !self.is_error() {
            return Ok(ToolOutput(self));
        }
        if let Some(unknown) = &self.0.unknown_tool {
            return Err(self.error(Diagnostic::clone(unknown)));
        }
        let tool = self.0.tool.as_deref().unwrap_or("the tool");
        let what = format!("`{tool}` of `{}` failed", self.0.server);
        let text: String = self.text().chars().take(500).collect();
        let diagnostic = Diagnostic::new(Reason::Rejected, what).with_code(Code::ToolFailed);
        Err(self.error(if text.is_empty() {
            diagnostic
        } else {
            diagnostic.with_cause(text)
        }))
    }

    /// The text blocks of the result, joined by line breaks.
    pub fn text(&self) -> String {
        let Ok(body) = self.parse_body() else {
            return String::new();
        };
        let texts: Vec<&str> = body
            .content
            .iter()
            .filter(|block| block.get("type").and_then(|kind| kind.as_str()) == Some("text"))
            .filter_map(|block| block.get("text").and_then(|text| text.as_str()))
            .collect();
        texts.join("\n")
    }

    /// The content blocks.
    ///
    /// # Errors
    /// `bad-answer`, where they break the protocol.
    pub fn content(&self) -> Result<Vec<serde_json::Value>> {
        self.parse_body().map(|body| body.content)
    }

    /// The structured content, deserialized.
    ///
    /// # Errors
    /// `bad-answer`, where there is none or it does not fit the type.
    pub fn structured<T: DeserializeOwned>(&self) -> Result<T> {
        let Some(raw) = self.parse_body()?.structured else {
            return Err(self.bad_result_error("it has no structured content".to_owned()));
        };
        T::deserialize(raw).map_err(|error| self.bad_result_error(error.to_string()))
    }

    /// How often the call was sent.
    pub fn attempts(&self) -> u32 {
        self.0.attempts
    }

    /// The number of the session that answered, within its key.
    pub fn generation(&self) -> u32 {
        self.0.generation
    }

    /// Whether state of earlier calls was lost before this one.
    pub fn state_lost(&self) -> bool {
        self.0.state_lost
    }

    fn parse_body(&self) -> Result<ToolResultBody> {
        serde_json::from_slice(&self.0.result)
            .map_err(|error| self.bad_result_error(error.to_string()))
    }

    fn bad_result_error(&self, why: String) -> Error {
        let what = format!("the result of `{}` is not what was expected", self.0.server);
        self.error(Diagnostic::new(Reason::BadReply, what).with_cause(why))
    }

    fn error(&self, diagnostic: Diagnostic) -> Error {
        Error::new(diagnostic, Delivery::Answered)
            .with_context(self.0.error_context())
            .with_attempts(self.0.attempts)
    }
}

/// The result of a tool that did not fail.
#[derive(Clone, Debug)]
pub struct ToolOutput(ToolResult);

impl std::ops::Deref for ToolOutput {
    type Target = ToolResult;

    fn deref(&self) -> &ToolResult {
        &self.0
    }
}

impl From<ToolOutput> for ToolResult {
    fn from(output: ToolOutput) -> Self {
        output.0
    }
}

#[derive(serde::Deserialize)]
struct ToolResultBody {
    #[serde(default)]
    content: Vec<serde_json::Value>,
    #[serde(default, rename = "isError")]
    is_error: bool,
    #[serde(default, rename = "structuredContent")]
    structured: Option<serde_json::Value>,
}

impl CallOutput for ToolResult {}

impl From<CallResponse> for ToolResult {
    fn from(response: CallResponse) -> Self {
        Self(response)
    }
}
