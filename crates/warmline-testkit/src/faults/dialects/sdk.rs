//! What SDKs, frameworks and gateways say: rows a1 to a38 (gone) and b1 to b10 (missing).

use super::{Dialect, DialectReply, J1, J2, J3, J4, J5, J6, J7, J8, J9, J10, J11, J12, J13};

const METHOD_NOT_ALLOWED: DialectReply = DialectReply::json(
    405,
    r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Method not allowed."},"id":null}"#,
);
const PYTHON_NOT_ALLOWED: DialectReply = DialectReply::json(
    405,
    r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Method Not Allowed: Session termination not supported"}}"#,
);
const ALREADY_INITIALIZED: DialectReply = DialectReply::json(
    400,
    r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request: Server already initialized"},"id":null}"#,
);
const NOT_FOUND_TEXT: DialectReply = DialectReply::without_content_type(404, "Session not found");
const GO_MISMATCH: DialectReply = DialectReply::plain_text(403, "session user mismatch\n");
const CSHARP_MISMATCH: DialectReply = DialectReply::json(
    403,
    r#"{"error":{"code":-32000,"message":"Forbidden: The currently authenticated user does not match the user who initiated the session."},"id":$ID,"jsonrpc":"2.0"}"#,
);
const RUBY_NOT_FOUND: DialectReply = DialectReply::json(
    404,
    r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32600,"message":"Session not found"}}"#,
);
const KOTLIN_NOT_FOUND: DialectReply = DialectReply::json(
    404,
    r#"{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}"#,
);
const PHP_NOT_FOUND: DialectReply = DialectReply::json(
    404,
    r#"{"jsonrpc":"2.0","id":"","error":{"code":-32600,"message":"Session not found or has expired."}}"#,
);
const PROXY_CHALLENGE: DialectReply = DialectReply::json(
    401,
    r#"{"error":{"code":-32000,"message":"Unauthorized: No valid session ID provided"},"id":$ID,"jsonrpc":"2.0"}"#,
)
.with_headers(&[(
    "WWW-Authenticate",
    r#"Bearer error="invalid_token", error_description="Unauthorized: No valid session ID provided""#,
)]);

/// What SDKs, frameworks and gateways say when a session is gone.
pub static SDK: &[Dialect] = &[
    Dialect::uniform("a1", "Python mcp 1.26 to 1.30, FastMCP 2.14 and 3", J1),
    Dialect::uniform("a2", "Python mcp 2, FastMCP 4", J2),
    Dialect::uniform("a3", "Python mcp 1.8 to 1.25, id unknown", J3),
    Dialect::uniform("a4", "Python mcp 1.8 to 1.25, id deleted", J4),
    Dialect::uniform("a5", "Python mcp 1.27 and later, id of another credential", J1),
    Dialect::uniform("a6", "TypeScript transport, id unlike its own", J5).with_initialize(ALREADY_INITIALIZED),
    Dialect::uniform("a7", "TypeScript transport, closed", J5),
    Dialect::uniform("a8", "TypeScript, one transport, just restarted", J6)
        .with_initialize(DialectReply::served()),
    Dialect::uniform("a9", "TypeScript v1 after the published example", J7).with_get(J8).with_delete(J8),
    Dialect::uniform(
        "a10",
        "TypeScript v1, variants of the example",
        DialectReply::json(
            400,
            r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID"},"id":null}"#,
        ),
    )
    .with_get(J8)
    .with_delete(J8),
    Dialect::uniform("a11", "TypeScript v2 examples", J5).with_get(NOT_FOUND_TEXT).with_delete(NOT_FOUND_TEXT),
    Dialect::uniform("a12", "TypeScript v2 handler, legacy stateless", DialectReply::served())
        .with_get(METHOD_NOT_ALLOWED)
        .with_delete(METHOD_NOT_ALLOWED),
    Dialect::uniform("a13", "Python, stateless", DialectReply::served()).with_delete(PYTHON_NOT_ALLOWED),
    Dialect::uniform("a14", "rmcp 0.17 to 3.8", J9).with_delete(DialectReply::without_content_type(202, "")),
    Dialect::uniform("a15", "rmcp up to 0.16", J10).with_delete(DialectReply::without_content_type(202, "")),
    Dialect::uniform("a16", "rmcp without sessions", DialectReply::served())
        .with_get(DialectReply::without_content_type(405, ""))
        .with_delete(DialectReply::without_content_type(405, "")),
    Dialect::uniform("a17", "Go, stateful", J11),
    Dialect::uniform("a18", "Go, session closing", DialectReply::plain_text(404, "session is closing\n")),
    Dialect::uniform("a19", "Go, id of another user", GO_MISMATCH),
    Dialect::uniform("a20", "Go, stateless", DialectReply::served())
        .with_get(DialectReply::without_content_type(405, ""))
        .with_delete(DialectReply::without_content_type(405, "")),
    Dialect::uniform("a21", "C#, stateful", J12).with_delete(DialectReply::without_content_type(200, "")),
    Dialect::uniform("a22", "C#, id of another user", CSHARP_MISMATCH),
    Dialect::uniform("a23", "C#, stateless", J13),
    Dialect::uniform("a24", "mcp-go, default: any well-formed id", DialectReply::served()),
    Dialect::uniform("a25", "mcp-go, stateful", DialectReply::plain_text(404, "Invalid session ID\n"))
        .with_initialize(DialectReply::served()),
    Dialect::uniform("a25b", "mcp-go, stateful, ended", DialectReply::plain_text(404, "Session terminated\n"))
        .with_initialize(DialectReply::served()),
    Dialect::uniform(
        "a26",
        "Java SDK",
        DialectReply::json(404, r#"{"jsonRpcError":{"code":-32603,"message":"Session not found: $SESSION"}}"#),
    )
    .with_get(DialectReply::html(404, "<html><body><h1>HTTP Status 404</h1></body></html>"))
    .with_delete(DialectReply::html(404, "<html><body><h1>HTTP Status 404</h1></body></html>")),
    Dialect::uniform("a27", "Kotlin SDK", KOTLIN_NOT_FOUND).with_initialize(ALREADY_INITIALIZED),
    Dialect::uniform("a28", "Ruby SDK", RUBY_NOT_FOUND),
    Dialect::uniform("a29", "PHP SDK", PHP_NOT_FOUND),
    Dialect::uniform("a30", "npm mcp-proxy", J5),
    Dialect::uniform("a31", "npm mcp-proxy with authentication", PROXY_CHALLENGE),
    Dialect::uniform("a32", "supergateway", J7).with_get(J8).with_delete(J8),
    Dialect::uniform("a33", "Cloudflare agents", J5),
    Dialect::uniform("a34", "agentgateway", DialectReply::plain_text(404, "mcp: session not found")),
    Dialect::uniform("a35", "Envoy AI gateway", DialectReply::plain_text(400, "invalid session ID: cannot decrypt\n")),
    Dialect::uniform("a36", "ContextForge", DialectReply::json(404, r#"{"detail":"Session not found"}"#)),
    Dialect::uniform("a37", "LiteLLM proxy", DialectReply::served())
        .with_delete(DialectReply::json(200, r#"{"message":"Session terminated"}"#)),
    Dialect::uniform("a38-404", "some balancer", DialectReply::html(404, "<html><h1>404 Not Found</h1></html>")),
    Dialect::uniform("a38-410", "some balancer", DialectReply::without_content_type(410, "")),
    Dialect::uniform("a38-502", "some balancer", DialectReply::html(502, "<html><h1>502 Bad Gateway</h1></html>")),
    Dialect::uniform("a38-503", "some balancer", DialectReply::plain_text(503, "no healthy upstream")),
];

/// What servers say to a request that should carry a session id and does not.
pub static SESSION_MISSING: &[Dialect] = &[
    Dialect::uniform(
        "b1",
        "Python mcp 1.25 to 1.30",
        DialectReply::json(
            400,
            r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Bad Request: Missing session ID"}}"#,
        )
        .with_headers(&[("mcp-session-id", "0123456789abcdef0123456789abcdef")]),
    ),
    Dialect::uniform(
        "b2",
        "Python mcp 2.3",
        DialectReply::json(
            400,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Bad Request: Missing session ID"}}"#,
        )
        .with_headers(&[("mcp-session-id", "0123456789abcdef0123456789abcdef")]),
    ),
    Dialect::uniform(
        "b3",
        "TypeScript v1 transport",
        DialectReply::json(
            400,
            r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Mcp-Session-Id header is required"},"id":null}"#,
        ),
    ),
    Dialect::uniform("b3c", "TypeScript v1 transport, not initialized", J6),
    Dialect::uniform("b4", "TypeScript v1 after the published example", J7),
    Dialect::uniform("b5", "TypeScript v2 default", DialectReply::served()),
    Dialect::uniform(
        "b6",
        "TypeScript v2, legacy rejected",
        DialectReply::json(
            400,
            r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32022,"message":"Unsupported protocol version","data":{"supported":["2026-07-28"],"requested":"2025-11-25"}}}"#,
        ),
    ),
    Dialect::uniform("b7", "rmcp 3.8", DialectReply::without_content_type(400, "Bad Request: Session ID is required")),
    Dialect::uniform("b8", "rmcp 0.10", DialectReply::without_content_type(422, "Unexpected message, expect initialize request")),
    Dialect::uniform(
        "b9",
        "Go, stateful",
        DialectReply::json(
            200,
            r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":0,"message":"method \"tools/list\" is invalid during session initialization"}}"#,
        ),
    ),
    Dialect::uniform(
        "b10",
        "C#, stateful",
        DialectReply::json(
            400,
            r#"{"error":{"code":-32000,"message":"Bad Request: A new session can only be created by an initialize request. Include a valid Mcp-Session-Id header for non-initialize requests."},"id":$ID,"jsonrpc":"2.0"}"#,
        ),
    ),
];
