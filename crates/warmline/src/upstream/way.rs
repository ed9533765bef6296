//! The way to a server over HTTP: where it is, what every request to it carries, and its limits.
//!
//! Asked by: [`detect`](super::detect) and whoever takes up a session, once for each.  All
//! sessions of a server share one way, so that a session costs little more than its id.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::header::{HOST, USER_AGENT};
use http::{HeaderName, HeaderValue, Uri};
use warmline_core::code::{Code, Reason};
use warmline_core::exchange::Trouble;
use warmline_core::protocol::gone::Breadth;
use warmline_core::protocol::headers::is_ours;

use super::connections::Connections;
use super::hidden::Hidden;
use super::http::Endpoint;
use super::server::{HttpReach, Server, Sizes, Times, holds_a_login};
use super::tls;
use crate::net::Origin;
use crate::sync::Mutex;

/// The way to a server over HTTP.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub(crate) endpoint: Endpoint,
    /// Host, user agent, and the server's own headers.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) times: Times,
    pub(crate) sizes: Sizes,
    /// Which forms of "this session is gone" are believed.
    pub(crate) dialects: Breadth,
    /// What of it must not be told.
    pub(crate) hidden: Arc<Hidden>,
}

impl Way {
    /// The server's name, for messages.
    pub(crate) fn server(&self) -> &Arc<str> {
        &self.endpoint.server
    }
}

/// The ways that are in use, and the connections on them.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    used: Mutex<HashMap<WayKey, Weak<Way>>>,
    connections: Mutex<HashMap<LineKey, Arc<Connections>>>,
}

/// What a way is made of. Whoever has the same shares it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct WayKey {
    server: String,
    reach: HttpReach,
    times: Times,
    sizes: Sizes,
    dialects: Breadth,
    dial: Option<String>,
}

/// What kept connections belong to: where they lead, whom we trust there, who makes them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct LineKey {
    origin: Origin,
    ca_file: Option<PathBuf>,
    dial: Option<String>,
    /// Limits are those of the server they were made for.
    idle: Duration,
    headers: usize,
}

impl Ways {
    /// The way to a server, made where nobody uses it yet.
    pub(crate) fn to(&self, server: &Server, reach: &HttpReach) -> Result<Arc<Way>, Trouble> {
        let key = WayKey {
            server: server.name.clone(),
            reach: reach.clone(),
            times: server.times,
            sizes: server.sizes,
            dialects: server.dialects,
            dial: dial_label(server),
        };
        if let Some(used) = self.used.lock().get(&key).and_then(Weak::upgrade) {
            return Ok(used);
        }
        let fresh = Arc::new(self.make(server, reach)?);
        let mut used = self.used.lock();
        if used.len() >= MAX_ORIGINS {
            used.retain(|_, way| way.strong_count() > 0);
        }
        // Two may have made it at once: the last one stays, and both work.
        used.insert(key, Arc::downgrade(&fresh));
        Ok(fresh)
    }

    /// Closes the connections that rest, and lets none rest any more.
    pub(crate) fn close(&self) {
        for connections in self.connections.lock().values() {
            connections.close();
        }
    }

    fn make(&self, server: &Server, reach: &HttpReach) -> Result<Way, Trouble> {
        let (origin, host, uri) = address(&server.name, &reach.url)?;
        let mut headers = vec![(HOST, host), (USER_AGENT, USER_AGENT_VALUE)];
        for (name, value) in &reach.headers {
            if is_ours(name) {
                return Err(reserved(server, name));
            }
            headers.push((name.clone(), value.clone()));
        }
        Ok(Way {
            endpoint: Endpoint {
                server: Arc::from(server.name.as_str()),
                connections: self.connections_to(origin, server, reach)?,
                uri,
                place: Arc::from(place(reach).as_str()),
                connect_within: server.times.connect,
            },
            headers,
            times: server.times,
            sizes: server.sizes,
            dialects: server.dialects,
            hidden: Arc::new(Hidden::of_url(reach)),
        })
    }

    fn connections_to(
        &self,
        origin: Origin,
        server: &Server,
        reach: &HttpReach,
    ) -> Result<Arc<Connections>, Trouble> {
        let key = LineKey {
            origin: origin.clone(),
            ca_file: reach.ca_file.clone(),
            dial: dial_label(server),
            idle: server.times.connection_idle,
            headers: server.sizes.headers,
        };
        if let Some(known) = self.connections.lock().get(&key) {
            return Ok(Arc::clone(known));
        }
        let tls = if origin.tls {
            Some(tls::client_config(reach.ca_file.as_deref())?)
        } else {
            None
        };
        let (idle, head) = (server.times.connection_idle, server.sizes.headers);
        let fresh = Connections::new(origin, tls, idle, head).made_by(server.dial.clone());
        let mut all = self.connections.lock();
        // What no session uses and nothing rests in is made anew when it is needed.
        if all.len() >= MAX_ORIGINS {
            all.retain(|_, held| Arc::strong_count(held) > 1 || held.is_resting());
        }
        Ok(Arc::clone(
            all.entry(key).or_insert_with(|| Arc::new(fresh)),
        ))
    }
}

/// From so many on, those that nobody uses are forgotten.
const MAX_ORIGINS: usize = 256;

const USER_AGENT_VALUE: HeaderValue =
    HeaderValue::from_static(concat!("warmline/", env!("CARGO_PKG_VERSION")));

fn dial_label(server: &Server) -> Option<String> {
    server.dial.as_ref().map(|dial| dial.label().to_owned())
}

/// Where a server is, its `Host`, and what is asked for there.
fn address(server: &str, url: &url::Url) -> Result<(Origin, HeaderValue, Uri), Trouble> {
    let origin = origin(server, url)?;
    let host = match url.port() {
        Some(port) => format!("{}:{port}", origin.host),
        None => origin.host.clone(),
    };
    let host = HeaderValue::from_str(&host).map_err(|error| bad_url(server, &error))?;
    let uri = url[url::Position::BeforePath..url::Position::AfterQuery]
        .parse::<Uri>()
        .map_err(|error| bad_url(server, &error))?;
    Ok((origin, host, uri))
}

fn origin(server: &str, url: &url::Url) -> Result<Origin, Trouble> {
    let tls = match url.scheme() {
        "http" => false,
        "https" => true,
        other => {
            return Err(Trouble::new(
                Reason::InvalidRequest,
                format!("`{server}` cannot be reached over `{other}`"),
            )
            .coded(Code::ConfigBadValue)
            .hint("a URL begins with http:// or https://"));
        },
    };
    if holds_a_login(url) {
        return Err(bad_url(server, &"it holds a user name or a password")
            .hint("leave them out of the URL, and send a credential in a header"));
    }
    let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
        return Err(bad_url(server, &"it names no host"));
    };
    if port == 0 {
        return Err(bad_url(server, &"nobody can be reached at port 0"));
    }
    Ok(Origin {
        host: host.to_owned(),
        port,
        tls,
    })
}

/// Whether a URL can be used, with the certificates that are to be trusted there, as far as that
/// is known without going there.
///
/// # Errors
/// `config-bad-value`, with what is wrong.
pub(crate) fn check(server: &str, reach: &HttpReach) -> Result<(), Trouble> {
    address(server, &reach.url)?;
    if let Some(file) = &reach.ca_file {
        tls::client_config(Some(file))?;
    }
    Ok(())
}

/// The URL as people may see it: queries sometimes carry tokens, and so do variables.
pub(crate) fn place(reach: &HttpReach) -> String {
    let mut shown = reach.url.clone();
    shown.set_query(None);
    shown.set_fragment(None);
    Hidden::of_url(reach).strike(shown.to_string())
}

fn reserved(server: &Server, name: &HeaderName) -> Trouble {
    let what = format!("`{name}` cannot be set as a header of `{}`", server.name);
    Trouble::new(Reason::InvalidRequest, what)
        .coded(Code::ConfigBadValue)
        .because("it is written by Warmline itself")
}

fn bad_url(server: &str, why: &dyn std::fmt::Display) -> Trouble {
    Trouble::new(
        Reason::InvalidRequest,
        format!("the URL of `{server}` cannot be used"),
    )
    .coded(Code::ConfigBadValue)
    .because(why.to_string())
}
