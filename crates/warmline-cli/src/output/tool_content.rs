//! The result of a tool as text.

use serde_json::Value;

pub(crate) fn render_result(result: &Value) -> String {
    let blocks = result.get("content").and_then(Value::as_array);
    let parts: Vec<String> = blocks.into_iter().flatten().map(render_block).collect();
    let structured = result.get("structuredContent");
    let structured = structured.filter(|value| !value.is_null());
    match (parts.is_empty(), structured) {
        (true, Some(structured)) => pretty_json(structured),
        (true, None) if blocks.is_none() => pretty_json(result),
        _ => parts.join("\n"),
    }
}

pub(crate) fn is_tool_error(result: &Value) -> bool {
    result.get("isError") == Some(&Value::Bool(true))
}

pub(crate) fn pretty_json(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

fn render_block(block: &Value) -> String {
    let text = |name: &str| block.get(name).and_then(Value::as_str);
    match text("type") {
        Some("text") => text("text").unwrap_or_default().to_owned(),
        Some(kind @ ("image" | "audio")) => {
            let mime = text("mimeType").unwrap_or("unknown type");
            format!(
                "[{kind} {mime}, {}]",
                base64_size(text("data").unwrap_or_default())
            )
        },
        Some("resource_link") => {
            let uri = text("uri").unwrap_or_default();
            match text("title").or(text("name")) {
                Some(name) => format!("[link {uri}] {name}"),
                None => format!("[link {uri}]"),
            }
        },
        Some("resource") => render_resource(block.get("resource").unwrap_or(&Value::Null)),
        _ => pretty_json(block),
    }
}

fn render_resource(resource: &Value) -> String {
    let text = |name: &str| resource.get(name).and_then(Value::as_str);
    let uri = text("uri").unwrap_or_default();
    match (text("text"), text("blob")) {
        (Some(content), _) => format!("[resource {uri}]\n{content}"),
        (None, Some(blob)) => {
            let mime = text("mimeType").unwrap_or("unknown type");
            format!("[resource {uri} {mime}, {}]", base64_size(blob))
        },
        (None, None) => format!("[resource {uri}]"),
    }
}

fn base64_size(base64: &str) -> String {
    let bytes = base64.trim_end_matches('=').len() * 3 / 4;
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{} KiB", bytes / 1024),
        _ => format!("{} MiB", bytes / 1_048_576),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_of_content_has_its_text() {
        #[rustfmt::skip]
        let table = [
            (json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}), "a\nb"),
            (json!({"content": [{"type": "image", "mimeType": "image/png", "data": "AAAA"}]}), "[image image/png, 3 bytes]"),
            (json!({"content": [{"type": "audio", "data": "AAAAAA=="}]}), "[audio unknown type, 4 bytes]"),
            (json!({"content": [{"type": "resource_link", "uri": "file:///x", "name": "x"}]}), "[link file:///x] x"),
            (json!({"content": [{"type": "resource", "resource": {"uri": "n://1", "text": "hi"}}]}), "[resource n://1]\nhi"),
            (json!({"content": [{"type": "resource", "resource": {"uri": "n://1", "blob": "AAAA"}}]}), "[resource n://1 unknown type, 3 bytes]"),
            (json!({"content": [], "structuredContent": {"n": 1}}), "{\n  \"n\": 1\n}"),
            (json!({"content": [{"type": "text", "text": "a"}], "structuredContent": {"n": 1}}), "a"),
            (json!({"content": []}), ""),
            (json!({"content": "nope"}), "{\n  \"content\": \"nope\"\n}"),
            (json!({"content": [{"type": "new", "x": 1}]}), "{\n  \"type\": \"new\",\n  \"x\": 1\n}"),
        ];
        for (result, text) in table {
            assert_eq!(render_result(&result), text);
        }
        assert!(is_tool_error(&json!({"isError": true})) && !is_tool_error(&json!({})));
    }
}
