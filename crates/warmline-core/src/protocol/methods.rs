//! The methods of the protocol: who sends them, since when, until when, and what may be assumed.

pub use crate::delivery::Repeat;
use crate::era::{Era, Version};

/// What is known of one method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    /// Its name on the wire.
    pub name: &'static str,
    /// Who sends it.
    pub direction: Direction,
    /// Whether it is answered.
    pub form: Form,
    /// The first version that has it.
    pub since: Version,
    /// The last version that has it.
    pub until: Version,
    /// Whether it may be sent again when nobody knows what became of it.
    pub repeat: Repeat,
    /// Whether its result comes in pages.
    pub paging: Paging,
    /// Whether its modern result carries cache hints.
    pub caching: Caching,
    /// Which parameter goes into `Mcp-Name`.
    pub named_by: Option<NamedBy>,
}

/// Who sends a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The client.
    ToServer,
    /// The server.
    ToClient,
    /// Either.
    Both,
}

/// Whether a method is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// Has an id and is answered.
    Request,
    /// Has none and is not.
    Notification,
}

/// Whether a result comes in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Paging {
    /// All at once.
    Whole,
    /// By `cursor` and `nextCursor`.
    Pages,
}

/// Whether a complete modern result carries cache hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Caching {
    /// None.
    Fresh,
    /// `ttlMs` and `cacheScope`.
    Hints,
}

/// The parameter that names what a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NamedBy {
    /// `params.name`.
    Name,
    /// `params.uri`.
    Uri,
    /// `params.taskId`.
    TaskId,
}

impl NamedBy {
    /// The name of the parameter.
    pub const fn member(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Uri => "uri",
            Self::TaskId => "taskId",
        }
    }
}

impl Method {
    /// Every method of every version we speak.
    pub const ALL: &'static [Self] = TABLE;

    /// The method of that name.
    pub fn find(name: &str) -> Option<&'static Self> {
        TABLE.iter().find(|method| method.name == name)
    }

    /// Whether a version has it.
    pub fn is_in(&self, version: Version) -> bool {
        (self.since..=self.until).contains(&version)
    }

    /// Whether any version of an era has it.
    pub fn is_in_era(&self, era: Era) -> bool {
        Version::ALL
            .into_iter()
            .any(|version| version.era() == era && self.is_in(version))
    }

    const fn paged(mut self) -> Self {
        self.paging = Paging::Pages;
        self
    }

    const fn cached(mut self) -> Self {
        self.caching = Caching::Hints;
        self
    }

    const fn named_by(mut self, parameter: NamedBy) -> Self {
        self.named_by = Some(parameter);
        self
    }

    const fn sent(mut self, direction: Direction) -> Self {
        self.direction = direction;
        self
    }

    const fn between(mut self, since: Version, until: Version) -> Self {
        self.since = since;
        self.until = until;
        self
    }
}

/// Whether a method, known or not, may be sent again when nobody knows what became of it.
pub fn repeat_of(method: &str) -> Repeat {
    Method::find(method).map_or(Repeat::Unsafe, |known| known.repeat)
}

/// Whether a caller may ask this on a session that somebody holds for it. Greeting a server opens
/// another session, which nobody would ever end; and what is told is not asked.
pub fn is_asked_on_held(method: &str) -> bool {
    let is_told = |known: &Method| known.form == Form::Notification;
    method != "initialize"
        && !(method.starts_with("notifications/") && Method::find(method).is_some_and(is_told))
}

const FIRST: Version = Version::V2024_11_05;
const LAST: Version = Version::V2026_07_28;
const LEGACY: Version = Version::NEWEST_LEGACY;

const fn read(name: &'static str) -> Method {
    Method {
        name,
        direction: Direction::ToServer,
        form: Form::Request,
        since: FIRST,
        until: LAST,
        repeat: Repeat::Safe,
        paging: Paging::Whole,
        caching: Caching::Fresh,
        named_by: None,
    }
}

const fn act(name: &'static str) -> Method {
    Method {
        repeat: Repeat::Unsafe,
        ..read(name)
    }
}

const fn notice(name: &'static str) -> Method {
    Method {
        form: Form::Notification,
        ..act(name)
    }
}

#[rustfmt::skip]
const TABLE: &[Method] = &[
    act("initialize").between(FIRST, LEGACY),
    notice("notifications/initialized").between(FIRST, LEGACY),
    read("ping").sent(Direction::Both).between(FIRST, LEGACY),
    read("server/discover").cached().between(LAST, LAST),
    read("tools/list").paged().cached(),
    act("tools/call").named_by(NamedBy::Name),
    read("resources/list").paged().cached(),
    read("resources/templates/list").paged().cached(),
    read("resources/read").cached().named_by(NamedBy::Uri),
    read("resources/subscribe").between(FIRST, LEGACY),
    read("resources/unsubscribe").between(FIRST, LEGACY),
    read("prompts/list").paged().cached(),
    read("prompts/get").named_by(NamedBy::Name),
    read("completion/complete"),
    read("logging/setLevel").between(FIRST, LEGACY),
    read("subscriptions/listen").between(LAST, LAST),
    // Experimental in 2025-11-25, an extension since.
    read("tasks/get").sent(Direction::Both).between(LEGACY, LAST).named_by(NamedBy::TaskId),
    read("tasks/cancel").sent(Direction::Both).between(LEGACY, LAST).named_by(NamedBy::TaskId),
    read("tasks/list").sent(Direction::Both).between(LEGACY, LEGACY).paged(),
    read("tasks/result").sent(Direction::Both).between(LEGACY, LEGACY),
    act("tasks/update").between(LAST, LAST).named_by(NamedBy::TaskId),
    // Since 2026-07-28 these three stand only inside `inputRequests`.
    read("roots/list").sent(Direction::ToClient).between(FIRST, LEGACY),
    act("sampling/createMessage").sent(Direction::ToClient).between(FIRST, LEGACY),
    act("elicitation/create").sent(Direction::ToClient).between(Version::V2025_06_18, LEGACY),
    notice("notifications/cancelled").sent(Direction::Both),
    notice("notifications/progress").sent(Direction::Both),
    notice("notifications/message").sent(Direction::ToClient),
    notice("notifications/tools/list_changed").sent(Direction::ToClient),
    notice("notifications/prompts/list_changed").sent(Direction::ToClient),
    notice("notifications/resources/list_changed").sent(Direction::ToClient),
    notice("notifications/resources/updated").sent(Direction::ToClient),
    notice("notifications/roots/list_changed").between(FIRST, LEGACY),
    notice("notifications/elicitation/complete").sent(Direction::ToClient).between(LEGACY, LEGACY),
    notice("notifications/tasks/status").sent(Direction::ToClient).between(LEGACY, LEGACY),
    notice("notifications/tasks").sent(Direction::ToClient).between(LAST, LAST),
    notice("notifications/subscriptions/acknowledged").sent(Direction::ToClient).between(LAST, LAST),
];

#[cfg(test)]
mod tests;
