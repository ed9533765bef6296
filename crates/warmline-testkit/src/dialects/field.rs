//! What was met in the field, beyond the SDKs: rows E and G of our tables.

use super::{Dialect, J1, J5, J6, J7, Words};

/// Forms met in reports of users, and forms of proxies in between.
pub static FIELD: &[Dialect] = &[
    Dialect::same("e6", "mcp-remote, executor", J5),
    Dialect::same("e7", "servers on the Python SDK", J1),
    Dialect::same("e8", "mcp-proxy", J7),
    Dialect::same("e25", "a server that came back without its state", J6),
    Dialect::same(
        "e9",
        "a server behind a proxy that strips the header",
        Words::json(
            400,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Bad Request: Missing session ID"}}"#,
        ),
    ),
    Dialect::same(
        "e9b",
        "reverse-engineering-assistant",
        Words::plain(400, "Session ID required in mcp-session-id header"),
    ),
    Dialect::same(
        "e10",
        "OmniRoute",
        Words::json(
            404,
            r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Not Found: Unknown Mcp-Session-Id header"},"id":null}"#,
        ),
    ),
    Dialect::same(
        "e18",
        "a server that uses the code of unknown methods",
        Words::json(
            404,
            r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32601,"message":"Not Found: Invalid session ID"}}"#,
        ),
    ),
    Dialect::same("e19", "neotoma", Words::plain(503, "unknown session")),
    Dialect::same(
        "e20",
        "a server that holds one session only",
        Words::json(
            400,
            r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request: Server already initialized"},"id":null}"#,
        ),
    ),
    Dialect::same(
        "e21",
        "openclaw",
        Words::json(
            200,
            r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32603,"message":"Session not found"}}"#,
        ),
    ),
    Dialect::same(
        "e22",
        "a proxy that hands on its client's words",
        Words::json(
            200,
            r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":32600,"message":"Session terminated"}}"#,
        ),
    ),
    Dialect::same("g5", "asked for by users", Words::bare(410, "")),
    Dialect::same("g7", "nelson-mcp before 0.14", Words::plain(409, "Session not found or stale")),
    Dialect::same("g8", "neotoma, unknown session", Words::plain(503, "Session not found")),
    Dialect::same(
        "g9",
        "a proxy that wraps",
        Words::json(
            500,
            r#"{"error":"upstream failed (HTTP 400): Bad Request: No valid session ID provided"}"#,
        ),
    ),
    Dialect::same(
        "g10",
        "ContextForge, RPC path",
        Words::json(
            200,
            r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32002,"message":"Session not found"}}"#,
        ),
    ),
    Dialect::same(
        "g11",
        "Python in JSON mode: the request was running",
        Words::json(
            500,
            r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32603,"message":"Session terminated before the request completed"}}"#,
        )
        .executed(),
    ),
];
