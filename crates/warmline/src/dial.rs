//! Connections made by your own code: through a proxy, a tunnel or another TLS stack.

/// ```
/// use warmline::dial::{ByteStream, Destination, Dialed};
/// use warmline::store::BoxFuture;
/// use warmline::{Dial, Server};
///
/// #[derive(Debug)]
/// struct Tunnel;
///
/// impl Dial for Tunnel {
///     fn label(&self) -> &str {
///         "tunnel"
///     }
///
///     fn dial<'a>(&'a self, to: Destination<'a>) -> BoxFuture<'a, std::io::Result<Dialed>> {
///         Box::pin(async move {
///             let stream: Box<dyn ByteStream> =
///                 Box::new(tokio::net::TcpStream::connect((to.host, to.port)).await?);
///             Ok(Dialed::Plain(stream))
///         })
///     }
/// }
///
/// let github = Server::http("github", "https://example.com/mcp").dial(Tunnel);
/// ```
#[doc(inline)]
pub use warmline_platform::net::{ByteStream, Destination, Dialed};
