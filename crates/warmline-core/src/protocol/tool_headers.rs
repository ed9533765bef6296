//! `x-mcp-header`: which arguments of a tool travel in headers as well.
//!
//! A schema that breaks a rule makes its tool unusable over modern HTTP; the rule says which.
//! Only what stands below `properties` can be mirrored: anywhere else nobody could say which
//! argument is meant.

use http::{HeaderName, HeaderValue};
use serde_json::{Map, Value};

use super::headers::{PARAM_PREFIX, encode_value};
use super::malformed::{Fault, Malformed, position};
use super::object;

/// The headers that the input schema of one tool asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolHeaders {
    mirrored: Vec<Mirrored>,
}

/// The rule that a schema or an argument breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderRule {
    /// The schema is no JSON object, or nested too deep.
    BadSchema(Malformed),
    /// The arguments are no JSON object, or one of them stands there twice.
    BadArguments(Malformed),
    /// `x-mcp-header` is not a text, or empty.
    NoName,
    /// The name holds something else than letters, digits and the marks of a header name.
    NotAToken(String),
    /// The name belongs to HTTP itself.
    Reserved(String),
    /// Two properties ask for the same name; case does not count.
    Twice(String),
    /// The property is neither a string, an integer nor a boolean.
    WrongType(String),
    /// The property is not reached from the root by `properties` alone.
    OutOfReach,
    /// The argument is an integer beyond 2^53 - 1, or not whole.
    NotAnInteger(String),
    /// The argument is an array or an object.
    NotPlain(String),
}

impl std::fmt::Display for HeaderRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::BadSchema(fault) => write!(f, "the input schema is malformed: {fault}"),
            Self::BadArguments(fault) => write!(f, "the arguments are malformed: {fault}"),
            Self::NoName => f.write_str("`x-mcp-header` is not a name"),
            Self::NotAToken(name) => write!(f, "`x-mcp-header` {name:?} is no header name"),
            Self::Reserved(name) => write!(f, "`x-mcp-header` {name:?} belongs to HTTP"),
            Self::Twice(name) => write!(f, "two properties ask for the header {name:?}"),
            Self::WrongType(name) => {
                write!(
                    f,
                    "header {name:?}: the property is no string, integer or boolean"
                )
            },
            Self::OutOfReach => f.write_str("`x-mcp-header` stands outside of `properties`"),
            Self::NotAnInteger(name) => {
                write!(
                    f,
                    "header {name:?}: the argument is no integer within 2^53 - 1"
                )
            },
            Self::NotPlain(name) => write!(f, "header {name:?}: the argument is no plain value"),
        }
    }
}

impl std::error::Error for HeaderRule {}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Mirrored {
    path: Vec<String>,
    name: HeaderName,
}

impl ToolHeaders {
    /// Reads what a raw input schema asks for.
    pub fn of_schema(input_schema: &[u8]) -> Result<Self, HeaderRule> {
        // Nearly no schema has one: look before parsing. An escape could spell the word too.
        let has = |word: &[u8]| memchr::memmem::find(input_schema, word).is_some();
        if !has(ANNOTATION.as_bytes()) && !has(b"\\u") {
            return Ok(Self::default());
        }
        let text = object::utf8(input_schema).map_err(HeaderRule::BadSchema)?;
        let schema: Value = serde_json::from_str(text)
            .map_err(|error| HeaderRule::BadSchema(depth_or(&error, text)))?;
        let Value::Object(root) = &schema else {
            return Err(HeaderRule::BadSchema(Malformed::new(Fault::NotObject, 0)));
        };
        let mut found = Self::default();
        found.search(root, &mut Vec::new())?;
        Ok(found)
    }

    /// Whether no header is asked for.
    pub const fn is_empty(&self) -> bool {
        self.mirrored.is_empty()
    }

    /// The names of the headers that it asks for, whether an argument is there or not.
    pub fn names(&self) -> impl Iterator<Item = &HeaderName> {
        self.mirrored.iter().map(|mirrored| &mirrored.name)
    }

    /// The headers for raw arguments. Absent and `null` arguments have none.
    pub fn of(&self, arguments: &[u8]) -> Result<Vec<(HeaderName, HeaderValue)>, HeaderRule> {
        if self.is_empty() {
            return Ok(Vec::new());
        }
        let text = object::utf8(arguments).map_err(HeaderRule::BadArguments)?;
        let mut headers = Vec::with_capacity(self.mirrored.len());
        for mirrored in &self.mirrored {
            let raw = argument(text, &mirrored.path).map_err(HeaderRule::BadArguments)?;
            if let Some(value) = raw.map(|raw| mirrored.value(raw)).transpose()?.flatten() {
                headers.push((mirrored.name.clone(), value));
            }
        }
        Ok(headers)
    }

    /// Searches one schema that `path` leads to, and all below.
    fn search(
        &mut self,
        schema: &Map<String, Value>,
        path: &mut Vec<String>,
    ) -> Result<(), HeaderRule> {
        for (keyword, below) in schema {
            match keyword.as_str() {
                ANNOTATION => self.add(schema, below, path)?,
                "properties" => self.search_properties(below, path)?,
                _ => forbid_below(keyword, below)?,
            }
        }
        Ok(())
    }

    fn search_properties(
        &mut self,
        properties: &Value,
        path: &mut Vec<String>,
    ) -> Result<(), HeaderRule> {
        let Value::Object(properties) = properties else {
            return Ok(());
        };
        for (name, property) in properties {
            if let Value::Object(schema) = property {
                path.push(name.clone());
                self.search(schema, path)?;
                path.pop();
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        schema: &Map<String, Value>,
        annotation: &Value,
        path: &[String],
    ) -> Result<(), HeaderRule> {
        let asked = annotation
            .as_str()
            .filter(|name| !name.is_empty())
            .ok_or(HeaderRule::NoName)?;
        if path.is_empty() {
            return Err(HeaderRule::OutOfReach);
        }
        if RESERVED
            .iter()
            .any(|reserved| asked.eq_ignore_ascii_case(reserved))
        {
            return Err(HeaderRule::Reserved(asked.to_owned()));
        }
        let name = HeaderName::try_from(format!("{PARAM_PREFIX}{asked}"))
            .map_err(|_| HeaderRule::NotAToken(asked.to_owned()))?;
        if self.mirrored.iter().any(|other| other.name == name) {
            return Err(HeaderRule::Twice(asked.to_owned()));
        }
        if !schema.get("type").is_some_and(is_plain_type) {
            return Err(HeaderRule::WrongType(asked.to_owned()));
        }
        self.mirrored.push(Mirrored {
            path: path.to_vec(),
            name,
        });
        Ok(())
    }
}

impl Mirrored {
    fn value(&self, raw: &str) -> Result<Option<HeaderValue>, HeaderRule> {
        match raw.as_bytes().first() {
            Some(b'n') => Ok(None),
            Some(b't' | b'f') => Ok(Some(encode_value(raw))),
            Some(b'"') => match object::text_of(raw) {
                Some(text) => Ok(Some(encode_value(&text))),
                None => Err(HeaderRule::NotPlain(self.asked())),
            },
            Some(b'-' | b'0'..=b'9') => match integer(raw) {
                Some(number) => Ok(Some(encode_value(&number.to_string()))),
                None => Err(HeaderRule::NotAnInteger(self.asked())),
            },
            _ => Err(HeaderRule::NotPlain(self.asked())),
        }
    }

    fn asked(&self) -> String {
        self.name
            .as_str()
            .trim_start_matches(PARAM_PREFIX)
            .to_owned()
    }
}

const ANNOTATION: &str = "x-mcp-header";

/// Names of HTTP that must not even seem to be set by a server.
const RESERVED: &[&str] = &[
    "authorization",
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
];

const LARGEST: i64 = (1 << 53) - 1;

/// `serde_json` reads trees of at most 128 levels, and says so only in words.
fn depth_or(error: &serde_json::Error, text: &str) -> Malformed {
    if error.to_string().starts_with("recursion limit") {
        return Malformed::new(Fault::TooDeep, position(error, text));
    }
    Malformed::of(error, text)
}

/// The raw argument that a path leads to.
fn argument<'a>(arguments: &'a str, path: &[String]) -> Result<Option<&'a str>, Malformed> {
    let mut here = arguments;
    for (depth, step) in path.iter().enumerate() {
        if depth > 0 && !here.starts_with('{') {
            return Ok(None);
        }
        match object::member(here, step)? {
            Some(value) => here = value,
            None => return Ok(None),
        }
    }
    Ok(Some(here))
}

fn integer(raw: &str) -> Option<i64> {
    let number = raw.parse::<i64>().ok().or_else(|| {
        let float: f64 = raw.parse().ok()?;
        #[expect(clippy::cast_precision_loss, reason = "2^53 - 1 is exact")]
        let fits = float.fract() == 0.0 && float.abs() <= LARGEST as f64;
        #[expect(clippy::cast_possible_truncation, reason = "whole and within 2^53 - 1")]
        fits.then_some(float as i64)
    })?;
    (-LARGEST..=LARGEST).contains(&number).then_some(number)
}

/// A string, an integer or a boolean; `null` may stand beside it, for then there is no header.
fn is_plain_type(kind: &Value) -> bool {
    let is_plain = |kind: &Value| matches!(kind.as_str(), Some("string" | "integer" | "boolean"));
    let Value::Array(kinds) = kind else {
        return is_plain(kind);
    };
    kinds.iter().filter(|kind| is_plain(kind)).count() == 1
        && kinds.iter().all(|kind| is_plain(kind) || kind == "null")
}

/// Refuses an annotation anywhere in a schema, or a list of schemas, that is out of reach.
fn forbid(schema: &Value) -> Result<(), HeaderRule> {
    if let Value::Array(schemas) = schema {
        return schemas.iter().try_for_each(forbid);
    }
    let Value::Object(schema) = schema else {
        return Ok(());
    };
    schema
        .iter()
        .try_for_each(|(keyword, below)| match keyword.as_str() {
            ANNOTATION => Err(HeaderRule::OutOfReach),
            "properties" => forbid_each(below),
            _ => forbid_below(keyword, below),
        })
}

/// The same for what a keyword holds. Other keywords hold data, where the word means nothing.
fn forbid_below(keyword: &str, below: &Value) -> Result<(), HeaderRule> {
    match keyword {
        "items"
        | "prefixItems"
        | "additionalItems"
        | "contains"
        | "unevaluatedItems"
        | "oneOf"
        | "anyOf"
        | "allOf"
        | "not"
        | "if"
        | "then"
        | "else"
        | "additionalProperties"
        | "unevaluatedProperties"
        | "propertyNames" => forbid(below),
        "$defs" | "definitions" | "patternProperties" | "dependentSchemas" | "dependencies" => {
            forbid_each(below)
        },
        _ => Ok(()),
    }
}

/// The same for an object whose values are schemas.
fn forbid_each(schemas: &Value) -> Result<(), HeaderRule> {
    let Value::Object(schemas) = schemas else {
        return Ok(());
    };
    schemas.values().try_for_each(forbid)
}
