//! Members of a JSON object with the places of their names, so that one that stands there twice is
//! told and not overwritten.
//!
//! Asked by: readers of JSON files, for tables whose names people choose.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use warmline_core::code::Code;

use super::mcp_servers::{broken, parse, span};
use crate::settings::place::{ConfigError, Show, Source};

/// All members in their order, each with its name as it stands in the text.
pub(super) struct Members<'a, T>(Vec<(&'a RawValue, T)>);

impl<T> Default for Members<'_, T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Members<'_, T> {
    /// The members by their names. Each that has the name of an earlier one is a fault.
    pub(super) fn by_name(
        self,
        source: Source<'_>,
        faults: &mut Vec<ConfigError>,
    ) -> BTreeMap<String, T> {
        let mut known = BTreeMap::new();
        for (key, value) in self.0 {
            match parse::<String>(key.get()) {
                Ok(name) if known.contains_key(&name) => faults.push(twice(source, key, &name)),
                Ok(name) => {
                    known.insert(name, value);
                },
                Err(error) => faults.push(broken(source, key.get(), &error)),
            }
        }
        known
    }
}

fn twice(source: Source<'_>, key: &RawValue, name: &str) -> ConfigError {
    let what = format!("`{}` stands here twice", name.escape_debug());
    ConfigError::new(Code::ConfigBadValue, what)
        .at(source.place(span(source.text, key.get()), Show::Key))
        .hint("rename one of them, or take one out")
}

impl<'de: 'a, 'a, T: Deserialize<'de>> Deserialize<'de> for Members<'a, T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(InOrder(PhantomData))
    }
}

struct InOrder<'a, T>(PhantomData<Members<'a, T>>);

impl<'de: 'a, 'a, T: Deserialize<'de>> Visitor<'de> for InOrder<'a, T> {
    type Value = Members<'a, T>;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry::<&'de RawValue, T>()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}
