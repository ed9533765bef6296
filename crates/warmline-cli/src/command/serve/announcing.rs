//! What people need when a gateway listens: where, how to be let in, and what it is not.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::json;
use warmline::settings::AuthWord;
use warmline_gateway::settings::{ANYBODY_SHARES, NOBODY_IS_ASKED};

use super::new_token;
use crate::report::text::{count, padded};
use crate::report::{Fields, Report, style};

/// A gateway that listens.
pub(super) struct Announced {
    pub(super) scheme: &'static str,
    pub(super) address: SocketAddr,
    /// Where machines that watch it find their pages.
    pub(super) ops: Option<SocketAddr>,
    /// Where its user sees what runs in it.
    pub(super) admin: Option<PathBuf>,
    pub(super) servers: Vec<String>,
    /// Servers that are configured and not used.
    pub(super) switched_off: Vec<String>,
    pub(super) auth: AuthWord,
    pub(super) token: PathBuf,
    pub(super) known: Known,
}

/// What a command that is typed later knows of this gateway by itself, and what it has to be told.
pub(super) struct Known {
    /// Whether files alone say which servers there are and where they are served.
    pub(super) by_files: bool,
    pub(super) config: Option<PathBuf>,
    pub(super) state_dir: Option<PathBuf>,
}

impl Announced {
    pub(super) fn tell(&self, report: &Report) {
        if report.is_json() {
            return self.tell_programs(report);
        }
        let base = self.base();
        let servers = count(self.servers.len(), "server");
        report.data(&format!(
            "{} · {servers}; sessions are kept on this machine alone",
            style::bold(&format!("listening on {base}"))
        ));
        let named = self
            .servers
            .iter()
            .map(|name| (name.as_str(), self.url_of(name)));
        let mut lines: Vec<(&str, String)> = named.collect();
        lines.push(("all in one", format!("{base}/mcp")));
        lines.push(("in a run", format!("{base}/runs/RUN/servers/NAME/mcp")));
        if !self.switched_off.is_empty() {
            lines.push(("switched off", self.switched_off.join(", ")));
        }
        if let Some(ops) = self.ops {
            let pages = format!("http://{ops}/metrics /livez /readyz /servers");
            lines.push(("watched at", pages));
        }
        if let Some(admin) = &self.admin {
            let how = format!("warmline ps --socket {}", admin.display());
            lines.push(("looked into", how));
        }
        let widest = lines.iter().map(|(what, _)| what.len()).max();
        for (what, more) in &lines {
            let what = padded(what, widest.unwrap_or_default());
            report.data(&format!("  {what}  {}", style::name(more)));
        }
        report.data(&self.letting_in());
    }

    /// How to be let in.
    fn letting_in(&self) -> String {
        match self.auth {
            AuthWord::Local => format!(
                "callers show a token: `{}` prints it with what to paste",
                style::name(&self.pasting())
            ),
            AuthWord::Tokens => format!(
                "callers show a token: `{}` makes one",
                style::name(&new_token(self.known.state_dir.as_deref()))
            ),
            AuthWord::Jwt => "callers show a token that was signed for us".to_owned(),
            AuthWord::Proxy => "callers are named by a trusted proxy".to_owned(),
            AuthWord::None => format!(
                "{}: `auth = \"none\"`. {ANYBODY_SHARES}",
                style::look(NOBODY_IS_ASKED)
            ),
        }
    }

    /// The command that prints what to paste, as it finds this gateway.
    fn pasting(&self) -> String {
        let name = match self.servers.as_slice() {
            [only] => only,
            _ => "NAME",
        };
        let mut words = vec!["warmline".to_owned(), "url".to_owned(), name.to_owned()];
        let Known {
            config, state_dir, ..
        } = &self.known;
        for (option, path) in [("--config", config), ("--state-dir", state_dir)] {
            let path = path.as_ref().map(|path| path.display().to_string());
            words.extend(path.into_iter().flat_map(|path| [option.to_owned(), path]));
        }
        if !self.known.by_files {
            words.extend(["--at".to_owned(), self.base()]);
        }
        shell_words::join(words)
    }

    fn tell_programs(&self, report: &Report) {
        let servers: Vec<_> = self
            .servers
            .iter()
            .map(|name| json!({ "name": name, "url": self.url_of(name) }))
            .collect();
        let token = Some(self.token.display().to_string());
        let fields = Fields::new()
            .put("url", self.base())
            .put("all_in_one", format!("{}/mcp", self.base()))
            .put("servers", servers)
            .put(
                "switched_off",
                Some(&self.switched_off).filter(|off| !off.is_empty()),
            )
            .put("admin", &self.admin)
            .put("ops", self.ops.map(|ops| format!("http://{ops}")))
            .put("auth", self.auth.word())
            .put("token_file", token.filter(|_| self.auth == AuthWord::Local))
            .put("replicas", 1)
            .put("pid", std::process::id());
        report.object("listening", &fields);
    }

    /// What every URL begins with. Whoever listens everywhere is called by a name of theirs.
    fn base(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    fn url_of(&self, name: &str) -> String {
        format!("{}/servers/{name}/mcp", self.base())
    }
}
