//! The details of an [`Error`](crate::Error).

/// ```
/// use warmline::Warmline;
/// use warmline::error::{Diagnostic, Reason, RpcError};
///
/// let error = Warmline::builder().build()?.server("githup").unwrap_err();
/// let diagnostic: &Diagnostic = error.diagnostic();
/// assert_eq!(diagnostic.reason, Reason::ServerUnknown);
/// let from_server: Option<&RpcError> = error.server_error();
/// assert!(from_server.is_none());
/// # Ok::<_, warmline::Error>(())
/// ```
#[doc(inline)]
pub use warmline_core::{error::code::Reason, exchange::Diagnostic, message::envelope::RpcError};
