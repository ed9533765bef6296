//! The schema of `warmline.toml` for editors, written from the tables that read it.

use serde_json::{Map, Value, json};

use super::keys;
use crate::GatewaySettings;
use warmline_engine::settings::value::ValueFormat;
use warmline_engine::settings::{
    EngineSettings, ServerSettings, Setting, SettingKind, SettingsGroup,
};

const SCHEMA_PATH: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/reference/warmline.schema.json"
);

const TIME_PATTERN: &str = "^\\s*[0-9.]+\\s*(ms|s|min|m|h)\\s*$";
const SIZE_PATTERN: &str = "^\\s*[0-9]+\\s*(B|KiB|MiB|GiB)\\s*$";

/// What a file may hold.
fn schema() -> Value {
    let mut top = Map::new();
    top.insert(
        "servers".to_owned(),
        json!({
            "type": "object",
            "description": "the servers, by name",
            "propertyNames": { "pattern": "^[a-z0-9-]{1,24}$" },
            "additionalProperties": { "$ref": "#/$defs/server" },
        }),
    );
    insert_settings::<EngineSettings>(&mut top);
    insert_settings::<GatewaySettings>(&mut top);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "warmline.toml",
        "type": "object",
        "additionalProperties": false,
        "properties": top,
        "$defs": {
            "server": server_schema(), "tool": tool_schema(), "credential": credential_schema(), "rule": rule_schema(),
        },
    })
}

/// Settings whose names have a dot, as tables.
fn insert_settings<T: SettingsGroup>(into: &mut Map<String, Value>) {
    for setting in T::TABLE {
        insert_key(into, setting.key, setting_schema(setting));
    }
}

/// A setting, in the tables that stand before the dots of its name.
fn insert_key(into: &mut Map<String, Value>, key: &str, value: Value) {
    let Some((table, rest)) = key.split_once('.') else {
        into.insert(key.to_owned(), value);
        return;
    };
    let table = into.entry(table).or_insert_with(
        || json!({ "type": "object", "additionalProperties": false, "properties": {} }),
    );
    insert_key(table["properties"].as_object_mut().unwrap(), rest, value);
}

fn setting_schema<T: SettingsGroup>(setting: &Setting<T>) -> Value {
    let mut value = kind_schema(&setting.kind);
    let usual = (setting.get)(&T::default()).to_string();
    value["description"] = json!(format!("{} (default: {usual})", setting.help));
    value
}

fn kind_schema(kind: &SettingKind) -> Value {
    let form = match &kind.format {
        ValueFormat::Count(range) => Some(json!({
            "type": "integer", "minimum": range.start(), "maximum": range.end(),
        })),
        ValueFormat::Time(_) => Some(json!({ "type": "string", "pattern": TIME_PATTERN })),
        ValueFormat::Size(_) => Some(json!({ "type": "string", "pattern": SIZE_PATTERN })),
        ValueFormat::Switch => Some(json!({ "type": "boolean" })),
        ValueFormat::Word => None,
        ValueFormat::Texts => Some(text_list_schema()),
        ValueFormat::Text | ValueFormat::Path | ValueFormat::Address => {
            Some(json!({ "type": "string" }))
        },
    };
    let mut words: Vec<Value> = kind.words.iter().map(|word| json!(word)).collect();
    for (also, _) in kind.aliases {
        words.push(json!(also));
        match *also {
            "true" => words.push(json!(true)),
            "false" => words.push(json!(false)),
            _ => {},
        }
    }
    match (form, words.is_empty()) {
        (Some(form), true) => form,
        (Some(form), false) => json!({ "anyOf": [{ "enum": words }, form] }),
        (None, _) => json!({ "enum": words }),
    }
}

fn text_list_schema() -> Value {
    json!({ "type": "array", "items": { "type": "string" } })
}

fn text_map_schema() -> Value {
    json!({ "type": "object", "additionalProperties": { "type": "string" } })
}

/// Keys that say what a server is, and its settings.
fn server_schema() -> Value {
    let mut properties = Map::new();
    for key in keys::SERVER {
        let value = match *key {
            "command" | "env_pass" => text_list_schema(),
            "env" | "headers" | "labels" => text_map_schema(),
            "credential" => json!({ "$ref": "#/$defs/credential" }),
            "tools" => json!({
                "type": "object", "additionalProperties": { "$ref": "#/$defs/tool" },
            }),
            _ => json!({ "type": "string" }),
        };
        properties.insert((*key).to_owned(), value);
    }
    insert_settings::<ServerSettings>(&mut properties);
    for list in ["allow", "deny"] {
        properties[list]["items"] = json!({
            "anyOf": [{ "type": "string" }, { "$ref": "#/$defs/rule" }],
        });
    }
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}

fn tool_schema() -> Value {
    let of_server = |key: &str| ServerSettings::setting(key).map(setting_schema);
    let properties: Map<String, Value> = keys::TOOL
        .iter()
        .map(|key| {
            let value = of_server(key).unwrap_or_else(|| json!({ "type": "boolean" }));
            ((*key).to_owned(), value)
        })
        .collect();
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}

/// A rule about callers.
fn rule_schema() -> Value {
    let value = |key: &str| match key {
        "tools" => json!({ "type": "array", "items": { "type": "string" }, "minItems": 1 }),
        _ => json!({ "type": "string", "minLength": 1 }),
    };
    let properties: Map<String, Value> = keys::RULE
        .iter()
        .map(|key| ((*key).to_owned(), value(key)))
        .collect();
    json!({
        "type": "object", "additionalProperties": false, "properties": properties,
        "dependentRequired": { "claim": ["has"], "has": ["claim"] },
        "not": { "required": ["identity", "claim"] },
    })
}

fn credential_schema() -> Value {
    let mut properties = Map::new();
    for key in keys::CREDENTIAL.iter().chain(keys::CREDENTIAL_HEADER) {
        let value = match *key {
            "command" => text_list_schema(),
            _ => json!({ "type": "string" }),
        };
        properties.insert((*key).to_owned(), value);
    }
    let one_of: Vec<Value> = keys::CREDENTIAL
        .iter()
        .map(|key| json!({ "required": [key] }))
        .collect();
    json!({
        "type": "object", "additionalProperties": false,
        "properties": properties, "oneOf": one_of,
    })
}

fn render_schema() -> String {
    format!("{:#}\n", schema())
}

#[test]
fn the_schema_for_editors_says_what_the_tables_say() {
    assert!(
        std::fs::read_to_string(SCHEMA_PATH).unwrap_or_default() == render_schema(),
        "docs/reference/warmline.schema.json is behind the tables; write it again:\n\
         make pages"
    );
}

#[test]
#[ignore = "writes the schema instead of looking at it"]
fn write_the_reference_page_for_editors() {
    std::fs::write(SCHEMA_PATH, render_schema()).unwrap();
}

/// A file and the schema agree: what one takes, the other does, and the same for what is wrong.
#[test]
fn the_schema_takes_what_is_read_and_refuses_what_is_not() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    #[rustfmt::skip]
    let table = [
        ("[gateway]\nlisten = '127.0.0.1:8484'\nauth = 'tokens'\nwatch = false\n", true),
        ("[servers.a]\nurl = 'https://x/mcp'\ncredential = { env = 'T' }\nsession_per = 'identity'\nmax_per_key = 20\n", true),
        ("[servers.b]\ncommand = ['npx', '-y', 's']\nenv_pass = ['D']\nspares = 1\nstart_timeout = '2min'\n[servers.b.tools.t]\nrepeatable = true\nsession_per = 'call'\n", true),
        ("[servers.b]\ncommand = ['s']\nsessions = true\nmax_age = 'none'\n[servers.b.breaker]\nreset = '5s'\n", true),
        ("[limits]\nprocesses = 8\n[runs]\nidle = '10min'\n[store]\npath = 'memory'\n", true),
        ("[gateway]\ntrusted_proxies = ['10.0.0.0/8']\nproxy_header = 'X-User'\nidle_timeout = '3min'\n[gateway.jwt]\nissuer = 'https://login'\naudiences = ['a']\nkeys_url = 'https://login/keys'\n[gateway.resource]\nurl = 'https://mcp'\n", true),
        ("[servers.a]\nurl = 'https://x'\nallow = ['a*', { claim = 'groups', has = 'finance', tools = ['read_*'] }, { identity = 'alice' }]\ndeny = [{ tools = ['rm'] }]\n", true),
        ("[gateway.jwt]\nisuer = 'https://login'\n", false),
        ("[gateway.jwtt]\nissuer = 'https://login'\n", false),
        ("[auth]\nissuer = 'https://login'\n", false),
        ("[servers.a]\nurl = 'https://x'\nallow = [{ claim = 'groups' }]\n", false),
        ("[servers.a]\nurl = 'https://x'\nallow = [{ group = 'finance' }]\n", false),
        ("[servers.a]\nurl = 'https://x'\nallow = [{ identity = 'a', claim = 'b', has = 'c' }]\n", false),
        ("[servers.a]\nurl = 'https://x'\ndeny = [{ tools = [] }]\n", false),
        ("[gateway]\nlissen = '127.0.0.1:8484'\n", false),
        ("[gateway]\nauth = 'non'\n", false),
        ("[servers.a]\nurl = 'https://x'\nspares = 9999\n", false),
        ("[servers.A]\nurl = 'https://x'\n", false),
        ("[servers.a]\nurl = 'https://x'\nwait = '5'\n", false),
        ("[servers.a]\nurl = 'https://x'\ncredential = { env = 'A', file = 'b' }\n", false),
        ("[severs.a]\nurl = 'https://x'\n", false),
    ];
    let page = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/guide/configuration.md"
    );
    let page = std::fs::read_to_string(page).unwrap();
    let whole = page.split("```toml\n").nth(1).unwrap();
    let whole = whole.split("```").next().unwrap();
    for (text, is_right) in table.into_iter().chain([(whole, true)]) {
        let read = super::parse_text(std::path::Path::new("warmline.toml"), text);
        assert_eq!(read.is_ok(), is_right, "{text}: {:?}", read.err());
        let value: toml::Value = toml::from_str(text).unwrap();
        let value = serde_json::to_value(value).unwrap();
        assert_eq!(validator.is_valid(&value), is_right, "{text}");
    }
}
