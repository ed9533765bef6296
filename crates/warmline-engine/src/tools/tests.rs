//! Tool lists: what is read and what is found.

use bytes::Bytes;
use serde_json::{Value, json};
use warmline_core::error::code::Code;
use warmline_core::policy::Policy;
use warmline_core::pool_key::{CredentialId, Digest, Identity};

use super::*;
use warmline_store::ServerDescriptor;

fn items(tools: &[Value]) -> Vec<Bytes> {
    tools
        .iter()
        .map(|tool| Bytes::from(tool.to_string()))
        .collect()
}

fn list(tools: &[Value], policy: &Policy) -> ToolList {
    let mut card = ServerDescriptor::new("shop");
    card.folder = Some("Sales".to_owned());
    card.slug = Some("shop-eu".to_owned());
    ToolList::from_listing(&card, items(tools), policy)
}

fn named(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| json!({ "name": name })).collect()
}

fn buy() -> Value {
    json!({
        "name": "cart.buy",
        "title": "Buy",
        "description": "Buys what is in the cart.",
        "inputSchema": { "type": "object", "properties": { "cart": { "type": "string" } } },
        "outputSchema": { "type": "object" },
        "annotations": { "readOnlyHint": false, "idempotentHint": true, "destructiveHint": "yes" },
        "_meta": { "shop": 1 },
        "x-unknown": [1, 2],
    })
}

/// A155: everything that a server says of a tool, and where the tool belongs.
#[test]
fn a_tool_has_its_description_its_schemas_and_its_place() {
    let tools = list(&[buy()], &Policy::default());
    let tool = tools.find("cart.buy").expect("the tool");
    assert_eq!(tool.name(), "cart.buy");
    assert_eq!(tool.title(), Some("Buy"));
    assert_eq!(tool.description(), Some("Buys what is in the cart."));
    assert_eq!(tool.input_schema(), buy()["inputSchema"]);
    assert_eq!(tool.output_schema(), Some(json!({ "type": "object" })));
    assert_eq!(tool.meta(), Some(json!({ "shop": 1 })));
    assert_eq!(tool.raw(), buy().to_string().as_bytes());
    let metadata = tool.metadata();
    assert_eq!(metadata.kind, "mcp");
    assert_eq!(metadata.display_name, "Buy");
    assert_eq!(metadata.folder.as_deref(), Some("Sales"));
    assert_eq!(metadata.slug.as_deref(), Some("shop-eu"));
    assert_eq!(metadata.server, "shop");
}

#[test]
fn a_tool_that_says_little_or_nonsense_is_still_a_tool() {
    #[rustfmt::skip]
    let table = [
        (json!({ "name": "t" }),                                            Value::Null),
        (json!({ "name": "t", "inputSchema": true, "annotations": 7 }),     json!(true)),
        (json!({ "name": "t", "annotations": { "readOnlyHint": "yes" } }),  Value::Null),
    ];
    for (tool, schema) in table {
        let tools = list(std::slice::from_ref(&tool), &Policy::default());
        let found = tools.find("t").expect("the tool");
        assert_eq!(found.input_schema(), schema, "{tool}");
        assert!(!found.hints().read_only, "{tool}");
        assert_eq!(found.metadata().display_name, "t");
        assert_eq!(found.output_schema(), None);
    }
    // What has no name cannot be called, and what is listed twice is one tool.
    let odd = [
        json!({}),
        json!(7),
        json!({ "name": "t" }),
        json!({ "name": "t" }),
    ];
    assert_eq!(list(&odd, &Policy::default()).len(), 1);
}

/// P113: the same list in the same order, whatever the names.
#[test]
fn tools_stand_in_the_order_of_the_server() {
    let names = ["z", "a.b", "m", "a"];
    let tools = list(&named(&names), &Policy::default());
    let listed: Vec<&str> = tools.into_iter().map(Tool::name).collect();
    assert_eq!(listed, names);
}

/// A18: an unknown tool is named, with its server and what was probably meant.
#[test]
fn an_unknown_tool_is_named_with_its_server_and_the_nearest() {
    #[rustfmt::skip]
    let table = [
        ("serch",  Some("did you mean `search`?")),
        ("weather", None),
        ("",       None),
    ];
    let tools = list(&named(&["search", "buy"]), &Policy::default());
    for (typed, hint) in table {
        let diagnostic = tools.find(typed).expect_err(typed);
        assert_eq!(diagnostic.code, Code::ToolUnknown);
        assert_eq!(
            diagnostic.message,
            format!("tool `{typed}` not found on `shop`")
        );
        assert_eq!(diagnostic.hint.as_deref(), hint, "{typed}");
    }
}

/// A156, A207: the name that a model sees leads to the tool that the server knows.
#[test]
fn a_tool_is_found_by_either_name() {
    let tools = list(&named(&["cart.buy", "search"]), &Policy::default());
    let odd = tools.find("cart.buy").expect("by its own name");
    assert!(odd.exposed_name().starts_with("cart_buy_"));
    let found = tools.find(odd.exposed_name()).expect("by the other");
    assert_eq!(found.name(), "cart.buy");
    let fine = tools.find("search").expect("the tool");
    assert_eq!(fine.exposed_name(), "search");
}

/// A207: definitions in the forms that providers take, schemas made whole.
#[test]
fn definitions_have_the_form_of_each_provider() {
    let tools = list(
        &[buy(), json!({ "name": "ping", "title": "Ping" })],
        &Policy::default(),
    );
    let name = tools.find("cart.buy").expect("the tool").exposed_name();
    let described = "Buys what is in the cart.";
    let schema = &buy()["inputSchema"];
    let empty = json!({ "type": "object", "properties": {} });
    #[rustfmt::skip]
    let table = [
        (ModelProvider::OpenAi, json!([
            { "type": "function", "function": { "name": name, "description": described, "parameters": schema } },
            { "type": "function", "function": { "name": "ping", "description": "Ping", "parameters": empty } },
        ])),
        (ModelProvider::OpenAiResponses, json!([
            { "type": "function", "name": name, "description": described, "parameters": schema },
            { "type": "function", "name": "ping", "description": "Ping", "parameters": empty },
        ])),
        (ModelProvider::Anthropic, json!([
            { "name": name, "description": described, "input_schema": schema },
            { "name": "ping", "description": "Ping", "input_schema": empty },
        ])),
    ];
    for (form, expected) in table {
        assert_eq!(Value::from(tools.definitions(form)), expected, "{form:?}");
    }
}

/// A190: what the rules keep away is neither listed nor found.
#[test]
fn the_rules_hold_for_lists_and_for_calls() {
    let policy = Policy {
        allow: vec!["read_*".to_owned(), "cart.*".to_owned()],
        deny: vec!["*secret*".to_owned()],
        ..Policy::default()
    };
    let names = ["read_file", "read_secret", "write_file", "cart.buy"];
    let tools = list(&named(&names), &policy);
    let listed: Vec<&str> = tools.into_iter().map(Tool::name).collect();
    assert_eq!(listed, ["read_file", "cart.buy"]);
    for name in names {
        let may_call = policy.allows_tool(name);
        assert_eq!(may_call, listed.contains(&name), "{name}");
    }
    assert!(tools.find("read_secret").is_err());
    assert!(tool_names::matches_any_pattern(&policy.allow, "read_file"));
}

fn hinting(annotations: Value) -> Vec<Value> {
    vec![json!({ "name": "t", "annotations": annotations })]
}

/// reliability T14: hints that change are not believed again, not even when they change back.
#[test]
fn a_tool_that_takes_back_what_it_said_is_doubted_from_then_on() {
    let store = AnnotationStore::default();
    let digest = Digest::new([0; 16]);
    #[rustfmt::skip]
    let table = [
        (json!({ "readOnlyHint": true }),                  false),
        (json!({ "readOnlyHint": true, "title": "T" }),    false),
        (json!({ "readOnlyHint": false }),                 true),
        (json!({ "readOnlyHint": true }),                  true),
        (json!({ "readOnlyHint": true }),                  true),
    ];
    for (annotations, have_changed) in table {
        let mut listed = list(&hinting(annotations.clone()), &Policy::default());
        store.compare((Identity(digest), CredentialId(digest)), &mut listed);
        let hints = listed.hints("t").expect("the tool");
        assert_eq!(hints.have_changed, have_changed, "{annotations}");
    }
}
