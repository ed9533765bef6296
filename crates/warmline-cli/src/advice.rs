//! What to do about a server that cannot be opened, or is gone when it is called.
//!
//! Asked by: every conversation, for the hint of its error, and `doctor`.  Told by: the trouble, and
//! by what is known of the target. Here "ask `warmline doctor NAME`" is no advice.

use url::Url;
use warmline::core::code::{Code, Reason};
use warmline::core::exchange::Trouble;
use warmline::upstream::{Reach, withheld};

use crate::problem::{Problem, own_hint, token_of_a_gateway};
use crate::report::text::seconds;
use crate::target::{Target, TargetSource};

pub(crate) mod variables;

/// What is known of a target, as far as advice goes by it.
#[derive(Clone, Debug)]
pub(crate) struct About {
    reach: Reach,
    /// How it is reached, for people.
    place: String,
    /// How to name it on another command line.
    again: String,
    /// The file that declares it, where it was not typed.
    declared_in: Option<String>,
    /// Whether its URL may be repeated.
    is_open: bool,
    /// Where the token that it is sent comes from.
    token_from: Option<String>,
}

impl About {
    pub(crate) fn of(target: &Target) -> Self {
        Self {
            reach: target.server.reach.clone(),
            place: target.place(),
            again: target.again(),
            declared_in: match &target.source {
                TargetSource::Configured { place, .. } => Some(place.clone()),
                TargetSource::Typed | TargetSource::Around => None,
            },
            is_open: target.secret_path().is_none(),
            token_from: target.token_from.clone(),
        }
    }

    /// One thing to do about a session that could not be opened.
    pub(crate) fn advice(&self, trouble: &Trouble) -> Option<String> {
        let said = trouble.why.as_deref().unwrap_or_default();
        let missed = self.missed_by(said);
        missed
            .or_else(|| self.of_token(trouble))
            .or_else(|| own_hint(trouble))
            .or_else(|| self.of_reason(trouble))
    }

    /// Which token was refused, where one was sent.
    fn of_token(&self, trouble: &Trouble) -> Option<String> {
        let is_refused = matches!(trouble.reason, Reason::Unauthorized | Reason::Forbidden);
        let from = self.token_from.as_deref().filter(|_| is_refused)?;
        let sent = format!("the token that was sent comes from {from}");
        Some(match token_of_a_gateway(trouble) {
            Some(other) => format!("{sent}; {other}"),
            None => format!("{sent}: see that it is one that this server accepts"),
        })
    }

    /// What a program misses of our variables, going by what it said.
    pub(crate) fn missed_by(&self, said: &str) -> Option<String> {
        match &self.reach {
            Reach::Stdio(stdio) => variables::missed(stdio, said, self.declared_in.as_deref()),
            Reach::Http(_) => None,
        }
    }

    /// A problem whose hint sends nobody round a corner: what `doctor` would say is said at once, and
    /// where it knows no more, it is named with its target.
    pub(crate) fn at_once(&self, problem: Problem) -> Problem {
        const ELSEWHERE: &str = "`warmline doctor NAME`";
        let parts = problem.parts();
        let Some(hint) = parts.hint.clone().filter(|hint| hint.contains(ELSEWHERE)) else {
            return problem;
        };
        let word = parts.reason;
        let reason = Reason::ALL.into_iter().find(|one| Some(one.word()) == word);
        let trouble = reason.map(|reason| {
            let mut trouble = Trouble::new(reason, parts.what.clone());
            trouble.why.clone_from(&parts.why);
            trouble.retry_after = parts.retry_after;
            trouble
        });
        let known = trouble.and_then(|trouble| self.of_reason(&trouble));
        let named = format!("`warmline doctor {}`", self.again);
        problem.hint(known.unwrap_or_else(|| hint.replace(ELSEWHERE, &named)))
    }

    /// Where more can be found out.
    pub(crate) fn elsewhere(&self) -> String {
        format!("see what is wrong: `warmline doctor {}`", self.again)
    }

    fn of_reason(&self, trouble: &Trouble) -> Option<String> {
        if let Some(pause) = trouble.retry_after {
            let pause = seconds(pause).replace(".0 s", " s");
            return Some(format!("it asks to wait {pause}, then try again"));
        }
        match &self.reach {
            Reach::Stdio(stdio) => {
                let advice = self.of_program(trouble.reason)?;
                let may_miss = trouble.reason == Reason::ChildExit && !withheld(stdio).is_empty();
                Some(match may_miss {
                    true => format!(
                        "{advice}; if it works there, it may miss a variable: `--env-pass NAME`"
                    ),
                    false => advice,
                })
            },
            Reach::Http(_) if trouble.reason == Reason::Tls => {
                Some(of_certificate(trouble.why.as_deref().unwrap_or_default()).to_owned())
            },
            // Whoever waits for a request in the clear takes a greeting of TLS for its slow
            // beginning.
            Reach::Http(http)
                if http.url.scheme() == "https"
                    && [Reason::TimeoutUnsent, Reason::TlsClosed].contains(&trouble.reason) =>
            {
                Some(
                    "it may not speak TLS there: try the URL with `http://`; or it hangs"
                        .to_owned(),
                )
            },
            Reach::Http(http)
                if http.url.scheme() == "https" && trouble.reason == Reason::ConnectTimeout =>
            {
                Some(
                    "if it does not speak TLS there, try the URL with `http://`; else look at what \
                     stands in between: firewall, VPN, proxy"
                        .to_owned(),
                )
            },
            Reach::Http(http) => self
                .other_path(&http.url, trouble)
                .or_else(|| of_url(trouble.reason).map(str::to_owned)),
        }
    }

    fn of_program(&self, reason: Reason) -> Option<String> {
        let by_hand = format!("start it by hand and see what it says: `{}`", self.place);
        // One setting alone decides how long a program may be silent at its start.
        if let (Reason::SilentServer, Some(file)) = (reason, &self.declared_in) {
            return Some(format!(
                "{by_hand}; or allow more time: `start_timeout` in {file}, or `--timeout`"
            ));
        }
        let slow = [
            Reason::Timeout,
            Reason::TimeoutUnsent,
            Reason::SilentServer,
            Reason::Handshake,
        ];
        if slow.contains(&reason) {
            return Some(format!("{by_hand}; or allow more time with `--timeout`"));
        }
        [Reason::ChildExit, Reason::Spawn]
            .contains(&reason)
            .then_some(by_hand)
    }

    /// The URL that a server sends to, where it is its own, under another path.
    fn other_path(&self, url: &Url, trouble: &Trouble) -> Option<String> {
        let why = trouble
            .why
            .as_deref()
            .filter(|_| trouble.reason == Reason::Redirect)?;
        let to = KEEPING.iter().find_map(|begins| why.strip_prefix(begins))?;
        let to = url.join(to).ok()?;
        let is_plain = to.query().is_none() && to.fragment().is_none() && url.query().is_none();
        let is_ours = to.origin() == url.origin() && to != *url;
        (is_plain && is_ours && self.is_open).then(|| format!("use the URL it sends to: `{to}`"))
    }
}

/// How the library tells of a redirection that keeps method and body.
const KEEPING: [&str; 2] = ["HTTP 307 to ", "HTTP 308 to "];

/// The general advice of a code that does not send to `doctor`.
pub(crate) fn general(code: Code) -> Option<String> {
    let all = code.try_this().iter();
    let mut elsewhere = all.filter(|advice| !advice.contains("warmline doctor"));
    elsewhere.next().map(|advice| (*advice).to_owned())
}

fn of_url(reason: Reason) -> Option<&'static str> {
    let table: [(&[Reason], &str); 10] = [
        (
            &[Reason::ConnectRefused],
            "nobody listens there: start the server, or check host and port",
        ),
        (
            &[Reason::Dns],
            "check the host's name, and whether this machine can look names up",
        ),
        (
            &[Reason::ConnectTimeout, Reason::Unreachable, Reason::Proxy],
            "check the address, and what stands in between: firewall, VPN, proxy",
        ),
        (
            &[Reason::Timeout, Reason::TimeoutUnsent, Reason::SilentServer],
            "it takes connections and stays silent: it may hang, or be something else than an MCP \
             server; or allow more time with `--timeout`",
        ),
        (
            &[Reason::TlsClosed],
            "the other side ended TLS: does this port speak `https` at all?",
        ),
        (
            &[Reason::NotFound, Reason::NotMcp, Reason::BadReply],
            "check the path: many servers are at `/mcp`, older ones at `/sse`",
        ),
        (
            &[Reason::Redirect],
            "use the URL it sends to, if you trust it",
        ),
        (
            &[Reason::RateLimited, Reason::TooEarly, Reason::Unavailable],
            "wait a while, then try again",
        ),
        (
            &[Reason::Forbidden],
            "the credential may not do that, or the server minds where requests come from",
        ),
        (
            &[
                Reason::Handshake,
                Reason::Rejected,
                Reason::RejectedUnclear,
                Reason::ServerError,
                Reason::GatewayError,
            ],
            "read what the server said, and look into its log",
        ),
    ];
    table
        .iter()
        .find(|(reasons, _)| reasons.contains(&reason))
        .map(|(_, advice)| *advice)
}

fn of_certificate(why: &str) -> &'static str {
    let why = why.to_lowercase();
    if why.contains("corrupt message") || why.contains("contenttype") {
        "it does not speak TLS there: try the URL with `http://`"
    } else if why.contains("expired") {
        "whoever runs the server must renew its certificate; or this machine's clock is wrong"
    } else if why.contains("not valid yet") || why.contains("notvalidyet") {
        "check this machine's clock"
    } else if why.contains("issuer") || why.contains("self") {
        "if the server has an authority of its own, name it: `--ca-file FILE`, or `ca_file`"
    } else if why.contains("name") {
        "the certificate is for another name: check the URL"
    } else {
        "check the server's certificate; an authority of its own is named by `--ca-file FILE`"
    }
}

/// A reason without seconds since 1970, which nobody can read.
pub(crate) fn plainly(why: &str) -> String {
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
            assert_eq!(plainly(why), plain);
        }
    }
}
