//! Fetches one small document over HTTP, for keys: no redirects, no proxies, bounded.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HOST};
use http::uri::Scheme;
use http::{Request, StatusCode, Uri};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use warmline_platform::clock;

use crate::hosts;
use crate::response::body::{ReadBodyError, ResponseBody, read_body};

const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// The document at a URL, of at most `limit` bytes; or why it could not be fetched.
pub(super) async fn fetch(url: &str, limit: usize) -> Result<Bytes, String> {
    let fetching = Box::pin(fetch_without_timeout(url, limit));
    let fetched = clock::timeout(FETCH_TIMEOUT, fetching).await;
    fetched.unwrap_or_else(|_| Err("timed out".to_owned()))
}

async fn fetch_without_timeout(url: &str, limit: usize) -> Result<Bytes, String> {
    let uri: Uri = url.parse().map_err(error_text)?;
    let host = uri.host().ok_or("the URL has no host")?;
    let host = host.trim_matches(['[', ']']);
    let is_secure = uri.scheme() == Some(&Scheme::HTTPS);
    if !is_secure && !hosts::is_loopback_name(host) {
        return Err("plain http is allowed on this machine only".to_owned());
    }
    let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
    let socket = TcpStream::connect((host, port)).await.map_err(error_text)?;
    if !is_secure {
        return send_get(socket, &uri, limit).await;
    }
    let name = ServerName::try_from(host.to_owned()).map_err(error_text)?;
    let connector = TlsConnector::from(warmline_upstream::client_config(None).map_err(error_text)?);
    let socket = connector.connect(name, socket).await.map_err(error_text)?;
    send_get(socket, &uri, limit).await
}

async fn send_get(
    socket: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    uri: &Uri,
    limit: usize,
) -> Result<Bytes, String> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(socket))
        .await
        .map_err(error_text)?;
    let driving = clock::spawn("jwks-connection", connection);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let host = uri.authority().map_or("", |authority| authority.as_str());
    let request = Request::get(path)
        .header(HOST, host)
        .header(ACCEPT, "application/json")
        .body(ResponseBody::Empty)
        .map_err(error_text)?;
    let response = sender.send_request(request).await.map_err(error_text)?;
    let fetched = match response.status() {
        StatusCode::OK => {
            let read = read_body(&mut response.into_body(), limit, FETCH_TIMEOUT).await;
            read.map_err(|error| match error {
                ReadBodyError::TooLarge => format!("it is larger than {limit} bytes"),
                ReadBodyError::TooSlow | ReadBodyError::Broken => "it is incomplete".to_owned(),
            })
        },
        status => Err(format!("the response has status {status}")),
    };
    driving.abort();
    fetched
}

#[expect(clippy::needless_pass_by_value, reason = "it is given to `map_err`")]
fn error_text(error: impl ToString) -> String {
    error.to_string()
}
