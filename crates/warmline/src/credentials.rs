//! Credentials of servers: where they come from and how they are sent.

/// ```
/// use warmline::credentials::{BoxFuture, Token, TokenRequest, credential_unavailable};
/// use warmline::error::Diagnostic;
/// use warmline::{CredentialProvider, Server};
///
/// #[derive(Debug)]
/// struct Vault;
///
/// impl CredentialProvider for Vault {
///     fn fetch<'a>(&'a self, request: TokenRequest<'a>) -> BoxFuture<'a, Result<Token, Diagnostic>> {
///         Box::pin(async move {
///             match std::env::var(format!("TOKEN_{}", request.server)) {
///                 Ok(token) => Ok(Token::new(token)),
///                 Err(_) => Err(credential_unavailable("the vault has no token")),
///             }
///         })
///     }
///
///     fn label(&self) -> String {
///         "vault".to_owned()
///     }
/// }
///
/// let github = Server::http("github", "https://example.com/mcp").provider(Vault);
/// ```
#[doc(inline)]
pub use {
    warmline_engine::credentials::{Token, TokenRequest, credential_unavailable},
    warmline_store::BoxFuture,
};

/// ```
/// use warmline::credentials::{CredentialHeader, CredentialSource};
/// use warmline::{Secret, Server};
///
/// let header = CredentialHeader::new("x-api-key", "{}")?;
/// let key = CredentialSource::in_header(Secret::env("SEARCH_KEY"), header);
/// let search = Server::http("search", "https://example.com/mcp").credential(key);
/// # Ok::<_, warmline::error::Diagnostic>(())
/// ```
#[doc(inline)]
pub use warmline_engine::credentials::{CredentialHeader, CredentialSource};
