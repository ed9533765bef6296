//! From a declaration to a [`Server`] of the engine: nothing is read that is not needed to know it.

use std::sync::Arc;

use super::declaration::{Declaration, DeclaredReach};
use super::reaching::Configured;
use crate::credentials::{CredentialSource, Secret};
use crate::resolve::ServerResolver;
use crate::server::{Server, Whereabouts};
use crate::settings::Lookup;
use crate::settings::place::ConfigError;
use crate::upstream::server::Reach;

/// Who looks servers up that are declared without a URL; none if nobody does.
pub type Resolver = Option<Arc<dyn ServerResolver>>;

/// The server as a single command put it together: what stands in its headers is sent as it is.
impl From<Configured> for Server {
    fn from(configured: Configured) -> Self {
        let Configured { server, settings } = configured;
        let mut declared = Self::of_whereabouts(server.name, Whereabouts::Said(server.reach));
        declared.settings = settings;
        declared
    }
}

impl Declaration {
    /// The server for the engine: variables of its address are filled in, its credential is a
    /// source that is asked when it is needed. Only a trusted file's declarations get here.
    pub(crate) fn declared(
        &self,
        lookup: Lookup<'_>,
        resolver: &Resolver,
    ) -> Result<Server, ConfigError> {
        self.usable()?;
        let mut server = match (self.is_looked_up(lookup)?, resolver) {
            (true, Some(resolver)) => self.looked_up(lookup, resolver)?,
            (true, None) | (false, _) => {
                let reach = self.reached(lookup)?;
                let credential = self.credential_of(&reach, lookup)?;
                let mut server = Server::of_whereabouts(&self.name, Whereabouts::Said(reach));
                server.credential = credential;
                server
            },
        };
        server.settings = self.settings.clone();
        let described = self.described.clone();
        Ok(server.card(|card| {
            (card.id, card.slug) = (described.id, described.slug);
            (card.folder, card.labels) = (described.folder, described.labels);
        }))
    }

    /// Whether nobody but a resolver can say where it is.
    fn is_looked_up(&self, lookup: Lookup<'_>) -> Result<bool, ConfigError> {
        let by_nobody = matches!(&self.reach, DeclaredReach::Url { url: None, .. });
        let by_variable = self.said_by(self.url_env.as_deref(), lookup)?.is_some();
        Ok(by_nobody && !by_variable && self.described.slug.is_some())
    }

    fn looked_up(
        &self,
        lookup: Lookup<'_>,
        resolver: &Arc<dyn ServerResolver>,
    ) -> Result<Server, ConfigError> {
        let (headers, ca_file) = match &self.reach {
            DeclaredReach::Url {
                headers, ca_file, ..
            } => (self.headers(headers, lookup)?, ca_file.clone()),
            DeclaredReach::Command { .. } => (Vec::new(), None),
        };
        let whereabouts = Whereabouts::LookedUp {
            resolver: Arc::clone(resolver),
            headers,
            ca_file: ca_file.map(|file| self.base.join(file)),
        };
        let mut server = Server::of_whereabouts(&self.name, whereabouts);
        // Where it is, and so whether a token would travel in the clear, is known to the resolver.
        server.credential = self.declared_credential()?;
        Ok(server)
    }

    /// The source that speaks for us: the variable the server names, if it is set, or else its
    /// credential.
    fn credential_of(
        &self,
        reach: &Reach,
        lookup: Lookup<'_>,
    ) -> Result<Option<CredentialSource>, ConfigError> {
        let Reach::Http(http) = reach else {
            return Ok(None);
        };
        match &self.auth_env {
            Some(variable) if self.said_by(Some(variable), lookup)?.is_some() => {
                self.sent_safely(&http.url)?;
                Ok(Some(CredentialSource::bearer(Secret::env(variable))))
            },
            Some(_) | None => self.declared_credential(),
        }
    }

    /// Where the token comes from that speaks for us, in words; none where there is none, or where
    /// it stands among the headers.
    pub(super) fn token_source(&self, lookup: Lookup<'_>) -> Option<String> {
        let variable = self.auth_env.as_deref();
        let said = |variable: &&str| matches!(self.said_by(Some(variable), lookup), Ok(Some(_)));
        if let Some(variable) = variable.filter(said) {
            return Some(Secret::env(variable).to_string());
        }
        let declared = self.declared_credential().ok()??;
        Some(declared.secret.to_string())
    }

    fn declared_credential(&self) -> Result<Option<CredentialSource>, ConfigError> {
        let source =
            |credential: &super::credential::DeclaredCredential| credential.source(&self.base);
        self.credential.as_ref().map(source).transpose()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use warmline_core::exchange::Trouble;
    use warmline_core::policy::Sessions;

    use super::*;
    use crate::config::read_text;
    use crate::resolve::Resolved;
    use crate::settings::Origin;
    use crate::store::{ServerCard, Stepping};

    fn declared(text: &str, variables: &[(&str, &str)]) -> Result<Server, ConfigError> {
        let lookup = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let read = read_text(Path::new("conf/warmline.toml"), text).unwrap();
        read.declarations[0].declared(&lookup, &None)
    }

    fn credential(server: &Server) -> String {
        format!(
            "{:?}",
            server.credential.as_ref().map(|source| &source.secret)
        )
    }

    #[test]
    fn a_declaration_becomes_a_server_with_its_settings_and_its_card() {
        let text = "[servers.a]\nurl = 'https://example.com/mcp'\nsessions = 'always'\nspares = 2\n\
                    slug = 's'\nfolder = 'f'\nid = '7'\nlabels = { team = 'lamp' }\n";
        let server = declared(text, &[]).unwrap();
        assert_eq!(server.name(), "a");
        assert_eq!(server.policy().sessions, Sessions::Always);
        assert_eq!(server.policy().spares, 2);
        assert_eq!(
            server.settings.origin("spares").to_string(),
            "conf/warmline.toml:4"
        );
        let card = &server.card;
        assert_eq!(
            (card.slug.as_deref(), card.folder.as_deref()),
            (Some("s"), Some("f"))
        );
        assert_eq!(
            (card.id.as_deref(), card.label("team")),
            (Some("7"), Some("lamp"))
        );
        let changed = server.spares(2);
        assert_eq!(changed.settings.origin("spares"), Origin::Builder);
    }

    /// A177, A178: what a server shows is a source; a variable it names counts if it is set.
    #[test]
    fn the_credential_of_a_declaration_is_a_source_and_no_value() {
        let base = "[servers.a]\nurl = 'https://example.com'\n";
        assert_eq!(credential(&declared(base, &[]).unwrap()), "None");
        let by_env = format!("{base}credential = {{ env = 'X' }}\nauth_env = 'T'\n");
        assert_eq!(
            credential(&declared(&by_env, &[]).unwrap()),
            "Some(Secret(variable `X`))"
        );
        let set = [("T", "canary")];
        assert_eq!(
            credential(&declared(&by_env, &set).unwrap()),
            "Some(Secret(variable `T`))"
        );
        let clear = "[servers.a]\nurl = 'http://example.com'\nauth_env = 'T'\n";
        let error = declared(clear, &set).unwrap_err();
        assert_eq!(error.what, "the token of `a` would travel in the clear");
        let file = format!("{base}credential = {{ file = 'secrets/x' }}\n");
        let shown = credential(&declared(&file, &[]).unwrap());
        assert!(shown.contains("conf/secrets/x"), "{shown}");
    }

    /// S32: a server that is switched off is known, and off; it does not spoil the others.
    #[test]
    fn a_server_that_is_switched_off_is_declared_as_such() {
        let file = r#"{"mcpServers": {"a": {"url": "http://127.0.0.1:9/", "disabled": true}}}"#;
        let read = read_text(Path::new("mcp.json"), file).unwrap();
        let server = read.declarations[0]
            .declared(&|_: &str| None, &None)
            .unwrap();
        assert!(!server.policy().enabled);
        assert_eq!(server.settings.origin("enabled").to_string(), "mcp.json:1");
        let server = declared("[servers.a]\nurl = 'http://x'\nenabled = false\n", &[]).unwrap();
        assert!(!server.policy().enabled);
    }

    #[derive(Debug)]
    struct Directory;

    impl ServerResolver for Directory {
        fn resolve<'a>(&'a self, _: &'a ServerCard) -> Stepping<'a, Result<Resolved, Trouble>> {
            Box::pin(async { Resolved::at("http://127.0.0.1:9/") })
        }
    }

    /// S33: a server that is known by slug and folder is looked up by whoever can.
    #[test]
    fn a_server_without_a_url_is_left_to_the_resolver() {
        let text = "[servers.a]\nslug = 'github'\nfolder = 'Shared'\n";
        let error = declared(text, &[]).unwrap_err();
        assert_eq!(error.what, "`a` has no `url`, and nobody here looks it up");
        let read = read_text(Path::new("warmline.toml"), text).unwrap();
        let resolver: Resolver = Some(Arc::new(Directory));
        let server = read.declarations[0]
            .declared(&|_: &str| None, &resolver)
            .unwrap();
        assert!(matches!(server.reach, Whereabouts::LookedUp { .. }));
        assert_eq!(server.card.folder.as_deref(), Some("Shared"));
    }
}
