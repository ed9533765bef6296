//! How the tools are listed.

use serde_json::{Value, json};

/// Every tool, as `tools/list` shows it. After a change there is one more.
pub(crate) fn catalogue(changes: u32) -> Vec<Value> {
    let mut tools = stateful();
    tools.extend(plain());
    tools.extend(asking());
    tools.push(routed());
    if changes > 0 {
        tools.push(tool(
            &format!("new_{changes}"),
            "Came with a change of the tools",
            json!({}),
        ));
    }
    tools
}

/// The arguments of a tool that are also sent as headers: header name, path of the argument.
pub(crate) fn header_params(name: &str) -> &'static [(&'static str, &'static [&'static str])] {
    match name {
        "routed" => &[
            ("Region", &["region"]),
            ("Level", &["level"]),
            ("Dry", &["dry"]),
            ("Zone", &["place", "zone"]),
        ],
        _ => &[],
    }
}

fn tool(name: &str, description: &str, properties: Value) -> Value {
    json!({
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": properties},
    })
}

fn hinted(mut tool: Value, hints: Value) -> Value {
    tool["annotations"] = hints;
    tool
}

/// A tool that does nothing without this argument.
fn needing(argument: &str, mut tool: Value) -> Value {
    tool["inputSchema"]["required"] = json!([argument]);
    tool
}

fn stateful() -> Vec<Value> {
    let string = json!({"type": "string"});
    vec![
        tool("counter", "Counts its calls in this session", json!({})),
        tool(
            "note_write",
            "Keeps a note in this session",
            json!({"title": string, "text": string}),
        ),
        hinted(
            tool(
                "note_read",
                "Reads a note of this session",
                json!({"title": string}),
            ),
            json!({"readOnlyHint": true}),
        ),
        tool(
            "page_open",
            "Opens a page in this session",
            json!({"url": string}),
        ),
        hinted(
            tool(
                "page_read",
                "Reads the page that is open in this session",
                json!({}),
            ),
            json!({"readOnlyHint": true}),
        ),
        hinted(
            needing(
                "amount",
                tool(
                    "pay",
                    "Pays. Twice is twice",
                    json!({"amount": {"type": "integer"}, "account": string}),
                ),
            ),
            json!({"readOnlyHint": false, "destructiveHint": true, "idempotentHint": false}),
        ),
    ]
}

fn plain() -> Vec<Value> {
    let string = json!({"type": "string"});
    let whole = json!({"type": "integer", "minimum": 0});
    let reads = json!({"readOnlyHint": true});
    vec![
        hinted(
            tool("get", "Reads a value", json!({"key": string})),
            reads.clone(),
        ),
        hinted(
            tool(
                "put",
                "Writes a value; twice is once",
                json!({"key": string, "value": {}}),
            ),
            json!({"readOnlyHint": false, "idempotentHint": true}),
        ),
        hinted(
            tool(
                "lie",
                "Says it only reads, and writes",
                json!({"key": string, "value": {}}),
            ),
            reads.clone(),
        ),
        hinted(
            tool("echo", "Gives its arguments back", json!({})),
            reads.clone(),
        ),
        hinted(
            tool("slow", "Takes its time", json!({"ms": whole})),
            reads.clone(),
        ),
        hinted(
            tool("big", "Answers with so many bytes", json!({"bytes": whole})),
            reads.clone(),
        ),
        tool("crash", "Ends the server", json!({})),
        tool("fail", "Always fails", json!({})),
        tool(
            "progress",
            "Tells how far it is",
            json!({"steps": whole, "pause_ms": whole}),
        ),
        tool("log", "Writes lines of log", json!({"lines": whole})),
        tool("change_tools", "Changes the tools", json!({})),
        hinted(
            tool("env", "Names the variables of its environment", json!({})),
            reads,
        ),
    ]
}

fn asking() -> Vec<Value> {
    let rounds = json!({"rounds": {"type": "integer", "minimum": 1}});
    vec![
        tool(
            "ask_form",
            "Asks the user to fill in a form",
            rounds.clone(),
        ),
        tool("ask_url", "Asks the user to open a page", rounds.clone()),
        tool("ask_sampling", "Asks the client's model", rounds.clone()),
        tool("ask_roots", "Asks for the client's roots", rounds.clone()),
        tool("ask_again", "Asks nothing, but to be called again", rounds),
    ]
}

fn routed() -> Value {
    tool(
        "routed",
        "Some of its arguments are also sent as headers",
        json!({
            "region": {"type": "string", "x-mcp-header": "Region"},
            "level": {"type": "integer", "x-mcp-header": "Level"},
            "dry": {"type": "boolean", "x-mcp-header": "Dry"},
            "place": {"type": "object", "properties": {
                "zone": {"type": "string", "x-mcp-header": "Zone"},
            }},
            "note": {"type": "string"},
        }),
    )
}
