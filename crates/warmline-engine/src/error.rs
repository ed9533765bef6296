//! `Error`: code, message, place, cause, delivery, hint.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use warmline_core::delivery::Delivery;
use warmline_core::error::code::{Audience, Code, Reason};
use warmline_core::exchange::Diagnostic;
use warmline_core::message::envelope::RpcError;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call has no result. [`Error::delivery`] says whether it may have been executed.
///
/// | written as | it reads |
/// |---|---|
/// | `{error}` | one line: what happened |
/// | `{error:#}` | one line: what happened, and the cause, as `anyhow` and `eyre` write a chain |
/// | [`Error::report`], `{error:?}` | the page: code, where, why, delivery, hint |
#[derive(Clone)]
pub struct Error(Box<ErrorDetails>);

#[derive(Clone)]
struct ErrorDetails {
    diagnostic: Diagnostic,
    delivery: Delivery,
    context: ErrorContext,
    attempts: u32,
    server_error: Option<(RpcError, Bytes)>,
    cause: Option<ErrorCause>,
}

#[derive(Clone, Debug)]
struct ErrorCause(String);

#[derive(Clone, Debug, Default)]
pub(crate) struct ErrorContext {
    pub(crate) server: Option<String>,
    pub(crate) method: Option<String>,
    pub(crate) tool: Option<String>,
    pub(crate) run: Option<String>,
    pub(crate) generation: Option<u32>,
    pub(crate) location: Option<String>,
}

impl Error {
    pub(crate) fn unsent(diagnostic: Diagnostic) -> Self {
        Self::new(diagnostic, Delivery::Unsent)
    }

    pub(crate) fn new(diagnostic: Diagnostic, delivery: Delivery) -> Self {
        let cause = diagnostic.cause.clone().map(ErrorCause);
        Self(Box::new(ErrorDetails {
            diagnostic,
            delivery,
            context: ErrorContext::default(),
            attempts: 0,
            server_error: None,
            cause,
        }))
    }

    pub(crate) fn from_server_error(server: &str, method: &str, raw: &Bytes) -> Self {
        let error = RpcError::parse(raw).unwrap_or_else(|_| RpcError {
            code: 0,
            message: "an error that cannot be read".to_owned(),
            data: None,
        });
        let what = format!("`{server}` answered `{method}` with an error");
        let why = format!("{} \"{}\"", error.code, error.message);
        let diagnostic = Diagnostic::new(Reason::Rejected, what)
            .with_code(Code::ToolFailed)
            .with_cause(why);
        let mut made = Self::new(diagnostic, Delivery::Answered);
        made.0.server_error = Some((error, raw.clone()));
        made
    }

    /// Replaces the diagnostic and keeps the server's text as the cause.
    pub(crate) fn with_diagnostic(mut self, mut diagnostic: Diagnostic) -> Self {
        diagnostic.cause = self.0.diagnostic.cause.take();
        self.0.diagnostic = diagnostic;
        self
    }

    pub(crate) fn with_context(mut self, at: ErrorContext) -> Self {
        self.0.context = at;
        self
    }

    pub(crate) fn with_attempts(mut self, attempts: u32) -> Self {
        self.0.attempts = attempts;
        self
    }

    /// The stable name of the error.
    pub fn code(&self) -> Code {
        self.0.diagnostic.code
    }

    /// The finer word beside the code.
    pub fn reason(&self) -> Reason {
        self.0.diagnostic.reason
    }

    /// Whether the request may have been executed.
    pub fn delivery(&self) -> Delivery {
        self.0.delivery
    }

    /// The cause, in the words of the server or the system.
    pub fn cause(&self) -> Option<&str> {
        self.0.diagnostic.cause.as_deref()
    }

    /// One thing to do about it, from Rust.
    pub fn hint(&self) -> Option<&str> {
        let own = self.0.diagnostic.hint.as_deref();
        Some(own.unwrap_or_else(|| self.code().advice(Audience::Rust, self.delivery())))
    }

    /// A report of a few lines with all details, for logs.
    ///
    /// ```
    /// # use warmline::Warmline;
    /// let error = Warmline::builder().build().unwrap().server("githup").unwrap_err();
    /// assert_eq!(error.to_string(), "no server `githup` is declared");
    /// assert!(error.report().to_string().starts_with("error[server-unknown]: no server"));
    /// ```
    pub fn report(&self) -> impl fmt::Display + '_ {
        ErrorReport(self)
    }

    /// The server.
    pub fn server(&self) -> Option<&str> {
        self.0.context.server.as_deref()
    }

    /// The server's URL without the query, or its program.
    pub fn location(&self) -> Option<&str> {
        self.0.context.location.as_deref()
    }

    /// The method that was called.
    pub fn method(&self) -> Option<&str> {
        self.0.context.method.as_deref()
    }

    /// The tool that was called.
    pub fn tool(&self) -> Option<&str> {
        self.0.context.tool.as_deref()
    }

    /// The run it happened in.
    pub fn run(&self) -> Option<&str> {
        self.0.context.run.as_deref()
    }

    /// The number of the session within its key.
    pub fn generation(&self) -> Option<u32> {
        self.0.context.generation
    }

    /// How often the request was sent.
    pub fn attempts(&self) -> u32 {
        self.0.attempts
    }

    /// When to try again.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.diagnostic.retry_after
    }

    /// The server's JSON-RPC error, if it replied with one.
    pub fn server_error(&self) -> Option<&RpcError> {
        self.0.server_error.as_ref().map(|(error, _)| error)
    }

    /// The server's JSON-RPC error as raw JSON.
    pub fn server_error_raw(&self) -> Option<&Bytes> {
        self.0.server_error.as_ref().map(|(_, raw)| raw)
    }

    /// The diagnostic, for programs that render it.
    pub fn diagnostic(&self) -> &Diagnostic {
        &self.0.diagnostic
    }
}

/// The error of a request that was not sent.
impl From<Diagnostic> for Error {
    fn from(diagnostic: Diagnostic) -> Self {
        Self::unsent(diagnostic)
    }
}

/// The first line; `{:#}` adds the cause to it.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.diagnostic.message)?;
        match &self.0.cause {
            Some(cause) if f.alternate() => write!(f, ": {cause}"),
            Some(_) | None => Ok(()),
        }
    }
}

/// The report, which `unwrap` shows.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&ErrorReport(self), f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let cause = self.0.cause.as_ref()?;
        Some(cause)
    }
}

impl fmt::Display for ErrorCause {
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

impl std::error::Error for ErrorCause {}

struct ErrorReport<'a>(&'a Error);

impl fmt::Display for ErrorReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = self.0;
        write!(f, "error[{}]: {}", error.code(), error.0.diagnostic.message)?;
        let at = &error.0.context;
        let place: Vec<String> = [
            at.server.clone(),
            at.location.clone(),
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
        if let Some(why) = error.cause() {
            write!(f, "\n  why: {why}")?;
        }
        if let Some(sentence) = error.delivery().description() {
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
