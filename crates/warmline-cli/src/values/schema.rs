//! A tool's input schema, as far as a command line needs it: types, names, choices and defaults. It is no
//! validator: the server has one.

use serde_json::Value;
use serde_json::value::RawValue;
use warmline_config::closest_match;

/// A schema, and the document that its references point into.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schema<'s> {
    root: &'s Value,
    pub(crate) node: &'s Value,
}

impl<'s> Schema<'s> {
    pub(crate) const UNCONSTRAINED: Schema<'static> = Schema::new(&Value::Null);

    pub(crate) const fn new(root: &'s Value) -> Self {
        Self { root, node: root }
    }

    fn at_node(self, node: Option<&'s Value>) -> Self {
        let node = node.unwrap_or(&Value::Null);
        Self { node, ..self }
    }

    pub(crate) fn property(self, name: &str) -> Self {
        let properties = self.node.get("properties");
        let own = properties.and_then(|all| all.get(name));
        self.at_node(own.or_else(|| self.node.get("additionalProperties")))
    }

    pub(crate) fn items(self) -> Self {
        self.at_node(self.member_value("items"))
    }

    /// Names of the arguments, in alphabetical order.
    pub(crate) fn names(self) -> Vec<&'s str> {
        let properties = self.node.get("properties").and_then(Value::as_object);
        let properties = properties.into_iter();
        properties
            .flat_map(|all| all.keys().map(String::as_str))
            .collect()
    }

    /// Names that must be given. Some libraries list arguments with a default as required; a caller may
    /// omit those.
    pub(crate) fn required(self) -> Vec<&'s str> {
        let required = self.node.get("required").and_then(Value::as_array);
        let required = required.into_iter().flatten().filter_map(Value::as_str);
        required
            .filter(|name| self.property(name).member_value("default").is_none())
            .collect()
    }

    pub(super) fn is_closed(self) -> bool {
        self.node.get("additionalProperties") == Some(&Value::Bool(false))
    }

    pub(super) fn is_list(self) -> bool {
        let types = self.types();
        types.contains(&"array") && !types.contains(&"string")
    }

    pub(super) fn is_unconstrained(self) -> bool {
        self.types().is_empty() && self.choices().is_empty()
    }

    pub(crate) fn placeholder(self, name: &str) -> String {
        let property = self.property(name);
        match (property.choices().first(), property.types().first()) {
            (Some(choice), _) => choice_text(choice),
            (None, Some(kind)) => type_words(kind).placeholder.to_owned(),
            (None, None) => "…".to_owned(),
        }
    }

    pub(super) fn nearest_choice(self, text: &str) -> Option<String> {
        let choices = self.choice_texts();
        closest_match(text, choices.iter().map(String::as_str)).map(str::to_owned)
    }

    pub(crate) fn choice_texts(self) -> Vec<String> {
        self.choices().into_iter().map(choice_text).collect()
    }

    pub(crate) fn expected_kind(self) -> Option<String> {
        let types = self.types();
        let kinds: Vec<&str> = types.iter().map(|one| type_words(one).expected).collect();
        (!kinds.is_empty()).then(|| kinds.join(" or "))
    }

    pub(crate) fn kind(self) -> String {
        self.kind_to_depth(MAX_LIST_DEPTH)
    }

    fn kind_to_depth(self, depth: usize) -> String {
        let choices = self.choice_texts();
        if !choices.is_empty() {
            return choices.join(" | ");
        }
        let kind = |kind: &&str| match *kind {
            "array" if depth > 0 => match self.items().kind_to_depth(depth - 1).as_str() {
                "anything" => "list".to_owned(),
                items => format!("list of {items}"),
            },
            kind => type_words(kind).noun.to_owned(),
        };
        let kinds: Vec<String> = self.types().iter().map(kind).collect();
        match kinds.is_empty() {
            true => "anything".to_owned(),
            false => kinds.join(" or "),
        }
    }

    /// A member of it, or of what it references.
    pub(crate) fn member_value(self, member: &str) -> Option<&'s Value> {
        let own = self.node.get(member);
        own.or_else(|| self.variants().into_iter().find_map(|one| one.get(member)))
    }

    /// The JSON of a typed text. Where text is allowed, it stays text.
    pub(crate) fn parse_text(self, text: &str) -> Result<Box<RawValue>, String> {
        let choices = self.choices();
        if !choices.is_empty() {
            return match choices.iter().find(|choice| choice_text(choice) == text) {
                Some(choice) => to_raw(choice),
                None => Err(format!(
                    "it is one of `{}`",
                    self.choice_texts().join("`, `")
                )),
            };
        }
        let types = self.types();
        if types.is_empty() || types.contains(&"string") {
            return to_raw(&Value::from(text));
        }
        let typed = types.iter().find_map(|kind| parse_as_type(text, kind));
        typed.ok_or_else(|| format!("it must be {}", self.expected_kind().unwrap_or_default()))
    }

    fn types(self) -> Vec<&'s str> {
        let mut out = Vec::new();
        for variant in self.variants() {
            match variant.get("type") {
                Some(Value::Array(many)) => out.extend(many.iter().filter_map(Value::as_str)),
                one => out.extend(one.and_then(Value::as_str)),
            }
        }
        out.dedup();
        out
    }

    /// The allowed values; empty if a variant allows more.
    fn choices(self) -> Vec<&'s Value> {
        let mut out = Vec::new();
        for variant in self.variants() {
            match (
                variant.get("enum").and_then(Value::as_array),
                variant.get("const"),
            ) {
                (Some(choices), _) => out.extend(choices),
                (None, Some(only)) => out.push(only),
                (None, None) if variant.get("type") == Some(&Value::from("null")) => {
                    out.push(&Value::Null);
                },
                (None, None) => return Vec::new(),
            }
        }
        // Null alone is a type, not a choice.
        match out.iter().all(|choice| choice.is_null()) {
            true => Vec::new(),
            false => out,
        }
    }

    fn variants(self) -> Vec<&'s Value> {
        let mut out = Vec::new();
        self.collect_variants(self.node, &mut out, MAX_REF_DEPTH);
        out
    }

    fn collect_variants(self, schema: &'s Value, out: &mut Vec<&'s Value>, depth: usize) {
        let Some(depth) = depth.checked_sub(1) else {
            return;
        };
        if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
            let target = target.strip_prefix('#');
            if let Some(found) = target.and_then(|at| self.root.pointer(at)) {
                self.collect_variants(found, out, depth);
            }
            return;
        }
        let mut names = ["anyOf", "oneOf", "allOf"].iter();
        let branches = names.find_map(|name| schema.get(name).and_then(Value::as_array));
        match branches {
            Some(branches) => branches
                .iter()
                .for_each(|branch| self.collect_variants(branch, out, depth)),
            None if schema.is_object() => out.push(schema),
            None => {},
        }
    }
}

/// Parses a text as a JSON type. Numbers keep their digits.
fn parse_as_type(text: &str, kind: &str) -> Option<Box<RawValue>> {
    let trimmed = text.trim();
    let value: Value = serde_json::from_str(trimmed).ok()?;
    let is_whole = |value: &Value| value.as_f64().is_some_and(|number| number.fract() == 0.0);
    let fits = match kind {
        "integer" => value.is_i64() || value.is_u64() || is_whole(&value),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    };
    RawValue::from_string(trimmed.to_owned())
        .ok()
        .filter(|_| fits)
}

fn to_raw(value: &Value) -> Result<Box<RawValue>, String> {
    serde_json::value::to_raw_value(value).map_err(|error| error.to_string())
}

/// A choice as it is typed: text without quotes.
fn choice_text(choice: &Value) -> String {
    choice
        .as_str()
        .map_or_else(|| choice.to_string(), str::to_owned)
}

/// How people read a JSON type.
struct TypeWords<'k> {
    expected: &'k str,
    noun: &'k str,
    placeholder: &'static str,
}

fn type_words(kind: &str) -> TypeWords<'_> {
    let (expected, noun, placeholder) = match kind {
        "string" => ("a text", "text", "…"),
        "integer" => ("a whole number", "whole number", "1"),
        "number" => ("a number", "number", "1"),
        "boolean" => ("`true` or `false`", "true | false", "true"),
        "null" => ("`null`", "null", "…"),
        "array" => ("a list", "list", "…"),
        "object" => ("an object in JSON", "object", "…"),
        other => (other, other, "…"),
    };
    TypeWords {
        expected,
        noun,
        placeholder,
    }
}

/// Lists of lists may be circular.
const MAX_LIST_DEPTH: usize = 2;
/// References may be circular.
const MAX_REF_DEPTH: usize = 16;
