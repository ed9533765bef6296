//! What SDKs, frameworks and gateways say: rows a1 to a38 (gone) and b1 to b10 (missing).

use super::{Dialect, J1, J2, J3, J4, J5, J6, J7, J8, J9, J10, J11, J12, J13, Words};

const METHOD_NOT_ALLOWED: Words = Words::json(
    405,
    r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Method not allowed."},"id":null}"#,
);
const PYTHON_NOT_ALLOWED: Words = Words::json(
    405,
    r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Method Not Allowed: Session termination not supported"}}"#,
);
const ALREADY_INITIALIZED: Words = Words::json(
    400,
    r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request: Server already initialized"},"id":null}"#,
);
const NOT_FOUND_TEXT: Words = Words::bare(404, "Session not found");
const GO_MISMATCH: Words = Words::plain(403, "session user mismatch\n");
const CSHARP_MISMATCH: Words = Words::json(
    403,
    r#"{"error":{"code":-32000,"message":"Forbidden: The currently authenticated user does not match the user who initiated the session."},"id":$ID,"jsonrpc":"2.0"}"#,
);
const RUBY: Words = Words::json(
    404,
    r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32600,"message":"Session not found"}}"#,
);
const KOTLIN: Words = Words::json(
    404,
    r#"{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}"#,
);
const PHP: Words = Words::json(
    404,
    r#"{"jsonrpc":"2.0","id":"","error":{"code":-32600,"message":"Session not found or has expired."}}"#,
);
const PROXY_CHALLENGE: Words = Words::json(
    401,
    r#"{"error":{"code":-32000,"message":"Unauthorized: No valid session ID provided"},"id":$ID,"jsonrpc":"2.0"}"#,
)
.with_headers(&[(
    "WWW-Authenticate",
    r#"Bearer error="invalid_token", error_description="Unauthorized: No valid session ID provided""#,
)]);

/// What SDKs, frameworks and gateways say when a session is gone.
pub static SDK: &[Dialect] = &[
    Dialect::same("a1", "Python mcp 1.26 to 1.30, FastMCP 2.14 and 3", J1),
    Dialect::same("a2", "Python mcp 2, FastMCP 4", J2),
    Dialect::same("a3", "Python mcp 1.8 to 1.25, id unknown", J3),
    Dialect::same("a4", "Python mcp 1.8 to 1.25, id deleted", J4),
    Dialect::same("a5", "Python mcp 1.27 and later, id of another credential", J1),
    Dialect::same("a6", "TypeScript transport, id unlike its own", J5).initialize(ALREADY_INITIALIZED),
    Dialect::same("a7", "TypeScript transport, closed", J5),
    Dialect::same("a8", "TypeScript, one transport, just restarted", J6)
        .initialize(Words::served()),
    Dialect::same("a9", "TypeScript v1 after the published example", J7).get(J8).delete(J8),
    Dialect::same(
        "a10",
        "TypeScript v1, variants of the example",
        Words::json(
            400,
            r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID"},"id":null}"#,
        ),
    )
    .get(J8)
    .delete(J8),
    Dialect::same("a11", "TypeScript v2 examples", J5).get(NOT_FOUND_TEXT).delete(NOT_FOUND_TEXT),
    Dialect::same("a12", "TypeScript v2 handler, legacy stateless", Words::served())
        .get(METHOD_NOT_ALLOWED)
        .delete(METHOD_NOT_ALLOWED),
    Dialect::same("a13", "Python, stateless", Words::served()).delete(PYTHON_NOT_ALLOWED),
    Dialect::same("a14", "rmcp 0.17 to 3.8", J9).delete(Words::bare(202, "")),
    Dialect::same("a15", "rmcp up to 0.16", J10).delete(Words::bare(202, "")),
    Dialect::same("a16", "rmcp without sessions", Words::served())
        .get(Words::bare(405, ""))
        .delete(Words::bare(405, "")),
    Dialect::same("a17", "Go, stateful", J11),
    Dialect::same("a18", "Go, session closing", Words::plain(404, "session is closing\n")),
    Dialect::same("a19", "Go, id of another user", GO_MISMATCH),
    Dialect::same("a20", "Go, stateless", Words::served())
        .get(Words::bare(405, ""))
        .delete(Words::bare(405, "")),
    Dialect::same("a21", "C#, stateful", J12).delete(Words::bare(200, "")),
    Dialect::same("a22", "C#, id of another user", CSHARP_MISMATCH),
    Dialect::same("a23", "C#, stateless", J13),
    Dialect::same("a24", "mcp-go, default: any well-formed id", Words::served()),
    Dialect::same("a25", "mcp-go, stateful", Words::plain(404, "Invalid session ID\n"))
        .initialize(Words::served()),
    Dialect::same("a25b", "mcp-go, stateful, ended", Words::plain(404, "Session terminated\n"))
        .initialize(Words::served()),
    Dialect::same(
        "a26",
        "Java SDK",
        Words::json(404, r#"{"jsonRpcError":{"code":-32603,"message":"Session not found: $SESSION"}}"#),
    )
    .get(Words::html(404, "<html><body><h1>HTTP Status 404</h1></body></html>"))
    .delete(Words::html(404, "<html><body><h1>HTTP Status 404</h1></body></html>")),
    Dialect::same("a27", "Kotlin SDK", KOTLIN).initialize(ALREADY_INITIALIZED),
    Dialect::same("a28", "Ruby SDK", RUBY),
    Dialect::same("a29", "PHP SDK", PHP),
    Dialect::same("a30", "npm mcp-proxy", J5),
    Dialect::same("a31", "npm mcp-proxy with authentication", PROXY_CHALLENGE),
    Dialect::same("a32", "supergateway", J7).get(J8).delete(J8),
    Dialect::same("a33", "Cloudflare agents", J5),
    Dialect::same("a34", "agentgateway", Words::plain(404, "mcp: session not found")),
    Dialect::same("a35", "Envoy AI gateway", Words::plain(400, "invalid session ID: cannot decrypt\n")),
    Dialect::same("a36", "ContextForge", Words::json(404, r#"{"detail":"Session not found"}"#)),
    Dialect::same("a37", "LiteLLM proxy", Words::served())
        .delete(Words::json(200, r#"{"message":"Session terminated"}"#)),
    Dialect::same("a38-404", "some balancer", Words::html(404, "<html><h1>404 Not Found</h1></html>")),
    Dialect::same("a38-410", "some balancer", Words::bare(410, "")),
    Dialect::same("a38-502", "some balancer", Words::html(502, "<html><h1>502 Bad Gateway</h1></html>")),
    Dialect::same("a38-503", "some balancer", Words::plain(503, "no healthy upstream")),
];

/// What servers say to a request that should carry a session id and does not.
pub static MISSING: &[Dialect] = &[
    Dialect::same(
        "b1",
        "Python mcp 1.25 to 1.30",
        Words::json(
            400,
            r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Bad Request: Missing session ID"}}"#,
        )
        .with_headers(&[("mcp-session-id", "0123456789abcdef0123456789abcdef")]),
    ),
    Dialect::same(
        "b2",
        "Python mcp 2.3",
        Words::json(
            400,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Bad Request: Missing session ID"}}"#,
        )
        .with_headers(&[("mcp-session-id", "0123456789abcdef0123456789abcdef")]),
    ),
    Dialect::same(
        "b3",
        "TypeScript v1 transport",
        Words::json(
            400,
            r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Mcp-Session-Id header is required"},"id":null}"#,
        ),
    ),
    Dialect::same("b3c", "TypeScript v1 transport, not initialized", J6),
    Dialect::same("b4", "TypeScript v1 after the published example", J7),
    Dialect::same("b5", "TypeScript v2 default", Words::served()),
    Dialect::same(
        "b6",
        "TypeScript v2, legacy rejected",
        Words::json(
            400,
            r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32022,"message":"Unsupported protocol version","data":{"supported":["2026-07-28"],"requested":"2025-11-25"}}}"#,
        ),
    ),
    Dialect::same("b7", "rmcp 3.8", Words::bare(400, "Bad Request: Session ID is required")),
    Dialect::same("b8", "rmcp 0.10", Words::bare(422, "Unexpected message, expect initialize request")),
    Dialect::same(
        "b9",
        "Go, stateful",
        Words::json(
            200,
            r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":0,"message":"method \"tools/list\" is invalid during session initialization"}}"#,
        ),
    ),
    Dialect::same(
        "b10",
        "C#, stateful",
        Words::json(
            400,
            r#"{"error":{"code":-32000,"message":"Bad Request: A new session can only be created by an initialize request. Include a valid Mcp-Session-Id header for non-initialize requests."},"id":$ID,"jsonrpc":"2.0"}"#,
        ),
    ),
];
