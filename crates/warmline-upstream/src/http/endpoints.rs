//! The endpoints that are in use, and their connections.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::header::{HOST, USER_AGENT};
use http::{HeaderName, HeaderValue, Uri};
use warmline_core::error::code::{Code, Reason};
use warmline_core::exchange::Diagnostic;
use warmline_core::protocol::headers::is_reserved_header;
use warmline_core::protocol::session_gone::SessionGoneMatching;

use crate::http::connections::Connections;
use crate::http::endpoint::Endpoint;
use crate::http::tls;
use crate::redaction::Redactor;
use crate::target::{
    HttpConfig, ServerTarget, SizeLimits, Timeouts, TransportConfig, has_userinfo,
};
use warmline_platform::lock::Mutex;
use warmline_platform::net::Origin;

/// The endpoints that are in use, and their connections.
#[derive(Debug, Default)]
pub struct Endpoints {
    endpoints: Mutex<HashMap<EndpointKey, Weak<Endpoint>>>,
    connections: Mutex<HashMap<ConnectionsKey, Arc<Connections>>>,
}

/// Servers with equal keys share an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct EndpointKey {
    server: String,
    config: HttpConfig,
    timeouts: Timeouts,
    size_limits: SizeLimits,
    session_gone_matching: SessionGoneMatching,
    dial: Option<String>,
}

/// Servers with equal keys share connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ConnectionsKey {
    origin: Origin,
    ca_file: Option<PathBuf>,
    dial: Option<String>,
    idle_timeout: Duration,
    max_head: usize,
}

impl Endpoints {
    pub(crate) fn get_or_create(
        &self,
        server: &ServerTarget,
        reach: &HttpConfig,
    ) -> Result<Arc<Endpoint>, Diagnostic> {
        let key = EndpointKey {
            server: server.name.clone(),
            config: reach.clone(),
            timeouts: server.timeouts,
            size_limits: server.size_limits,
            session_gone_matching: server.session_gone_matching,
            dial: dial_label(server),
        };
        if let Some(used) = self.endpoints.lock().get(&key).and_then(Weak::upgrade) {
            return Ok(used);
        }
        let fresh = Arc::new(self.create(server, reach)?);
        let mut used = self.endpoints.lock();
        if used.len() >= MAX_ORIGINS {
            used.retain(|_, endpoint| endpoint.strong_count() > 0);
        }
        // Two callers may have created it: the last one stays, and both work.
        used.insert(key, Arc::downgrade(&fresh));
        Ok(fresh)
    }

    /// Closes all idle connections, and keeps no others.
    pub fn close(&self) {
        for connections in self.connections.lock().values() {
            connections.close();
        }
    }

    fn create(&self, server: &ServerTarget, reach: &HttpConfig) -> Result<Endpoint, Diagnostic> {
        let (origin, host, uri) = parse_address(&server.name, &reach.url)?;
        let mut headers = vec![(HOST, host), (USER_AGENT, USER_AGENT_VALUE)];
        for (name, value) in &reach.headers {
            if is_reserved_header(name) {
                return Err(reserved_header(server, name));
            }
            headers.push((name.clone(), value.clone()));
        }
        Ok(Endpoint {
            server: Arc::from(server.name.as_str()),
            connections: self.connections_to(origin, server, reach)?,
            uri,
            display_url: Arc::from(display_url(reach).as_str()),
            headers,
            timeouts: server.timeouts,
            size_limits: server.size_limits,
            session_gone_matching: server.session_gone_matching,
            redactor: Arc::new(Redactor::for_url(reach)),
        })
    }

    fn connections_to(
        &self,
        origin: Origin,
        server: &ServerTarget,
        reach: &HttpConfig,
    ) -> Result<Arc<Connections>, Diagnostic> {
        let key = ConnectionsKey {
            origin: origin.clone(),
            ca_file: reach.ca_file.clone(),
            dial: dial_label(server),
            idle_timeout: server.timeouts.connection_idle,
            max_head: server.size_limits.headers,
        };
        if let Some(known) = self.connections.lock().get(&key) {
            return Ok(Arc::clone(known));
        }
        let tls = || tls::client_config(reach.ca_file.as_deref());
        let tls = origin.tls.then(tls).transpose()?;
        let limits = (key.idle_timeout, key.max_head);
        let fresh = Connections::new(origin, tls, server.dial.clone(), limits);
        let mut all = self.connections.lock();
        // Unused ones are created again when they are needed.
        if all.len() >= MAX_ORIGINS {
            all.retain(|_, held| Arc::strong_count(held) > 1 || held.has_idle());
        }
        Ok(Arc::clone(
            all.entry(key).or_insert_with(|| Arc::new(fresh)),
        ))
    }
}

/// From this number on, unused ones are removed.
const MAX_ORIGINS: usize = 256;

const USER_AGENT_VALUE: HeaderValue =
    HeaderValue::from_static(concat!("warmline/", env!("CARGO_PKG_VERSION")));

fn dial_label(server: &ServerTarget) -> Option<String> {
    server.dial.as_ref().map(|dial| dial.label().to_owned())
}

/// The origin, the `Host` header, and path with query.
fn parse_address(server: &str, url: &url::Url) -> Result<(Origin, HeaderValue, Uri), Diagnostic> {
    let origin = parse_origin(server, url)?;
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

fn parse_origin(server: &str, url: &url::Url) -> Result<Origin, Diagnostic> {
    let tls = match url.scheme() {
        "http" => false,
        "https" => true,
        other => {
            let what = format!("`{server}` cannot be reached over `{other}`");
            return Err(bad_value(what).with_hint("a URL begins with http:// or https://"));
        },
    };
    if has_userinfo(url) {
        return Err(bad_url(server, &"it holds a user name or a password")
            .with_hint("leave them out of the URL, and send a credential in a header"));
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

impl TransportConfig {
    /// Checks it, as far as that is possible without using it.
    ///
    /// # Errors
    /// `config-bad-value`, with what is wrong.
    pub fn check(&self, server: &str) -> Result<(), Diagnostic> {
        match self {
            Self::Http(reach) => {
                parse_address(server, &reach.url)?;
                if let Some(file) = &reach.ca_file {
                    tls::client_config(Some(file))?;
                }
                Ok(())
            },
            Self::Stdio(stdio) => stdio.check(server),
        }
    }
}

/// The URL without its query and without secrets.
pub fn display_url(reach: &HttpConfig) -> String {
    let mut shown = reach.url.clone();
    shown.set_query(None);
    shown.set_fragment(None);
    Redactor::for_url(reach).redact(shown.to_string())
}

fn reserved_header(server: &ServerTarget, name: &HeaderName) -> Diagnostic {
    let what = format!("`{name}` cannot be set as a header of `{}`", server.name);
    bad_value(what).with_cause("it is written by Warmline itself")
}

fn bad_url(server: &str, why: &dyn std::fmt::Display) -> Diagnostic {
    bad_value(format!("the URL of `{server}` cannot be used")).with_cause(why.to_string())
}

fn bad_value(what: String) -> Diagnostic {
    Diagnostic::new(Reason::InvalidRequest, what).with_code(Code::ConfigBadValue)
}
