//! What people were promised of declarations, case by case.

use std::path::Path;
use std::time::Duration;

use http::header::AUTHORIZATION;
use warmline_core::era::Version;
use warmline_core::error::code::Code;
use warmline_core::policy::{CallConcurrency, SessionMode, SessionScope, StateLossPolicy};
use warmline_core::protocol::session_gone::SessionGoneMatching;

use super::*;
use warmline_upstream::target::{HttpConfig, TransportConfig};

mod invalid_declarations;

fn toml(text: &str) -> Result<Vec<Declaration>, ConfigError> {
    parse_text(Path::new("warmline.toml"), text).map(|read| read.declarations)
}

fn json(text: &str) -> Result<Vec<Declaration>, ConfigError> {
    parse_text(Path::new("capabilities.json"), text).map(|read| read.declarations)
}

fn nothing_set(_: &str) -> Option<String> {
    None
}

fn http(configured: ConfiguredTarget) -> HttpConfig {
    match configured.target.transport {
        TransportConfig::Http(http) => http,
        TransportConfig::Stdio(_) => panic!("a URL was declared"),
    }
}

fn token(reach: &HttpConfig) -> Option<&str> {
    let mut headers = reach.headers.iter();
    let (_, value) = headers.find(|(name, _)| name == AUTHORIZATION)?;
    value.to_str().ok()
}

/// A29, E12: what is missing is named with the server before anything is started or contacted.
#[test]
fn a_server_without_its_address_is_named_with_what_is_missing() {
    #[rustfmt::skip]
    let table = [
        ("[servers.web]\nkind = 'http'",                          "`web` is a remote server, and has no `url`"),
        ("[servers.prog]\nkind = 'stdio'",                        "`prog` is a local server, and has no `command`"),
        ("[servers.odd]\nserial = true",                          "`odd` has neither a `command` nor a `url`"),
        ("[servers.web]\nkind = 'http'\ncommand = ['x']",         "`web` is a remote server and has a `command`, but no `url`"),
        ("[servers.prog]\nkind = 'stdio'\nurl = 'http://x'",      "`prog` is a local server and has a `url`, but no `command`"),
    ];
    for (text, what) in table {
        let error = toml(text).unwrap_err();
        assert_eq!(
            (error.code, error.message.as_str()),
            (Code::ConfigBadValue, what)
        );
    }
    #[rustfmt::skip]
    let table = [
        (r#"{"mcpServers": {"web": {"type": "http"}}}"#,     "`web` is a remote server, and has no `url`"),
        (r#"{"mcpServers": {"prog": {"type": "stdio"}}}"#,   "`prog` is a local server, and has no `command`"),
        (r#"{"mcpServers": {"prog": {"command": ""}}}"#,     "`prog` has neither a `command` nor a `url`"),
    ];
    for (text, what) in table {
        assert_eq!(json(text).unwrap_err().message, what);
    }
}

/// A30, E13: a kind that is no MCP server's is refused, and the known kinds are listed.
#[test]
fn a_server_of_a_kind_that_is_none_is_refused_by_name() {
    let error = toml("[servers.task]\nkind = 'kiln_task'\nurl = 'http://x'").unwrap_err();
    assert_eq!(
        error.message,
        "`task` is of the kind `kiln_task`, which is not an MCP server's"
    );
    assert_eq!(
        error.hint.unwrap(),
        "known kinds are `http`, `stdio`, `sse`, `streamable-http`"
    );
    assert_eq!(error.location.unwrap().position, Some((2, 8)));
    let slip = toml("[servers.a]\nkind = 'stido'\ncommand = ['x']").unwrap_err();
    let slip = slip.hint.unwrap();
    assert!(slip.starts_with("did you mean `stdio`?"), "{slip}");
    for (reached, kinds) in [
        (
            "url = 'http://x'",
            "http streamableHttp streamable_http sse remote_mcp",
        ),
        ("command = ['x']", "stdio local_mcp"),
    ] {
        for kind in kinds.split(' ') {
            let text = format!("[servers.a]\nkind = '{kind}'\n{reached}");
            assert!(toml(&text).is_ok(), "{text}");
        }
    }

    let text = r#"{"mcpServers": {"task": {"type": "kiln_task", "url": "http://x"}}}"#;
    let error = json(text).unwrap()[0].to_target(&nothing_set).unwrap_err();
    assert!(error.message.contains("`kiln_task`"), "{}", error.message);
    assert!(error.hint.unwrap().contains("`http`, `stdio`"));
}

/// A36: command, arguments, environment, secret environment, folder and read timeout arrive as
/// they were written.
#[test]
fn a_program_gets_exactly_what_was_declared() {
    let text = r#"
        [servers.prog]
        command = ["prog", "--flag", "two words", "", "$HOME", "*"]
        env = { PLAIN = "a b", EMPTY = "" }
        env_pass = ["SECRET"]
        cwd = "sub/folder"
        call_idle_timeout = "45s"

        [servers.prog.tools.slow]
        call_idle_timeout = "9min"
        call_timeout = "2h"
    "#;
    let declaration = &toml(text).unwrap()[0];
    let configured = declaration.to_target(&nothing_set).unwrap();
    let TransportConfig::Stdio(stdio) = configured.target.transport else {
        panic!("a program was declared")
    };
    assert_eq!(stdio.program, "prog");
    assert_eq!(stdio.args, ["--flag", "two words", "", "$HOME", "*"]);
    assert_eq!(stdio.env["PLAIN"], "a b");
    assert_eq!(stdio.env["EMPTY"], "");
    assert_eq!(stdio.env_pass, ["SECRET"]);
    assert_eq!(stdio.cwd.as_deref(), Some(Path::new("sub/folder")));
    let policy = configured.settings.policy;
    assert_eq!(policy.deadlines.idle, Duration::from_secs(45));
    let slow = &policy.tools["slow"];
    assert_eq!(slow.idle, Some(Duration::from_secs(540)));
    assert_eq!(slow.total, Some(Duration::from_secs(7200)));
}

/// Everything that can be decided about a server, otherwise than by default.
const DECIDED: &str = r#"
        [servers.a]
        url = "https://example.com/mcp"
        sessions = "always"
        session_per = "identity"
        serial = true
        calls = "side-by-side"
        max_age = "none"
        max_idle = "5min"
        run_max_age = "1h"
        keep_alive = "off"
        create_timeout = "20s"
        on_state_loss = "end_run"
        dialects = "wide"
        dedupe = "call_id"
        read_only_hint = false
        idempotent_hint = ["put"]
        reads_have_effects = true
        allow = ["read_*"]
        deny = ["read_secret"]
        breaker = { threshold = 2, reset = "5s", longest = "20s" }
        labels = { team = "lamp" }
        slug = "github"
        folder = "Shared/Tools"
        id = "17"

        [servers.a.tools.once]
        session_per = "call"
        repeatable = false
    "#;

/// A51, A52, A54, A98, A165: what is decided about sessions and calls stands in the policy.
#[test]
fn every_decision_of_a_file_stands_in_the_policy() {
    let declaration = &toml(DECIDED).unwrap()[0];
    let policy = &declaration.settings.policy;
    let secs = Duration::from_secs;
    assert_eq!(policy.sessions, SessionMode::Always);
    assert_eq!(policy.session_per, Some(SessionScope::Identity));
    assert_eq!(policy.calls, Some(CallConcurrency::SideBySide));
    assert_eq!(
        (policy.max_age, policy.max_idle),
        (Some(Duration::ZERO), Some(secs(300)))
    );
    assert_eq!(policy.run_max_age, Some(secs(3600)));
    assert_eq!(policy.keep_alive, Duration::ZERO);
    assert_eq!(policy.create, Some(secs(20)));
    assert_eq!(policy.on_state_loss, Some(StateLossPolicy::EndRun));
    assert_eq!(policy.dialects, SessionGoneMatching::Wide);
    assert!(policy.serial && policy.dedupe_by_call_id && policy.reads_have_effects);
    assert!(!policy.trust_read_only_hint);
    assert_eq!(policy.trust_idempotent_hint, ["put"]);
    assert_eq!(
        (&policy.allow[..], &policy.deny[..]),
        (&["read_*".to_owned()][..], &["read_secret".to_owned()][..])
    );
    assert_eq!(
        (policy.breaker.threshold, policy.breaker.longest),
        (2, secs(20))
    );
    let once = &policy.tools["once"];
    assert_eq!(
        (once.session_per, once.repeatable),
        (Some(SessionScope::Call), Some(false))
    );
    assert_eq!(declaration.descriptor.labels["team"], "lamp");
    assert_eq!(declaration.descriptor.slug.as_deref(), Some("github"));
    assert_eq!(
        declaration.descriptor.folder.as_deref(),
        Some("Shared/Tools")
    );
}

/// A166: an unknown value of `sessions` is an error that names file, key and value.
#[test]
fn an_unknown_word_is_an_error_and_never_means_no() {
    let error = toml("[servers.a]\nurl = 'http://x'\nsessions = 'sometimes'").unwrap_err();
    assert_eq!(error.message, "`sessions` cannot be `sometimes`");
    assert_eq!(error.location.unwrap().to_string(), "warmline.toml:3:12");
    assert_eq!(
        error.hint.as_deref(),
        Some("write `auto`, `always` or `never`")
    );

    let text = r#"{"mcp_metadata": {"server_url": "http://x", "server_name": "github"},
                   "mcp_requires_session": "sometimes"}"#;
    let error = json(text).unwrap_err();
    assert_eq!(
        error.message,
        "`mcp_requires_session` of `github` cannot be `sometimes`"
    );
    assert_eq!(error.location.unwrap().file, Path::new("capabilities.json"));
}

/// A165: files say `auto`, `always` and `never`, and the seed's `true` and `false`, as words and as
/// switches; without a word it is `auto`.
#[test]
fn whether_sessions_are_needed_is_said_by_words_and_by_switches() {
    let meant = [
        ("\"auto\"", SessionMode::Auto),
        ("\"always\"", SessionMode::Always),
        ("\"never\"", SessionMode::Never),
        ("\"true\"", SessionMode::Always),
        ("\"false\"", SessionMode::Never),
        ("true", SessionMode::Always),
        ("false", SessionMode::Never),
    ];
    for (said, meant) in meant {
        let in_toml = toml(&format!("[servers.a]\nurl = 'http://x'\nsessions = {said}"));
        let sessions = in_toml.unwrap()[0].settings.policy.sessions;
        assert_eq!(sessions, meant, "sessions = {said}");
        let in_json = json(&format!(
            r#"{{"mcp_metadata": {{"server_url": "http://x"}}, "mcp_requires_session": {said}}}"#
        ));
        let sessions = in_json.unwrap()[0].settings.policy.sessions;
        assert_eq!(sessions, meant, "mcp_requires_session: {said}");
    }
    let without = toml("[servers.a]\nurl = 'http://x'").unwrap();
    assert_eq!(without[0].settings.policy.sessions, SessionMode::Auto);
}

/// A165, A174, S19, S20, S21, S22: a capability's declaration says what its server needs.
#[test]
fn a_capability_declares_its_server() {
    let text = r#"{
        "mcp_metadata": {"server_url": "https://api.example.com/mcp/", "server_name": "GitHub",
                         "tool_name": "list_issues", "protocol_version": "2024-11-05"},
        "mcp_requires_session": "true",
        "mcp_auth_env_var": "MY_TOKEN",
        "mcp_server_url_override_env": "MY_URL"
    }"#;
    let declaration = &json(text).unwrap()[0];
    assert_eq!(declaration.name, "github");
    assert_eq!(declaration.auth_env.as_deref(), Some("MY_TOKEN"));
    assert_eq!(declaration.url_env.as_deref(), Some("MY_URL"));
    let configured = declaration.to_target(&nothing_set).unwrap();
    assert_eq!(configured.settings.policy.sessions, SessionMode::Always);
    assert_eq!(
        configured.settings.policy.version,
        Some(Version::V2024_11_05)
    );
    assert_eq!(
        http(configured).url.as_str(),
        "https://api.example.com/mcp/"
    );

    let least = r#"[{"mcp_metadata": {"server_url": "http://localhost:3000/mcp/github"}}, {"name": "no server"}]"#;
    let declaration = &json(least).unwrap()[0];
    assert_eq!(declaration.name, "localhost");
    assert_eq!(declaration.auth_env.as_deref(), Some("MCP_AUTH_TOKEN"));
    assert_eq!(declaration.url_env.as_deref(), Some("MCP_SERVER_URL"));
    assert_eq!(declaration.settings.policy.sessions, SessionMode::Auto);
    assert_eq!(declaration.settings.policy.version, None);
}

#[test]
fn capabilities_of_one_server_are_one_server_if_they_agree() {
    let one = |url: &str, tool: &str| {
        format!(
            r#"{{"mcp_metadata": {{"server_url": "{url}", "server_name": "s", "tool_name": "{tool}"}}}}"#
        )
    };
    let (a, b, c) = (
        one("http://x/", "a"),
        one("http://x/", "b"),
        one("http://y/", "c"),
    );
    for text in [
        format!("[{a}, {b}]"),
        format!(r#"{{"capabilities": {{"one": {a}, "two": {b}}}}}"#),
        format!(r#"{{"capabilities": [{a}, {b}]}}"#),
    ] {
        assert_eq!(json(&text).unwrap().len(), 1, "{text}");
    }
    let error = json(&format!("[{a}, {c}]")).unwrap_err();
    assert_eq!(
        error.message,
        "two capabilities of `s` differ in `server_url`"
    );
}

/// A176, S18, S21: a variable that the server names replaces its URL; another one does not.
#[test]
fn the_url_of_a_server_comes_from_the_variable_it_names() {
    let lookup = |name: &str| match name {
        "MCP_SERVER_URL" => Some("http://127.0.0.1:1/other".to_owned()),
        "MY_URL" => Some("http://127.0.0.1:1/mine".to_owned()),
        _ => None,
    };
    let url = |text: &str| http(toml(text).unwrap()[0].to_target(&lookup).unwrap()).url;
    let declared = "[servers.a]\nurl = 'http://127.0.0.1:1/declared'\n";
    assert_eq!(url(declared).path(), "/declared", "it names no variable");
    assert_eq!(
        url(&format!("{declared}url_env = 'MY_URL'")).path(),
        "/mine"
    );
    assert_eq!(
        url(&format!("{declared}url_env = 'UNSET'")).path(),
        "/declared"
    );
    assert_eq!(url("[servers.a]\nurl_env = 'MY_URL'").path(), "/mine");

    let error = toml("[servers.a]\nurl_env = 'UNSET'").unwrap()[0]
        .to_target(&lookup)
        .unwrap_err();
    assert_eq!(error.message, "`a` has no `url`, and `UNSET` is not set");
    let capability = r#"{"mcp_metadata": {"server_name": "github"}}"#;
    let declared = &json(capability).unwrap()[0];
    assert_eq!(
        http(declared.to_target(&lookup).unwrap()).url.path(),
        "/other"
    );
    let error = declared.to_target(&nothing_set).unwrap_err();
    assert_eq!(
        error.message,
        "`github` has no `url`, and `MCP_SERVER_URL` is not set"
    );
    let slug = "[servers.a]\nslug = 'github'";
    let error = toml(slug).unwrap()[0].to_target(&nothing_set).unwrap_err();
    assert_eq!(
        error.message,
        "`a` has no `url`, and nothing here looks it up"
    );
}

/// A177, A178, S17, S20: the token goes to a server that names its variable, and to no other.
#[test]
fn a_token_goes_to_a_server_that_names_its_variable() {
    let lookup = |name: &str| match name {
        "MCP_AUTH_TOKEN" => Some("general".to_owned()),
        "OWN" => Some("own".to_owned()),
        _ => None,
    };
    let sent = |keys: &str| {
        let text = format!("[servers.a]\nurl = 'https://example.com'\n{keys}");
        let reach = http(toml(&text).unwrap()[0].to_target(&lookup).unwrap());
        token(&reach).map(str::to_owned)
    };
    assert_eq!(sent(""), None);
    assert_eq!(
        sent("auth_env = 'MCP_AUTH_TOKEN'").as_deref(),
        Some("Bearer general")
    );
    assert_eq!(sent("auth_env = 'OWN'").as_deref(), Some("Bearer own"));
    assert_eq!(sent("auth_env = 'UNSET'"), None);
    assert_eq!(
        sent("credential = { env = 'OWN' }").as_deref(),
        Some("Bearer own")
    );
    let capability =
        r#"{"mcp_metadata": {"server_name": "s", "server_url": "https://example.com"}}"#;
    let reach = http(json(capability).unwrap()[0].to_target(&lookup).unwrap());
    assert_eq!(
        token(&reach),
        Some("Bearer general"),
        "it names it by its form"
    );
}

/// A177, S17: a token by its variable never travels in the clear, but to this machine.
#[test]
fn a_token_by_its_variable_never_travels_in_the_clear() {
    let lookup = |name: &str| (name == "T").then(|| "canary".to_owned());
    for (url, is_sent) in [
        ("https://example.com", true),
        ("http://localhost:1", true),
        ("http://127.0.0.1:1", true),
        ("http://[::1]:1", true),
        ("http://example.com", false),
        ("http://localhost.example.com", false),
        ("http://10.0.0.1", false),
    ] {
        let text = format!("[servers.a]\nurl = '{url}'\nauth_env = 'T'");
        let configured = toml(&text).unwrap()[0].to_target(&lookup);
        assert_eq!(configured.is_ok(), is_sent, "{url}");
        if let Err(error) = configured {
            assert!(!format!("{error:?}").contains("canary"));
        }
    }
}

/// S23, S24, A180: no provider's variable and no global switch is read for any server.
#[test]
fn no_retired_variable_is_asked_for() {
    let lookup = |name: &str| -> Option<String> {
        assert!(
            !warmline_engine::settings::RETIRED_VARIABLES.contains(&name),
            "{name} was read"
        );
        None
    };
    let capability = r#"{"mcp_metadata": {"server_name": "github", "server_url": "https://api.githubcopilot.com/mcp/"}}"#;
    assert!(json(capability).unwrap()[0].to_target(&lookup).is_ok());
    let server = "[servers.github]\nurl = 'https://api.githubcopilot.com/mcp/'";
    assert!(toml(server).unwrap()[0].to_target(&lookup).is_ok());
}

/// A189, A195: a URL is all that is needed, and the same declaration does for a server here, one
/// elsewhere without sessions and one with them.
#[test]
fn one_declaration_does_for_servers_of_all_sorts() {
    for url in [
        "http://localhost:3000/mcp",
        "https://stateless.example/mcp",
        "https://sessions.example/mcp",
    ] {
        let declared = toml(&format!("[servers.a]\nurl = '{url}'")).unwrap();
        let configured = declared[0].to_target(&nothing_set).unwrap();
        assert_eq!(configured.settings.policy.sessions, SessionMode::Auto);
        let reach = http(configured);
        assert_eq!((reach.url.as_str(), reach.headers.len()), (url, 0));
    }
}

/// S32: a server that is switched off is not used.
#[test]
fn a_server_that_is_switched_off_is_refused() {
    let error = toml("[servers.a]\nurl = 'http://x'\nenabled = false").unwrap()[0]
        .to_target(&nothing_set)
        .unwrap_err();
    assert_eq!(error.message, "`a` is switched off by `enabled = false`");
    let resource = r#"{"mcpServers": {"a": {"url": "http://x", "is_enabled": false, "slug": "a", "folder_path": "Shared"}}}"#;
    let declared = &json(resource).unwrap()[0];
    assert_eq!(declared.descriptor.folder.as_deref(), Some("Shared"));
    let error = declared.to_target(&nothing_set).unwrap_err();
    assert_eq!(error.message, "`a` is switched off by `\"enabled\": false`");
}

/// What the nearer of two trusted files decides for all servers counts; a stranger decides nothing.
#[test]
fn what_files_decide_for_all_servers_is_taken_from_the_nearest_trusted_one() {
    let place = std::env::temp_dir().join(format!("warmline-engine-{}", std::process::id()));
    let (working, user, system) = (place.join("work"), place.join("user"), place.join("system"));
    for (folder, text) in [
        (&working, "[limits]\nprocesses = 1\n"),
        (&user, "[limits]\nprocesses = 2\nmax_spares = 3\n"),
        (
            &system,
            "[limits]\nmax_spares = 4\n[runs]\nidle = '7min'\n[store]\npath = 'records'\n",
        ),
    ] {
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(folder.join("warmline.toml"), text).unwrap();
    }
    let folders = ConfigFolders {
        working: working.clone(),
        user: Some(user),
        system: system.clone(),
        state: Some(place.join("state")),
    };
    let store = TrustStore::in_state_folder(folders.state.as_deref());
    let config = Config::read(None, &folders).unwrap();
    let engine = config.engine_settings(&store);
    assert_eq!((engine.limits.processes, engine.limits.max_spares), (2, 3));
    assert_eq!(engine.limits.run_idle, Duration::from_secs(420));
    assert_eq!(
        engine.store.as_deref(),
        Some(system.join("records").as_path())
    );
    let file = config.files()[0].clone();
    store.trust(file.path(), file.digest()).unwrap();
    let engine = config.engine_settings(&store);
    assert_eq!(engine.limits.processes, 1);
    let told = engine.origin("limits.processes").to_string();
    assert_eq!(
        told,
        format!("{}:2", working.join("warmline.toml").display())
    );
    std::fs::remove_dir_all(place).unwrap();
}
