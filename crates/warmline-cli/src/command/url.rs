//! `warmline url`: what a client has to be told to use a server through the gateway.

use warmline::Run;
use warmline::config::{Config, nearest, parse_url};
use warmline::core::code::Code;
use warmline::settings::{AuthWord, GatewaySettings, Origin};
use warmline::trust::TrustStore;
use warmline_gateway::tokens::TokenStore;

use crate::args::{self, Client};
use crate::problem::{Outcome, Problem};
use crate::report::{Fields, Report};
use crate::target::{folders, state_folder};

mod snippets;

/// Where a server is for its clients.
pub(super) struct Place {
    /// What the client calls it.
    pub(super) name: String,
    pub(super) url: String,
    /// The same with a run in its path that the client fills in as `{run}`.
    pub(super) url_in_run: String,
    /// What the client calls its run.
    pub(super) run: String,
    /// What lets callers in: the token itself, or words in its place; none where nobody is asked.
    pub(super) token: Option<String>,
}

/// Prints it; nothing is contacted.
pub(super) fn run(typed: &args::Url, report: &Report) -> Outcome<u8> {
    let folders = folders()?;
    let store = TrustStore::in_state_folder(folders.state.as_deref());
    let config = Config::read_to_use(typed.config.as_deref(), &folders, &store)?;
    let mut settings = config.gateway(&store);
    settings.take_process_environment()?;
    // Who says where the gateway is may mean one that goes by other files.
    let name = typed.name.as_deref().filter(|_| typed.at.is_none());
    name.map_or(Ok(()), |name| known(name, &config))?;
    let token = token(&settings, typed)?;
    let place = place(typed, &settings, token)?;
    match (typed.client, report.is_json()) {
        (client, true) => {
            let paste = client.map(|client| snippets::of(client, &place));
            let fields = Fields::new()
                .put("name", &place.name)
                .put("url", &place.url)
                .put("token", &place.token)
                .put("paste", paste);
            report.object("url", &fields);
        },
        (Some(client), false) => report.data(&snippets::of(client, &place)),
        (None, false) => {
            report.data(&place.url);
            if let Some(token) = &place.token {
                report.data(&format!("Authorization: Bearer {token}"));
            }
        },
    }
    if typed.at.is_none() && !report.is_json() {
        report.note(&format!(
            "`{}` is where it listens by {}; if `serve` was told another address, say it: --at http://HOST:PORT",
            settings.listen,
            said_by(&settings.origin("gateway.listen"))
        ));
    }
    if place.token.as_deref() == Some(YOUR_TOKEN) && !report.is_json() {
        report.note(match settings.auth {
            AuthWord::Jwt => {
                "put a token that was signed for this gateway in the place of YOUR_TOKEN"
            },
            AuthWord::Local | AuthWord::Tokens | AuthWord::Proxy | AuthWord::None => {
                "`warmline token new NAME` makes a token: put it in the place of YOUR_TOKEN"
            },
        });
    }
    if let Some(name) = name.filter(|_| config.declarations().next().is_none()) {
        report.caution(&format!(
            "no file declares `{name}`: it is there only if `serve` was told of it"
        ));
    }
    if typed.client == Some(Client::Claude) && typed.name.is_none() {
        report.note("this is all servers in one; `warmline url NAME` is one of them");
    }
    Ok(0)
}

/// What stands for a token that only its caller knows.
const YOUR_TOKEN: &str = "YOUR_TOKEN";

/// Whether a name is one that the files declare. Where they declare none, it may have been typed
/// at `serve`.
fn known(name: &str, config: &Config) -> Outcome<()> {
    let names: Vec<&str> = config
        .declarations()
        .map(|(_, declaration)| declaration.name.as_str())
        .collect();
    if names.is_empty() || names.contains(&name) {
        return Ok(());
    }
    let what = format!("no server is configured as `{}`", name.escape_debug());
    Err(
        Problem::new(Code::ServerUnknown, what).hint(match nearest(name, names) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`warmline doctor` lists those that are; `--at URL` names another gateway"
                .to_owned(),
        }),
    )
}

/// Who decided where it listens.
fn said_by(origin: &Origin) -> String {
    match origin {
        Origin::Default | Origin::Builder | Origin::Machine => "default".to_owned(),
        Origin::Environment(_) | Origin::File { .. } => origin.to_string(),
    }
}

/// What lets callers in.
fn token(settings: &GatewaySettings, typed: &args::Url) -> Outcome<Option<String>> {
    match settings.auth {
        AuthWord::None | AuthWord::Proxy => Ok(None),
        AuthWord::Tokens | AuthWord::Jwt => Ok(Some(YOUR_TOKEN.to_owned())),
        AuthWord::Local => {
            let state = state_folder(typed.state_dir.as_deref())?;
            let local = TokenStore::in_state_folder(&state).local();
            let local = local.map_err(|error| {
                Problem::usage("the token of this machine can be neither read nor made")
                    .because(error.to_string())
                    .hint("name the folder of the gateway with --state-dir")
            })?;
            Ok(Some(local))
        },
    }
}

fn place(typed: &args::Url, settings: &GatewaySettings, token: Option<String>) -> Outcome<Place> {
    let base = base(typed, settings)?;
    let inside = match &typed.name {
        Some(name) => format!("servers/{name}/mcp"),
        None => "mcp".to_owned(),
    };
    if let Some(run) = &typed.run {
        Run::check_name(run).map_err(|error| {
            Problem::usage("that cannot be the name of a run")
                .hint(error.hint().unwrap_or_default())
        })?;
    }
    Ok(Place {
        name: typed.name.clone().unwrap_or_else(|| "warmline".to_owned()),
        url: match &typed.run {
            Some(run) => format!("{base}/runs/{run}/{inside}"),
            None => format!("{base}/{inside}"),
        },
        url_in_run: format!("{base}/runs/{{run}}/{inside}"),
        run: typed.run.clone().unwrap_or_else(|| "chat-1".to_owned()),
        token,
    })
}

/// What the URL begins with.
fn base(typed: &args::Url, settings: &GatewaySettings) -> Outcome<String> {
    if let Some(at) = &typed.at {
        parse_url(at).map_err(|why| Problem::usage("--at is not a URL").because(why))?;
        return Ok(at.trim_end_matches('/').to_owned());
    }
    let listen = settings.listen;
    if listen.port() == 0 || listen.ip().is_unspecified() {
        return Err(Problem::usage(format!(
            "the gateway listens on `{listen}`, which is no place to call"
        ))
        .hint("say where it can be reached: --at http://HOST:PORT"));
    }
    Ok(format!("{}://{listen}", settings.scheme()))
}
