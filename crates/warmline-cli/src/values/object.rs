//! A JSON object as its raw members in their order: numbers and spacing stay as they were typed.

use bytes::Bytes;
use serde::de::{Deserializer as _, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Members of an object, none of them twice.
#[derive(Clone, Debug, Default)]
pub(crate) struct Object(Vec<(String, Box<RawValue>)>);

impl Object {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut reader = serde_json::Deserializer::from_str(text);
        let object = reader
            .deserialize_map(Members)
            .map_err(|error| error.to_string())?;
        reader.end().map_err(|error| error.to_string())?;
        Ok(object)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// The raw text of a member.
    pub(crate) fn member(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(other, _)| other == name)
            .map(|(_, value)| value.get())
    }

    pub(super) fn set(&mut self, name: &str, value: Box<RawValue>) {
        match self.0.iter_mut().find(|(other, _)| other == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    pub(super) fn into_bytes(self) -> Bytes {
        let name = |name: &str| serde_json::Value::from(name).to_string();
        let members: Vec<String> = self
            .0
            .iter()
            .map(|(n, value)| format!("{}:{}", name(n), value.get()))
            .collect();
        Bytes::from(format!("{{{}}}", members.join(",")))
    }
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Object;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
        let mut object = Object::default();
        while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
            if object.names().any(|other| other == name) {
                return Err(A::Error::custom(format!("`{name}` stands there twice")));
            }
            object.0.push((name, value));
        }
        Ok(object)
    }
}
