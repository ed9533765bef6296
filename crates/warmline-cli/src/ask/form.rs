//! A form of a server, filled in line by line.

use serde_json::{Map, Value, json};

use crate::report::text::one_line;
use crate::report::{Report, style};
use crate::values::{Object, Schema};

/// Asks for each field. The end of input declines the whole form.
pub(super) async fn fill(report: &Report, params: &[u8]) -> Value {
    let form = requested(params).unwrap_or_default();
    let schema: Value = serde_json::from_str(&form).unwrap_or_default();
    let names = in_order(&form).unwrap_or_default();
    let fields: Vec<Field<'_>> = names
        .iter()
        .filter_map(|name| {
            Some(Field::of(
                name,
                schema.get("properties")?.get(name)?,
                &schema,
            ))
        })
        .collect();
    report.say(&style::dim(
        "  an empty line takes the default; Ctrl-D declines",
    ));
    if fields.is_empty() {
        return match report
            .ask("  go on? [y/N] ")
            .await
            .as_deref()
            .map(str::trim)
        {
            Some("y" | "Y" | "yes") => json!({"action": "accept", "content": {}}),
            _ => json!({"action": "decline"}),
        };
    }
    let mut content = Map::new();
    for field in fields {
        match ask(report, &field).await {
            Filled::Value(value) => drop(content.insert(field.name.to_owned(), value)),
            Filled::LeftOut => {},
            Filled::Declined => return json!({"action": "decline"}),
        }
    }
    json!({"action": "accept", "content": content})
}

/// The raw schema of the form.
fn requested(params: &[u8]) -> Option<String> {
    let params = Object::parse(std::str::from_utf8(params).ok()?).ok()?;
    params.member("requestedSchema").map(str::to_owned)
}

/// The names of the fields in the order in which the server wrote them.
fn in_order(form: &str) -> Option<Vec<String>> {
    let form = Object::parse(form).ok()?;
    let properties = Object::parse(form.member("properties")?).ok()?;
    Some(properties.names().map(str::to_owned).collect())
}

#[derive(Debug, PartialEq)]
enum Filled {
    Value(Value),
    LeftOut,
    Declined,
}

/// One field of a form.
struct Field<'s> {
    name: &'s str,
    of: &'s Value,
    schema: Schema,
    is_required: bool,
}

impl<'s> Field<'s> {
    fn of(name: &'s str, of: &'s Value, form: &'s Value) -> Self {
        let schema = Schema::of(form.clone());
        let is_required = schema.required().contains(&name);
        Self {
            name,
            of,
            schema: schema.property(name),
            is_required,
        }
    }

    fn text(&self, member: &str) -> Option<&'s str> {
        self.of.get(member).and_then(Value::as_str)
    }

    /// `name (a whole number, 1 to 5, needed) [3]: `
    fn prompt(&self) -> String {
        let mut about: Vec<String> = Vec::new();
        let choices = self.choices();
        if choices.is_empty() {
            about.extend(self.schema.wanted());
        } else {
            about.push(
                choices
                    .iter()
                    .map(Choice::shown)
                    .collect::<Vec<_>>()
                    .join(" | "),
            );
        }
        if self.is_list() {
            about.push("several with commas".to_owned());
        }
        about.extend(self.bounds());
        about.extend(self.text("format").map(str::to_owned));
        about.push(
            if self.is_required {
                "needed"
            } else {
                "may be left out"
            }
            .to_owned(),
        );
        let title = self.text("title").unwrap_or(self.name);
        let default = match self.default() {
            Some(default) => format!(" [{}]", one_line(&plain(&default))),
            None => String::new(),
        };
        format!(
            "  {} ({}){default}: ",
            style::bold(&one_line(title)),
            one_line(&about.join(", "))
        )
    }

    /// What it is if nothing is typed. It is sent, because the server may count on every field that
    /// it calls required.
    fn default(&self) -> Option<Value> {
        self.schema.said("default")
    }

    /// What an empty line stands for; none where something is needed.
    fn unsaid(&self) -> Option<Filled> {
        match (self.default(), self.is_required) {
            (Some(default), _) => Some(Filled::Value(default)),
            (None, false) => Some(Filled::LeftOut),
            (None, true) => None,
        }
    }

    fn is_list(&self) -> bool {
        self.text("type") == Some("array")
    }

    /// What one value of it is limited to, with the titles the server gave.
    fn choices(&self) -> Vec<Choice> {
        let of = self.one();
        let typed = Schema::of(of.clone()).typed_choices();
        let named = of.get("enumNames").and_then(Value::as_array);
        let titled = ["oneOf", "anyOf"]
            .iter()
            .find_map(|member| of.get(member).and_then(Value::as_array));
        let title = |place: usize| match (named, titled) {
            (Some(names), _) => names.get(place)?.as_str(),
            (None, Some(variants)) => variants.get(place)?.get("title")?.as_str(),
            (None, None) => None,
        };
        let choice = |(place, typed): (usize, String)| Choice {
            title: title(place)
                .filter(|title| *title != typed)
                .map(str::to_owned),
            typed,
        };
        typed.into_iter().enumerate().map(choice).collect()
    }

    /// The schema of one value: that of the items, for a list.
    fn one(&self) -> &'s Value {
        if self.is_list() {
            &self.of["items"]
        } else {
            self.of
        }
    }

    fn bounds(&self) -> Option<String> {
        let number = |member: &str| self.of.get(member).and_then(Value::as_f64);
        let low = number("minimum")
            .or(number("minLength"))
            .or(number("minItems"));
        let high = number("maximum")
            .or(number("maxLength"))
            .or(number("maxItems"));
        match (low, high) {
            (Some(low), Some(high)) => Some(format!("{low} to {high}")),
            (Some(low), None) => Some(format!("at least {low}")),
            (None, Some(high)) => Some(format!("at most {high}")),
            (None, None) => None,
        }
    }

    /// The value that was typed, or what is wrong with it.
    fn read(&self, typed: &str) -> Result<Value, String> {
        if self.is_list() {
            let items = Schema::of(self.of["items"].clone());
            let words = typed
                .split(',')
                .map(str::trim)
                .filter(|word| !word.is_empty());
            let choices = self.choices();
            let values = words
                .map(|word| parsed(&items, meant(&choices, word)))
                .collect::<Result<Vec<_>, _>>()?;
            return self.within(Value::from(values));
        }
        self.within(parsed(&self.schema, meant(&self.choices(), typed))?)
    }

    fn within(&self, value: Value) -> Result<Value, String> {
        let count = |count: usize| u32::try_from(count).map_or(f64::INFINITY, f64::from);
        let (size, low, high) = match &value {
            Value::Number(number) => (number.as_f64(), "minimum", "maximum"),
            Value::String(text) => (Some(count(text.chars().count())), "minLength", "maxLength"),
            Value::Array(items) => (Some(count(items.len())), "minItems", "maxItems"),
            Value::Null | Value::Bool(_) | Value::Object(_) => return Ok(value),
        };
        let bound = |member: &str| self.of.get(member).and_then(Value::as_f64);
        let size = size.unwrap_or_default();
        let is_outside =
            bound(low).is_some_and(|low| size < low) || bound(high).is_some_and(|high| size > high);
        match (is_outside, self.bounds()) {
            (true, Some(bounds)) => Err(format!("it must be {bounds}")),
            _ => Ok(value),
        }
    }
}

/// One of the values a field is limited to.
struct Choice {
    typed: String,
    title: Option<String>,
}

impl Choice {
    /// `eu (Europe)`, or the value alone.
    fn shown(&self) -> String {
        match &self.title {
            Some(title) => format!("{} ({title})", self.typed),
            None => self.typed.clone(),
        }
    }
}

/// The choice whose title was typed, or what was typed.
fn meant<'t>(choices: &'t [Choice], typed: &'t str) -> &'t str {
    let is_titled = |choice: &&Choice| {
        let title = choice.title.as_deref();
        title.is_some_and(|title| title.eq_ignore_ascii_case(typed))
    };
    let by_value = choices.iter().any(|choice| choice.typed == typed);
    match choices.iter().find(is_titled) {
        Some(choice) if !by_value => &choice.typed,
        _ => typed,
    }
}

/// A default as it would be typed.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) => {
            other.to_string()
        },
    }
}

fn parsed(schema: &Schema, typed: &str) -> Result<Value, String> {
    let raw = schema.typed(typed)?;
    serde_json::from_str(raw.get()).map_err(|error| error.to_string())
}

async fn ask(report: &Report, field: &Field<'_>) -> Filled {
    if let Some(description) = field.text("description") {
        report.say(&format!("  {}", style::dim(&one_line(description))));
    }
    loop {
        let Some(typed) = report.ask(&field.prompt()).await else {
            return Filled::Declined;
        };
        if typed.is_empty() {
            match field.unsaid() {
                Some(filled) => return filled,
                None => report.say("  this one is needed"),
            }
            continue;
        }
        match field.read(&typed) {
            Ok(value) => return Filled::Value(value),
            Err(why) => report.say(&format!("  that does not fit: {why}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that calls a field required gets it, also where nobody typed its default.
    #[test]
    fn an_empty_line_sends_a_default_and_leaves_out_what_may_be() {
        let form = json!({
            "properties": {
                "age": {"type": "integer", "default": 30},
                "land": {"$ref": "#/$defs/land"},
                "name": {"type": "string"},
                "size": {"type": "integer", "default": 3},
                "yes": {"type": "boolean"},
            },
            "required": ["age", "land", "name"],
            "$defs": {"land": {"type": "string", "default": "eu"}},
        });
        for (name, filled) in [
            ("age", Some(Filled::Value(json!(30)))),
            ("land", Some(Filled::Value(json!("eu")))),
            ("name", None),
            ("size", Some(Filled::Value(json!(3)))),
            ("yes", Some(Filled::LeftOut)),
        ] {
            let field = Field::of(name, &form["properties"][name], &form);
            assert_eq!(field.unsaid(), filled, "{name}");
        }
    }

    #[test]
    fn a_field_says_what_it_wants_and_takes_nothing_else() {
        let form = json!({
            "properties": {
                "age": {"type": "integer", "minimum": 1, "maximum": 150, "default": 30},
                "name": {"type": "string", "title": "Your name", "minLength": 2},
                "size": {"type": "string", "enum": ["s", "m"]},
                "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "maxItems": 1},
                "yes": {"type": "boolean"},
                "play": {"type": "array", "items": {"anyOf": [{"const": "g", "title": "Guitar"}, {"const": "d", "title": "Drums"}]}, "default": ["g", "d"]},
                "land": {"type": "string", "oneOf": [{"const": "eu", "title": "Europe"}, {"const": "us", "title": "us"}]},
                "old": {"type": "string", "enum": ["1", "2"], "enumNames": ["One", "Two"]},
            },
            "required": ["name"],
        });
        #[rustfmt::skip]
        let table = [
            ("age",  "(a whole number, 1 to 150, may be left out) [30]", "200", Err("it must be 1 to 150")),
            ("age",  "(a whole number, 1 to 150, may be left out) [30]", "20",  Ok(json!(20))),
            ("age",  "(a whole number, 1 to 150, may be left out) [30]", "x",   Err("it must be a whole number")),
            ("name", "(a text, at least 2, needed)",                     "x",   Err("it must be at least 2")),
            ("size", "(s | m, may be left out)",                         "l",   Err("it is one of `s`, `m`")),
            ("size", "(s | m, may be left out)",                         "m",   Ok(json!("m"))),
            ("tags", "(a | b, several with commas, at most 1, may be left out)", "a,b", Err("it must be at most 1")),
            ("tags", "(a | b, several with commas, at most 1, may be left out)", "a",   Ok(json!(["a"]))),
            ("play", "(g (Guitar) | d (Drums), several with commas, may be left out) [g, d]: ", "drums, g", Ok(json!(["d", "g"]))),
            ("land", "(eu (Europe) | us, may be left out)",              "europe", Ok(json!("eu"))),
            ("old",  "(1 (One) | 2 (Two), may be left out)",             "Two",    Ok(json!("2"))),
            ("yes",  "(`true` or `false`, may be left out)",             "true", Ok(json!(true))),
        ];
        for (name, prompt, typed, read) in table {
            let field = Field::of(name, &form["properties"][name], &form);
            assert!(field.prompt().contains(prompt), "{}", field.prompt());
            assert_eq!(
                field.read(typed),
                read.map_err(str::to_owned),
                "{name}={typed}"
            );
        }
    }
}
