//! A problem as it is told to people and to machines: what, where, why, delivery, hint.

use std::time::Duration;

use warmline::config::{ConfigError, ConfigFile, Excerpt};
use warmline::core::code::{Code, Reason};
use warmline::core::delivery::Delivery;
use warmline::core::exchange::{Failure, Trouble};

use crate::ask::Declined;
use crate::target::Target;

/// Something that ends a command, with everything the reader needs to go on.
#[derive(Clone, Debug)]
pub(crate) struct Problem(Box<Parts>);

/// The parts of a [`Problem`], in the order in which they are told.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub(crate) code: Code,
    pub(crate) what: String,
    pub(crate) place: Option<String>,
    pub(crate) why: Option<String>,
    pub(crate) delivery: Option<Delivery>,
    pub(crate) hint: Option<String>,
    /// The line of a file that is meant, and its number.
    pub(crate) excerpt: Option<(usize, Excerpt)>,
    pub(crate) reason: Option<&'static str>,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) server: Option<String>,
    /// Questions of the server that were declined before.
    pub(crate) declined: Option<Vec<Declined>>,
    /// The exit code, where it is not that of the code.
    exit: Option<u8>,
}

/// What a command that can fail gives back.
pub(crate) type Outcome<T> = Result<T, Problem>;

impl Problem {
    pub(crate) fn new(code: Code, what: impl Into<String>) -> Self {
        Self(Box::new(Parts {
            code,
            what: what.into(),
            place: None,
            why: None,
            delivery: None,
            hint: None,
            excerpt: None,
            reason: None,
            retry_after: None,
            server: None,
            declined: None,
            exit: None,
        }))
    }

    /// Something was typed that cannot be meant so.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self::new(Code::UsageBadArgument, what)
    }

    /// What kept a session from being opened, or a request from being answered.
    pub(crate) fn of_trouble(trouble: &Trouble, delivery: Delivery) -> Self {
        let mut problem = Self::new(trouble.code, trouble.what.clone());
        problem.0.why.clone_from(&trouble.why);
        problem.0.hint =
            own_hint(trouble).or_else(|| advice(trouble.code, trouble.reason, delivery));
        problem.0.reason = Some(trouble.reason.word());
        problem.0.retry_after = trouble.retry_after;
        problem.delivered(delivery)
    }

    /// What kept a request from being answered.
    pub(crate) fn of_failure(failure: &Failure) -> Self {
        Self::of_trouble(&failure.trouble, failure.delivery())
    }

    pub(crate) fn at(mut self, place: impl Into<String>) -> Self {
        self.0.place = Some(place.into());
        self
    }

    pub(crate) fn because(mut self, why: impl Into<String>) -> Self {
        self.0.why = Some(why.into());
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// What became of the request. Advice that speaks of another delivery is taken back.
    pub(crate) fn delivered(mut self, delivery: Delivery) -> Self {
        self.0.delivery = Some(delivery);
        let was_not_executed = matches!(delivery, Delivery::Unsent | Delivery::Refused);
        let general = advice(self.0.code, None, delivery);
        if was_not_executed
            && matches!(self.0.code, Code::AnswerLost | Code::Cancelled)
            && self.0.hint == general
        {
            self.0.hint = Some("nothing was executed: it is safe to call again".to_owned());
        }
        self
    }

    /// A credential that was never sent cannot have been refused.
    pub(crate) fn naming_no_credential(mut self, target: &Target) -> Self {
        if self.0.code == Code::CredentialRefused && !target.sends_credential() {
            self.0.what = format!(
                "`{}` wants a credential, and none was sent",
                target.server.name
            );
        }
        self
    }

    /// Strikes the path of a URL out that variables were filled into: it may be a secret.
    pub(crate) fn striking(mut self, path: Option<&str>) -> Self {
        if let Some(path) = path {
            let parts = &mut *self.0;
            parts.what = parts.what.replace(path, "/…");
            for text in [&mut parts.why, &mut parts.hint, &mut parts.place] {
                *text = text.take().map(|text| text.replace(path, "/…"));
            }
        }
        self
    }

    /// Calls a server as people do, where somebody else calls it otherwise.
    pub(crate) fn calling(mut self, name: &str, shown: &str) -> Self {
        let (name, shown) = (format!("`{name}`"), format!("`{shown}`"));
        let parts = &mut *self.0;
        parts.what = parts.what.replace(&name, &shown);
        for text in [&mut parts.why, &mut parts.hint] {
            *text = text.take().map(|text| text.replace(&name, &shown));
        }
        self
    }

    /// What a gateway advises callers who cannot look after it is of no use to its own user: the
    /// advice of the code stands in its place.
    pub(crate) fn advising_its_user(mut self) -> Self {
        let parts = &mut *self.0;
        let delivery = parts.delivery.unwrap_or(Delivery::Unsent);
        let general = warmline_gateway::advice(parts.code, delivery);
        if parts.hint.as_deref() == Some(general) {
            let word = parts.reason;
            let reason = Reason::ALL.into_iter().find(|one| Some(one.word()) == word);
            parts.hint = advice(parts.code, reason, delivery);
        }
        self
    }

    /// Of a command that calls nothing: there is no request that something became of.
    pub(crate) fn of_no_call(mut self) -> Self {
        let exit = self.exit();
        (self.0.delivery, self.0.exit) = (None, Some(exit));
        self
    }

    pub(crate) fn of_server(mut self, server: &str) -> Self {
        self.0.server = Some(server.to_owned());
        self
    }

    /// With the questions that were declined before it came to this.
    pub(crate) fn after_declining(mut self, declined: Option<Vec<Declined>>) -> Self {
        self.0.declined = declined;
        self
    }

    /// Ends the command with another exit code than usual.
    pub(crate) fn exiting(mut self, exit: u8) -> Self {
        self.0.exit = Some(exit);
        self
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.0
    }

    /// The exit code: it carries the delivery where there is one.
    pub(crate) fn exit(&self) -> u8 {
        if let Some(exit) = self.0.exit {
            return exit;
        }
        match (self.0.code, self.0.delivery) {
            // The answer arrived and was lost here: what was called was executed.
            (Code::AnswerLost, Some(Delivery::Answered)) => {
                Code::AnswerLost.exit(Delivery::Unknown)
            },
            (code, delivery) => code.exit(delivery.unwrap_or(Delivery::Unsent)),
        }
    }
}

impl From<ConfigError> for Problem {
    fn from(error: ConfigError) -> Self {
        let mut problem = Self::new(error.code, error.what);
        problem.0.why = error.why;
        problem.0.hint = error.hint;
        if let Some(place) = error.place {
            problem.0.place = Some(place.to_string());
            problem.0.excerpt = place.at.map(|(line, _)| line).zip(place.excerpt);
        }
        problem
    }
}

/// The first of all mistakes of a file, going by its lines, and how many more there are: whoever
/// mends one should know whether that is all.
pub(crate) fn first_of_all(error: ConfigError) -> Problem {
    let Some(file) = error.place.as_ref().map(|place| place.file.clone()) else {
        return error.into();
    };
    let mut faults = ConfigFile::faults(&file).into_iter();
    let (Some(first), more @ 1..) = (faults.next(), faults.len()) else {
        return error.into();
    };
    let problem = Problem::from(first);
    let more = format!("and {more} more: `warmline check {}`", file.display());
    let hint = match &problem.parts().hint {
        Some(hint) => format!("{hint}; {more}"),
        None => more,
    };
    problem.hint(hint)
}

/// A trouble that calls a server as people do, where somebody else calls it otherwise.
pub(crate) fn renamed(trouble: &Trouble, name: &str, shown: &str) -> Trouble {
    let (name, shown) = (format!("`{name}`"), format!("`{shown}`"));
    let mut trouble = trouble.clone();
    trouble.what = trouble.what.replace(&name, &shown);
    for text in [&mut trouble.why, &mut trouble.hint] {
        *text = text.take().map(|text| text.replace(&name, &shown));
    }
    trouble
}

/// The hint of a trouble, in words of the command line where the library's speak of Rust. The only
/// place that puts one in the other's stead.
pub(crate) fn own_hint(trouble: &Trouble) -> Option<String> {
    if let Some(of_a_gateway) = token_of_a_gateway(trouble) {
        return Some(format!("{of_a_gateway}; give it by {GIVE_A_TOKEN}"));
    }
    let own = trouble.hint.as_ref();
    let own = own.filter(|hint| !hint.contains("`Server::bearer`"));
    let is_token = own.is_none() && trouble.reason == Reason::Unauthorized;
    is_token
        .then(|| GIVE_A_TOKEN.to_owned())
        .or_else(|| own.cloned())
}

/// How to come by the token of a Warmline, if it is one that refused ours.
pub(crate) fn token_of_a_gateway(trouble: &Trouble) -> Option<&'static str> {
    let why = trouble.why.as_deref().unwrap_or_default();
    let is_one = trouble.reason == Reason::Unauthorized
        && OF_A_GATEWAY.iter().any(|said| why.contains(said));
    is_one.then_some(TOKEN_OF_A_GATEWAY)
}

/// What a Warmline says to whoever shows no token that it knows.
const OF_A_GATEWAY: [&str; 2] = ["a bearer token is needed", "this token is not known here"];

const TOKEN_OF_A_GATEWAY: &str = "`warmline token new NAME` makes a token; where a gateway of this \
    machine takes its own (`auth = \"local\"`), `warmline url NAME` prints that";

const GIVE_A_TOKEN: &str = "the variable `MCP_AUTH_TOKEN`, for a URL that is typed; or `--header-env Authorization=VARIABLE`, where the variable holds \
    `Bearer …`; or `credential = { env = \"VARIABLE\" }` in the configuration, where it holds the \
    token alone";

/// The general advice of a code, where the trouble has none of its own. Where nobody knows whether
/// it was executed, that is the first thing to find out.
fn advice(code: Code, reason: impl Into<Option<Reason>>, delivery: Delivery) -> Option<String> {
    let is_large = reason.into() == Some(Reason::ReplyTooLarge);
    let said = match (code, delivery) {
        _ if is_large && delivery == Delivery::Unknown => {
            "check whether it was executed before calling again; then ask for less at once"
        },
        _ if is_large => "ask for less at once: fewer items, or a part",
        (Code::Deadline, Delivery::Unknown) => {
            "check whether it was executed before calling again; `--timeout` allows more time"
        },
        (Code::BadAnswer, Delivery::Unknown) => {
            "check whether it was executed before calling again; report it to the server's makers"
        },
        (_, Delivery::Unknown) => "check whether it was executed before calling again",
        (code, _) => code.try_this().first()?,
    };
    Some(said.to_owned())
}
