//! `x-mcp-header`: which arguments of a tool are repeated in headers.
//!
//! A schema that breaks a rule makes its tool unusable over modern HTTP; the error names the rule.
//! Only what is below `properties` can be repeated: elsewhere it is not clear which argument is
//! meant.

use http::{HeaderName, HeaderValue};
use serde_json::{Map, Value};

pub use super::headers::{PARAM_PREFIX, encode_value};
use crate::message::parse_error::{ParseError, ParseErrorKind, error_offset};
use crate::message::{envelope, json};

/// The headers that the input schema of one tool asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParamHeaders {
    headers: Vec<ParamHeader>,
}

/// The rule that a schema or an argument breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParamHeaderError {
    /// The schema is no JSON object, or nested too deep.
    BadSchema(ParseError),
    /// The arguments are no JSON object, or have a duplicate member.
    BadArguments(ParseError),
    /// `x-mcp-header` is not a text, or empty.
    MissingName,
    /// The name holds something else than letters, digits and the marks of a header name.
    InvalidName(String),
    /// The name belongs to HTTP itself.
    Reserved(String),
    /// Two properties ask for the same name; case does not count.
    DuplicateName(String),
    /// The property is neither a string, an integer nor a boolean.
    WrongType(String),
    /// The property is not reached from the root by `properties` alone.
    OutsideProperties,
    /// The argument is an integer beyond 2^53 - 1, or not whole.
    NotAnInteger(String),
    /// The argument is an array or an object.
    NotPrimitive(String),
}

impl std::fmt::Display for ParamHeaderError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::BadSchema(fault) => write!(f, "the input schema is malformed: {fault}"),
            Self::BadArguments(fault) => write!(f, "the arguments are malformed: {fault}"),
            Self::MissingName => f.write_str("`x-mcp-header` is not a name"),
            Self::InvalidName(name) => write!(f, "`x-mcp-header` {name:?} is no header name"),
            Self::Reserved(name) => write!(f, "`x-mcp-header` {name:?} belongs to HTTP"),
            Self::DuplicateName(name) => write!(f, "two properties ask for the header {name:?}"),
            Self::WrongType(name) => {
                write!(
                    f,
                    "header {name:?}: the property is no string, integer or boolean"
                )
            },
            Self::OutsideProperties => f.write_str("`x-mcp-header` stands outside of `properties`"),
            Self::NotAnInteger(name) => {
                write!(
                    f,
                    "header {name:?}: the argument is no integer within 2^53 - 1"
                )
            },
            Self::NotPrimitive(name) => {
                write!(f, "header {name:?}: the argument is no plain value")
            },
        }
    }
}

impl std::error::Error for ParamHeaderError {}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ParamHeader {
    path: Vec<String>,
    name: HeaderName,
}

impl ParamHeaders {
    /// Reads what a raw input schema asks for.
    pub fn from_schema(input_schema: &[u8]) -> Result<Self, ParamHeaderError> {
        // Hardly any schema has one, so parsing waits for the word. An escape could spell it too.
        let has = |word: &[u8]| memchr::memmem::find(input_schema, word).is_some();
        if !has(ANNOTATION.as_bytes()) && !has(b"\\u") {
            return Ok(Self::default());
        }
        let text = json::parse_utf8(input_schema).map_err(ParamHeaderError::BadSchema)?;
        let schema: Value = serde_json::from_str(text)
            .map_err(|error| ParamHeaderError::BadSchema(schema_error(&error, text)))?;
        if !schema.is_object() {
            let fault = ParseError::new(ParseErrorKind::NotObject, 0);
            return Err(ParamHeaderError::BadSchema(fault));
        }
        let mut found = Self::default();
        found.search(&schema, &mut Some(Vec::new()))?;
        Ok(found)
    }

    /// Whether no header is asked for.
    pub const fn is_empty(&self) -> bool {
        self.headers.is_empty()
    }

    /// The names of the headers that it asks for, whether an argument is there or not.
    pub fn names(&self) -> impl Iterator<Item = &HeaderName> {
        self.headers.iter().map(|mirrored| &mirrored.name)
    }

    /// The headers for raw arguments. Absent and `null` arguments have none.
    pub fn headers_for(
        &self,
        arguments: &[u8],
    ) -> Result<Vec<(HeaderName, HeaderValue)>, ParamHeaderError> {
        if self.is_empty() {
            return Ok(Vec::new());
        }
        let text = json::parse_utf8(arguments).map_err(ParamHeaderError::BadArguments)?;
        let mut headers = Vec::with_capacity(self.headers.len());
        for mirrored in &self.headers {
            let raw =
                find_argument(text, &mirrored.path).map_err(ParamHeaderError::BadArguments)?;
            if let Some(value) = raw
                .map(|raw| mirrored.encode_argument(raw))
                .transpose()?
                .flatten()
            {
                headers.push((mirrored.name.clone(), value));
            }
        }
        Ok(headers)
    }

    /// Searches a schema and all below. `path` leads to it by `properties` alone; none if nothing
    /// does, for then an annotation is out of reach. Other keywords hold data, where the annotation
    /// means nothing.
    fn search<'s>(
        &mut self,
        schema: &'s Value,
        path: &mut Option<Vec<&'s str>>,
    ) -> Result<(), ParamHeaderError> {
        let schema = match (schema, &path) {
            (Value::Object(schema), _) => schema,
            (Value::Array(schemas), None) => {
                return schemas
                    .iter()
                    .try_for_each(|one| self.search(one, &mut None));
            },
            _ => return Ok(()),
        };
        for (keyword, below) in schema {
            match (keyword.as_str(), below) {
                (ANNOTATION, _) => self.add(schema, below, path.as_deref())?,
                ("properties", Value::Object(properties)) => {
                    for (name, property) in properties {
                        if let Some(path) = path {
                            path.push(name);
                        }
                        self.search(property, path)?;
                        if let Some(path) = path {
                            path.pop();
                        }
                    }
                },
                (keyword, Value::Object(schemas)) if SCHEMA_MAPS.contains(&keyword) => {
                    schemas
                        .values()
                        .try_for_each(|one| self.search(one, &mut None))?;
                },
                (keyword, _) if SCHEMAS.contains(&keyword) => self.search(below, &mut None)?,
                _ => {},
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        schema: &Map<String, Value>,
        annotation: &Value,
        path: Option<&[&str]>,
    ) -> Result<(), ParamHeaderError> {
        let path = path.ok_or(ParamHeaderError::OutsideProperties)?;
        let asked = annotation
            .as_str()
            .filter(|name| !name.is_empty())
            .ok_or(ParamHeaderError::MissingName)?;
        if path.is_empty() {
            return Err(ParamHeaderError::OutsideProperties);
        }
        if RESERVED
            .iter()
            .any(|reserved| asked.eq_ignore_ascii_case(reserved))
        {
            return Err(ParamHeaderError::Reserved(asked.to_owned()));
        }
        let name = HeaderName::try_from(format!("{PARAM_PREFIX}{asked}"))
            .map_err(|_| ParamHeaderError::InvalidName(asked.to_owned()))?;
        if self.headers.iter().any(|other| other.name == name) {
            return Err(ParamHeaderError::DuplicateName(asked.to_owned()));
        }
        if !schema.get("type").is_some_and(is_primitive_type) {
            return Err(ParamHeaderError::WrongType(asked.to_owned()));
        }
        self.headers.push(ParamHeader {
            path: path.iter().map(|name| (*name).to_owned()).collect(),
            name,
        });
        Ok(())
    }
}

impl ParamHeader {
    fn encode_argument(&self, raw: &str) -> Result<Option<HeaderValue>, ParamHeaderError> {
        match raw.as_bytes().first() {
            Some(b'n') => Ok(None),
            Some(b't' | b'f') => Ok(Some(encode_value(raw))),
            Some(b'"') => match json::decode_string(raw) {
                Some(text) => Ok(Some(encode_value(&text))),
                None => Err(ParamHeaderError::NotPrimitive(self.annotation_name())),
            },
            Some(b'-' | b'0'..=b'9') => match parse_integer(raw) {
                Some(number) => Ok(Some(encode_value(&number.to_string()))),
                None => Err(ParamHeaderError::NotAnInteger(self.annotation_name())),
            },
            _ => Err(ParamHeaderError::NotPrimitive(self.annotation_name())),
        }
    }

    fn annotation_name(&self) -> String {
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

/// Keywords that hold a schema, or a list of them.
const SCHEMAS: &[&str] = &[
    "items",
    "prefixItems",
    "additionalItems",
    "contains",
    "unevaluatedItems",
    "oneOf",
    "anyOf",
    "allOf",
    "not",
    "if",
    "then",
    "else",
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
];

/// Keywords that hold schemas by name.
const SCHEMA_MAPS: &[&str] = &[
    "$defs",
    "definitions",
    "patternProperties",
    "dependentSchemas",
    "dependencies",
];

const MAX_SAFE_INTEGER: i64 = (1 << 53) - 1;

/// `serde_json` reads trees of at most 128 levels; its error says so only in text.
fn schema_error(error: &serde_json::Error, text: &str) -> ParseError {
    if error.to_string().starts_with("recursion limit") {
        return ParseError::new(ParseErrorKind::TooDeep, error_offset(error, text));
    }
    ParseError::from_serde(error, text)
}

/// The raw argument that a path leads to.
fn find_argument<'a>(arguments: &'a str, path: &[String]) -> Result<Option<&'a str>, ParseError> {
    let mut here = arguments;
    for (depth, step) in path.iter().enumerate() {
        if depth > 0 && !here.starts_with('{') {
            return Ok(None);
        }
        match json::find_member(here, step)? {
            Some(value) => here = value,
            None => return Ok(None),
        }
    }
    Ok(Some(here))
}

fn parse_integer(raw: &str) -> Option<i64> {
    let number = envelope::parse_integer(raw)?;
    (-MAX_SAFE_INTEGER..=MAX_SAFE_INTEGER)
        .contains(&number)
        .then_some(number)
}

/// A string, an integer or a boolean; `null` may stand beside it, for then there is no header.
fn is_primitive_type(kind: &Value) -> bool {
    let is_plain = |kind: &Value| matches!(kind.as_str(), Some("string" | "integer" | "boolean"));
    let Value::Array(kinds) = kind else {
        return is_plain(kind);
    };
    kinds.iter().filter(|kind| is_plain(kind)).count() == 1
        && kinds.iter().all(|kind| is_plain(kind) || kind == "null")
}
