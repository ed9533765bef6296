//! Reads all pages of a list, or returns an error. A part never looks whole.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::message::params::Params;
use warmline_core::message::splice::Edit;
use warmline_core::protocol::headers::ParamHeaders;

/// A list with more pages counts as endless.
const MAX_PAGES: usize = 1000;
const MAX_BYTES: usize = 64 << 20;

/// What a server can list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListKind {
    /// `tools/list`.
    Tools,
    /// `resources/list`.
    Resources,
    /// `resources/templates/list`.
    ResourceTemplates,
    /// `prompts/list`.
    Prompts,
}

impl ListKind {
    /// Its name for people, the method that lists it, and the member of the result that holds it.
    const fn names(self) -> [&'static str; 3] {
        match self {
            Self::Tools => ["tools", "tools/list", "tools"],
            Self::Resources => ["resources", "resources/list", "resources"],
            Self::ResourceTemplates => [
                "resource templates",
                "resources/templates/list",
                "resourceTemplates",
            ],
            Self::Prompts => ["prompts", "prompts/list", "prompts"],
        }
    }

    /// The method that lists it.
    pub const fn method(self) -> &'static str {
        let [_, method, _] = self.names();
        method
    }

    /// The member of the result that holds it.
    pub const fn result_member(self) -> &'static str {
        let [_, _, member] = self.names();
        member
    }
}

/// Collects the pages of a list; the caller sends the requests.
#[derive(Debug)]
pub struct ListReader {
    kind: ListKind,
    server: String,
    next_page: NextPage,
    items: Vec<Bytes>,
    seen_cursors: HashSet<Bytes>,
    total_bytes: usize,
    pages_read: usize,
    /// The shortest `ttlMs` of the pages so far.
    ttl: Option<Duration>,
}

#[derive(Debug)]
enum NextPage {
    First,
    /// By its raw cursor.
    Cursor(Bytes),
    Done,
}

impl ListReader {
    /// The server's name is for messages.
    pub fn new(kind: ListKind, server: &str) -> Self {
        Self {
            kind,
            server: server.to_owned(),
            next_page: NextPage::First,
            items: Vec::new(),
            seen_cursors: HashSet::new(),
            total_bytes: 0,
            pages_read: 0,
            ttl: None,
        }
    }

    /// The parameters that ask for the next page; none once the list is whole.
    pub fn next_params(&self) -> Option<Params> {
        match &self.next_page {
            NextPage::First => Some(page_params(None)),
            NextPage::Cursor(cursor) => Some(page_params(Some(cursor))),
            NextPage::Done => None,
        }
    }

    /// Adds the raw result of a page.
    ///
    /// # Errors
    /// If it is no page, or the list has no end.
    pub fn add_page(&mut self, page: &[u8]) -> Result<(), Diagnostic> {
        self.total_bytes += page.len();
        self.pages_read += 1;
        if self.total_bytes > MAX_BYTES {
            return Err(self.endless_list(&format!("it is larger than {MAX_BYTES} bytes")));
        }
        let page = parse_page(self.kind, page)?;
        self.items.extend(page.items);
        self.ttl = match self.pages_read {
            1 => page.ttl,
            _ => self.ttl.zip(page.ttl).map(|(all, this)| all.min(this)),
        };
        self.next_page = match page.next_cursor {
            None => NextPage::Done,
            Some(_) if self.pages_read >= MAX_PAGES => {
                return Err(self.endless_list(&format!("it has more than {MAX_PAGES} pages")));
            },
            Some(cursor) if self.seen_cursors.insert(cursor.clone()) => NextPage::Cursor(cursor),
            Some(_) => return Err(self.endless_list("a cursor came back a second time")),
        };
        Ok(())
    }

    /// How long the list is good, if each page says so.
    pub fn ttl(&self) -> Option<Duration> {
        self.ttl
    }

    /// All items, each as raw JSON.
    pub fn into_items(self) -> Vec<Bytes> {
        self.items
    }

    fn endless_list(&self, why: &str) -> Diagnostic {
        let (server, [word, ..]) = (&self.server, self.kind.names());
        let what = format!("`{server}` lists {word} without end");
        Diagnostic::new(Reason::BadReply, what).with_cause(why)
    }
}

/// Whether an item of a modern list over HTTP may be used. A tool whose `x-mcp-header` breaks the
/// rules may not.
pub fn is_usable_item(list: ListKind, item: &[u8]) -> bool {
    if list != ListKind::Tools {
        return true;
    }
    let Ok(tool) = serde_json::from_slice::<ListedTool<'_>>(item) else {
        return true;
    };
    match ParamHeaders::from_schema(tool.input_schema.get().as_bytes()) {
        Ok(_) => true,
        Err(rule) => {
            tracing::warn!(tool = tool.name, %rule, "tool left out: bad x-mcp-header");
            false
        },
    }
}

#[derive(serde::Deserialize)]
pub(crate) struct ListedTool<'a> {
    pub(crate) name: String,
    #[serde(rename = "inputSchema", borrow)]
    pub(crate) input_schema: &'a RawValue,
}

pub(crate) fn page_params(cursor: Option<&Bytes>) -> Params {
    match cursor {
        Some(cursor) => Params::empty().edited(&[Edit::Set("cursor", cursor)], &[]),
        None => Params::empty(),
    }
}

/// A page of a list: its raw items, the raw cursor of the next one, and how long it is good.
pub(crate) struct ListPage {
    pub(crate) items: Vec<Bytes>,
    pub(crate) next_cursor: Option<Bytes>,
    ttl: Option<Duration>,
}

pub(crate) fn parse_page(list: ListKind, page: &[u8]) -> Result<ListPage, Diagnostic> {
    let [_, method, member] = list.names();
    let bad = |error: serde_json::Error| {
        let what = format!("the answer to `{method}` is not a list");
        Diagnostic::new(Reason::BadReply, what).with_cause(error.to_string())
    };
    let page: std::collections::HashMap<String, &RawValue> =
        serde_json::from_slice(page).map_err(bad)?;
    let items: Vec<&RawValue> = match page.get(member) {
        Some(raw) => serde_json::from_str(raw.get()).map_err(bad)?,
        None => {
            let what = format!("the answer to `{method}` has no `{member}`");
            return Err(Diagnostic::new(Reason::BadReply, what));
        },
    };
    let next = page.get("nextCursor").filter(|raw| raw.get() != "null");
    let ttl = page.get("ttlMs").and_then(|raw| raw.get().parse().ok());
    Ok(ListPage {
        items: items.into_iter().map(raw_bytes).collect(),
        next_cursor: next.copied().map(raw_bytes),
        ttl: ttl.map(Duration::from_millis),
    })
}

fn raw_bytes(raw: &RawValue) -> Bytes {
    Bytes::copy_from_slice(raw.get().as_bytes())
}
