//! Callers of a program that serves several.

/// ```
/// use warmline::error::Diagnostic;
/// use warmline::identity::IdentityName;
/// use warmline::{IdentityExtractor, Warmline};
///
/// #[derive(Debug)]
/// struct Tenant;
///
/// impl IdentityExtractor for Tenant {
///     fn identity(&self, headers: &http::HeaderMap) -> Result<Option<IdentityName>, Diagnostic> {
///         let tenant = headers.get("x-tenant").and_then(|value| value.to_str().ok());
///         Ok(tenant.map(IdentityName::named))
///     }
/// }
///
/// let warm = Warmline::builder().identity_extractor(Tenant).build()?;
/// # Ok::<_, warmline::Error>(())
/// ```
#[doc(inline)]
pub use warmline_engine::identity::IdentityName;

/// ```
/// use warmline::Warmline;
/// use warmline::identity::{HeaderRequirement, HeaderRule};
///
/// let rule = HeaderRule::from_names(["x-tenant", "x-user"])?.require(HeaderRequirement::All);
/// let warm = Warmline::builder().identity_extractor(rule).build();
/// # Ok::<_, warmline::error::Diagnostic>(())
/// ```
#[doc(inline)]
pub use warmline_engine::identity::{HeaderRequirement, HeaderRule};
