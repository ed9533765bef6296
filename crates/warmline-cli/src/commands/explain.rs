//! `warmline explain`: the page of an error code, of a JSON-RPC number, of a row or of a reason.

use clap::Args;
use warmline_core::delivery::Delivery;
use warmline_core::error::code::{Code, Reason, rpc_error_code};
use warmline_engine::metrics::{CheckResult, HealCause, WordEnum};
use warmline_gateway::metrics::RejectionReason;

use crate::hints::did_you_mean;
use crate::output::{CliResult, JsonFields, Problem, Report, pad_first, style};

const EXAMPLES: &str = "\
Examples:
  warmline explain answer-lost
  warmline explain child-exit
  warmline explain 7503
  warmline explain P9
  warmline explain";

/// Explain an error code
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ExplainArgs {
    /// The word in `error[…]`, a `reason` of the log, or the number of a JSON-RPC error; default is
    /// a list of all codes
    #[arg(allow_negative_numbers = true)]
    code: Option<String>,
}

struct Entry {
    kind: &'static str,
    text: String,
    fields: JsonFields,
}

pub(super) fn run(args: &ExplainArgs, report: &Report) -> CliResult<u8> {
    let entries = match &args.code {
        Some(word) => find_entries(word)?,
        None => list_codes(),
    };
    for entry in entries {
        report.print_entry(entry.kind, &entry.fields, &entry.text);
    }
    Ok(0)
}

/// The pages of a word: a reason may mean something in several contexts.
fn find_entries(word: &str) -> CliResult<Vec<Entry>> {
    let other = find_rpc_error(word).or_else(|| find_detection_row(word));
    if let Some(entry) = other {
        return Ok(vec![entry]);
    }
    // Users paste what they saw.
    let plain = word.trim().trim_start_matches("error[");
    let plain = plain.trim_end_matches(':');
    let plain = plain.trim_end_matches(']');
    if let Some(code) = Code::parse(plain) {
        return Ok(vec![code_entry(code)]);
    }
    let reason = plain.trim().trim_start_matches("reason=").trim_matches('"');
    let reasons = log_reasons().filter(|one| one.word == reason);
    let entries: Vec<Entry> = reasons.map(|one| one.to_entry()).collect();
    if !entries.is_empty() {
        return Ok(entries);
    }
    let what = format!(
        "`{}` is not an error code or a reason",
        plain.escape_debug()
    );
    let reasons = log_reasons().map(|one| one.word);
    let known = Code::ALL.into_iter().map(Code::as_str).chain(reasons);
    let hint = did_you_mean(plain, known);
    let hint = hint.unwrap_or_else(|| "`warmline explain` lists all codes".to_owned());
    Err(Problem::usage(what).with_hint(hint))
}

fn list_codes() -> Vec<Entry> {
    let codes = Code::ALL.iter();
    let codes = codes.map(|code| (code.as_str().to_owned(), *code));
    let entry = |(name, code): (String, Code)| Entry {
        kind: "code",
        text: format!("{}  {}", style::name(&name), code.meaning()),
        fields: code_fields(code),
    };
    pad_first(codes.collect()).map(entry).collect()
}

fn code_fields(code: Code) -> JsonFields {
    JsonFields::with("code", code.as_str())
        .put("meaning", code.meaning())
        .put("party", code.party().as_str())
        .put("delivery", code.usual_delivery().map(Delivery::as_str))
}

fn code_entry(code: Code) -> Entry {
    let (head, meaning, party) = (style::bold(code.as_str()), code.meaning(), code.party());
    let mut text = format!("{head}\n  {meaning}\n\n  responsible: {party}");
    let exit = |delivery| code.exit_code(delivery);
    text.push_str(&match code.usual_delivery() {
        Some(delivery) => {
            let sentence = delivery.description().map(|text| format!(" ({text})"));
            format!(
                "\n  usual delivery: {delivery}{}\n  usual exit code: {}",
                sentence.unwrap_or_default(),
                exit(delivery)
            )
        },
        None => match (exit(Delivery::Unsent), exit(Delivery::Unknown)) {
            (always, other) if always == other => format!("\n  exit code: {always}"),
            (unsent, unknown) => format!(
                "\n  exit code: {unsent} if it was not sent, {unknown} if it may have been executed"
            ),
        },
    });
    for (title, items) in [
        ("usual causes", code.causes()),
        ("what to try", code.suggestions()),
    ] {
        if !items.is_empty() {
            text.push_str(&format!("\n\n  {title}:\n  - {}", items.join("\n  - ")));
        }
    }
    Entry {
        kind: "code",
        text,
        fields: code_fields(code)
            .put("causes", code.causes())
            .put("try", code.suggestions()),
    }
}

/// The rules of era detection, which `doctor` names as in `(P9)`: number, what a server answers to
/// `server/discover`, and what follows. `docs/reference/rows.md` lists them with all others.
#[rustfmt::skip]
const DETECTION_ROWS: [(&str, &str, &str); 24] = [
    ("P1", "200, a discovery with a modern version that we speak", "modern"),
    ("P2", "200, a discovery with legacy versions only", "legacy: `initialize`"),
    ("P3", "200, something else", "legacy"),
    ("P4", "`-32022` that names a modern version we speak", "modern: asked again"),
    ("P5", "`-32022` that names legacy versions only", "legacy, at the best of them"),
    ("P6", "`-32022` that names only modern versions we do not speak", "an error; no `initialize`"),
    ("P7", "`-32022` without a usable list", "legacy"),
    ("P8", "`-32020` or `-32021`", "modern, but it refuses our probe: an error"),
    ("P9", "400 with any other body", "legacy"),
    ("P10", "404 with `-32601`", "legacy"),
    ("P11", "404 or 405 with any other body", "legacy; if `initialize` fails too, HTTP+SSE of 2024-11-05"),
    ("P12", "any other 4xx", "legacy"),
    ("P13", "401, 403", "no verdict"),
    ("P14", "429, 5xx, 3xx, 407, 408", "no verdict"),
    ("P15", "no connection, or no answer in time", "no verdict"),
    ("P16", "200 with an event stream", "read to the response, then as above"),
    ("P17", "202", "a broken server"),
    ("Q1", "a discovery that shares a modern version", "modern"),
    ("Q2", "`-32022` with a modern version we speak", "modern: asked again"),
    ("Q3", "`-32022`, or a discovery, with legacy versions only", "legacy"),
    ("Q4", "any other error", "legacy"),
    ("Q5", "silence", "`initialize` is sent too; the answers decide"),
    ("Q6", "the process ends", "legacy, in a new process"),
    ("Q7", "that `initialize` gets `-32022`", "it was only slow: asked again"),
];

fn find_detection_row(word: &str) -> Option<Entry> {
    let word = word.trim().trim_matches(['(', ')']);
    let mut rows = DETECTION_ROWS.iter();
    let (number, answer, so) = rows.find(|(number, ..)| number.eq_ignore_ascii_case(word))?;
    let transport = match number.starts_with('P') {
        true => "HTTP",
        false => "stdio",
    };
    Some(Entry {
        kind: "row",
        text: format!(
            "{}\n  how the era of a server over {transport} is detected, from its answer to \
             `server/discover`\n\n  answer: {answer}\n  so: {so}",
            style::bold(number)
        ),
        fields: JsonFields::with("row", number)
            .put("answer", answer)
            .put("so", so),
    })
}

/// What a number means in an error of a gateway, and what to try; none if a gateway neither gives it
/// nor passes it on.
fn rpc_error_meaning(number: i64) -> Option<(&'static str, &'static str)> {
    const SEE_DATA: &str = "see the code in `error.data.warmline.code`: `warmline explain CODE`";
    const SEE_LOG: &str = "the client does not follow the protocol; the gateway's log says where";

    let is_for = |delivery| rpc_error_code(delivery) == Some(number);
    #[rustfmt::skip]
    let meaning = match number {
        _ if is_for(Delivery::Unsent) => ("the call failed before it was sent: it was not executed", SEE_DATA),
        _ if is_for(Delivery::Refused) => ("the server refused the call: it was not executed", SEE_DATA),
        _ if is_for(Delivery::Unknown) => ("no answer came: the call may have been executed", SEE_DATA),
        -32700 => ("the body is not JSON", SEE_LOG),
        -32600 => ("the JSON is not a valid message here, or the caller has no access", SEE_LOG),
        -32601 => ("the method is not supported there", SEE_LOG),
        -32602 => ("the parameters are invalid", SEE_LOG),
        -32603 => ("an internal error of the gateway, or of the server that gave this number",
                   "read the log of the gateway, and report the error if it is ours"),
        -32002 => ("no server has this resource",
                   "list resources again: it may be gone, or its server left out"),
        -32020 => ("a header is missing, or contradicts the body", SEE_LOG),
        -32022 => ("the protocol version is not supported there",
                   "the error lists the supported versions; a client that knows none is too old or too new"),
        // The protocol leaves these numbers to servers.
        -32_099..=-32_000 => ("an error that the server defines",
                              "read its message; if that is about a session, the session may be gone"),
        _ => return None,
    };
    Some(meaning)
}

fn find_rpc_error(word: &str) -> Option<Entry> {
    let number: i64 = word.trim().parse().ok()?;
    let (meaning, try_this) = rpc_error_meaning(number)?;
    let head = style::bold(&format!("{number}, in a JSON-RPC error"));
    Some(Entry {
        kind: "number",
        text: format!("{head}\n  {meaning}\n\n  what to try:\n  - {try_this}"),
        fields: JsonFields::with("number", number)
            .put("meaning", meaning)
            .put("try", [try_this]),
    })
}

struct LogReason {
    word: &'static str,
    context: &'static str,
    meaning: &'static str,
    code: Option<Code>,
}

const FAILURE_CONTEXT: &str = "a failed opening or call";
const REJECTION_CONTEXT: &str = "`request refused`: a gateway rejected a request";

/// Rejections after authentication, which have no metric.
const POST_AUTH_REJECTIONS: [(&str, &str); 2] = [
    ("message", "The message is not valid there."),
    (
        "era",
        "The client tried another era than its server's; one that speaks both falls back.",
    ),
];

fn log_reasons() -> impl Iterator<Item = LogReason> {
    let rejections = POST_AUTH_REJECTIONS
        .iter()
        .map(|(word, meaning)| LogReason {
            word,
            context: REJECTION_CONTEXT,
            meaning,
            code: None,
        });
    let heals = "`session gone`: what showed it";
    let checks = "`check failed`: what was found before a session was used again";
    documented_words(FAILURE_CONTEXT, |reason: Reason| Some(reason.code()))
        .chain(documented_words(REJECTION_CONTEXT, |_: RejectionReason| {
            None
        }))
        .chain(rejections)
        .chain(documented_words(heals, |_: HealCause| {
            Some(Code::SessionLost)
        }))
        .chain(documented_words(checks, |_: CheckResult| None))
}

fn documented_words<W: WordEnum>(
    context: &'static str,
    code: fn(W) -> Option<Code>,
) -> impl Iterator<Item = LogReason> {
    W::ALL.iter().map(move |one| LogReason {
        word: one.as_str(),
        context,
        meaning: one.meaning(),
        code: code(*one),
    })
}

impl LogReason {
    fn to_entry(&self) -> Entry {
        let code = self.code.map(Code::as_str);
        let head = style::bold(self.word);
        let mut text = format!(
            "{head}\n  {}\n\n  a reason of: {}",
            self.meaning, self.context
        );
        if let Some(code) = code {
            // While a session opens, these failures have another code.
            let is_open_failure = self.context == FAILURE_CONTEXT
                && matches!(
                    self.code,
                    Some(Code::AnswerLost | Code::BadAnswer | Code::Deadline)
                );
            let suffix = match is_open_failure {
                true => ", or `open-failed` while a session opens",
                false => "",
            };
            let page = style::name(&format!("warmline explain {code}"));
            text.push_str(&format!("\n  its code is {code}{suffix}: `{page}`"));
        }
        Entry {
            kind: "reason",
            text,
            fields: JsonFields::with("reason", self.word)
                .put("of", self.context)
                .put("meaning", self.meaning)
                .put("code", code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_those_of_the_reference() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/rows.md");
        let page = std::fs::read_to_string(page).unwrap();
        let of_eras = |line: &&str| line.starts_with("| P") || line.starts_with("| Q");
        let rows: Vec<&str> = page.lines().filter(of_eras).collect();
        let ours =
            DETECTION_ROWS.map(|(number, answer, so)| format!("| {number} | {answer} | {so} |"));
        assert_eq!(ours.to_vec(), rows);
    }

    #[test]
    fn a_row_is_found_as_it_is_pasted() {
        for word in ["P9", "(P9)", "p9"] {
            assert!(find_detection_row(word).is_some_and(|row| row.text.contains("P9")));
        }
        assert!(find_detection_row("P99").is_none());
    }
}
