//! All servers in one: what stands where a path names no server.
//!
//! Asked by: the faces.  Nothing is remembered of a client here: a name says whose it is, a cursor
//! says where a list goes on, and what is read of servers is kept by the engine.
//!
//! | question | file |
//! |---|---|
//! | What is a tool called here, and whose is it? | `names.rs` |
//! | What stands in a list? | `lists.rs` |
//! | Where does the next page begin? | `cursor.rs` |
//! | Whose is a resource? | `owner.rs` |
//! | Who is left out, and how long is waited for them? | `absent.rs` |
//! | Are there other servers now, or other rules? | `changes.rs` |
//! | What do we say of ourselves? | `words.rs` |

pub(crate) mod absent;
pub(crate) mod changes;
mod cursor;
pub(crate) mod lists;
mod names;
pub(crate) mod owner;
pub(crate) mod words;

use serde::Deserialize;
use warmline::core::protocol::params::Params;
use warmline::core::protocol::splice::{self, Edit};
use warmline::{Error, List, ServerHandle};

use crate::Shared;
use crate::terms;
use crate::who::Subject;

/// A server behind this place, as a caller reaches it.
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) reached: Result<ServerHandle, Error>,
}

impl Member {
    /// Whether the caller asked it for updates of a resource.
    pub(crate) fn is_subscribed(&self, uri: &str) -> bool {
        let server = self.reached.as_ref();
        server.is_ok_and(|server| server.is_subscribed(uri))
    }
}

/// The names of the servers that somebody may use, in order.
pub(crate) fn servers(shared: &Shared, subject: &Subject) -> Vec<String> {
    let mut names = shared.warm.servers();
    names.retain(|name| terms::may_use(shared, subject, name));
    names
}

/// The servers that somebody may use, each as `reach` reaches it.
pub(crate) fn members(
    shared: &Shared,
    subject: &Subject,
    reach: impl Fn(&str) -> Result<ServerHandle, Error>,
) -> Vec<Member> {
    let names = servers(shared, subject).into_iter();
    let all = names.map(|name| Member {
        reached: reach(&name),
        name,
    });
    all.collect()
}

/// What a request wants of all servers together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errand {
    /// One list of all.
    List(List),
    /// What stands in that list under a name.
    Named(List),
    /// A resource, by its URI.
    Resource,
    /// What may stand in a prompt or in the URI of a resource.
    Completion,
    /// From which level on all of them are to tell what they do.
    Level,
    /// Something that is not spoken here.
    Unknown,
}

impl Errand {
    pub(crate) fn of(method: &str) -> Self {
        match method {
            "tools/list" => Self::List(List::Tools),
            "resources/list" => Self::List(List::Resources),
            "resources/templates/list" => Self::List(List::Templates),
            "prompts/list" => Self::List(List::Prompts),
            "tools/call" => Self::Named(List::Tools),
            "prompts/get" => Self::Named(List::Prompts),
            "resources/read" | "resources/subscribe" | "resources/unsubscribe" => Self::Resource,
            "completion/complete" => Self::Completion,
            "logging/setLevel" => Self::Level,
            _ => Self::Unknown,
        }
    }
}

/// What one item of a list is called.
pub(crate) const fn word_for_one(list: List) -> &'static str {
    match list {
        List::Tools => "tool",
        List::Prompts => "prompt",
        List::Resources => "resource",
        List::Templates => "resource template",
    }
}

/// The server that a name is of; none where it is no name of ours.
pub(crate) fn server_of(name: &str) -> Option<&str> {
    names::split(name).map(|(server, _)| server)
}

/// The parameters of a request by name, with the server's own name in them.
///
/// # Errors
/// The name was made by us, and the list that it stands in cannot be had.
pub(crate) async fn meant(
    server: &ServerHandle,
    list: List,
    shown: &str,
    params: &Params,
) -> Result<Params, Error> {
    let own = own_name(server, list, shown).await?;
    Ok(with_member(params, "name", &text(&own)))
}

/// What a completion is about: the name of a prompt here, or the URI of a resource.
#[derive(Debug, Default)]
pub(crate) enum About {
    Prompt(String),
    Resource(String),
    #[default]
    Nothing,
}

impl About {
    pub(crate) fn of(params: &Params) -> Self {
        #[derive(Deserialize)]
        struct Ref {
            #[serde(rename = "type")]
            kind: String,
            name: Option<String>,
            uri: Option<String>,
        }
        let raw = params.member("ref").unwrap_or(b"null");
        match serde_json::from_slice::<Option<Ref>>(raw).ok().flatten() {
            Some(Ref {
                kind,
                name: Some(name),
                ..
            }) if kind == "ref/prompt" => Self::Prompt(name),
            Some(Ref {
                kind,
                uri: Some(uri),
                ..
            }) if kind == "ref/resource" => Self::Resource(uri),
            _ => Self::Nothing,
        }
    }
}

/// The parameters of a completion that is about a prompt, with the server's own name in them.
///
/// # Errors
/// As [`meant`].
pub(crate) async fn meant_in_completion(
    server: &ServerHandle,
    shown: &str,
    params: &Params,
) -> Result<Params, Error> {
    let own = own_name(server, List::Prompts, shown).await?;
    let mut about = Vec::new();
    let raw = params.member("ref").unwrap_or(b"{}");
    let written = splice::edit_object(raw, &[Edit::Set("name", &text(&own))], &mut about);
    Ok(match written {
        Ok(()) => with_member(params, "ref", &about),
        Err(_) => params.clone(),
    })
}

/// A text as JSON.
fn text(plain: &str) -> Vec<u8> {
    let mut raw = Vec::with_capacity(plain.len() + 2);
    splice::write_text(&mut raw, plain);
    raw
}

fn with_member(params: &Params, name: &str, value: &[u8]) -> Params {
    let mut raw = Vec::with_capacity(params.raw().len() + value.len());
    params.write_with(&mut raw, &[Edit::Set(name, value)], &[]);
    // Edits of a checked object make a checked object.
    Params::parse(raw.into()).unwrap_or_else(|_| params.clone())
}

/// The server's own name of something. Only a name that may be one of ours is looked up.
async fn own_name(server: &ServerHandle, list: List, shown: &str) -> Result<String, Error> {
    let rest = names::split(shown).map_or(shown, |(_, rest)| rest);
    if !names::may_be_made(shown) {
        return Ok(rest.to_owned());
    }
    let own = lists::original(server, list, shown).await?;
    Ok(own.unwrap_or_else(|| rest.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmline::{Server, Warmline};

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
        let meant = meant(&server, List::Tools, &shown, &call).await.unwrap();
        let expected = r#"{ "arguments":{"name":"x", "n":1e0},"name" : "read","x":[ ] }"#;
        assert_eq!(meant.raw(), expected);
        let asked =
            parse(r#"{"argument":{"name":"a"},"ref":{"type":"ref/prompt","name":"files__greet"}}"#);
        let meant = meant_in_completion(&server, "files__greet", &asked)
            .await
            .unwrap();
        let expected = r#"{"argument":{"name":"a"},"ref":{"type":"ref/prompt","name":"greet"}}"#;
        assert_eq!(meant.raw(), expected);
    }
}
