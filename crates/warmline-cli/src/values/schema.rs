//! What a tool's schema says of its arguments, as far as a command line needs it.
//!
//! Not a validator: the server has one. This only finds out which type a typed text should take,
//! which names exist and which are needed.

use serde_json::Value;
use serde_json::value::RawValue;
use warmline::config::nearest;

/// A schema, and the document its references point into.
#[derive(Clone, Debug)]
pub(crate) struct Schema {
    root: Value,
    here: Value,
}

impl Schema {
    /// The schema of a tool's arguments.
    pub(crate) fn of(input_schema: Value) -> Self {
        Self {
            here: input_schema.clone(),
            root: input_schema,
        }
    }

    /// A schema that allows everything and says nothing.
    pub(crate) fn nothing() -> Self {
        Self::of(Value::Null)
    }

    pub(crate) fn property(&self, name: &str) -> Self {
        let own = self
            .here
            .pointer("/properties")
            .and_then(|all| all.get(name));
        let rest = self.here.get("additionalProperties");
        self.with(own.or(rest).unwrap_or(&Value::Null))
    }

    pub(super) fn items(&self) -> Self {
        let items = self
            .variants()
            .into_iter()
            .find_map(|variant| variant.get("items").cloned());
        self.with(&items.unwrap_or(Value::Null))
    }

    /// Names of the arguments, in the order of the alphabet.
    pub(crate) fn names(&self) -> Vec<&str> {
        let properties = self.here.get("properties").and_then(Value::as_object);
        properties
            .into_iter()
            .flat_map(|all| all.keys().map(String::as_str))
            .collect()
    }

    /// Names that must be given. What has a default is listed among them by libraries that mean what
    /// a tool reads, where its defaults are filled in already; a caller may leave it out.
    pub(crate) fn required(&self) -> Vec<&str> {
        let required = self.here.get("required").and_then(Value::as_array);
        required
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .filter(|name| self.property(name).said("default").is_none())
            .collect()
    }

    /// Whether other names than those listed are refused.
    pub(super) fn is_closed(&self) -> bool {
        self.here.get("additionalProperties") == Some(&Value::Bool(false))
    }

    pub(super) fn is_list(&self) -> bool {
        let types = self.types();
        types.iter().any(|kind| kind == "array") && !types.iter().any(|kind| kind == "string")
    }

    pub(super) fn says_nothing(&self) -> bool {
        self.types().is_empty() && self.choices().is_empty()
    }

    /// What could stand for a value, in an example.
    pub(crate) fn placeholder(&self, name: &str) -> String {
        let property = self.property(name);
        match property.choices().first() {
            Some(choice) => plain(choice),
            None => property
                .types()
                .first()
                .map_or("…", |kind| placeholder(kind))
                .to_owned(),
        }
    }

    /// The choice that was probably meant.
    pub(super) fn nearest_choice(&self, text: &str) -> Option<String> {
        let choices: Vec<String> = self.choices().iter().map(plain).collect();
        nearest(text, choices.iter().map(String::as_str)).map(str::to_owned)
    }

    /// The values it is limited to, as they are typed; none if it is not.
    pub(crate) fn typed_choices(&self) -> Vec<String> {
        self.choices().iter().map(plain).collect()
    }

    /// What kind of value is wanted, for people; none if it says nothing.
    pub(crate) fn wanted(&self) -> Option<String> {
        let kinds: Vec<String> = self
            .types()
            .iter()
            .map(|kind| article(kind).to_owned())
            .collect();
        (!kinds.is_empty()).then(|| kinds.join(" or "))
    }

    /// What kind of value it is, in a word or two.
    pub(crate) fn kind(&self) -> String {
        self.kind_down_to(LISTS)
    }

    fn kind_down_to(&self, depth: usize) -> String {
        let choices = self.typed_choices();
        if !choices.is_empty() {
            return choices.join(" | ");
        }
        let kinds: Vec<String> = self
            .types()
            .iter()
            .map(|kind| match kind.as_str() {
                "array" if depth > 0 => match self.items().kind_down_to(depth - 1).as_str() {
                    "anything" => "list".to_owned(),
                    items => format!("list of {items}"),
                },
                kind => noun(kind).to_owned(),
            })
            .collect();
        match kinds.is_empty() {
            true => "anything".to_owned(),
            false => kinds.join(" or "),
        }
    }

    /// What a member of it says, here or where a reference leads.
    pub(crate) fn said(&self, member: &str) -> Option<Value> {
        let own = self.here.get(member).cloned();
        own.or_else(|| {
            let variants = self.variants();
            variants.iter().find_map(|one| one.get(member).cloned())
        })
    }

    /// The JSON that a typed text stands for. Where a text is allowed, it stays one.
    pub(crate) fn typed(&self, text: &str) -> Result<Box<RawValue>, String> {
        let choices = self.choices();
        if !choices.is_empty() {
            return match choices.iter().find(|choice| plain(choice) == text) {
                Some(choice) => to_raw(choice),
                None => Err(format!("it is one of {}", quoted(&self.typed_choices()))),
            };
        }
        let types = self.types();
        if types.is_empty() || types.iter().any(|kind| kind == "string") {
            return to_raw(&Value::from(text));
        }
        let typed = types.iter().find_map(|kind| of_type(text, kind));
        typed.ok_or_else(|| format!("it must be {}", self.wanted().unwrap_or_default()))
    }

    fn with(&self, here: &Value) -> Self {
        Self {
            root: self.root.clone(),
            here: here.clone(),
        }
    }

    /// The types it allows; none if it says nothing of types.
    fn types(&self) -> Vec<String> {
        let mut out = Vec::new();
        for variant in self.variants() {
            match variant.get("type") {
                Some(Value::Array(many)) => {
                    out.extend(many.iter().filter_map(Value::as_str).map(str::to_owned));
                },
                one => out.extend(one.and_then(Value::as_str).map(str::to_owned)),
            }
        }
        out.dedup();
        out
    }

    /// The values it is limited to; none if it is not, or if a variant allows more.
    fn choices(&self) -> Vec<Value> {
        let mut out = Vec::new();
        for variant in self.variants() {
            match (
                variant.get("enum").and_then(Value::as_array),
                variant.get("const"),
            ) {
                (Some(choices), _) => out.extend(choices.iter().cloned()),
                (None, Some(only)) => out.push(only.clone()),
                (None, None) if variant.get("type") == Some(&Value::from("null")) => {
                    out.push(Value::Null);
                },
                (None, None) => return Vec::new(),
            }
        }
        // A null alone is a type, not a choice.
        if out.iter().all(Value::is_null) {
            Vec::new()
        } else {
            out
        }
    }

    /// The schemas one of which must fit: the branches of a union, references followed.
    fn variants(&self) -> Vec<Value> {
        let mut out = Vec::new();
        self.collect(&self.here, &mut out, DEPTH);
        out
    }

    fn collect(&self, schema: &Value, out: &mut Vec<Value>, depth: usize) {
        let Some(depth) = depth.checked_sub(1) else {
            return;
        };
        if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
            if let Some(found) = target
                .strip_prefix('#')
                .and_then(|at| self.root.pointer(at))
            {
                self.collect(found, out, depth);
            }
            return;
        }
        let branches = ["anyOf", "oneOf", "allOf"]
            .iter()
            .find_map(|name| schema.get(name).and_then(Value::as_array));
        match branches {
            Some(branches) => branches
                .iter()
                .for_each(|branch| self.collect(branch, out, depth)),
            None if schema.is_object() => out.push(schema.clone()),
            None => {},
        }
    }
}

/// A text as a value of a JSON type, if it is one. Numbers keep their digits.
fn of_type(text: &str, kind: &str) -> Option<Box<RawValue>> {
    let trimmed = text.trim();
    let value: Value = serde_json::from_str(trimmed).ok()?;
    let fits = match kind {
        "integer" => value.is_i64() || value.is_u64() || is_whole(&value),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    };
    fits.then(|| RawValue::from_string(trimmed.to_owned()).ok())
        .flatten()
}

fn is_whole(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn to_raw(value: &Value) -> Result<Box<RawValue>, String> {
    serde_json::value::to_raw_value(value).map_err(|error| error.to_string())
}

/// A choice as it is typed: texts without quotes.
fn plain(choice: &Value) -> String {
    choice
        .as_str()
        .map_or_else(|| choice.to_string(), str::to_owned)
}

fn quoted(words: &[String]) -> String {
    words
        .iter()
        .map(|word| format!("`{word}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

fn article(kind: &str) -> &str {
    match kind {
        "string" => "a text",
        "integer" => "a whole number",
        "number" => "a number",
        "boolean" => "`true` or `false`",
        "null" => "`null`",
        "array" => "a list",
        "object" => "an object in JSON",
        other => other,
    }
}

fn noun(kind: &str) -> &str {
    match kind {
        "string" => "text",
        "integer" => "whole number",
        "boolean" => "true | false",
        "array" => "list",
        other => other,
    }
}

fn placeholder(kind: &str) -> &'static str {
    match kind {
        "integer" | "number" => "1",
        "boolean" => "true",
        _ => "…",
    }
}

/// So far down lists of lists are told: they too may go in circles.
const LISTS: usize = 2;
/// References of a schema may go in circles.
const DEPTH: usize = 16;
