//! What hostile clients send, and what each of it must get (mcp-spec 3 and 4.3).

use fastrand::Rng;

/// What an attack must get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gets {
    /// This status, and this code of JSON-RPC.
    Code(u16, i64),
    /// This status.
    Status(u16),
    /// Too many strangers may have come before it.
    Stranger,
    /// No HTTP: a refusal, or a closed connection.
    Refusal,
    /// Whatever it became by a change somewhere: an answer, or a named fault.
    Named,
}

/// What is needed to attack with.
pub(crate) struct Loot {
    /// A ticket of Alice's.
    pub(crate) ticket: String,
    /// One that she ended.
    pub(crate) ended: String,
}

const PATH: &str = "/servers/ledger/mcp";
const ALICE: &str = "Authorization: Bearer token-of-alice\r\n";
const BOB: &str = "Authorization: Bearer token-of-bob\r\n";
const FORM: &str =
    "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n";
const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
const SPEAKS: &str =
    "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: echo\r\n";

fn request(method: &str, path: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let text = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
    );
    text.into_bytes()
}

fn post(headers: &str, body: &str) -> Vec<u8> {
    request("POST", PATH, &format!("{ALICE}{FORM}{headers}"), body)
}

fn modern(headers: &str, params: &str) -> Vec<u8> {
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{{params}}}}}"#);
    post(headers, &body)
}

/// The call of a modern client, with something else in its place.
fn echo(more: &str) -> String {
    format!(r#""name":"echo","arguments":{{}},{META}{more}"#)
}

/// Bytes, and what they get.
type Attack = (Vec<u8>, Gets);

/// Every kind of attack that is made on purpose.
const KINDS: usize = 41;

/// One attack, drawn.
pub(crate) fn draw(rng: &mut Rng, loot: &Loot) -> Attack {
    match rng.usize(..KINDS) {
        kind @ ..14 => message(kind, rng),
        kind @ 14..20 => ticket(kind, rng, loot),
        kind @ 20..29 => head(kind, rng),
        kind @ 29..39 => words(kind, rng),
        kind => changed(kind, rng, loot),
    }
}

/// Bodies that are no message.
fn message(kind: usize, rng: &mut Rng) -> Attack {
    let junk: String = (0..rng.usize(1..40)).map(|_| rng.alphabetic()).collect();
    let (body, code) = match kind {
        0 => (junk, -32700),
        1 => (LIST.split_at(rng.usize(1..LIST.len())).0.to_owned(), -32700),
        2 => (format!("{LIST}{LIST}"), -32700),
        3 => (String::new(), -32700),
        4 => ("{".repeat(rng.usize(1..2000)), -32700),
        5 => (format!("\"{junk}\""), -32600),
        6 => (rng.u32(..).to_string(), -32600),
        7 => (format!(r#"{{"id":1,"method":"{junk}"}}"#), -32600),
        8 => (
            r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#.to_owned(),
            -32600,
        ),
        9 => (
            r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#.to_owned(),
            -32600,
        ),
        10 => (r#"{"jsonrpc":"2.0","id":1,"method":7}"#.to_owned(), -32600),
        11 => (r#"{"jsonrpc":"2.0","id":1}"#.to_owned(), -32600),
        12 => ("[]".to_owned(), -32600),
        _ => (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":7}}"#.to_owned(),
            -32602,
        ),
    };
    (post("", &body), Gets::Code(400, code))
}

/// Session ids that are not the sender's, or not of this place, or of nobody.
fn ticket(kind: usize, rng: &mut Rng, loot: &Loot) -> Attack {
    let with = |ticket: &str| format!("Mcp-Session-Id: {ticket}\r\n");
    let bytes = match kind {
        14 => {
            let mut forged = loot.ticket.clone().into_bytes();
            let place = rng.usize(..forged.len());
            forged[place] = if forged[place] == b'A' { b'B' } else { b'A' };
            post(&with(&String::from_utf8(forged).unwrap()), LIST)
        },
        15 => {
            let never: String = (0..rng.usize(1..300)).map(|_| rng.alphanumeric()).collect();
            post(&with(&never), LIST)
        },
        16 => {
            let headers = format!("{BOB}{FORM}{}", with(&loot.ticket));
            request("POST", PATH, &headers, LIST)
        },
        17 => {
            let headers = format!("{ALICE}{FORM}{}", with(&loot.ticket));
            request(
                "POST",
                &format!("/runs/r{}{PATH}", rng.u8(..)),
                &headers,
                LIST,
            )
        },
        18 => post(&with(&loot.ended), LIST),
        _ => {
            let headers = format!("{BOB}{}", with(&loot.ticket));
            request(rng.choice(["GET", "DELETE"]).unwrap(), PATH, &headers, "")
        },
    };
    (bytes, Gets::Code(404, -32600))
}

/// Heads that do not fit, and games with headers.
fn head(kind: usize, rng: &mut Rng) -> Attack {
    let whole = |headers: String| request("POST", PATH, &headers, LIST);
    match kind {
        20 => (
            whole(format!("{ALICE}Content-Type: text/plain\r\n")),
            Gets::Status(415),
        ),
        21 => (
            whole(format!("{ALICE}Accept: image/png\r\n")),
            Gets::Status(406),
        ),
        22 => (
            whole(format!("{FORM}Authorization: Bearer {}\r\n", rng.u64(..))),
            Gets::Stranger,
        ),
        23 => (whole(FORM.to_owned()), Gets::Stranger),
        24 => (
            whole(format!(
                "{ALICE}{FORM}Origin: https://{}.example\r\n",
                rng.u16(..)
            )),
            Gets::Status(403),
        ),
        25 => (request("PUT", PATH, ALICE, ""), Gets::Status(405)),
        26 => (
            request("POST", "/servers//mcp", &format!("{ALICE}{FORM}"), LIST),
            Gets::Status(404),
        ),
        27 => {
            let length = rng.usize(70_000..1 << 30);
            let text = format!(
                "POST {PATH} HTTP/1.1\r\nHost: localhost\r\n{ALICE}{FORM}Content-Length: {length}\r\n\r\n"
            );
            (text.into_bytes(), Gets::Status(413))
        },
        _ => (torn(rng), Gets::Refusal),
    }
}

/// What is no HTTP/1.1, or could be read in two ways.
fn torn(rng: &mut Rng) -> Vec<u8> {
    let begun = format!("POST {PATH} HTTP/1.1\r\nHost: localhost\r\n{ALICE}{FORM}");
    let text = match rng.usize(..6) {
        0 => format!("{begun}Content-Length: 5\r\nContent-Length: 6\r\n\r\n[]   "),
        1 => format!("{begun}Bad Header : x\r\nContent-Length: 0\r\n\r\n"),
        2 => format!("{begun}X: {}\r\n\r\n", "x".repeat(40_000)),
        3 => format!("{begun}{}\r\n", "X: 1\r\n".repeat(200)),
        4 => format!("{begun}Transfer-Encoding: chunked\r\n\r\nZZZ\r\n{LIST}\r\n0\r\n\r\n"),
        _ => "\u{1}\u{2}\u{3} nothing at all\r\n\r\n".to_owned(),
    };
    text.into_bytes()
}

/// Modern requests, and legacy ones with words of the other era, that are wrong in one point.
fn words(kind: usize, rng: &mut Rng) -> Attack {
    let future = format!("2{:03}-01-01", rng.u16(100..999));
    match kind {
        29 => (modern(SPEAKS, r#""name":"echo""#), Gets::Code(400, -32602)),
        30 => (
            modern(&SPEAKS.replace("tools/call", "tools/list"), &echo("")),
            Gets::Code(400, -32020),
        ),
        31 => (
            modern(&SPEAKS.replace("echo", "pay"), &echo("")),
            Gets::Code(400, -32020),
        ),
        32 => (modern("", &echo("")), Gets::Code(400, -32020)),
        33 => (
            modern(&format!("{SPEAKS}Mcp-Name: echo\r\n"), &echo("")),
            Gets::Code(400, -32020),
        ),
        34 => {
            let headers = SPEAKS.replace("2026-07-28", &future);
            let params = echo("").replace("2026-07-28", &future);
            (modern(&headers, &params), Gets::Code(400, -32022))
        },
        35 => {
            let state = format!(r#","requestState":"{}""#, rng.u64(..));
            (modern(SPEAKS, &echo(&state)), Gets::Code(400, -32602))
        },
        36 => {
            let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{{META}}}}}"#);
            let headers = SPEAKS.replace("tools/call", "ping");
            (post(&headers, &body), Gets::Code(404, -32601))
        },
        37 => {
            let body = LIST;
            (
                post("MCP-Protocol-Version: 1999-01-01\r\n", body),
                Gets::Code(400, -32600),
            )
        },
        _ => {
            let name = format!("Warmline-Run: no name {}\r\n", rng.u8(..));
            (
                modern(&format!("{SPEAKS}{name}"), &echo("")),
                Gets::Code(400, -32602),
            )
        },
    }
}

/// A good request with one byte of its body changed, or its end lost.
fn changed(kind: usize, rng: &mut Rng, loot: &Loot) -> Attack {
    let (headers, body) = if kind == 39 {
        let ticket = &loot.ticket;
        let headers = format!("Mcp-Session-Id: {ticket}\r\nMCP-Protocol-Version: 2025-11-25\r\n");
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"a":[1,"x"]}}}"#;
        (headers, call.to_owned())
    } else {
        let params = echo("");
        let call =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{{params}}}}}"#);
        (SPEAKS.to_owned(), call)
    };
    let mut body = body.into_bytes();
    let place = rng.usize(..body.len());
    if rng.bool() {
        body.truncate(place);
    } else {
        body[place] = rng.u8(0x20..0x7f);
    }
    (
        post(&headers, std::str::from_utf8(&body).unwrap()),
        Gets::Named,
    )
}
