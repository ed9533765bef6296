//! What to do about a server that cannot be opened. Here "ask `warmline doctor`" is no advice.

use warmline::core::code::Reason;
use warmline::core::exchange::Trouble;
use warmline::upstream::Reach;

use crate::report::text::seconds;
use crate::target::Target;

/// One thing to do about a trouble that brings no advice of its own.
pub(super) fn of(trouble: &Trouble, target: &Target) -> Option<String> {
    let general = || {
        let all = trouble.code.try_this().iter();
        let mut elsewhere = all.filter(|advice| !advice.contains("warmline doctor"));
        elsewhere.next().map(|advice| (*advice).to_owned())
    };
    if let Some(pause) = trouble.retry_after {
        return Some(format!(
            "it asks to wait {}, then try again",
            seconds(pause)
        ));
    }
    match &target.server.reach {
        Reach::Stdio(_) => of_program(trouble.reason, target).or_else(general),
        Reach::Http(_) if trouble.reason == Reason::Tls => {
            Some(of_certificate(trouble.why.as_deref().unwrap_or_default()).to_owned())
        },
        // Whoever waits for a request in the clear takes a greeting of TLS for its slow beginning.
        Reach::Http(http)
            if http.url.scheme() == "https"
                && [Reason::TimeoutUnsent, Reason::TlsClosed].contains(&trouble.reason) =>
        {
            Some("it may not speak TLS there: try the URL with `http://`; or it hangs".to_owned())
        },
        Reach::Http(_) => of_url(trouble.reason).map(str::to_owned).or_else(general),
    }
}

fn of_program(reason: Reason, target: &Target) -> Option<String> {
    let by_hand = format!(
        "start it by hand and see what it says: `{}`",
        target.place()
    );
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
pub(super) fn plainly(why: &str) -> String {
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
