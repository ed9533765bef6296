//! One list of what all servers list: in the order of their names, and in each server's own order.
//!
//! Asked by: the faces.  All servers are asked at once. What cannot be had is left out and named in
//! `_meta`; the rest does not wait for it.

use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use warmline::core::era::Era;
use warmline::core::protocol::splice::{self, Edit};
use warmline::tools::Tool;
use warmline::{Code, Error, List, ServerHandle, clock};

use super::Member;
use super::absent::{self, Absences, Asked, LeftOut, Why};
use super::cursor::Cursor;
use super::names::Shown;
use super::words;
use crate::Shared;
use crate::who::Subject;

pub(crate) use super::cursor::Cursor as From;

/// A page is cut before it is larger. Many clients read one page alone.
const MAX_PAGE: usize = 2 << 20;
/// The member of `_meta` that names the servers that are left out.
const LEFT_OUT: &str = "dev.warmline/leftOut";

/// A list that is asked for.
pub(crate) struct Listing {
    pub(crate) shared: Arc<Shared>,
    pub(crate) subject: Subject,
    pub(crate) era: Era,
    pub(crate) list: List,
    pub(crate) members: Vec<Member>,
    pub(crate) from: From,
}

/// A page of it.
#[derive(Debug)]
pub(crate) struct Page {
    /// Its members but for the braces around them.
    pub(crate) members: Vec<u8>,
    pub(crate) left_out: Vec<LeftOut>,
}

/// What one server lists, as clients see it.
struct Group {
    server: String,
    items: Vec<Bytes>,
}

impl Listing {
    /// Asks all servers, and makes the page of what they say.
    pub(crate) async fn read(self) -> Page {
        let asked = self.members.iter().map(|member| self.ask(member));
        let mut groups = Vec::with_capacity(self.members.len());
        let (mut left_out, mut seen) = (Vec::new(), HashSet::new());
        let absences = &self.shared.absences;
        for (member, said) in self.members.iter().zip(join_all(asked).await) {
            let server = member.name.clone();
            let whom = absent::whom(&self.subject, self.era, &server);
            let asked = Asked::List(self.list);
            match said {
                Ok(items) => {
                    absences.present(&whom, asked);
                    let items = self.without_doubles(items, &mut seen);
                    groups.push(Group { server, items });
                },
                // Nobody is to hear of what is switched off.
                Err(Why::Failed(error)) if error.code() == Code::NotAllowed => {},
                // It says nothing of the server that its caller hands nothing in for it.
                Err(why) if is_the_callers(&why, member) => {
                    left_out.push(LeftOut { server, why });
                },
                Err(why) => {
                    let absent = LeftOut { server, why };
                    absences.left_out(whom.clone(), asked, &absent);
                    if let (Why::Late, Ok(server)) = (&absent.why, &member.reached) {
                        let (server, list) = (server.clone(), self.list);
                        let answers = async move { items(&server, list).await.is_ok() };
                        Absences::look_for(&self.shared, whom, asked, answers);
                    }
                    left_out.push(absent);
                },
            }
        }
        let (mut members, next) = cut(self.list, &groups, &self.from, MAX_PAGE);
        if let Some(next) = next {
            let next = Value::from(next.text(self.list)).to_string();
            members.extend_from_slice(format!(",\"nextCursor\":{next}").as_bytes());
        }
        Page { members, left_out }
    }

    /// What no server before this one lists. A URI is the first one's that lists it, and so it is
    /// when it is read.
    fn without_doubles(&self, items: Vec<Item>, seen: &mut HashSet<Arc<str>>) -> Vec<Bytes> {
        if is_named(self.list) {
            return items.into_iter().map(|item| item.raw).collect();
        }
        let fresh = items.into_iter().filter(|item| !seen.contains(&item.name));
        let fresh: Vec<Item> = fresh.collect();
        seen.extend(fresh.iter().map(|item| Arc::clone(&item.name)));
        fresh.into_iter().map(|item| item.raw).collect()
    }

    /// What one server lists and its caller may see, under the names it has here.
    async fn ask(&self, member: &Member) -> Result<Vec<Item>, Why> {
        let server = match &member.reached {
            Ok(server) => server,
            Err(error) => return Err(Why::Failed(error.clone())),
        };
        let most = self.shared.options.list_share;
        let whom = absent::whom(&self.subject, self.era, &member.name);
        let share = self.shared.absences.share_of(server, &whom, most);
        let share = share.map_err(Why::Failed)?;
        let items = match clock::timeout(share, items(server, self.list)).await {
            Ok(Ok(items)) => items,
            // It does not know what that is, so it has none.
            Ok(Err(error)) if is_unknown(&error) => Arc::from([]),
            Ok(Err(error)) => return Err(Why::Failed(error)),
            Err(_) => return Err(Why::Late),
        };
        let terms = self.shared.terms.load();
        let rules = &terms.rules;
        let may_see = |item: &&Item| {
            self.list != List::Tools || rules.may_call(&self.subject, &member.name, &item.name)
        };
        let seen = items.iter().filter(may_see);
        if !is_named(self.list) {
            return Ok(seen.cloned().collect());
        }
        let names = Shown::of(&member.name, items.iter().map(|item| &*item.name));
        Ok(seen.filter_map(|item| item.shown_by(&names)).collect())
    }
}

impl Page {
    /// The result, as a legacy client gets it.
    pub(crate) fn result(self) -> Bytes {
        self.whole("", Map::new())
    }

    /// The result, as a modern client gets it. What servers say of how long it holds is not theirs
    /// any more: it may change with each of them.
    pub(crate) fn modern_result(self) -> Bytes {
        let said = ",\"resultType\":\"complete\",\"ttlMs\":0,\"cacheScope\":\"private\"";
        self.whole(said, words::server_meta())
    }

    fn whole(mut self, more: &str, mut meta: Map<String, Value>) -> Bytes {
        self.members.insert(0, b'{');
        self.members.extend_from_slice(more.as_bytes());
        if !self.left_out.is_empty() {
            let told = self.left_out.iter().map(LeftOut::told).collect();
            meta.insert(LEFT_OUT.to_owned(), told);
        }
        if !meta.is_empty() {
            let meta = Value::Object(meta);
            self.members
                .extend_from_slice(format!(",\"_meta\":{meta}").as_bytes());
        }
        self.members.push(b'}');
        self.members.into()
    }
}

/// Something that a server lists.
#[derive(Clone)]
pub(crate) struct Item {
    /// The server's own name of it; of a resource, its URI or the template of it.
    pub(super) name: Arc<str>,
    raw: Bytes,
}

/// Whether a list holds names, and not URIs.
const fn is_named(list: List) -> bool {
    matches!(list, List::Tools | List::Prompts)
}

impl Item {
    fn of(list: List, raw: &Bytes) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Members {
            name: Option<String>,
            uri: Option<String>,
            uri_template: Option<String>,
        }
        let members = serde_json::from_slice::<Members>(raw).ok()?;
        let name = match list {
            List::Tools | List::Prompts => members.name,
            List::Resources => members.uri,
            List::Templates => members.uri_template,
        };
        Some(Self {
            name: name?.into(),
            raw: raw.clone(),
        })
    }

    #[cfg(test)]
    pub(super) fn for_tests(name: &str) -> Self {
        Self {
            name: name.into(),
            raw: Bytes::new(),
        }
    }

    fn shown_by(&self, names: &Shown) -> Option<Self> {
        let shown = names.shown(&self.name)?;
        let mut text = Vec::with_capacity(shown.len() + 2);
        splice::write_text(&mut text, shown);
        let mut out = Vec::with_capacity(self.raw.len() + text.len());
        splice::edit_object(&self.raw, &[Edit::Set("name", &text)], &mut out).ok()?;
        Some(Self {
            name: shown.into(),
            raw: out.into(),
        })
    }
}

/// What a server lists, whole.
pub(crate) fn items(server: &ServerHandle, list: List) -> Reading<'_> {
    Box::pin(items_for(server, list, Use::Told))
}

/// The same for whoever looks for something in it: it may be a little old.
pub(super) fn known_items(server: &ServerHandle, list: List) -> Reading<'_> {
    Box::pin(items_for(server, list, Use::LookedThrough))
}

/// On the heap: to read a list is a call, with all that a call may come to.
type Reading<'a> = Pin<Box<dyn Future<Output = Result<Arc<[Item]>, Error>> + Send + 'a>>;

/// What a list is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// A client is told what is in it.
    Told,
    /// We look for something.
    LookedThrough,
}

async fn items_for(server: &ServerHandle, list: List, used: Use) -> Result<Arc<[Item]>, Error> {
    let said = match list {
        List::Tools => {
            let tools = server.listed_tools().await?;
            let items = tools.tools().iter().map(|tool| Item {
                name: tool.name().into(),
                raw: tool.raw().clone(),
            });
            return Ok(items.collect());
        },
        List::Resources | List::Templates => "resources",
        List::Prompts => "prompts",
    };
    // Whoever does not say that it has any is not asked: some would never answer.
    if !can(server, said).await? {
        return Ok(Arc::from([]));
    }
    let listed = match used {
        Use::Told => server.listed(list).await?,
        Use::LookedThrough => server.listed_lately(list).await?,
    };
    Ok(listed
        .iter()
        .filter_map(|raw| Item::of(list, raw))
        .collect())
}

/// Whether a server says that it can do something.
pub(crate) async fn can(server: &ServerHandle, what: &str) -> Result<bool, Error> {
    let facts = server.greeting().await?;
    let said = serde_json::from_slice::<HashMap<String, IgnoredAny>>(&facts.capabilities);
    Ok(said.is_ok_and(|said| said.contains_key(what)))
}

/// The server's own name of something that is shown under another.
pub(super) async fn original(
    server: &ServerHandle,
    list: List,
    shown: &str,
) -> Result<Option<String>, Error> {
    if list == List::Tools {
        // A name that was given stays what it is: the list is not read anew for every call.
        let tools = server.tools().await?;
        let names = tools.tools().iter().map(Tool::name);
        let known = Shown::of(server.name(), names);
        if let Some(own) = known.original(shown) {
            return Ok(Some(own.to_owned()));
        }
    }
    let items = known_items(server, list).await?;
    let names = Shown::of(server.name(), items.iter().map(|item| &*item.name));
    Ok(names.original(shown).map(str::to_owned))
}

/// Whether a server is left out because its caller lacks what it is called with.
fn is_the_callers(why: &Why, member: &Member) -> bool {
    let is_of_caller = member
        .reached
        .as_ref()
        .is_ok_and(ServerHandle::is_of_caller);
    matches!(why, Why::Failed(error) if error.code() == Code::CredentialUnavailable) && is_of_caller
}

/// Whether a server says that it does not know the method.
fn is_unknown(error: &Error) -> bool {
    error.server_error().is_some_and(|said| said.code == -32601)
}

/// The items from there on, as many as fit, and where the rest begins. A page has at least one.
fn cut(list: List, groups: &[Group], from: &Cursor, limit: usize) -> (Vec<u8>, Option<Cursor>) {
    let mut out = format!("\"{}\":[", member(list)).into_bytes();
    let (before, mut number) = (out.len(), 0);
    for group in groups.iter().filter(|group| group.server >= from.server) {
        let told = if group.server == from.server {
            from.told
        } else {
            0
        };
        for (place, item) in group.items.iter().enumerate().skip(told) {
            if number > 0 && out.len() - before + item.len() > limit {
                out.push(b']');
                let server = group.server.clone();
                return (
                    out,
                    Some(Cursor {
                        server,
                        told: place,
                    }),
                );
            }
            if number > 0 {
                out.push(b',');
            }
            out.extend_from_slice(item);
            number += 1;
        }
    }
    out.push(b']');
    (out, None)
}

/// The member of a result that holds a list.
const fn member(list: List) -> &'static str {
    match list {
        List::Tools => "tools",
        List::Resources => "resources",
        List::Templates => "resourceTemplates",
        List::Prompts => "prompts",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(server: &str, items: &[&'static str]) -> Group {
        Group {
            server: server.to_owned(),
            items: items
                .iter()
                .map(|item| Bytes::from_static(item.as_bytes()))
                .collect(),
        }
    }

    /// P113: whatever fits on a page, all pages together hold everything once and in order.
    #[test]
    fn all_pages_together_are_the_list() {
        let groups = [
            group("a", &["1", "22", "333"]),
            group("b", &[]),
            group("c", &["4", "55555", "6"]),
        ];
        for limit in 0..20 {
            let mut all: Vec<Value> = Vec::new();
            let mut from = Cursor::default();
            loop {
                let (page, next) = cut(List::Tools, &groups, &from, limit);
                let page = format!("{{{}}}", String::from_utf8(page).unwrap());
                let page: Value = serde_json::from_str(&page).unwrap();
                let items = page["tools"].as_array().unwrap();
                assert!(!items.is_empty());
                all.extend(items.iter().cloned());
                let Some(next) = next else { break };
                // As a client would carry it.
                from = Cursor::read(&next.text(List::Tools), List::Tools).unwrap();
            }
            let expected: Vec<Value> = [1, 22, 333, 4, 55555, 6].map(Value::from).to_vec();
            assert_eq!(all, expected, "limit {limit}");
        }
    }

    /// A server that went away between two pages takes nothing else with it.
    #[test]
    fn a_cursor_of_a_server_that_is_gone_goes_on_behind_it() {
        let groups = [group("a", &["1"]), group("c", &["4"])];
        let from = Cursor {
            server: "b".to_owned(),
            told: 7,
        };
        let (page, next) = cut(List::Tools, &groups, &from, 100);
        assert_eq!(page, b"\"tools\":[4]");
        assert_eq!(next, None);
    }
}
