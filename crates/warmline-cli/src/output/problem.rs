//! An error of a command: what happened, where, why, the delivery, and what to do.

use std::time::Duration;

use serde::Serialize;
use warmline_config::{ConfigError, ConfigFile, Excerpt};
use warmline_core::delivery::Delivery;
use warmline_core::error::code::{Audience, Code, Reason};
use warmline_core::exchange::{AttemptFailure, Diagnostic};

use super::text::one_line;
use super::{JsonFields, sanitize, style};

#[derive(Clone, Debug)]
pub(crate) struct Problem(Box<ProblemParts>);

/// The parts of a [`Problem`], in the order in which they are printed.
#[derive(Clone, Debug)]
pub(crate) struct ProblemParts {
    pub(crate) code: Code,
    pub(crate) message: String,
    pub(crate) location: Option<String>,
    pub(crate) cause: Option<String>,
    pub(crate) delivery: Option<Delivery>,
    pub(crate) hint: Option<String>,
    /// The offending line of a file, and its number.
    pub(crate) excerpt: Option<(usize, Excerpt)>,
    pub(crate) reason: Option<Reason>,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) server: Option<String>,
    pub(crate) declined: Option<Vec<DeclinedServerRequest>>,
    /// Overrides the exit code of `code` and `delivery`.
    exit_code: Option<u8>,
}

/// A server request that was declined without asking the user.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DeclinedServerRequest {
    pub(crate) method: String,
    pub(crate) why: &'static str,
}

pub(crate) type CliResult<T> = Result<T, Problem>;

impl Problem {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self(Box::new(ProblemParts {
            code,
            message: message.into(),
            location: None,
            cause: None,
            delivery: None,
            hint: None,
            excerpt: None,
            reason: None,
            retry_after: None,
            server: None,
            declined: None,
            exit_code: None,
        }))
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::UsageBadArgument, message)
    }

    /// For `map_err`: what failed, with the error as its cause.
    pub(crate) fn caused<E: ToString>(code: Code, message: &str) -> impl FnOnce(E) -> Self {
        move |error| Self::new(code, message).with_cause(error.to_string())
    }

    pub(crate) fn from_diagnostic(diagnostic: &Diagnostic, delivery: Delivery) -> Self {
        let mut problem = Self::new(diagnostic.code, diagnostic.message.clone());
        problem.0.cause.clone_from(&diagnostic.cause);
        problem.0.hint = cli_hint(diagnostic)
            .or_else(|| hint_for_code(diagnostic.code, Some(diagnostic.reason), delivery));
        problem.0.reason = Some(diagnostic.reason);
        problem.0.retry_after = diagnostic.retry_after;
        problem.with_delivery(delivery)
    }

    pub(crate) fn from_attempt_failure(failure: &AttemptFailure) -> Self {
        Self::from_diagnostic(&failure.diagnostic, failure.delivery())
    }

    pub(crate) fn with_location(mut self, location: impl Into<String>) -> Self {
        self.0.location = Some(location.into());
        self
    }

    pub(crate) fn with_cause(mut self, cause: impl Into<String>) -> Self {
        self.0.cause = Some(cause.into());
        self
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Sets the delivery, and replaces general advice that contradicts it.
    pub(crate) fn with_delivery(mut self, delivery: Delivery) -> Self {
        self.0.delivery = Some(delivery);
        let was_not_executed = matches!(delivery, Delivery::Unsent | Delivery::Refused);
        let general = hint_for_code(self.0.code, None, delivery);
        if was_not_executed
            && matches!(self.0.code, Code::AnswerLost | Code::Cancelled)
            && self.0.hint == general
        {
            self.0.hint = Some("nothing was executed: it is safe to call again".to_owned());
        }
        self
    }

    /// A credential that was never sent cannot have been refused.
    pub(crate) fn with_missing_credential(mut self, server: &str) -> Self {
        if self.0.code == Code::CredentialRefused {
            self.0.message = format!("`{server}` requires a credential, and none was sent");
        }
        self
    }

    /// Removes the path of a URL that variables were filled into: it may be a secret.
    pub(crate) fn with_path_redacted(self, path: Option<&str>) -> Self {
        match path {
            Some(path) => self.map_texts(|text| text.replace(path, "/…")),
            None => self,
        }
    }

    pub(crate) fn map_texts(mut self, change: impl Fn(&str) -> String) -> Self {
        let parts = &mut *self.0;
        parts.message = change(&parts.message);
        for text in [&mut parts.cause, &mut parts.hint, &mut parts.location] {
            *text = text.take().map(|text| change(&text));
        }
        self
    }

    /// Replaces what a gateway advises its callers by the advice for its owner.
    pub(crate) fn with_local_advice(mut self) -> Self {
        let parts = &mut *self.0;
        let delivery = parts.delivery.unwrap_or(Delivery::Unsent);
        if parts.hint.as_deref() == Some(parts.code.advice(Audience::Gateway, delivery)) {
            parts.hint = hint_for_code(parts.code, parts.reason, delivery);
        }
        self
    }

    /// For commands that send no request of the user: they report no delivery.
    pub(crate) fn without_delivery(mut self) -> Self {
        let exit = self.exit_code();
        (self.0.delivery, self.0.exit_code) = (None, Some(exit));
        self
    }

    /// Whether the hint is a near miss of what was typed.
    pub(crate) fn is_near_miss(&self) -> bool {
        let hint = self.0.hint.as_deref();
        hint.is_some_and(|hint| hint.starts_with("did you mean"))
    }

    pub(crate) fn with_server(mut self, server: &str) -> Self {
        self.0.server = Some(server.to_owned());
        self
    }

    pub(crate) fn with_declined(mut self, declined: Option<Vec<DeclinedServerRequest>>) -> Self {
        self.0.declined = declined;
        self
    }

    pub(crate) fn with_exit_code(mut self, exit: u8) -> Self {
        self.0.exit_code = Some(exit);
        self
    }

    pub(crate) fn parts(&self) -> &ProblemParts {
        &self.0
    }

    pub(crate) fn exit_code(&self) -> u8 {
        if let Some(exit) = self.0.exit_code {
            return exit;
        }
        match (self.0.code, self.0.delivery) {
            // The answer arrived and was lost here: the call was executed.
            (Code::AnswerLost, Some(Delivery::Answered)) => {
                Code::AnswerLost.exit_code(Delivery::Unknown)
            },
            (code, delivery) => code.exit_code(delivery.unwrap_or(Delivery::Unsent)),
        }
    }

    /// The lines for people. Text of others cannot begin a line.
    pub(super) fn to_text(&self) -> String {
        let parts = self.parts();
        let head = style::failure(&format!("error[{}]", parts.code.as_str()));
        let mut lines = vec![format!("{head}: {}", one_line(&parts.message))];
        if let Some(place) = &parts.location {
            lines.push(format!("  where: {}", one_line(place)));
        }
        if let Some(why) = &parts.cause {
            let why: Vec<String> = sanitize(why).lines().map(str::to_owned).collect();
            lines.push(format!("  why: {}", why.join("\n       ")));
        }
        if let Some(delivery) = parts.delivery {
            lines.push(match delivery.description() {
                Some(sentence) => format!("  delivery: {delivery} ({sentence})"),
                None => format!("  delivery: {delivery}"),
            });
        }
        match (&parts.excerpt, &parts.hint) {
            (Some((number, excerpt)), hint) => {
                let hint = hint.as_deref().unwrap_or_default();
                lines.push(excerpt_text(*number, excerpt, hint));
            },
            (None, Some(hint)) => lines.push(format!("  hint: {}", one_line(hint))),
            (None, None) => {},
        }
        lines.join("\n")
    }

    pub(super) fn to_fields(&self) -> JsonFields {
        let parts = self.parts();
        let retry_after = parts.retry_after.map(|after| after.as_millis());
        JsonFields::with("code", parts.code.as_str())
            .put("reason", parts.reason.map(Reason::as_str))
            .put("delivery", parts.delivery.map(Delivery::as_str))
            .put("server", &parts.server)
            .put("what", &parts.message)
            .put("where", &parts.location)
            .put("why", &parts.cause)
            .put("hint", &parts.hint)
            .put("retry_after_ms", retry_after)
            .put("declined", &parts.declined)
            .put("exit", self.exit_code())
    }
}

/// A line of a file, with the hint under the word that it is about.
fn excerpt_text(number: usize, excerpt: &Excerpt, hint: &str) -> String {
    let number = number.to_string();
    let margin = " ".repeat(number.len());
    let under = " ".repeat(excerpt.offset) + &"^".repeat(excerpt.width);
    let under = format!("{under} {}", one_line(hint));
    let (line, under) = (sanitize(&excerpt.line), under.trim_end());
    format!("  {margin} |\n  {number} | {line}\n  {margin} | {under}")
}

impl From<warmline_engine::Error> for Problem {
    fn from(error: warmline_engine::Error) -> Self {
        Self::from_diagnostic(error.diagnostic(), error.delivery())
    }
}

impl From<ConfigError> for Problem {
    fn from(error: ConfigError) -> Self {
        let mut problem = Self::new(error.code, error.message);
        problem.0.cause = error.cause;
        problem.0.hint = error.hint;
        if let Some(place) = error.location {
            problem.0.location = Some(place.to_string());
            problem.0.excerpt = place.position.map(|(line, _)| line).zip(place.excerpt);
        }
        problem
    }
}

/// The first error of a configuration file by line, with a hint on how many more there are.
pub(crate) fn first_config_error(error: ConfigError) -> Problem {
    let Some(file) = error.location.as_ref().map(|place| place.file.clone()) else {
        return error.into();
    };
    let (errors, _) = ConfigFile::find_errors_and_declarations(&file);
    let mut errors = errors.into_iter();
    let (Some(first), more @ 1..) = (errors.next(), errors.len()) else {
        return error.into();
    };
    let problem = Problem::from(first);
    let more = format!("and {more} more: `warmline check {}`", file.display());
    let hint = match &problem.parts().hint {
        Some(hint) => format!("{hint}; {more}"),
        None => more,
    };
    problem.with_hint(hint)
}

/// The hint of a diagnostic for users of the command line: the engine's own hints name Rust methods.
pub(crate) fn cli_hint(diagnostic: &Diagnostic) -> Option<String> {
    if let Some(hint) = gateway_token_hint(diagnostic) {
        return Some(format!("{hint}; give it by {TOKEN_OPTIONS}"));
    }
    let own = diagnostic.hint.as_ref();
    let own = own.filter(|hint| !hint.contains("`Server::bearer`"));
    let is_token = own.is_none() && diagnostic.reason == Reason::Unauthorized;
    is_token
        .then(|| TOKEN_OPTIONS.to_owned())
        .or_else(|| own.cloned())
}

/// How to get a token, if the server that refused ours is a Warmline gateway.
pub(crate) fn gateway_token_hint(diagnostic: &Diagnostic) -> Option<&'static str> {
    let why = diagnostic.cause.as_deref().unwrap_or_default();
    let is_gateway = diagnostic.reason == Reason::Unauthorized
        && GATEWAY_AUTH_ERRORS.iter().any(|text| why.contains(text));
    is_gateway.then_some(GATEWAY_TOKEN_HINT)
}

const GATEWAY_AUTH_ERRORS: [&str; 2] = ["a bearer token is needed", "this token is not known here"];

const GATEWAY_TOKEN_HINT: &str = "`warmline token new NAME` makes a token; for a gateway of this \
    machine with `auth = \"local\"`, `warmline url NAME` prints its token";

const TOKEN_OPTIONS: &str = "the variable `MCP_AUTH_TOKEN`, for a URL that is typed; or `--header-env Authorization=VARIABLE`, where the variable holds \
    `Bearer …`; or `credential = { env = \"VARIABLE\" }` in the configuration, where it holds the \
    token alone";

/// The general advice of a code. If a call may have been executed, checking that comes first.
fn hint_for_code(code: Code, reason: Option<Reason>, delivery: Delivery) -> Option<String> {
    let is_large = reason == Some(Reason::ReplyTooLarge);
    let hint = match (code, delivery) {
        _ if is_large && delivery == Delivery::Unknown => {
            "check whether it was executed before calling again; then ask for less at once"
        },
        _ if is_large => "ask for less at once: fewer items, or a part",
        (Code::Deadline, Delivery::Unknown) => {
            "check whether it was executed before calling again; `--timeout` allows more time"
        },
        (Code::BadAnswer, Delivery::Unknown) => {
            "check whether it was executed before calling again; report it to the server's makers"
        },
        (_, Delivery::Unknown) => "check whether it was executed before calling again",
        (code, _) => code.suggestions().into_iter().next()?,
    };
    Some(hint.to_owned())
}
