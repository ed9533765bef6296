//! How the tools are listed.

use serde_json::{Value, json};

/// Every tool, as `tools/list` shows it. After a change there is one more.
pub(crate) fn tool_definitions(changes: u32) -> Vec<Value> {
    let mut tools = session_tools();
    tools.extend(stateless_tools());
    tools.extend(request_tools());
    tools.push(header_param_tool());
    if changes > 0 {
        tools.push(tool_definition(
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

fn tool_definition(name: &str, description: &str, properties: Value) -> Value {
    json!({
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": properties},
    })
}

fn with_annotations(mut tool: Value, hints: Value) -> Value {
    tool["annotations"] = hints;
    tool
}

/// A tool that does nothing without this argument.
fn with_required_argument(argument: &str, mut tool: Value) -> Value {
    tool["inputSchema"]["required"] = json!([argument]);
    tool
}

fn session_tools() -> Vec<Value> {
    let string = json!({"type": "string"});
    vec![
        tool_definition("counter", "Counts its calls in this session", json!({})),
        tool_definition(
            "note_write",
            "Keeps a note in this session",
            json!({"title": string, "text": string}),
        ),
        with_annotations(
            tool_definition(
                "note_read",
                "Reads a note of this session",
                json!({"title": string}),
            ),
            json!({"readOnlyHint": true}),
        ),
        tool_definition(
            "page_open",
            "Opens a page in this session",
            json!({"url": string}),
        ),
        with_annotations(
            tool_definition(
                "page_read",
                "Reads the page that is open in this session",
                json!({}),
            ),
            json!({"readOnlyHint": true}),
        ),
        with_annotations(
            with_required_argument(
                "amount",
                tool_definition(
                    "pay",
                    "Pays. Twice is twice",
                    json!({"amount": {"type": "integer"}, "account": string}),
                ),
            ),
            json!({"readOnlyHint": false, "destructiveHint": true, "idempotentHint": false}),
        ),
    ]
}

fn stateless_tools() -> Vec<Value> {
    let string = json!({"type": "string"});
    let whole = json!({"type": "integer", "minimum": 0});
    let reads = json!({"readOnlyHint": true});
    vec![
        with_annotations(
            tool_definition("get", "Reads a value", json!({"key": string})),
            reads.clone(),
        ),
        with_annotations(
            tool_definition(
                "put",
                "Writes a value; twice is once",
                json!({"key": string, "value": {}}),
            ),
            json!({"readOnlyHint": false, "idempotentHint": true}),
        ),
        with_annotations(
            tool_definition(
                "lie",
                "Says it only reads, and writes",
                json!({"key": string, "value": {}}),
            ),
            reads.clone(),
        ),
        with_annotations(
            tool_definition("echo", "Gives its arguments back", json!({})),
            reads.clone(),
        ),
        with_annotations(
            tool_definition("slow", "Takes its time", json!({"ms": whole})),
            reads.clone(),
        ),
        with_annotations(
            tool_definition("big", "Answers with so many bytes", json!({"bytes": whole})),
            reads.clone(),
        ),
        tool_definition("crash", "Ends the server", json!({})),
        tool_definition("fail", "Always fails", json!({})),
        tool_definition(
            "progress",
            "Tells how far it is",
            json!({"steps": whole, "pause_ms": whole}),
        ),
        tool_definition("log", "Writes lines of log", json!({"lines": whole})),
        tool_definition("change_tools", "Changes the tools", json!({})),
        with_annotations(
            tool_definition("env", "Names the variables of its environment", json!({})),
            reads,
        ),
    ]
}

fn request_tools() -> Vec<Value> {
    let rounds = json!({"rounds": {"type": "integer", "minimum": 1}});
    vec![
        tool_definition(
            "ask_form",
            "Asks the user to fill in a form",
            rounds.clone(),
        ),
        tool_definition("ask_url", "Asks the user to open a page", rounds.clone()),
        tool_definition("ask_sampling", "Asks the client's model", rounds.clone()),
        tool_definition("ask_roots", "Asks for the client's roots", rounds.clone()),
        tool_definition("ask_again", "Asks nothing, but to be called again", rounds),
    ]
}

fn header_param_tool() -> Value {
    tool_definition(
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
