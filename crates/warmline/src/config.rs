//! Configuration files: `warmline.toml` and `mcpServers`.

/// ```no_run
/// use std::path::Path;
/// use warmline::config::{Config, ConfigError, ConfigFolders, TrustStore};
/// use warmline::Server;
///
/// # fn example(trusted: &TrustStore) -> Result<(), Box<dyn std::error::Error>> {
/// let file = Path::new("warmline.toml"); // a file that you name is trusted
/// let config = Config::read(Some(file), &ConfigFolders::from_process()?)?;
/// let variables = |name: &str| std::env::var(name).ok();
/// let servers: Result<Vec<Server>, ConfigError> = config.servers(trusted, &variables, &None);
/// let warm = warmline::Warmline::builder().servers(servers?).build()?;
/// # Ok(()) }
/// ```
#[doc(inline)]
pub use warmline_config::{Config, ConfigError, ConfigFolders, trust::TrustStore};
