//! Where the texts of a server stand in a JSON file, so that a note can point at one of them.
//!
//! Asked by: the reader of `mcpServers`, once an entry is understood.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::declaration::{Declaration, DeclaredReach, Written};
use super::mcp_servers::{parse, span};
use super::members::Members;
use crate::settings::place::{Show, Source};

/// The texts of an entry as they stand in its file.
#[derive(Default, Deserialize)]
struct Texts<'a> {
    #[serde(borrow)]
    url: Option<&'a RawValue>,
    #[serde(borrow, default)]
    args: Vec<&'a RawValue>,
    #[serde(borrow, default)]
    env: Members<'a, &'a RawValue>,
    #[serde(borrow, default)]
    headers: Members<'a, &'a RawValue>,
}

/// The server with the place of each of its texts.
pub(super) fn of_json(source: Source<'_>, mut one: Declaration, raw: &RawValue) -> Declaration {
    // The entry was understood before: what cannot be read so has no places.
    let texts: Texts<'_> = parse(raw.get()).unwrap_or_default();
    let put = |written: &mut Written, raw: &RawValue| {
        written.at = source.place(span(source.text, raw.get()), Show::Nothing).at;
    };
    match &mut one.reach {
        DeclaredReach::Url { url, headers, .. } => {
            if let (Some(url), Some(raw)) = (url, texts.url) {
                put(url, raw);
            }
            let raws = texts.headers.by_name(source, &mut Vec::new());
            for (name, value) in headers {
                raws.get(name.as_str())
                    .into_iter()
                    .for_each(|raw| put(value, raw));
            }
        },
        DeclaredReach::Command { argv, env, .. } => {
            let args = argv.iter_mut().skip(1);
            args.zip(texts.args).for_each(|(word, raw)| put(word, raw));
            let raws = texts.env.by_name(source, &mut Vec::new());
            for (name, value) in env {
                raws.get(name.as_str())
                    .into_iter()
                    .for_each(|raw| put(value, raw));
            }
        },
    }
    one
}
