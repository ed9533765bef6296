//! Hints for a server that cannot be opened or called, from the diagnostic and the target: its program,
//! the variables that it misses, its URL.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use warmline_config::{Declaration, closest_match, ignored_variables};
use warmline_core::delivery::Delivery;
use warmline_core::error::code::{Code, Reason};
use warmline_core::exchange::Diagnostic;
use warmline_engine::settings::{RETIRED_VARIABLES, process_variable};
use warmline_upstream::{
    HttpConfig, ServerTarget, StdioConfig, TransportConfig, withheld_variables,
};

use crate::output::problem::{cli_hint, gateway_token_hint};
use crate::output::{Problem, format_duration};
use crate::target::{Target, TargetSource, URL_VARIABLE, has_headers};

pub(crate) mod command_line;

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

    pub(crate) fn hint_for_missing_variable(&self, output: &str) -> Option<String> {
        match &self.server.transport {
            TransportConfig::Stdio(stdio) => {
                missing_variable_hint(stdio, output, self.declared_in())
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
        let mut prefixes = ["HTTP 307 to ", "HTTP 308 to "].iter();
        let url = &http.url;
        let to = prefixes.find_map(|prefix| why.strip_prefix(prefix))?;
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
    let ago = rest.rsplit_once('(');
    let ago = ago.and_then(|(_, ago)| ago.split(' ').next()?.parse::<u64>().ok());
    match ago.map(|seconds| seconds / 86_400) {
        Some(0) | None => head.to_owned(),
        Some(1) => format!("{head} 1 day ago"),
        Some(days) => format!("{head} {days} days ago"),
    }
}

/// Names the variables that a program misses, judging by its output.
fn missing_variable_hint(
    stdio: &StdioConfig,
    output: &str,
    declared_in: Option<&str>,
) -> Option<String> {
    let withheld = withheld_variables(stdio);
    let mentioned = find_mentioned_variables(&withheld, output);
    if !mentioned.is_empty() {
        let what = match mentioned.as_slice() {
            [one] => format!("`{one}` is set here, but not passed to the program"),
            many => format!(
                "`{}` are set here, but not passed to the program",
                many.join("`, `")
            ),
        };
        let options = mentioned.iter().map(|one| format!("--env-pass {one}"));
        let options = options.collect::<Vec<_>>().join(" ");
        return Some(match declared_in {
            None => format!("{what}: `{options}`"),
            Some(place) => format!(
                "{what}: `env_pass = [\"{}\"]` at {place}, or `{options}` for one command",
                mentioned.join("\", \"")
            ),
        });
    }
    let wanted = find_requested_variable(output)
        .filter(|name| !stdio.env.contains_key(*name) && process_variable(name).is_none())?;
    let is_passed = stdio.env_pass.iter().any(|name| name == wanted);
    Some(match (is_passed, declared_in) {
        (true, _) => format!("set `{wanted}`: it is passed on, but not set"),
        (false, None) => format!("set `{wanted}`, and pass it on: `--env-pass {wanted}`"),
        (false, Some(place)) => {
            format!("set `{wanted}`, and pass it on: `env_pass = [\"{wanted}\"]` at {place}")
        },
    })
}

/// The variables that a text names as whole words; at most three.
fn find_mentioned_variables<'n>(names: &'n [String], text: &str) -> Vec<&'n str> {
    let names = names.iter().map(String::as_str);
    let named =
        names.filter(|name| is_variable_name(name) && split_words(text).any(|word| word == *name));
    named.take(3).collect()
}

fn find_requested_variable(text: &str) -> Option<&str> {
    let is_about_variable = |line: &&str| {
        let line = line.to_ascii_lowercase();
        ["environment variable", "env var", "env variable"]
            .iter()
            .any(|words| line.contains(words))
    };
    let line = text.lines().find(is_about_variable)?;
    split_words(line).find(|word| is_variable_name(word) && word.contains('_'))
}

/// Whether a word can only be the name of a variable: upper case, and not a short word.
fn is_variable_name(word: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    word.len() >= 4
        && word.bytes().all(is_letter)
        && word.starts_with(|c: char| c.is_ascii_uppercase())
}

fn split_words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

/// Variables that look like ours and are not read, each as a message and a hint.
pub(crate) fn unused_variables(servers: &[&Declaration]) -> Vec<(String, String)> {
    let strays = ignored_variables().into_iter().map(|stray| {
        let message = format!("{} is set, but nothing reads it", stray.variable);
        let hint = match stray.suggestion {
            Some(meant) => format!("did you mean `{meant}`?"),
            None if stray.variable == RETIRED_VARIABLES[0] => {
                "name the variable for its server: `credential = { env = \"…\" }`".to_owned()
            },
            None if RETIRED_VARIABLES.contains(&stray.variable.as_str()) => {
                "set it for the server that needs it: `sessions = \"always\"`".to_owned()
            },
            None => "remove it: no setting has this name".to_owned(),
        };
        (message, hint)
    });
    strays.chain(unused_generic_url(servers)).collect()
}

fn unused_generic_url(servers: &[&Declaration]) -> Option<(String, String)> {
    process_variable(URL_VARIABLE).filter(|url| !url.is_empty())?;
    let is_named = |server: &&Declaration| server.url_env.as_deref() == Some(URL_VARIABLE);
    if servers.len() < 2 || servers.iter().any(is_named) {
        return None;
    }
    Some((
        format!(
            "{URL_VARIABLE} is set, but applies to none of {} servers",
            servers.len()
        ),
        format!("name it for its server: `url_env = \"{URL_VARIABLE}\"`"),
    ))
}

/// Where the program of a server is, found without starting anything, so without the PATH of the login
/// shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProgramLookup {
    Found(String),
    Missing(String),
    Unknown(&'static str),
}

impl ProgramLookup {
    /// Searches as the server would be started. Variables in its path are redacted.
    pub(crate) fn find(stdio: &StdioConfig) -> Self {
        let (program, folder) = (&stdio.program, stdio.cwd.clone().unwrap_or_default());
        let found = |says: String| Self::Found(stdio.redact_substituted(says));
        let missing = |says: String| Self::Missing(stdio.redact_substituted(says));
        if program.contains('/') {
            return match is_program(&folder.join(program)) {
                true => found(format!("{program} can be executed")),
                false => missing(format!("there is no program {program}")),
            };
        }
        let own = stdio.env.get("PATH").map(OsString::from);
        let Some(path) = own.or_else(|| std::env::var_os("PATH")) else {
            return Self::Unknown("PATH is not set");
        };
        let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
        let count = folders.len();
        let mut numbered = (1..).zip(&folders);
        match numbered.find(|(_, place)| is_program(&folder.join(place).join(program))) {
            Some((number, place)) => found(format!(
                "{program} → {}/{program} (folder {number} of {count} in PATH)",
                place.display()
            )),
            None => missing(format!(
                "`{program}` is in none of the {count} folders of PATH"
            )),
        }
    }
}

pub(crate) fn is_on_path(word: &str) -> bool {
    let server = ServerTarget::stdio("it", word, [""; 0]);
    match &server.transport {
        TransportConfig::Stdio(stdio) => {
            matches!(ProgramLookup::find(stdio), ProgramLookup::Found(_))
        },
        TransportConfig::Http(_) => false,
    }
}

fn is_program(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
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

    #[test]
    fn a_variable_is_named_by_a_word_of_its_own() {
        let names = ["BRAVE_API_KEY", "PWD", "Path", "HOSTNAME"].map(str::to_owned);
        #[rustfmt::skip]
        let table: [(&str, &[&str]); 5] = [
            ("Error: BRAVE_API_KEY environment variable is required", &["BRAVE_API_KEY"]),
            ("KeyError: 'BRAVE_API_KEY'\n  at HOSTNAME",              &["BRAVE_API_KEY", "HOSTNAME"]),
            ("MY_BRAVE_API_KEY is missing",                           &[]),
            ("PWD and Path are no news",                              &[]),
            ("",                                                      &[]),
        ];
        for (said, expected) in table {
            assert_eq!(find_mentioned_variables(&names, said), expected, "{said}");
        }
    }

    #[test]
    fn a_line_that_speaks_of_a_variable_names_one() {
        #[rustfmt::skip]
        let table = [
            ("Error: SLACK_BOT_TOKEN environment variable is required", Some("SLACK_BOT_TOKEN")),
            ("boom\nplease set the env var `A_KEY` first",              Some("A_KEY")),
            ("an environment variable is missing",                      None),
            ("SLACK_BOT_TOKEN is no good",                              None),
        ];
        for (said, expected) in table {
            assert_eq!(find_requested_variable(said), expected, "{said}");
        }
    }
}
