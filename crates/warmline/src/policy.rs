//! Policies of servers and limits of the engine.

/// ```
/// use warmline::Server;
/// use warmline::policy::{
///     CallConcurrency, Era, SessionMode, SessionScope, StateLossPolicy, ToolPolicy, Version,
/// };
///
/// let search = Server::http("search", "https://example.com/mcp")
///     .era(Era::Legacy)
///     .version(Version::V2025_06_18)
///     .sessions(SessionMode::Auto)
///     .session_per(SessionScope::Identity)
///     .calls(CallConcurrency::SideBySide)
///     .on_state_loss(StateLossPolicy::Fail)
///     .tool("search", ToolPolicy { repeatable: Some(true), ..ToolPolicy::default() });
/// ```
#[doc(inline)]
pub use warmline_core::{
    era::{Era, Version},
    policy::{CallConcurrency, SessionMode, SessionScope, StateLossPolicy, ToolPolicy},
};

/// ```
/// use std::time::Duration;
/// use warmline::policy::{BreakerPolicy, EngineLimits, Policy};
/// use warmline::{Server, Warmline};
///
/// fn patient(policy: &mut Policy) {
///     policy.wait = Duration::from_secs(30);
///     policy.breaker = BreakerPolicy { threshold: 10, ..policy.breaker };
/// }
///
/// fn small(limits: &mut EngineLimits) {
///     limits.sessions = 100;
/// }
///
/// let github = Server::http("github", "https://example.com/mcp").with_policy(patient);
/// let warm = Warmline::builder().limits(small).server(github).build()?;
/// # Ok::<_, warmline::Error>(())
/// ```
#[doc(inline)]
pub use warmline_core::policy::{BreakerPolicy, EngineLimits, Policy};

/// ```
/// use std::time::Duration;
/// use warmline::Server;
/// use warmline::policy::{SizeLimits, Timeouts};
///
/// let browser = Server::stdio("browser", ["npx", "-y", "@playwright/mcp"])
///     .times(Timeouts { start: Duration::from_secs(120), ..Timeouts::default() })
///     .sizes(SizeLimits { line: 64 << 20, ..SizeLimits::default() });
/// ```
#[doc(inline)]
pub use warmline_upstream::{SizeLimits, Timeouts};
