//! Names at the aggregate endpoint: `{server}__{tool}`, short enough for every model provider.
//!
//! A server's name has no underscore, so the first two end it, also in a generated name: that is cut
//! at its end. The original of a generated name is looked up in the server's list.

use warmline_core::message::params::Params;
use warmline_core::message::splice::{self, Edit};
use warmline_core::tool_names::{self, ToolNames};
use warmline_engine::{Error, ServerHandle};
use warmline_upstream::ListKind;

use super::lists;
use crate::downstream::message::edited;

/// The longest name. Some clients add a prefix, and providers take 64.
const MAX_NAME: usize = 48;
const SEPARATOR: &str = "__";

#[derive(Debug)]
pub(super) struct ExposedNames {
    names: ToolNames,
    prefix: String,
}

impl ExposedNames {
    pub(super) fn new<'a>(server: &str, own: impl IntoIterator<Item = &'a str>) -> Self {
        let prefix = format!("{server}{SEPARATOR}");
        let whole: Vec<String> = own
            .into_iter()
            .map(|name| format!("{prefix}{name}"))
            .collect();
        let names = ToolNames::from_originals(whole.iter().map(String::as_str), MAX_NAME);
        Self { names, prefix }
    }

    pub(super) fn exposed(&self, own: &str) -> Option<&str> {
        self.names.exposed(&format!("{}{own}", self.prefix))
    }

    pub(super) fn original(&self, shown: &str) -> Option<&str> {
        self.names.original(shown)?.strip_prefix(&self.prefix)
    }
}

pub(super) fn split_name(shown: &str) -> Option<(&str, &str)> {
    let (server, rest) = shown.split_once(SEPARATOR)?;
    (!server.is_empty()).then_some((server, rest))
}

pub(super) async fn with_original_name(
    server: &ServerHandle,
    list: ListKind,
    shown: &str,
    params: &Params,
) -> Result<Params, Error> {
    let own = original_name(server, list, shown).await?;
    Ok(params.edited(&[Edit::Set("name", &json_string(&own))], &[]))
}

/// The parameters of a completion for a prompt, with the server's own name.
pub(super) async fn completion_with_original_name(
    server: &ServerHandle,
    shown: &str,
    params: &Params,
) -> Result<Params, Error> {
    let own = original_name(server, ListKind::Prompts, shown).await?;
    let raw = params.member("ref").unwrap_or(b"{}");
    Ok(
        match edited(raw, &[Edit::Set("name", &json_string(&own))]) {
            Some(about) => params.edited(&[Edit::Set("ref", &about)], &[]),
            None => params.clone(),
        },
    )
}

fn json_string(plain: &str) -> Vec<u8> {
    let mut raw = Vec::with_capacity(plain.len() + 2);
    splice::write_string(&mut raw, plain);
    raw
}

/// The server's own name of an item. Only a name that may be generated is looked up.
async fn original_name(
    server: &ServerHandle,
    list: ListKind,
    shown: &str,
) -> Result<String, Error> {
    let rest = split_name(shown).map_or(shown, |(_, rest)| rest);
    if !tool_names::may_be_exposed_name(shown) {
        return Ok(rest.to_owned());
    }
    let own = lists::original_name(server, list, shown).await?;
    Ok(own.unwrap_or_else(|| rest.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmline_engine::{Server, Warmline};

    /// P111, P112: whatever tools are called, each has one fine name of its own that says whose it
    /// is, and leads back.
    #[test]
    fn every_name_is_fine_says_its_server_and_leads_back() {
        let long = "x".repeat(200);
        let near = format!("{}y", "x".repeat(199));
        let own = [
            "",
            "read",
            "files.read",
            "files/read",
            "a__b",
            "_c",
            "é",
            "read_059c287d",
            &long,
            &near,
        ];
        for server in ["a", "files-of-a-long-name-24"] {
            let shown = ExposedNames::new(server, own);
            let mut seen = std::collections::BTreeSet::new();
            for name in own {
                let name_shown = shown.exposed(name).unwrap();
                assert!(seen.insert(name_shown.to_owned()), "{name_shown}");
                assert!((1..=MAX_NAME).contains(&name_shown.len()), "{name_shown}");
                let (whose, rest) = split_name(name_shown).unwrap();
                assert_eq!(whose, server);
                let back = if tool_names::may_be_exposed_name(name_shown) {
                    shown.original(name_shown).unwrap()
                } else {
                    rest
                };
                assert_eq!(back, name);
            }
        }
    }

    #[test]
    fn what_names_no_server_is_nobodys() {
        for name in ["", "read", "__read", "a_b"] {
            assert_eq!(split_name(name), None, "{name}");
        }
        assert_eq!(split_name("a__b__c"), Some(("a", "b__c")));
    }

    /// The one name is another, and every other byte is as it was.
    #[tokio::test]
    async fn a_name_is_written_into_the_bytes_and_nothing_else_is_touched() {
        let server = Server::http("files", "http://127.0.0.1:9/mcp");
        let warm = Warmline::builder().server(server).build().unwrap();
        let server = warm.server("files").unwrap();
        let parse = |raw: &'static str| Params::parse(raw.into()).unwrap();
        let call =
            parse(r#"{ "arguments":{"name":"x", "n":1e0},"name" : "files__re\u0061d","x":[ ] }"#);
        let shown = call.name().unwrap();
        let meant = with_original_name(&server, ListKind::Tools, &shown, &call)
            .await
            .unwrap();
        let expected = r#"{ "arguments":{"name":"x", "n":1e0},"name" : "read","x":[ ] }"#;
        assert_eq!(meant.raw(), expected);
        let asked =
            parse(r#"{"argument":{"name":"a"},"ref":{"type":"ref/prompt","name":"files__greet"}}"#);
        let meant = completion_with_original_name(&server, "files__greet", &asked)
            .await
            .unwrap();
        let expected = r#"{"argument":{"name":"a"},"ref":{"type":"ref/prompt","name":"greet"}}"#;
        assert_eq!(meant.raw(), expected);
    }
}
