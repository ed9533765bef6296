//! Towards servers: opens sessions of either era over HTTP or stdio, and knows what became of
//! every request.
//!
//! | question | file |
//! |---|---|
//! | How is the era found out? | `detect.rs` |
//! | What does a call of each era look like? | `legacy.rs`, `modern.rs`, `pipes.rs` |
//! | What does a reply mean for the request? | `answer.rs` (and `warmline_core::protocol::status`) |
//! | What did the handshake get? | `greeting.rs` |
//! | How are questions answered and calls cancelled over HTTP? | `voice.rs`, `answers.rs` |
//! | Whose message is it, on a standing stream? | `calls.rs` |
//! | What is remembered of a server? | `verdicts.rs` |
//! | Is an idle session still there? | `probe.rs` |
//! | How are streams read and resumed? | `stream.rs`, `legacy.rs` |
//! | How do bytes travel over HTTP? | `http.rs`, `connections.rs`, `tls.rs` |
//! | How do bytes travel over a child's pipes? | `stdio.rs` |
//! | How does a child start and die? | `process.rs`, `warden.rs`, `path.rs`, `environment.rs` |

mod answer;
mod answers;
mod calls;
mod connections;
mod contact;
mod detect;
pub(crate) mod environment;
mod greeting;
mod http;
mod legacy;
mod limits;
mod listener;
mod lists;
mod modern;
pub(crate) mod path;
mod pipes;
mod probe;
pub(crate) mod process;
mod rounds;
pub(crate) mod server;
mod session;
pub(crate) mod stderr;
mod stdio;
mod stream;
mod survey;
mod tls;
mod two_endpoints;
mod verdicts;
mod voice;
pub mod warden;
mod wording;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{ACCEPT, CONTENT_TYPE, HOST, USER_AGENT};
use ::http::{HeaderMap, HeaderName, HeaderValue, Uri};
use warmline_core::code::{Code, Reason};
use warmline_core::exchange::Trouble;
use warmline_core::protocol::headers::is_ours;

pub use self::contact::Contact;
pub use self::environment::withheld;
pub use self::listener::{Asked, Listener};
pub use self::lists::List;
pub use self::path::FoundBy;
pub use self::probe::{Probe, Probed};
pub use self::server::{HeaderSource, HttpReach, Notices, Reach, Server, Sizes, StdioReach, Times};
pub use self::session::{Declared, Evidence, Facts, Kept, Session};
pub use self::stdio::ChildReport;
pub use self::survey::{Leg, Survey};
pub use self::verdicts::Verdict;
pub use crate::net::{ByteStream, Destination, Dial, Dialed, Dialing};
pub use warmline_core::key::Transport;

use self::connections::Connections;
use self::http::Endpoint;
use self::legacy::LegacyHttp;
use self::session::Driver;
use self::verdicts::Verdicts;
use crate::clock;
use crate::net::Origin;
use crate::sync::Mutex;

/// Opens sessions to servers. Cheap to clone; all clones share their connections.
#[derive(Clone, Debug, Default)]
pub struct Upstream {
    connections: Arc<Mutex<HashMap<Identity, Arc<Connections>>>>,
    verdicts: Arc<Verdicts>,
}

/// What kept connections belong to: where they lead, and whom we trust there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    origin: Origin,
    ca_file: Option<PathBuf>,
    /// Limits are those of the server they were made for.
    idle: Duration,
    headers: usize,
}

impl Upstream {
    /// Nothing is read or connected until a session is opened.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens a session to a server, finding out its era unless the server's settings say it.
    ///
    /// # Errors
    /// With what went wrong, where, and what to do. Nothing of a caller was sent.
    ///
    /// # Cancel safety
    /// Dropping the future leaves no process behind. A server whose `initialize` was on its way
    /// may hold a session that nobody knows.
    pub async fn open(&self, server: &Server, declared: &Declared) -> Result<Session, Trouble> {
        detect::open(self, server, declared).await
    }

    /// Meets a server for the first time: finds out what it speaks and opens a session on the leg
    /// to use.
    ///
    /// Where the era is said, only that leg is tried. Inside a run a server that speaks both eras
    /// is met on both, once, and the leg that keeps state is taken; what is not used is ended.
    ///
    /// # Errors
    /// As [`Upstream::open`].
    ///
    /// # Cancel safety
    /// As [`Upstream::open`].
    pub async fn first_contact(
        &self,
        server: &Server,
        declared: &Declared,
        inside_run: bool,
    ) -> Result<Contact, Trouble> {
        contact::meet(self, server, declared, inside_run).await
    }

    /// Looks whether a server behind a URL takes connections, without a request: a connection is
    /// made, or one that rests is found alive. A process is always reachable.
    ///
    /// # Errors
    /// With what kept us from it.
    pub async fn reachable(&self, server: &Server, within: Duration) -> Result<(), Trouble> {
        let Reach::Http(reach) = &server.reach else {
            return Ok(());
        };
        let (endpoint, _) = self.endpoint(server, reach)?;
        endpoint.reach(clock::after(within)).await
    }

    /// Takes up a session that was opened before, perhaps by another process. Nothing is sent: the
    /// first call shows whether the server still knows it.
    ///
    /// Request ids begin anew at a random place, so none of the earlier life is used again.
    ///
    /// # Errors
    /// Where what was kept does not fit the server: only sessions over Streamable HTTP can be
    /// taken up.
    pub fn resume(
        &self,
        server: &Server,
        declared: &Declared,
        kept: &Kept,
    ) -> Result<Session, Trouble> {
        let Reach::Http(reach) = &server.reach else {
            return Err(session::not_kept(&server.name, "it is a process"));
        };
        let (endpoint, base) = self.endpoint(server, reach)?;
        let limits = (server.times, server.sizes);
        let driver = LegacyHttp::resumed(endpoint, base, (declared, kept), limits)?;
        Ok(Session::new(
            Driver::LegacyHttp(driver),
            Arc::clone(&kept.facts),
            None,
        ))
    }

    /// What is remembered of a server: the legs it was seen to speak on. After a
    /// [survey](Self::survey) of a dual-era server these are both.
    pub fn verdict(&self, server: &Server, declared: &Declared) -> Option<Verdict> {
        self.verdicts.recall(server, declared)
    }

    /// Tries both legs of a server, one after the other, and ends what it opened.
    pub async fn survey(&self, server: &Server, declared: &Declared) -> Survey {
        survey::survey(self, server, declared).await
    }

    /// The way to a URL, and what every request on it carries.
    fn endpoint(
        &self,
        server: &Server,
        reach: &HttpReach,
    ) -> Result<(Endpoint, HeaderMap), Trouble> {
        let url = &reach.url;
        let origin = origin(server, reach)?;
        let host = match url.port() {
            Some(port) => format!("{}:{port}", origin.host),
            None => origin.host.clone(),
        };
        let uri = url[url::Position::BeforePath..url::Position::AfterQuery]
            .parse::<Uri>()
            .map_err(|error| bad_url(server, &error))?;
        let mut base = HeaderMap::with_capacity(16);
        base.insert(
            HOST,
            HeaderValue::from_str(&host).map_err(|error| bad_url(server, &error))?,
        );
        base.insert(
            ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        );
        base.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        base.insert(USER_AGENT, USER_AGENT_VALUE);
        for (name, value) in &reach.headers {
            if is_ours(name) {
                return Err(reserved(server, name));
            }
            base.insert(name.clone(), value.clone());
        }
        let endpoint = Endpoint {
            server: Arc::from(server.name.as_str()),
            connections: self.connections_to(origin, server, reach)?,
            uri,
            place: Arc::from(place(url).as_str()),
            connect_within: server.times.connect,
        };
        Ok((endpoint, base))
    }

    fn connections_to(
        &self,
        origin: Origin,
        server: &Server,
        reach: &HttpReach,
    ) -> Result<Arc<Connections>, Trouble> {
        let identity = Identity {
            origin: origin.clone(),
            ca_file: reach.ca_file.clone(),
            idle: server.times.connection_idle,
            headers: server.sizes.headers,
        };
        if let Some(known) = self.connections.lock().get(&identity) {
            return Ok(Arc::clone(known));
        }
        let tls = if origin.tls {
            Some(tls::client_config(reach.ca_file.as_deref())?)
        } else {
            None
        };
        let fresh = Connections::new(
            origin,
            tls,
            server.times.connection_idle,
            server.sizes.headers,
        );
        let mut all = self.connections.lock();
        // What no session uses and nothing rests in is made anew when it is needed.
        if all.len() >= MAX_ORIGINS {
            all.retain(|_, held| Arc::strong_count(held) > 1 || held.is_resting());
        }
        Ok(Arc::clone(
            all.entry(identity).or_insert_with(|| Arc::new(fresh)),
        ))
    }
}

/// From so many origins on, those that nobody uses are forgotten.
const MAX_ORIGINS: usize = 256;

const USER_AGENT_VALUE: HeaderValue =
    HeaderValue::from_static(concat!("warmline/", env!("CARGO_PKG_VERSION")));

fn origin(server: &Server, reach: &HttpReach) -> Result<Origin, Trouble> {
    let url = &reach.url;
    let tls = match url.scheme() {
        "http" => false,
        "https" => true,
        other => {
            return Err(Trouble::new(
                Reason::InvalidRequest,
                format!("`{}` cannot be reached over `{other}`", server.name),
            )
            .coded(Code::ConfigBadValue)
            .hint("a URL begins with http:// or https://"));
        },
    };
    if !url.username().is_empty() || url.password().is_some() {
        return Err(bad_url(server, &"it holds a user name or a password")
            .hint("send credentials in a header: `--header-env Authorization=VARIABLE`"));
    }
    let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
        return Err(bad_url(server, &"it names no host"));
    };
    Ok(Origin {
        host: host.to_owned(),
        port,
        tls,
    })
}

/// The URL as people may see it: queries sometimes carry tokens.
fn place(url: &url::Url) -> String {
    let mut shown = url.clone();
    shown.set_query(None);
    shown.set_fragment(None);
    shown.to_string()
}

fn reserved(server: &Server, name: &HeaderName) -> Trouble {
    let what = format!("`{name}` cannot be set as a header of `{}`", server.name);
    Trouble::new(Reason::InvalidRequest, what)
        .coded(Code::ConfigBadValue)
        .because("it is written by Warmline itself")
}

fn bad_url(server: &Server, why: &dyn std::fmt::Display) -> Trouble {
    Trouble::new(
        Reason::InvalidRequest,
        format!("the URL of `{}` cannot be used", server.name),
    )
    .coded(Code::ConfigBadValue)
    .because(why.to_string())
}
