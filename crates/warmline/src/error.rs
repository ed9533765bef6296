//! `Error`: code, what, where, why, delivery, hint.
//!
//! Told by: the engine, for every call that did not end with an answer, and for an answer that is
//! a JSON-RPC error.  `Display` is the first line only, its cause is its `source()`, the page of all
//! that is known is [`Error::report`]; the rest are fields, rendered once at the edge.

mod advice;

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use warmline_core::code::{Code, Reason};
use warmline_core::delivery::Delivery;
use warmline_core::exchange::Trouble;
use warmline_core::protocol::envelope::RpcError;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call has no result, and what is known all the same.
///
/// The question to ask of it first is [`Error::delivery`]: whether the call may have been executed.
///
/// | written as | it reads |
/// |---|---|
/// | `{error}` | one line: what happened |
/// | `{error:#}` | one line: what happened, and the cause, as `anyhow` and `eyre` write a chain |
/// | [`Error::report`], `{error:?}` | the page: code, where, why, delivery, hint |
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    trouble: Trouble,
    delivery: Delivery,
    at: At,
    attempts: u32,
    server_error: Option<(RpcError, Bytes)>,
    cause: Option<Cause>,
}

/// The cause as the other side put it, as an error of its own.
#[derive(Clone, Debug)]
struct Cause(String);

/// Where it happened, as far as it is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct At {
    pub(crate) server: Option<String>,
    pub(crate) method: Option<String>,
    pub(crate) tool: Option<String>,
    pub(crate) run: Option<String>,
    pub(crate) generation: Option<u32>,
    pub(crate) place: Option<String>,
}

impl Error {
    /// Nothing of the call was sent.
    /// The error of a request of which nothing left us.
    #[doc(hidden)]
    pub fn unsent(trouble: Trouble) -> Self {
        Self::new(trouble, Delivery::Unsent)
    }

    pub(crate) fn new(trouble: Trouble, delivery: Delivery) -> Self {
        let cause = trouble.why.clone().map(Cause);
        Self(Box::new(Inner {
            trouble,
            delivery,
            at: At::default(),
            attempts: 0,
            server_error: None,
            cause,
        }))
    }

    /// The server answered with an error of the protocol.
    pub(crate) fn answered(server: &str, method: &str, raw: &Bytes) -> Self {
        let error = RpcError::parse(raw).unwrap_or_else(|_| RpcError {
            code: 0,
            message: "an error that cannot be read".to_owned(),
            data: None,
        });
        let what = format!("`{server}` answered `{method}` with an error");
        let why = format!("{} \"{}\"", error.code, error.message);
        let trouble = Trouble::new(Reason::Rejected, what)
            .coded(Code::ToolFailed)
            .because(why);
        let mut made = Self::new(trouble, Delivery::Answered);
        made.0.server_error = Some((error, raw.clone()));
        made
    }

    /// The same answer, where it is known what it means. The server's words stay its cause.
    pub(crate) fn meaning(mut self, mut trouble: Trouble) -> Self {
        trouble.why = self.0.trouble.why.take();
        self.0.trouble = trouble;
        self
    }

    pub(crate) fn at(mut self, at: At) -> Self {
        self.0.at = at;
        self
    }

    pub(crate) fn after(mut self, attempts: u32) -> Self {
        self.0.attempts = attempts;
        self
    }

    /// The stable name of the error.
    pub fn code(&self) -> Code {
        self.0.trouble.code
    }

    /// The finer word beside the code.
    pub fn reason(&self) -> Reason {
        self.0.trouble.reason
    }

    /// What is known of the request: whether it may have been executed.
    pub fn delivery(&self) -> Delivery {
        self.0.delivery
    }

    /// The cause as the other side put it.
    pub fn why(&self) -> Option<&str> {
        self.0.trouble.why.as_deref()
    }

    /// One thing to do about it, from Rust.
    pub fn hint(&self) -> Option<&str> {
        let own = self.0.trouble.hint.as_deref();
        Some(own.unwrap_or_else(|| advice::of(self.code(), self.delivery())))
    }

    /// Everything that is known, as a page of a few lines: for a log, or for whoever has to find
    /// out. Written with `{}`.
    ///
    /// ```
    /// # use warmline::Warmline;
    /// let error = Warmline::builder().build().unwrap().server("githup").unwrap_err();
    /// assert_eq!(error.to_string(), "no server `githup` is declared");
    /// assert!(error.report().to_string().starts_with("error[server-unknown]: no server"));
    /// ```
    pub fn report(&self) -> impl fmt::Display + '_ {
        Report(self)
    }

    /// The server it concerns.
    pub fn server(&self) -> Option<&str> {
        self.0.at.server.as_deref()
    }

    /// Where the server is: its URL without the query, or its program.
    pub fn place(&self) -> Option<&str> {
        self.0.at.place.as_deref()
    }

    /// The method that was called.
    pub fn method(&self) -> Option<&str> {
        self.0.at.method.as_deref()
    }

    /// The tool that was called.
    pub fn tool(&self) -> Option<&str> {
        self.0.at.tool.as_deref()
    }

    /// The run it happened in.
    pub fn run(&self) -> Option<&str> {
        self.0.at.run.as_deref()
    }

    /// The number of the session within its key.
    pub fn generation(&self) -> Option<u32> {
        self.0.at.generation
    }

    /// How often the request was sent.
    pub fn attempts(&self) -> u32 {
        self.0.attempts
    }

    /// When it makes sense to come back.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.trouble.retry_after
    }

    /// The server's own error, where it answered with one: code, message and data.
    pub fn server_error(&self) -> Option<&RpcError> {
        self.0.server_error.as_ref().map(|(error, _)| error)
    }

    /// The same as the server wrote it: a raw JSON object.
    pub fn server_error_raw(&self) -> Option<&Bytes> {
        self.0.server_error.as_ref().map(|(_, raw)| raw)
    }

    /// The trouble behind it, for whoever renders it.
    pub fn trouble(&self) -> &Trouble {
        &self.0.trouble
    }
}

/// The first line; `{:#}` adds the cause to it.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.trouble.what)?;
        match &self.0.cause {
            Some(cause) if f.alternate() => write!(f, ": {cause}"),
            Some(_) | None => Ok(()),
        }
    }
}

/// The page, as [`Error::report`] gives it: what `unwrap` and a test show.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Report(self), f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let cause = self.0.cause.as_ref()?;
        Some(cause)
    }
}

/// In one line: it stands in others' lines.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, line) in self.0.lines().map(str::trim).enumerate() {
            if place > 0 {
                f.write_str(" · ")?;
            }
            f.write_str(line)?;
        }
        Ok(())
    }
}

impl std::error::Error for Cause {}

/// Everything that is known, in the form of the error page.
struct Report<'a>(&'a Error);

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = self.0;
        write!(f, "error[{}]: {}", error.code(), error.0.trouble.what)?;
        let at = &error.0.at;
        let place: Vec<String> = [
            at.server.clone(),
            at.place.clone(),
            at.method.clone(),
            at.tool.clone(),
            at.run.as_ref().map(|run| format!("run `{run}`")),
            at.generation.map(|number| format!("generation {number}")),
        ]
        .into_iter()
        .flatten()
        .collect();
        if !place.is_empty() {
            write!(f, "\n  where: {}", place.join(", "))?;
        }
        if let Some(why) = error.why() {
            write!(f, "\n  why: {why}")?;
        }
        if let Some(sentence) = error.delivery().sentence() {
            write!(f, "\n  delivery: {} ({sentence})", error.delivery())?;
        }
        if let Some(hint) = error.hint() {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
