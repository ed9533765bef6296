//! Fetching one small document over HTTP, for keys: no redirects, no proxies, bounded.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HOST};
use http::uri::Scheme;
use http::{Request, StatusCode, Uri};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use warmline::clock;

use crate::body::Body;
use crate::hosts;

/// It may take so long.
const WITHIN: Duration = Duration::from_secs(10);

/// The bytes at a URL, at most `limit` of them; or why there are none.
pub(super) async fn fetch(url: &str, limit: usize) -> Result<Vec<u8>, String> {
    let fetching = Box::pin(fetch_now(url, limit));
    let fetched = clock::timeout(WITHIN, fetching).await;
    fetched.unwrap_or_else(|_| Err("it did not come in time".to_owned()))
}

async fn fetch_now(url: &str, limit: usize) -> Result<Vec<u8>, String> {
    let uri: Uri = url.parse().map_err(told)?;
    let host = uri.host().ok_or("it has no host")?;
    let host = host.trim_matches(['[', ']']);
    let is_secure = uri.scheme() == Some(&Scheme::HTTPS);
    if !is_secure && !hosts::is_local(host) {
        return Err("only https is used outside this machine".to_owned());
    }
    let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
    let socket = TcpStream::connect((host, port)).await.map_err(told)?;
    if !is_secure {
        return ask(socket, &uri, limit).await;
    }
    let name = ServerName::try_from(host.to_owned()).map_err(told)?;
    let connector = TlsConnector::from(Arc::new(trusting_the_system()?));
    let socket = connector.connect(name, socket).await.map_err(told)?;
    ask(socket, &uri, limit).await
}

fn trusting_the_system() -> Result<ClientConfig, String> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(told)?
        .with_platform_verifier()
        .map_err(told)?;
    Ok(config.with_no_client_auth())
}

async fn ask(
    socket: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    uri: &Uri,
    limit: usize,
) -> Result<Vec<u8>, String> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await.map_err(told)?;
    let driving = clock::spawn("keys-connection", connection);
    let place = uri.path_and_query().map_or("/", |place| place.as_str());
    let host = uri.authority().map_or("", |authority| authority.as_str());
    let request = Request::get(place)
        .header(HOST, host)
        .header(ACCEPT, "application/json")
        .body(Body::Empty)
        .map_err(told)?;
    let response = sender.send_request(request).await.map_err(told)?;
    let answered = match response.status() {
        StatusCode::OK => whole(response.into_body(), limit).await,
        status => Err(format!("it was answered with {status}")),
    };
    driving.abort();
    answered
}

async fn whole(mut body: Incoming, limit: usize) -> Result<Vec<u8>, String> {
    let mut read = Vec::new();
    loop {
        let next = std::future::poll_fn(|cx| std::pin::Pin::new(&mut body).poll_frame(cx)).await;
        let Some(frame) = next else {
            return Ok(read);
        };
        let data: Bytes = frame.map_err(told)?.into_data().unwrap_or_default();
        if read.len() + data.len() > limit {
            return Err(format!("it has more than {limit} bytes"));
        }
        read.extend_from_slice(&data);
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is given to `map_err`")]
fn told(error: impl ToString) -> String {
    error.to_string()
}
