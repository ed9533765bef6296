//! Warmline keeps sessions to MCP servers warm, isolated and healed.
//!
//! [`Warmline`] holds the sessions, a [`Run`] is the work of one agent, and a [`ServerHandle::call`]
//! is one tool call.
//!
//! ```no_run
//! # async fn example() -> warmline::Result<()> {
//! use warmline::{Secret, Server, Warmline};
//!
//! let warm = Warmline::builder()
//!     .server(Server::stdio("browser", ["npx", "-y", "@playwright/mcp"]).spares(1))
//!     .server(Server::http("github", "https://example.com/mcp").bearer(Secret::env("GITHUB_TOKEN")))
//!     .build()?;
//! let page = warm
//!     .run(async |run| {
//!         let browser = run.server("browser")?;
//!         browser.call("browser_navigate", serde_json::json!({ "url": "https://example.com" })).await?.ok()?;
//!         browser.call("browser_snapshot", serde_json::json!({})).await?.ok()
//!     })
//!     .await?;
//! println!("{}", page.text());
//! warm.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! A program with stdio servers calls [`warden::run_if_asked`] first in its `main`: then no child
//! outlives it, however it ends.
//!
//! When a call fails or its future is dropped, [`Error::delivery`] says whether it may have been
//! executed.

pub mod call;
#[cfg(feature = "config")]
pub mod config;
pub mod credentials;
pub mod dial;
pub mod error;
pub mod events;
pub mod identity;
pub mod metrics;
pub mod policy;
pub mod store;

/// Ends child processes with this program, however it ends.
///
/// ```no_run
/// warmline::warden::run_if_asked(); // the first line of `main`
/// ```
pub mod warden {
    #[doc(inline)]
    pub use warmline_upstream::child::warden::{run_if_asked, use_binary};
}

/// ```
/// use warmline::{Caller, Server, Warmline, WarmlineBuilder};
///
/// let builder: WarmlineBuilder = Warmline::builder();
/// let warm = builder.server(Server::http("github", "https://example.com/mcp")).build()?;
/// let alice: Caller = warm.identity("alice");
/// let github = alice.server("github")?;
/// # Ok::<_, warmline::Error>(())
/// ```
#[doc(inline)]
pub use warmline_engine::{Caller, Warmline, WarmlineBuilder};

/// ```
/// # async fn example(warm: &warmline::Warmline) -> warmline::Result<()> {
/// use warmline::{InCurrentRun as _, Run, ServerHandle};
///
/// let run: Run = warm.begin_run();
/// let browser: ServerHandle = run.server("browser")?;
/// let page = tokio::spawn(async move { browser.call("snapshot", ()).await?.ok() }.in_run(&run));
/// run.end().await;
/// # Ok(()) }
/// ```
#[doc(inline)]
pub use warmline_engine::{InCurrentRun, Run, ServerHandle};

/// ```
/// # use warmline::{CallBuilder, ServerHandle};
/// # async fn example(server: &ServerHandle) -> warmline::Result<()> {
/// use warmline::{Tool, ToolList, ToolOutput, ToolResult};
///
/// let tools: std::sync::Arc<ToolList> = server.tools().await?;
/// let search: &Tool = &tools.tools()[0];
/// let call: CallBuilder<ToolResult> = server.call(search.name(), serde_json::json!({ "q": "rust" }));
/// let output: ToolOutput = call.await?.ok()?;
/// println!("{}", output.text());
/// # Ok(()) }
/// ```
#[doc(inline)]
pub use warmline_engine::{
    CallBuilder, ToolOutput, ToolResult,
    tools::{Tool, ToolList},
};

/// ```
/// # async fn example(server: &warmline::ServerHandle) -> warmline::Result<()> {
/// use warmline::{CallEvent, CallStream, ServerRequestReply, ToolResult};
///
/// let mut events: CallStream<ToolResult> = server.call("report", ()).events();
/// while let Some(event) = events.next().await {
///     match event {
///         CallEvent::Notification(told) => println!("{told:?}"),
///         CallEvent::ServerRequest(_, responder) => responder.reply(ServerRequestReply::Declined),
///         CallEvent::Done(result) => println!("{}", result?.text()),
///     }
/// }
/// # Ok(()) }
/// ```
#[doc(inline)]
pub use warmline_engine::{CallEvent, CallStream};

/// ```
/// use std::future::{Future, ready};
/// use std::pin::Pin;
/// use warmline::{Listener, Notification, ServerRequest, ServerRequestReply, Subscription};
///
/// struct Roots;
///
/// impl Listener for Roots {
///     fn on_notification(&self, notification: Notification) {
///         println!("{notification:?}");
///     }
///
///     fn on_request(
///         &self,
///         request: ServerRequest,
///     ) -> Pin<Box<dyn Future<Output = ServerRequestReply> + Send + '_>> {
///         Box::pin(ready(match &*request.method {
///             "roots/list" => ServerRequestReply::Result(r#"{"roots":[]}"#.into()),
///             _ => ServerRequestReply::Declined,
///         }))
///     }
/// }
///
/// # fn example(server: &warmline::ServerHandle) -> warmline::Result<()> {
/// let subscription: Subscription = server.subscribe(Roots)?; // dropping it unsubscribes
/// # Ok(()) }
/// ```
#[doc(inline)]
pub use warmline_engine::{Listener, Subscription};

/// ```
/// # async fn example(server: &warmline::ServerHandle) -> warmline::Result<()> {
/// # use warmline::{Notification, ServerRequest, ServerRequestReply};
/// let report = server
///     .call("report", ())
///     .on_notification(|told: Notification| println!("{told:?}"))
///     .on_request(async |asked: ServerRequest| ServerRequestReply::Declined);
/// report.await?.ok()?;
/// # Ok(()) }
/// ```
#[doc(inline)]
pub use warmline_core::exchange::{Notification, ServerRequest, ServerRequestReply};

/// ```
/// # async fn example(server: &warmline::ServerHandle) -> warmline::Result<()> {
/// let session: warmline::ExclusiveSession = server.lease().await?;
/// session.call("begin", ()).await?.ok()?;
/// session.call("commit", ()).await?.ok()?;
/// # Ok(()) }
/// ```
#[doc(inline)]
pub use warmline_engine::ExclusiveSession;

/// ```
/// # async fn example(server: &warmline::ServerHandle) -> warmline::Result<()> {
/// use warmline::{ListKind, ServerFacts};
///
/// let facts: std::sync::Arc<ServerFacts> = server.info().await?;
/// let prompts = server.list(ListKind::Prompts).await?;
/// println!("{} prompts, {}", prompts.len(), facts.instructions.as_deref().unwrap_or_default());
/// # Ok(()) }
/// ```
#[doc(inline)]
pub use warmline_upstream::{ListKind, ServerFacts};

/// ```
/// # async fn example(server: &warmline::ServerHandle) {
/// use warmline::{Code, Delivery, Error};
///
/// let paid: Result<(), Error> = async { server.call("pay", ()).await?.ok().map(drop) }.await;
/// match paid {
///     Err(error) if error.delivery() == Delivery::Unknown => println!("check before paying again"),
///     Err(error) if error.code() == Code::ToolFailed => println!("{error:#}"),
///     Err(error) => println!("{}", error.report()),
///     Ok(()) => {},
/// }
/// # }
/// ```
#[doc(inline)]
pub use {
    warmline_core::{delivery::Delivery, error::code::Code},
    warmline_engine::{Error, Result},
};

/// ```
/// use warmline::{ClientProfile, Secret, Server, Warmline};
///
/// let profile = ClientProfile { client_name: "my-agent".into(), ..ClientProfile::default() };
/// let github = Server::http("github", "https://example.com/mcp").bearer(Secret::env("GITHUB_TOKEN"));
/// let warm = Warmline::builder().client_profile(profile).server(github).build()?;
/// # Ok::<_, warmline::Error>(())
/// ```
#[doc(inline)]
pub use {
    warmline_engine::{Server, credentials::Secret},
    warmline_upstream::ClientProfile,
};

/// The modules [`credentials`], [`identity`], [`store`] and [`dial`] show how to implement these traits.
///
/// ```
/// use warmline::{CredentialProvider, Dial, IdentityExtractor, Server, ServerResolver, SessionStore};
///
/// fn server(provider: impl CredentialProvider + 'static, dial: impl Dial + 'static) -> Server {
///     Server::http("github", "https://example.com/mcp").provider(provider).dial(dial)
/// }
///
/// fn warm(
///     extractor: impl IdentityExtractor + 'static,
///     resolver: impl ServerResolver + 'static,
///     store: impl SessionStore + Clone + 'static,
/// ) -> warmline::Result<warmline::Warmline> {
///     let found = Server::resolved("search", resolver);
///     warmline::Warmline::builder().identity_extractor(extractor).store(store).server(found).build()
/// }
/// ```
#[doc(inline)]
pub use {
    warmline_engine::{
        credentials::CredentialProvider, identity::IdentityExtractor,
        server_resolver::ServerResolver,
    },
    warmline_platform::net::Dial,
    warmline_store::SessionStore,
};
