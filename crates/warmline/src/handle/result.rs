//! What a tool answered, as people read it.

use bytes::Bytes;
use serde::de::DeserializeOwned;
use warmline_core::code::{Code, Reason};
use warmline_core::delivery::Delivery;
use warmline_core::exchange::Trouble;

use crate::call::Answered;
use crate::error::{Error, Result};

/// What a tool answered. A tool that failed has answered too: [`ToolResult::ok`] makes an error of
/// that, and where nobody looks at a result nobody sees that the tool failed.
///
/// ```
/// #![deny(unused_must_use)]
/// async fn pay(server: &warmline::ServerHandle) -> warmline::Result<()> {
///     server.call("pay", ()).await?.ok()?;
///     Ok(())
/// }
/// ```
///
/// Without `.ok()?` the compiler asks about it:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// async fn pay(server: &warmline::ServerHandle) -> warmline::Result<()> {
///     server.call("pay", ()).await?;
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a tool that says it failed is an answer too: `.ok()?` makes an error of it"]
pub struct ToolResult(pub(super) Answered);

impl ToolResult {
    /// The raw JSON of the result.
    pub fn raw(&self) -> &Bytes {
        &self.0.result
    }

    /// Whether the tool says that it failed.
    pub fn is_error(&self) -> bool {
        self.read().is_ok_and(|read| read.is_error)
    }

    /// The result, unless the tool says that it failed. It need not be looked at any more:
    /// `call(…).await?.ok()?;` is a whole statement.
    ///
    /// # Errors
    /// `tool-failed`, delivery `answered`, with the tool's own words; `tool-unknown`, where those
    /// say that the server has no such tool.
    pub fn ok(self) -> Result<ToolOutput> {
        if !self.is_error() {
            return Ok(ToolOutput(self));
        }
        if let Some(unknown) = &self.0.unknown_tool {
            return Err(Error::new(Trouble::clone(unknown), Delivery::Answered)
                .at(self.0.at())
                .after(self.0.attempts));
        }
        let tool = self.0.tool.as_deref().unwrap_or("the tool");
        let what = format!("`{tool}` of `{}` failed", self.0.server);
        let words: String = self.text().chars().take(500).collect();
        let trouble = Trouble::new(Reason::Rejected, what).coded(Code::ToolFailed);
        let trouble = if words.is_empty() {
            trouble
        } else {
            trouble.because(words)
        };
        Err(Error::new(trouble, Delivery::Answered)
            .at(self.0.at())
            .after(self.0.attempts))
    }

    /// The text blocks of the result, one after the other.
    pub fn text(&self) -> String {
        let Ok(read) = self.read() else {
            return String::new();
        };
        let texts: Vec<&str> = read
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
    /// `bad-answer`, where they are not what the protocol says.
    pub fn content(&self) -> Result<Vec<serde_json::Value>> {
        self.read().map(|read| read.content)
    }

    /// The structured content, as a type of yours.
    ///
    /// # Errors
    /// `bad-answer`, where there is none or it does not fit.
    pub fn structured<T: DeserializeOwned>(&self) -> Result<T> {
        let Some(raw) = self.read()?.structured else {
            return Err(self.bad("it has no structured content".to_owned()));
        };
        T::deserialize(raw).map_err(|error| self.bad(error.to_string()))
    }

    /// How often the call was sent.
    pub fn attempts(&self) -> u32 {
        self.0.attempts
    }

    /// The number of the session that answered, within its key.
    pub fn generation(&self) -> u32 {
        self.0.generation
    }

    /// Whether what earlier calls left in the session was lost before this one.
    pub fn state_lost(&self) -> bool {
        self.0.state_lost
    }

    fn read(&self) -> Result<Read> {
        serde_json::from_slice(&self.0.result).map_err(|error| self.bad(error.to_string()))
    }

    fn bad(&self, why: String) -> Error {
        let what = format!("the result of `{}` is not what was expected", self.0.server);
        let trouble = Trouble::new(Reason::BadReply, what).because(why);
        Error::new(trouble, Delivery::Answered)
            .at(self.0.at())
            .after(self.0.attempts)
    }
}

/// What a tool answered that did not fail: everything that a [`ToolResult`] has.
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
struct Read {
    #[serde(default)]
    content: Vec<serde_json::Value>,
    #[serde(default, rename = "isError")]
    is_error: bool,
    #[serde(default, rename = "structuredContent")]
    structured: Option<serde_json::Value>,
}
