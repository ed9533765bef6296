//! Merged lists: servers in the order of their names, items in the order of each server.
//!
//! All servers are asked at once. An unreachable or slow one is skipped and named in `_meta`.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_util::future::{BoxFuture, join_all};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use warmline_core::era::Era;
use warmline_core::error::code::Code;
use warmline_core::message::params::Params;
use warmline_core::message::splice::{self, Edit};
use warmline_engine::relay::RelayHandle as _;
use warmline_engine::tools::Tool;
use warmline_engine::{Error, ServerHandle};
use warmline_upstream::ListKind;

use super::AggregateMember;
use super::absent::{MemberQuery, MemberRequest, SkipReason, SkippedServer};
use super::names::ExposedNames;
use crate::auth::Subject;
use crate::downstream::message::edited;

/// The size of a page. Many clients read only the first.
const MAX_PAGE_BYTES: usize = 2 << 20;
/// The member of `_meta` that names skipped servers.
const LEFT_OUT_META_KEY: &str = "dev.warmline/leftOut";

pub(super) struct AggregateListRequest {
    pub(super) query: MemberQuery,
    pub(super) subject: Subject,
    pub(super) list: ListKind,
    pub(super) members: Vec<AggregateMember>,
    pub(super) cursor: Cursor,
}

#[derive(Debug)]
pub(super) struct AggregateListPage {
    /// The members of the result, without braces.
    pub(super) raw_members: Vec<u8>,
    pub(super) skipped: Vec<SkippedServer>,
}

struct ServerItems {
    server: String,
    items: Vec<Bytes>,
}

impl AggregateListRequest {
    pub(super) async fn read_page(self) -> AggregateListPage {
        let reads = self.members.iter().map(|member| self.read_member(member));
        let mut groups = Vec::with_capacity(self.members.len());
        let (mut skipped, mut seen) = (Vec::new(), HashSet::new());
        for (member, read) in self.members.iter().zip(join_all(reads).await) {
            let server = member.name.clone();
            match read {
                Ok(items) => {
                    let items = self.without_duplicates(items, &mut seen);
                    groups.push(ServerItems { server, items });
                },
                // A server that is switched off is not mentioned.
                Err(SkipReason::Failed(error)) if error.code() == Code::NotAllowed => {},
                Err(reason) => {
                    // A late one was recorded when it was late. That the caller sent no credential says
                    // nothing about the server.
                    if !matches!(reason, SkipReason::Late)
                        && !is_missing_caller_credential(&reason, member)
                    {
                        let request = MemberRequest::List(self.list);
                        self.query.record_skipped(&server, request, &reason);
                    }
                    skipped.push(SkippedServer { server, reason });
                },
            }
        }
        let (mut members, next) = cut_page(self.list, &groups, &self.cursor, MAX_PAGE_BYTES);
        if let Some(next) = next {
            let next = Value::from(next.encode(self.list)).to_string();
            members.extend_from_slice(format!(",\"nextCursor\":{next}").as_bytes());
        }
        AggregateListPage {
            raw_members: members,
            skipped,
        }
    }

    /// The items that no server before this one lists. A URI belongs to the first server that lists it,
    /// also when it is read.
    fn without_duplicates(&self, items: Vec<ListItem>, seen: &mut HashSet<Arc<str>>) -> Vec<Bytes> {
        if has_item_names(self.list) {
            return items.into_iter().map(|item| item.raw).collect();
        }
        let fresh = items.into_iter().filter(|item| !seen.contains(&item.name));
        let fresh: Vec<ListItem> = fresh.collect();
        seen.extend(fresh.iter().map(|item| Arc::clone(&item.name)));
        fresh.into_iter().map(|item| item.raw).collect()
    }

    /// The items of one server that the caller may see, under their names at this endpoint.
    async fn read_member(&self, member: &AggregateMember) -> Result<Vec<ListItem>, SkipReason> {
        let server = match &member.handle {
            Ok(server) => server,
            Err(error) => return Err(SkipReason::Failed(error.clone())),
        };
        let reading = async {
            match list_items(server, self.list, ListFreshness::Current).await {
                // The server does not know the method, so it has no items.
                Err(error) if error.server_error().is_some_and(|said| said.code == -32601) => {
                    Ok(Arc::from([]))
                },
                read => read,
            }
        };
        let request = MemberRequest::List(self.list);
        let items = self.query.ask(server, request, reading).await?;
        let policy = self.query.shared.access.policy.load();
        let rules = &policy.rules;
        let may_see = |item: &&ListItem| {
            self.list != ListKind::Tools || rules.may_call(&self.subject, &member.name, &item.name)
        };
        let seen = items.iter().filter(may_see);
        if !has_item_names(self.list) {
            return Ok(seen.cloned().collect());
        }
        let names = ExposedNames::new(&member.name, items.iter().map(|item| &*item.name));
        Ok(seen
            .filter_map(|item| item.with_exposed_name(&names))
            .collect())
    }
}

impl AggregateListPage {
    /// The skipped servers that may come back. Not one of another era, or one that rejects this list.
    pub(super) fn recoverable_servers(&self) -> BTreeSet<String> {
        let may_come = |skipped: &&SkippedServer| match &skipped.reason {
            SkipReason::Late => true,
            SkipReason::Failed(error) => {
                error.code() != Code::EraUnknown && error.server_error().is_none()
            },
        };
        let skipped = self.skipped.iter().filter(may_come);
        skipped.map(|skipped| skipped.server.clone()).collect()
    }

    pub(super) fn into_result(mut self, era: Era) -> Bytes {
        let (more, mut meta) = match era {
            Era::Legacy => ("", Map::new()),
            // It may change with each server, so it has no TTL.
            Era::Modern => (
                ",\"resultType\":\"complete\",\"ttlMs\":0,\"cacheScope\":\"private\"",
                super::server_meta(),
            ),
        };
        self.raw_members.insert(0, b'{');
        self.raw_members.extend_from_slice(more.as_bytes());
        if !self.skipped.is_empty() {
            let told = self.skipped.iter().map(SkippedServer::to_json).collect();
            meta.insert(LEFT_OUT_META_KEY.to_owned(), told);
        }
        if !meta.is_empty() {
            let meta = format!(",\"_meta\":{}", Value::Object(meta));
            self.raw_members.extend_from_slice(meta.as_bytes());
        }
        self.raw_members.push(b'}');
        self.raw_members.into()
    }
}

#[derive(Clone)]
pub(super) struct ListItem {
    /// The server's own name; of a resource, its URI or URI template.
    pub(super) name: Arc<str>,
    raw: Bytes,
}

const fn has_item_names(list: ListKind) -> bool {
    matches!(list, ListKind::Tools | ListKind::Prompts)
}

impl ListItem {
    fn from_raw(list: ListKind, raw: &Bytes) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct RawListItem {
            name: Option<String>,
            uri: Option<String>,
            uri_template: Option<String>,
        }
        let members = serde_json::from_slice::<RawListItem>(raw).ok()?;
        let name = match list {
            ListKind::Tools | ListKind::Prompts => members.name,
            ListKind::Resources => members.uri,
            ListKind::ResourceTemplates => members.uri_template,
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

    fn with_exposed_name(&self, names: &ExposedNames) -> Option<Self> {
        let shown = names.exposed(&self.name)?;
        let mut text = Vec::with_capacity(shown.len() + 2);
        splice::write_string(&mut text, shown);
        Some(Self {
            name: shown.into(),
            raw: edited(&self.raw, &[Edit::Set("name", &text)])?,
        })
    }
}

/// Whether a list is for a client, or for a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListFreshness {
    Current,
    MayBeStale,
}

/// The whole list of a server. Boxed, since reading a list is a whole call.
pub(super) fn list_items(
    server: &ServerHandle,
    list: ListKind,
    freshness: ListFreshness,
) -> BoxFuture<'_, Result<Arc<[ListItem]>, Error>> {
    Box::pin(async move {
        let capability = match list {
            ListKind::Tools => {
                let tools = server.fresh_tools().await?;
                let items = tools.tools().iter().map(|tool| ListItem {
                    name: tool.name().into(),
                    raw: tool.raw().clone(),
                });
                return Ok(items.collect());
            },
            ListKind::Resources | ListKind::ResourceTemplates => "resources",
            ListKind::Prompts => "prompts",
        };
        // A server without the capability might never answer.
        if !has_capability(server, capability).await? {
            return Ok(Arc::from([]));
        }
        let listed = match freshness {
            ListFreshness::Current => server.cached_list(list).await?,
            ListFreshness::MayBeStale => server.recently_cached_list(list).await?,
        };
        let items = listed.iter();
        Ok(items
            .filter_map(|raw| ListItem::from_raw(list, raw))
            .collect())
    })
}

pub(super) async fn has_capability(server: &ServerHandle, what: &str) -> Result<bool, Error> {
    let facts = server.cached_info().await?;
    let said = serde_json::from_slice::<HashMap<String, IgnoredAny>>(&facts.capabilities);
    Ok(said.is_ok_and(|said| said.contains_key(what)))
}

pub(super) async fn original_name(
    server: &ServerHandle,
    list: ListKind,
    shown: &str,
) -> Result<Option<String>, Error> {
    if list == ListKind::Tools {
        // A generated name never changes, so a cached list will do.
        let tools = server.tools().await?;
        let names = tools.tools().iter().map(Tool::name);
        let known = ExposedNames::new(server.name(), names);
        if let Some(own) = known.original(shown) {
            return Ok(Some(own.to_owned()));
        }
    }
    let items = list_items(server, list, ListFreshness::MayBeStale).await?;
    let names = ExposedNames::new(server.name(), items.iter().map(|item| &*item.name));
    Ok(names.original(shown).map(str::to_owned))
}

fn is_missing_caller_credential(why: &SkipReason, member: &AggregateMember) -> bool {
    let is_of_caller = member
        .handle
        .as_ref()
        .is_ok_and(ServerHandle::uses_caller_credential);
    matches!(why, SkipReason::Failed(error) if error.code() == Code::CredentialUnavailable)
        && is_of_caller
}

/// The items from a position on that fit into a page, at least one, and where the rest begins.
fn cut_page(
    list: ListKind,
    groups: &[ServerItems],
    from: &Cursor,
    limit: usize,
) -> (Vec<u8>, Option<Cursor>) {
    let mut out = format!("\"{}\":[", list.result_member()).into_bytes();
    let (before, mut number) = (out.len(), 0);
    for group in groups.iter().filter(|group| group.server >= from.server) {
        let told = if group.server == from.server {
            from.offset
        } else {
            0
        };
        for (offset, item) in group.items.iter().enumerate().skip(told) {
            if number > 0 && out.len() - before + item.len() > limit {
                out.push(b']');
                let server = group.server.clone();
                return (out, Some(Cursor { server, offset }));
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

const FORMAT_VERSION: &str = "1";
const MAX_TEXT: usize = 200;

/// The position of the next page, which the cursor itself holds. A forged one shows nothing that its
/// client could not see anyway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// The first server of the page.
    pub(super) server: String,
    /// How many of that server's items earlier pages had.
    pub(super) offset: usize,
}

impl Cursor {
    pub(super) fn encode(&self, list: ListKind) -> String {
        let (method, Self { server, offset }) = (list.method(), self);
        URL_SAFE_NO_PAD.encode(format!("{FORMAT_VERSION}:{method}:{server}:{offset}"))
    }

    /// The position that a request asks for; `None` where its cursor is not one of this list.
    pub(crate) fn from_params(list: ListKind, params: &Params) -> Option<Self> {
        match params.member("cursor") {
            None | Some(b"null") => Some(Self::default()),
            Some(raw) => Self::decode(&serde_json::from_slice::<String>(raw).ok()?, list),
        }
    }

    pub(super) fn decode(text: &str, list: ListKind) -> Option<Self> {
        if text.len() > MAX_TEXT {
            return None;
        }
        let plain = URL_SAFE_NO_PAD.decode(text).ok()?;
        let plain = String::from_utf8(plain).ok()?;
        let mut parts = plain.split(':');
        let (form, method) = (parts.next()?, parts.next()?);
        let (server, told) = (parts.next()?, parts.next()?);
        if form != FORMAT_VERSION || method != list.method() || parts.next().is_some() {
            return None;
        }
        Some(Self {
            server: server.to_owned(),
            offset: told.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(server: &str, items: &[&'static str]) -> ServerItems {
        ServerItems {
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
                let (page, next) = cut_page(ListKind::Tools, &groups, &from, limit);
                let page = format!("{{{}}}", String::from_utf8(page).unwrap());
                let page: Value = serde_json::from_str(&page).unwrap();
                let items = page["tools"].as_array().unwrap();
                assert!(!items.is_empty());
                all.extend(items.iter().cloned());
                let Some(next) = next else { break };
                // As a client would carry it.
                from = Cursor::decode(&next.encode(ListKind::Tools), ListKind::Tools).unwrap();
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
            offset: 7,
        };
        let (page, next) = cut_page(ListKind::Tools, &groups, &from, 100);
        assert_eq!(page, b"\"tools\":[4]");
        assert_eq!(next, None);
    }

    #[test]
    fn a_cursor_says_where_to_go_on_in_its_own_list_alone() {
        let cursor = Cursor {
            server: "browser".to_owned(),
            offset: 17,
        };
        let text = cursor.encode(ListKind::Tools);
        assert_eq!(Cursor::decode(&text, ListKind::Tools), Some(cursor));
        assert_eq!(Cursor::decode(&text, ListKind::Prompts), None);
        let cut = text.strip_prefix('M').unwrap();
        let long = "A".repeat(4096);
        let odd = URL_SAFE_NO_PAD.encode("1:tools/list:a:-1");
        let more = URL_SAFE_NO_PAD.encode("1:tools/list:a:1:2");
        let other = URL_SAFE_NO_PAD.encode("2:tools/list:a:1");
        for bad in ["", "from-3", "é", cut, &long, &odd, &more, &other] {
            assert_eq!(Cursor::decode(bad, ListKind::Tools), None, "{bad}");
        }
    }
}
