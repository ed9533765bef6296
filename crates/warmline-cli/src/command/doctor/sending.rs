//! What would be sent: headers and variables by name, secrets struck out.

use http::header::AUTHORIZATION;
use warmline::config::is_in_the_clear;
use warmline::upstream::{HttpReach, Reach};

use super::Finding;
use crate::target::Target;

/// What every request or start of a child carries of ours.
pub(super) fn look(target: &Target) -> Vec<Finding> {
    match &target.server.reach {
        Reach::Http(http) => headers(http),
        Reach::Stdio(stdio) => {
            let mut names: Vec<&str> = stdio.env.keys().map(String::as_str).collect();
            names.extend(stdio.env_pass.iter().map(String::as_str));
            names.sort_unstable();
            names.dedup();
            vec![Finding::ok(
                "would send",
                match names.as_slice() {
                    [] => "the usual variables (PATH, HOME, LANG …) · no secrets".to_owned(),
                    names => format!("the usual variables, and {}", named(names)),
                },
            )]
        },
    }
}

fn headers(http: &HttpReach) -> Vec<Finding> {
    let names: Vec<&str> = http.headers.iter().map(|(name, _)| name.as_str()).collect();
    let says = match names.as_slice() {
        [] => "no headers of yours · no secrets".to_owned(),
        names => named(names),
    };
    let mut findings = vec![Finding::ok("would send", says)];
    let has_token = http.headers.iter().any(|(name, _)| name == AUTHORIZATION);
    if has_token && is_in_the_clear(&http.url) {
        findings.push(
            Finding::look(
                "would send",
                "the token travels in the clear: the URL says `http`",
            )
            .hint("use the `https` URL of the server"),
        );
    }
    findings
}

fn named(names: &[&str]) -> String {
    names
        .iter()
        .map(|name| format!("{name}: …"))
        .collect::<Vec<_>>()
        .join(", ")
}
