//! Lists: all pages of a list, or an error. A part never looks whole.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use warmline_core::code::Reason;
use warmline_core::exchange::{Ending, Patience, Reply, Request, Trouble};
use warmline_core::protocol::headers::ToolHeaders;
use warmline_core::protocol::params::Params;
use warmline_core::protocol::splice::Edit;

use super::session::{Driver, Session};
use crate::clock;

/// A list with more pages than this does not end.
const MAX_PAGES: usize = 1000;
/// A list with more bytes than this is not held.
const MAX_BYTES: usize = 64 << 20;

/// What a server can list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum List {
    /// `tools/list`.
    Tools,
    /// `resources/list`.
    Resources,
    /// `resources/templates/list`.
    Templates,
    /// `prompts/list`.
    Prompts,
}

impl List {
    /// The method that lists it.
    pub const fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
            Self::Prompts => "prompts/list",
        }
    }

    /// What it lists, for people.
    const fn word(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::Templates => "resource templates",
            Self::Prompts => "prompts",
        }
    }

    /// The member of the result that holds it.
    const fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
            Self::Prompts => "prompts",
        }
    }
}

impl Session {
    /// Reads a list to its end. Each item is raw JSON.
    ///
    /// Over modern HTTP, tools whose `x-mcp-header` breaks the rules are left out with a warning,
    /// as the protocol asks of clients.
    ///
    /// # Errors
    /// With the ending of the request that brought no page. A cursor that comes back, or a list
    /// beyond the limits of pages and bytes, is a bad answer.
    ///
    /// # Cancel safety
    /// As [`Session::send`].
    pub async fn list(&self, list: List, patience: Patience) -> Result<Vec<Bytes>, Ending> {
        let total_by = clock::after(patience.total);
        let mut pages = Pages::new(list, self.server());
        while let Some(params) = pages.next() {
            // The limit is for the list, not for each of its pages.
            let total = total_by.saturating_duration_since(clock::now());
            let left = Patience { total, ..patience };
            let request = Request::new(list.method(), params).patient(left);
            let ending = self.call(request, &()).await;
            let Ending::Answered(Reply::Result(page)) = &ending else {
                return Err(ending);
            };
            pages.take(page).map_err(Trouble::unknown)?;
        }
        let mut items = pages.into_items();
        if matches!(self.driver, Driver::ModernHttp(_)) {
            items.retain(|item| is_usable(list, item));
        }
        Ok(items)
    }
}

/// A list that is read page by page, whoever sends the requests.
#[derive(Debug)]
pub(crate) struct Pages {
    list: List,
    server: String,
    next: Next,
    items: Vec<Bytes>,
    /// Cursors that were given out, raw.
    seen: HashSet<Bytes>,
    bytes: usize,
    read: usize,
    /// How long all pages so far are good, by the word of the server.
    good_for: Option<Duration>,
}

/// What is to be asked for.
#[derive(Debug)]
enum Next {
    First,
    /// By its raw cursor.
    Page(Bytes),
    Nothing,
}

impl Pages {
    /// Nothing was asked for yet. The server's name is for messages.
    pub(crate) fn new(list: List, server: &str) -> Self {
        Self {
            list,
            server: server.to_owned(),
            next: Next::First,
            items: Vec::new(),
            seen: HashSet::new(),
            bytes: 0,
            read: 0,
            good_for: None,
        }
    }

    /// The parameters that ask for the next page; none once the list is whole.
    pub(crate) fn next(&self) -> Option<Params> {
        match &self.next {
            Next::First => Some(first_or_next(None)),
            Next::Page(cursor) => Some(first_or_next(Some(cursor))),
            Next::Nothing => None,
        }
    }

    /// Takes the raw result of a page in.
    ///
    /// # Errors
    /// Where it is no page, or the list has no end.
    pub(crate) fn take(&mut self, page: &[u8]) -> Result<(), Trouble> {
        self.bytes += page.len();
        self.read += 1;
        if self.bytes > MAX_BYTES {
            return Err(self.endless(&format!("it is larger than {MAX_BYTES} bytes")));
        }
        let (items, next) = read_page(self.list, page)?;
        self.items.extend(items);
        let good_for = good_for(page);
        self.good_for = match self.read {
            1 => good_for,
            _ => self.good_for.zip(good_for).map(|(all, this)| all.min(this)),
        };
        self.next = match next {
            None => Next::Nothing,
            Some(_) if self.read >= MAX_PAGES => {
                return Err(self.endless(&format!("it has more than {MAX_PAGES} pages")));
            },
            Some(cursor) if self.seen.insert(cursor.clone()) => Next::Page(cursor),
            Some(_) => return Err(self.endless("a cursor came back a second time")),
        };
        Ok(())
    }

    /// How long the list is good, where the server says so on each of its pages.
    pub(crate) fn good_for(&self) -> Option<Duration> {
        self.good_for
    }

    /// All items, each as raw JSON.
    pub(crate) fn into_items(self) -> Vec<Bytes> {
        self.items
    }

    fn endless(&self, why: &str) -> Trouble {
        let (server, word) = (&self.server, self.list.word());
        let what = format!("`{server}` lists {word} without end");
        Trouble::new(Reason::BadReply, what).because(why)
    }
}

/// Whether an item of a modern list over HTTP may be used: a tool whose `x-mcp-header` breaks the
/// rules may not.
pub(crate) fn is_usable(list: List, item: &[u8]) -> bool {
    if list != List::Tools {
        return true;
    }
    let Ok(tool) = serde_json::from_slice::<Tool<'_>>(item) else {
        return true;
    };
    match ToolHeaders::of_schema(tool.input_schema.get().as_bytes()) {
        Ok(_) => true,
        Err(rule) => {
            tracing::warn!(tool = tool.name, %rule, "tool left out: bad x-mcp-header");
            false
        },
    }
}

/// What is read of a listed tool here.
#[derive(serde::Deserialize)]
pub(crate) struct Tool<'a> {
    pub(crate) name: String,
    #[serde(rename = "inputSchema", borrow)]
    pub(crate) input_schema: &'a RawValue,
}

/// The parameters that ask for a page.
pub(crate) fn first_or_next(cursor: Option<&Bytes>) -> Params {
    let Some(cursor) = cursor else {
        return Params::empty();
    };
    let mut raw = Vec::with_capacity(cursor.len() + 16);
    Params::empty().write_with(&mut raw, &[Edit::Set("cursor", cursor)], &[]);
    // The cursor was cut out of valid JSON, so what is made of it is valid too.
    Params::parse(raw.into()).unwrap_or_else(|_| Params::empty())
}

/// The items of a page, and the raw cursor of the next one.
pub(crate) fn read_page(list: List, page: &[u8]) -> Result<(Vec<Bytes>, Option<Bytes>), Trouble> {
    let bad = |error: serde_json::Error| {
        Trouble::new(
            Reason::BadReply,
            format!("the answer to `{}` is not a list", list.method()),
        )
        .because(error.to_string())
    };
    let page: std::collections::HashMap<String, &RawValue> =
        serde_json::from_slice(page).map_err(bad)?;
    let items: Vec<&RawValue> = match page.get(list.member()) {
        Some(raw) => serde_json::from_str(raw.get()).map_err(bad)?,
        None => {
            let what = format!(
                "the answer to `{}` has no `{}`",
                list.method(),
                list.member()
            );
            return Err(Trouble::new(Reason::BadReply, what));
        },
    };
    let next = page.get("nextCursor").filter(|raw| raw.get() != "null");
    Ok((
        items.into_iter().map(raw_bytes).collect(),
        next.copied().map(raw_bytes),
    ))
}

/// How long a page is good, by the word of the server.
fn good_for(page: &[u8]) -> Option<Duration> {
    #[derive(serde::Deserialize)]
    struct Hint {
        #[serde(rename = "ttlMs")]
        ttl_ms: Option<u64>,
    }
    let hint: Hint = serde_json::from_slice(page).ok()?;
    hint.ttl_ms.map(Duration::from_millis)
}

fn raw_bytes(raw: &RawValue) -> Bytes {
    Bytes::copy_from_slice(raw.get().as_bytes())
}
