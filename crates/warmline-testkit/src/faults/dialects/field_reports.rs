//! What was met in the field, beyond the SDKs: rows E and G of our tables.

use super::{Dialect, DialectReply, J1, J5, J6, J7};

/// Forms met in reports of users, and forms of proxies in between.
pub static FIELD_REPORTS: &[Dialect] = &[
    Dialect::uniform("e6", "mcp-remote, executor", J5),
    Dialect::uniform("e7", "servers on the Python SDK", J1),
    Dialect::uniform("e8", "mcp-proxy", J7),
    Dialect::uniform("e25", "a server that came back without its state", J6),
    Dialect::uniform(
        "e9",
        "a server behind a proxy that strips the header",
        DialectReply::json(
            400,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Bad Request: Missing session ID"}}"#,
        ),
    ),
    Dialect::uniform(
        "e9b",
        "reverse-engineering-assistant",
        DialectReply::plain_text(400, "Session ID required in mcp-session-id header"),
    ),
    Dialect::uniform(
        "e10",
        "OmniRoute",
        DialectReply::json(
            404,
            r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Not Found: Unknown Mcp-Session-Id header"},"id":null}"#,
        ),
    ),
    Dialect::uniform(
        "e18",
        "a server that uses the code of unknown methods",
        DialectReply::json(
            404,
            r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32601,"message":"Not Found: Invalid session ID"}}"#,
        ),
    ),
    Dialect::uniform("e19", "neotoma", DialectReply::plain_text(503, "unknown session")),
    Dialect::uniform(
        "e20",
        "a server that holds one session only",
        DialectReply::json(
            400,
            r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request: Server already initialized"},"id":null}"#,
        ),
    ),
    Dialect::uniform(
        "e21",
        "openclaw",
        DialectReply::json(
            200,
            r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32603,"message":"Session not found"}}"#,
        ),
    ),
    Dialect::uniform(
        "e22",
        "a proxy that hands on its client's words",
        DialectReply::json(
            200,
            r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":32600,"message":"Session terminated"}}"#,
        ),
    ),
    Dialect::uniform("g5", "asked for by users", DialectReply::without_content_type(410, "")),
    Dialect::uniform("g7", "nelson-mcp before 0.14", DialectReply::plain_text(409, "Session not found or stale")),
    Dialect::uniform("g8", "neotoma, unknown session", DialectReply::plain_text(503, "Session not found")),
    Dialect::uniform(
        "g9",
        "a proxy that wraps",
        DialectReply::json(
            500,
            r#"{"error":"upstream failed (HTTP 400): Bad Request: No valid session ID provided"}"#,
        ),
    ),
    Dialect::uniform(
        "g10",
        "ContextForge, RPC path",
        DialectReply::json(
            200,
            r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32002,"message":"Session not found"}}"#,
        ),
    ),
    Dialect::uniform(
        "g11",
        "Python in JSON mode: the request was running",
        DialectReply::json(
            500,
            r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32603,"message":"Session terminated before the request completed"}}"#,
        )
        .executed(),
    ),
];
