//! What a gateway prints when it listens: its URLs, and how callers authenticate.

use serde_json::json;
use warmline_config::gateway_settings::AuthMode;
use warmline_engine::metrics::ServerCondition;
use warmline_gateway::Gateway;
use warmline_gateway::options::{NO_AUTH_EXPLANATION, NO_AUTH_SUMMARY};

use super::new_token_command;
use crate::gateway_host::{GatewayArgs, GatewayHost};
use crate::output::text::{pad_first, pluralize};
use crate::output::{JsonFields, Report, style};

pub(super) struct StartupMessage<'g> {
    host: &'g GatewayHost,
    gateway: &'g Gateway,
    args: &'g GatewayArgs,
    is_from_files: bool,
    servers: Vec<String>,
    disabled: Vec<String>,
}

impl<'g> StartupMessage<'g> {
    pub(super) fn new(
        host: &'g GatewayHost,
        gateway: &'g Gateway,
        args: &'g GatewayArgs,
        is_from_files: bool,
    ) -> Self {
        let statuses = gateway.warmline().snapshot().server_statuses;
        let names = |is_off: bool| {
            let statuses = statuses.iter();
            let named = statuses.filter(|one| (one.state == ServerCondition::Off) == is_off);
            named.map(|one| one.server.to_string()).collect()
        };
        Self {
            host,
            gateway,
            args,
            is_from_files,
            servers: names(false),
            disabled: names(true),
        }
    }

    pub(super) fn print(&self, report: &Report) {
        if report.is_json() {
            return self.print_json(report);
        }
        let base = self.base_url();
        let servers = pluralize(self.servers.len(), "server");
        report.print(&format!(
            "{} · {servers}; sessions are kept on this machine only",
            style::bold(&format!("listening on {base}"))
        ));
        let named = self.servers.iter();
        let named = named.map(|name| (name.clone(), self.server_url(name)));
        let mut lines: Vec<(String, String)> = named.collect();
        let mut add = |what: &str, more: String| lines.push((what.to_owned(), more));
        add("all in one", format!("{base}/mcp"));
        add("in a run", format!("{base}/runs/RUN/servers/NAME/mcp"));
        if !self.disabled.is_empty() {
            add("disabled", self.disabled.join(", "));
        }
        if let Some(ops) = self.gateway.ops_address() {
            let pages = format!("http://{ops}/metrics /livez /readyz /servers");
            add("ops pages", pages);
        }
        if let Some(admin) = &self.host.settings.admin {
            let how = format!("warmline ps --socket {}", admin.display());
            add("inspect", how);
        }
        for (what, more) in pad_first(lines) {
            report.print(&format!("  {what}  {}", style::name(&more)));
        }
        report.print(&self.auth_hint());
    }

    fn auth_hint(&self) -> String {
        match self.host.settings.auth {
            AuthMode::Local => format!(
                "callers send a token: `{}` prints it with a snippet to paste",
                style::name(&self.url_command())
            ),
            AuthMode::Tokens => format!(
                "callers send a token: `{}` makes one",
                style::name(&new_token_command(self.args.state_dir.as_deref()))
            ),
            AuthMode::Jwt => "callers send a JWT that was issued for this gateway".to_owned(),
            AuthMode::Proxy => "a trusted proxy names the callers".to_owned(),
            AuthMode::None => format!(
                "{}: `auth = \"none\"`. {NO_AUTH_EXPLANATION}",
                style::warning(NO_AUTH_SUMMARY)
            ),
        }
    }

    fn url_command(&self) -> String {
        let name = match self.servers.as_slice() {
            [only] => only,
            _ => "NAME",
        };
        let mut words = vec!["warmline".to_owned(), "url".to_owned(), name.to_owned()];
        let GatewayArgs {
            config, state_dir, ..
        } = self.args;
        for (option, path) in [("--config", config), ("--state-dir", state_dir)] {
            let path = path.as_ref().map(|path| path.display().to_string());
            words.extend(path.into_iter().flat_map(|path| [option.to_owned(), path]));
        }
        if !self.is_from_files || self.host.settings.listen != self.gateway.address() {
            words.extend(["--at".to_owned(), self.base_url()]);
        }
        shell_words::join(words)
    }

    fn print_json(&self, report: &Report) {
        let servers: Vec<_> = self
            .servers
            .iter()
            .map(|name| json!({ "name": name, "url": self.server_url(name) }))
            .collect();
        let settings = &self.host.settings;
        let token = Some(self.host.tokens.local_token_file().display().to_string());
        let ops = self.gateway.ops_address();
        let fields = JsonFields::new()
            .put("url", self.base_url())
            .put("all_in_one", format!("{}/mcp", self.base_url()))
            .put("servers", servers)
            .put(
                "switched_off",
                Some(&self.disabled).filter(|off| !off.is_empty()),
            )
            .put("admin", &settings.admin)
            .put("ops", ops.map(|ops| format!("http://{ops}")))
            .put("auth", settings.auth.as_str())
            .put(
                "token_file",
                token.filter(|_| settings.auth == AuthMode::Local),
            )
            .put("replicas", 1)
            .put("pid", std::process::id());
        report.print_object("listening", &fields);
    }

    fn base_url(&self) -> String {
        format!(
            "{}://{}",
            self.host.settings.scheme(),
            self.gateway.address()
        )
    }

    fn server_url(&self, name: &str) -> String {
        format!("{}/servers/{name}/mcp", self.base_url())
    }
}
