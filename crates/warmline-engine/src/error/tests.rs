//! How an error reads, in one line and on a page.

use std::error::Error as _;

use super::*;

fn lost() -> Error {
    let diagnostic = Diagnostic::new(Reason::SessionGone, "`github` forgot the session")
        .with_cause("404 \"Session not found\"\nthen nothing");
    Error::new(diagnostic, Delivery::Refused).with_context(ErrorContext {
        server: Some("github".to_owned()),
        method: Some("tools/call".to_owned()),
        ..ErrorContext::default()
    })
}

/// What `anyhow` and `eyre` make of `{:#}`: every error of the chain, one after the other.
fn chain(error: &Error) -> String {
    let mut line = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        line = format!("{line}: {cause}");
        next = cause.source();
    }
    line
}

#[test]
fn in_one_line_an_error_reads_as_its_chain_does() {
    let error = lost();
    assert_eq!(error.to_string(), "`github` forgot the session");
    let line = "`github` forgot the session: 404 \"Session not found\" · then nothing";
    assert_eq!(format!("{error:#}"), line);
    assert_eq!(chain(&error), line);
}

#[test]
fn what_has_no_cause_has_no_source() {
    let error = Error::unsent(Diagnostic::new(Reason::Closed, "this engine was closed"));
    assert!(error.source().is_none());
    assert_eq!(format!("{error:#}"), error.to_string());
}

#[test]
fn the_page_has_everything_and_two_doors() {
    let error = lost();
    let page = error.report().to_string();
    assert_eq!(
        page,
        "error[session-lost]: `github` forgot the session
  where: github, tools/call
  why: 404 \"Session not found\"\nthen nothing
  delivery: refused (not executed, safe to call again)
  hint: do again what earlier calls had prepared, then call again"
    );
    assert_eq!(page, format!("{error:?}"));
}
