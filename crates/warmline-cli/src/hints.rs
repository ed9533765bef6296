//! Hints for a server that cannot be opened or called, from the diagnostic and the target.

use warmline_config::closest_match;
use warmline_core::delivery::Delivery;
use warmline_core::error::code::{Code, Reason};
use warmline_core::exchange::Diagnostic;
use warmline_upstream::{HttpConfig, StdioConfig, TransportConfig, withheld_variables};

use crate::output::problem::{cli_hint, gateway_token_hint};
use crate::output::{Problem, format_duration};
use crate::target::{Target, TargetSource, has_headers};

pub(crate) mod command_line;
pub(crate) mod find_program;
pub(crate) mod variables;

/// The hint on the name that was probably meant.
pub(crate) fn did_you_mean<'n>(
    typed: &str,
    names: impl IntoIterator<Item = &'n str>,
) -> Option<String> {
    closest_match(typed, names).map(|near| format!("did you mean `{near}`?"))
}

impl Target {
    /// The problem of a session that could not be opened, without secrets of the URL.
    pub(crate) fn open_failure_problem(&self, diagnostic: &Diagnostic) -> Problem {
        let problem = Problem::from_diagnostic(diagnostic, Delivery::Unsent)
            .with_path_redacted(self.secret_path().as_deref());
        match has_headers(&self.server) {
            true => problem,
            false => problem.with_missing_credential(&self.server.name),
        }
    }

    /// One thing to do about a session that could not be opened.
    pub(crate) fn hint_for_open_failure(&self, diagnostic: &Diagnostic) -> Option<String> {
        let cause = diagnostic.cause.as_deref().unwrap_or_default();
        self.hint_for_missing_variable(cause)
            .or_else(|| self.hint_for_rejected_token(diagnostic))
            .or_else(|| cli_hint(diagnostic))
            .or_else(|| self.hint_for_reason(diagnostic))
    }

    /// Names the token that was refused.
    fn hint_for_rejected_token(&self, diagnostic: &Diagnostic) -> Option<String> {
        let is_refused = matches!(diagnostic.reason, Reason::Unauthorized | Reason::Forbidden);
        let from = self.token_source.as_deref().filter(|_| is_refused)?;
        let todo = gateway_token_hint(diagnostic).unwrap_or("check that this server accepts it");
        Some(format!("the token that was sent comes from {from}; {todo}"))
    }

    /// Names the variables that a program misses, judging by its output.
    pub(crate) fn hint_for_missing_variable(&self, output: &str) -> Option<String> {
        match &self.server.transport {
            TransportConfig::Stdio(stdio) => {
                variables::missing_variable_hint(stdio, output, self.declared_in())
            },
            TransportConfig::Http(_) => None,
        }
    }

    /// The place in a configuration file that declares it.
    fn declared_in(&self) -> Option<&str> {
        match &self.source {
            TargetSource::Configured { location, .. } => Some(location),
            TargetSource::CommandLine | TargetSource::EnclosingGateway => None,
        }
    }

    /// Replaces the general advice to run `doctor` by what `doctor` would say, or names the target.
    pub(crate) fn specialize_hint(&self, problem: Problem) -> Problem {
        const GENERIC_DOCTOR_COMMAND: &str = "`warmline doctor NAME`";
        let parts = problem.parts();
        let hint = parts.hint.clone().unwrap_or_default();
        if !hint.contains(GENERIC_DOCTOR_COMMAND) {
            return problem;
        }
        let known = parts.reason.and_then(|reason| {
            let mut diagnostic = Diagnostic::new(reason, parts.message.clone());
            diagnostic.cause.clone_from(&parts.cause);
            diagnostic.retry_after = parts.retry_after;
            self.hint_for_reason(&diagnostic)
        });
        let command = format!("`warmline doctor {}`", self.to_argument());
        problem.with_hint(known.unwrap_or_else(|| hint.replace(GENERIC_DOCTOR_COMMAND, &command)))
    }

    fn hint_for_reason(&self, diagnostic: &Diagnostic) -> Option<String> {
        if let Some(pause) = diagnostic.retry_after {
            let pause = format_duration(pause).replace(".0 s", " s");
            return Some(format!(
                "the server asks to wait {pause} before the next try"
            ));
        }
        match &self.server.transport {
            TransportConfig::Stdio(stdio) => self.hint_for_program(stdio, diagnostic.reason),
            TransportConfig::Http(http) => self
                .hint_for_redirect(http, diagnostic)
                .or_else(|| url_hint(http, diagnostic).map(str::to_owned)),
        }
    }

    fn hint_for_program(&self, stdio: &StdioConfig, reason: Reason) -> Option<String> {
        let by_hand = format!(
            "start it by hand and read its output: `{}`",
            self.display_address()
        );
        Some(match (reason, self.declared_in()) {
            (Reason::SilentServer, Some(file)) => {
                format!("{by_hand}; or allow more time: `start_timeout` in {file}, or `--timeout`")
            },
            (
                Reason::SilentServer | Reason::Timeout | Reason::TimeoutUnsent | Reason::Handshake,
                _,
            ) => format!("{by_hand}; or allow more time with `--timeout`"),
            (Reason::ChildExit, _) if !withheld_variables(stdio).is_empty() => {
                format!("{by_hand}; if it works there, it may miss a variable: `--env-pass NAME`")
            },
            (Reason::ChildExit | Reason::Spawn, _) => by_hand,
            _ => return None,
        })
    }

    /// The URL that a server redirects to, if only the path differs.
    fn hint_for_redirect(&self, http: &HttpConfig, diagnostic: &Diagnostic) -> Option<String> {
        let is_redirect = diagnostic.reason == Reason::Redirect;
        let why = diagnostic.cause.as_deref().filter(|_| is_redirect)?;
        // How the engine reports redirects that keep method and body.
        let prefixes = ["HTTP 307 to ", "HTTP 308 to "];
        let url = &http.url;
        let to = prefixes
            .iter()
            .find_map(|prefix| why.strip_prefix(prefix))?;
        let to = url.join(to).ok()?;
        let is_plain = to.query().is_none() && to.fragment().is_none() && url.query().is_none();
        let is_same_server = to.origin() == url.origin() && to != *url;
        (is_plain && is_same_server && self.secret_path().is_none())
            .then(|| format!("use the URL that it redirects to: `{to}`"))
    }
}

/// The general advice of a code that does not point to `doctor`.
pub(crate) fn general_hint(code: Code) -> Option<String> {
    let mut all = code.suggestions().into_iter();
    all.find(|advice| !advice.contains("warmline doctor"))
        .map(str::to_owned)
}

fn url_hint(http: &HttpConfig, diagnostic: &Diagnostic) -> Option<&'static str> {
    use Reason as R;
    let is_https = http.url.scheme() == "https";
    Some(match (diagnostic.reason, is_https) {
        (R::Tls, _) => certificate_hint(diagnostic.cause.as_deref().unwrap_or_default()),
        // A plain HTTP server takes the TLS handshake for a slow request.
        (R::TimeoutUnsent | R::TlsClosed, true) => {
            "the port may not speak TLS: try the URL with `http://`; or the server hangs"
        },
        (R::ConnectTimeout, true) => {
            "if the port does not speak TLS, try the URL with `http://`; otherwise check what lies \
             between: firewall, VPN, proxy"
        },
        (R::ConnectRefused, _) => "nothing listens there: start the server, or check host and port",
        (R::Dns, _) => "check the host name, and whether this machine can resolve names",
        (R::ConnectTimeout | R::Unreachable | R::Proxy, _) => {
            "check the address, and what lies between: firewall, VPN, proxy"
        },
        (R::Timeout | R::TimeoutUnsent | R::SilentServer, _) => {
            "it accepts connections and does not answer: it may hang, or not be an MCP server; or \
             allow more time with `--timeout`"
        },
        (R::TlsClosed, _) => "the other side ended TLS: does this port speak `https`?",
        (R::NotFound | R::NotMcp | R::BadReply, _) => {
            "check the path: many servers are at `/mcp`, older ones at `/sse`"
        },
        (R::Redirect, _) => "use the URL that it redirects to, if you trust it",
        (R::RateLimited | R::TooEarly | R::Unavailable, _) => "wait a while, then try again",
        (R::Forbidden, _) => {
            "the credential may lack the permission, or the server checks where requests come from"
        },
        (R::Handshake | R::Rejected | R::RejectedUnclear | R::ServerError | R::GatewayError, _) => {
            "read the server's message, and its log"
        },
        _ => return None,
    })
}

fn certificate_hint(why: &str) -> &'static str {
    let why = why.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| why.contains(word));
    if has(&["corrupt message", "contenttype"]) {
        "the port does not speak TLS: try the URL with `http://`"
    } else if has(&["expired"]) {
        "the server's operator must renew its certificate; or this machine's clock is wrong"
    } else if has(&["not valid yet", "notvalidyet"]) {
        "check this machine's clock"
    } else if has(&["issuer", "self"]) {
        "if the server has its own certificate authority, name it: `--ca-file FILE`, or `ca_file`"
    } else if has(&["name"]) {
        "the certificate is for another name: check the URL"
    } else {
        "check the server's certificate; `--ca-file FILE` names its own certificate authority"
    }
}

/// A certificate error with days instead of seconds since 1970.
pub(crate) fn readable_certificate_error(why: &str) -> String {
    let Some((head, rest)) = why.split_once(": verification time ") else {
        return why.to_owned();
    };
    let ago = rest
        .rsplit_once('(')
        .and_then(|(_, ago)| ago.split(' ').next()?.parse::<u64>().ok());
    match ago.map(|seconds| seconds / 86_400) {
        Some(0) | None => head.to_owned(),
        Some(1) => format!("{head} 1 day ago"),
        Some(days) => format!("{head} {days} days ago"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_is_over_is_dated_in_days() {
        #[rustfmt::skip]
        let table = [
            ("certificate expired: verification time 1794764859 (UNIX), but certificate is not valid after 1609459200 (185305659 seconds ago)",
             "certificate expired 2144 days ago"),
            ("something else", "something else"),
            ("certificate expired: verification time 5 (UNIX)", "certificate expired"),
        ];
        for (why, plain) in table {
            assert_eq!(readable_certificate_error(why), plain);
        }
    }
}
