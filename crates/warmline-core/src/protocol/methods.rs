//! The methods of the protocol: their senders, versions and properties.

pub use crate::delivery::Idempotency;
use crate::era::Version;

/// The properties of one method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    pub name: &'static str,
    pub direction: Direction,
    pub form: MethodForm,
    pub since: Version,
    pub until: Version,
    /// Whether it may be sent again when its delivery is unknown.
    pub idempotency: Idempotency,
    /// Which parameter goes into `Mcp-Name`.
    pub name_param: Option<NameParam>,
}

/// The sender of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    ToServer,
    ToClient,
    Both,
}

/// Whether a method is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MethodForm {
    /// Has an id and is answered.
    Request,
    Notification,
}

/// The parameter that names what a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NameParam {
    Name,
    Uri,
    /// `params.taskId`.
    TaskId,
}

impl NameParam {
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
    /// Every method of every known version.
    pub const ALL: &'static [Self] = METHODS;

    pub fn find(name: &str) -> Option<&'static Self> {
        METHODS.iter().find(|method| method.name == name)
    }

    pub fn is_in_version(&self, version: Version) -> bool {
        (self.since..=self.until).contains(&version)
    }

    const fn with_name_param(mut self, parameter: NameParam) -> Self {
        self.name_param = Some(parameter);
        self
    }

    const fn with_direction(mut self, direction: Direction) -> Self {
        self.direction = direction;
        self
    }

    const fn with_versions(mut self, since: Version, until: Version) -> Self {
        self.since = since;
        self.until = until;
        self
    }
}

/// Whether a method, known or not, may be sent again when its delivery is unknown.
pub fn method_idempotency(method: &str) -> Idempotency {
    Method::find(method).map_or(Idempotency::NotIdempotent, |known| known.idempotency)
}

/// Whether the holder of an exclusive session may send this request. `initialize` would open
/// another session, which would never be closed; and a notification is no request.
pub fn is_allowed_on_exclusive_session(method: &str) -> bool {
    let is_told = |known: &Method| known.form == MethodForm::Notification;
    method != "initialize"
        && !(method.starts_with("notifications/") && Method::find(method).is_some_and(is_told))
}

const FIRST_VERSION: Version = Version::V2024_11_05;
const LAST_VERSION: Version = Version::V2026_07_28;
const LAST_LEGACY_VERSION: Version = Version::NEWEST_LEGACY;

const fn idempotent_request(name: &'static str) -> Method {
    Method {
        name,
        direction: Direction::ToServer,
        form: MethodForm::Request,
        since: FIRST_VERSION,
        until: LAST_VERSION,
        idempotency: Idempotency::Idempotent,
        name_param: None,
    }
}

const fn request(name: &'static str) -> Method {
    Method {
        idempotency: Idempotency::NotIdempotent,
        ..idempotent_request(name)
    }
}

const fn notification(name: &'static str) -> Method {
    Method {
        form: MethodForm::Notification,
        ..request(name)
    }
}

#[rustfmt::skip]
const METHODS: &[Method] = &[
    request("initialize").with_versions(FIRST_VERSION, LAST_LEGACY_VERSION),
    notification("notifications/initialized").with_versions(FIRST_VERSION, LAST_LEGACY_VERSION),
    idempotent_request("ping").with_direction(Direction::Both).with_versions(FIRST_VERSION, LAST_LEGACY_VERSION),
    idempotent_request("server/discover").with_versions(LAST_VERSION, LAST_VERSION),
    idempotent_request("tools/list"),
    request("tools/call").with_name_param(NameParam::Name),
    idempotent_request("resources/list"),
    idempotent_request("resources/templates/list"),
    idempotent_request("resources/read").with_name_param(NameParam::Uri),
    idempotent_request("resources/subscribe").with_versions(FIRST_VERSION, LAST_LEGACY_VERSION),
    idempotent_request("resources/unsubscribe").with_versions(FIRST_VERSION, LAST_LEGACY_VERSION),
    idempotent_request("prompts/list"),
    idempotent_request("prompts/get").with_name_param(NameParam::Name),
    idempotent_request("completion/complete"),
    idempotent_request("logging/setLevel").with_versions(FIRST_VERSION, LAST_LEGACY_VERSION),
    idempotent_request("subscriptions/listen").with_versions(LAST_VERSION, LAST_VERSION),
    // Experimental in 2025-11-25, an extension since.
    idempotent_request("tasks/get").with_direction(Direction::Both).with_versions(LAST_LEGACY_VERSION, LAST_VERSION).with_name_param(NameParam::TaskId),
    idempotent_request("tasks/cancel").with_direction(Direction::Both).with_versions(LAST_LEGACY_VERSION, LAST_VERSION).with_name_param(NameParam::TaskId),
    idempotent_request("tasks/list").with_direction(Direction::Both).with_versions(LAST_LEGACY_VERSION, LAST_LEGACY_VERSION),
    idempotent_request("tasks/result").with_direction(Direction::Both).with_versions(LAST_LEGACY_VERSION, LAST_LEGACY_VERSION),
    request("tasks/update").with_versions(LAST_VERSION, LAST_VERSION).with_name_param(NameParam::TaskId),
    // Since 2026-07-28 only inside `inputRequests`.
    idempotent_request("roots/list").with_direction(Direction::ToClient).with_versions(FIRST_VERSION, LAST_LEGACY_VERSION),
    request("sampling/createMessage").with_direction(Direction::ToClient).with_versions(FIRST_VERSION, LAST_LEGACY_VERSION),
    request("elicitation/create").with_direction(Direction::ToClient).with_versions(Version::V2025_06_18, LAST_LEGACY_VERSION),
    notification("notifications/cancelled").with_direction(Direction::Both),
    notification("notifications/progress").with_direction(Direction::Both),
    notification("notifications/message").with_direction(Direction::ToClient),
    notification("notifications/tools/list_changed").with_direction(Direction::ToClient),
    notification("notifications/prompts/list_changed").with_direction(Direction::ToClient),
    notification("notifications/resources/list_changed").with_direction(Direction::ToClient),
    notification("notifications/resources/updated").with_direction(Direction::ToClient),
    notification("notifications/roots/list_changed").with_versions(FIRST_VERSION, LAST_LEGACY_VERSION),
    notification("notifications/elicitation/complete").with_direction(Direction::ToClient).with_versions(LAST_LEGACY_VERSION, LAST_LEGACY_VERSION),
    notification("notifications/tasks/status").with_direction(Direction::ToClient).with_versions(LAST_LEGACY_VERSION, LAST_LEGACY_VERSION),
    notification("notifications/tasks").with_direction(Direction::ToClient).with_versions(LAST_VERSION, LAST_VERSION),
    notification("notifications/subscriptions/acknowledged").with_direction(Direction::ToClient).with_versions(LAST_VERSION, LAST_VERSION),
];

#[cfg(test)]
mod tests;
