//! Files as people write them, right and wrong.

use std::path::Path;

use http::header::AUTHORIZATION;
use warmline_core::era::Era;
use warmline_core::error::code::Code;

use super::*;
use crate::trust::sha256_hex;
use warmline_upstream::target::TransportConfig;

fn read(name: &str, text: &str) -> Result<Vec<Declaration>, ConfigError> {
    parse_text(Path::new(name), text).map(|read| read.declarations)
}

fn environment(name: &str) -> Option<String> {
    match name {
        "TOKEN" => Some("canary-token".to_owned()),
        "PLACE" => Some("https://other.example/mcp".to_owned()),
        _ => None,
    }
}

#[test]
fn a_toml_file_says_how_its_servers_are_reached() {
    let text = r#"
        [gateway]
        listen = "127.0.0.1:8484"

        [servers.browser]
        command = ["npx", "-y", "some-server"]
        env = { MODE = "quiet" }
        env_pass = ["DISPLAY"]
        cwd = "work"
        spares = 1
        start_timeout = "2min"

        [servers.browser.tools.snapshot]
        repeatable = true

        [servers.github]
        url = "https://api.example.com/mcp"
        credential = { env = "TOKEN" }
        headers = { X-Team = "lamp" }
        era = "legacy"
        session_per = "identity"
        call_timeout = "90s"
    "#;
    let declarations = read("conf/warmline.toml", text).unwrap();
    let browser = declarations[0].to_target(&environment).unwrap();
    let TransportConfig::Stdio(stdio) = &browser.target.transport else {
        panic!("a program")
    };
    assert_eq!((stdio.program.as_str(), stdio.args.len()), ("npx", 2));
    assert_eq!(stdio.env["MODE"], "quiet");
    assert_eq!(stdio.env_pass, ["DISPLAY"]);
    assert_eq!(stdio.cwd.as_deref(), Some(Path::new("conf/work")));
    assert_eq!(browser.settings.timeouts.start.as_secs(), 120);
    assert_eq!(browser.settings.policy.spares, 1);
    assert_eq!(
        browser.settings.policy.tools["snapshot"].repeatable,
        Some(true)
    );

    let github = declarations[1].to_target(&environment).unwrap();
    let TransportConfig::Http(http) = &github.target.transport else {
        panic!("a URL")
    };
    assert_eq!(http.url.as_str(), "https://api.example.com/mcp");
    let token = http
        .headers
        .iter()
        .find(|(name, _)| name == AUTHORIZATION)
        .unwrap();
    assert_eq!(token.1, "Bearer canary-token");
    assert!(http.headers.iter().all(|(_, value)| value.is_sensitive()));
    assert_eq!(
        (
            github.settings.era,
            github.settings.policy.deadlines.total.as_secs()
        ),
        (Some(Era::Legacy), 90)
    );
    assert_eq!(declarations[1].location.position, Some((16, 18)));
}

/// A29, E12: a server without URL or command is among them.
#[test]
fn a_wrong_line_is_named_with_its_place_and_the_nearest_right_word() {
    use Code::{ConfigBadValue as Value, ConfigUnknownKey as Key, ConfigUnreadable as File};
    let command = "[servers.a]\ncommand = ['x']\n";
    #[rustfmt::skip]
    let table = [
        ("[servers.a]\ncomand = ['x']",                    Key,   Some((2, 1)),  Some("did you mean `command`?")),
        ("[servers.a]\nurl = 'http://x'\nmax_perkey = 1",   Key,   Some((3, 1)),  Some("did you mean `max_per_key`?")),
        ("[server.a]\nurl = 'http://x'",                    Key,   Some((1, 2)),  Some("did you mean `servers`?")),
        ("[servers.a]\nzzzzzz = 1",                         Key,   Some((2, 1)),  None),
        ("[servers.a]\ncredential = { evn = 'X' }",         Key,   Some((2, 16)), Some("did you mean `env`?")),
        ("[servers.a]\ncommand = 'npx -y x'",               Value, Some((2, 11)), Some("write a list: `command = [\"npx\", \"…\", \"…\"]`")),
        ("[servers.a]\ncommand = []",                       Value, Some((2, 11)), None),
        ("[servers.a]\nera = 'legcy'",                      Value, Some((2, 7)),  Some("did you mean `legacy`?")),
        ("[servers.a]\nera = 3",                            Value, Some((2, 7)),  Some("write `auto`, `legacy` or `modern`")),
        ("[servers.a]\nenv = { A = 1 }",                    Value, Some((2, 13)), None),
        ("[servers.Up]\nurl = 'http://x'",                  Value, Some((1, 10)), None),
        ("[servers.a]\nenv = {}",                           Value, Some((1, 10)), Some("add `url = \"https://…\"` or `command = [\"program\", \"argument\"]`")),
        ("[servers.a]\nurl = 'http://x'\ncommand = ['x']",  Value, Some((1, 10)), Some("keep `command` for a program that is started here, `url` for a server that runs")),
        ("[servers.a]\nurl = 'http://x'\ncwd = '.'",        Value, Some((1, 10)), None),
        ("[servers.a\n",                                    File,  Some((1, 11)), None),
        ("a = 'x\n",                                        File,  Some((1, 7)),  None),
    ];
    for (text, code, at, hint) in table {
        let error = read("warmline.toml", text).unwrap_err();
        let place = error.location.as_ref().and_then(|place| place.position);
        assert_eq!(
            (error.code, place, error.hint.as_deref()),
            (code, at, hint),
            "{text}"
        );
    }
    let slow = read("warmline.toml", &format!("{command}start_timeout = '30'")).unwrap_err();
    assert_eq!(slow.message, "`start_timeout` is not a duration: `30`");
    assert_eq!(
        slow.location.unwrap().excerpt.unwrap().line,
        "start_timeout = '30'"
    );
}

#[test]
fn files_of_other_programs_are_read_in_both_forms() {
    let text = r#"{"mcpServers": {
        "GitHub": {"type": "http", "url": "${PLACE}", "headers": {"Authorization": "Bearer ${TOKEN}"}},
        "memory": {"command": "npx", "args": ["-y", "${MISSING:-memory}"], "env": {"N": 3}, "disabled": false}
    }}"#;
    let declarations = read(".mcp.json", text).unwrap();
    let github = declarations[0].to_target(&environment).unwrap().target;
    assert_eq!(
        (github.name.as_str(), declarations[0].original_name.as_str()),
        ("github", "GitHub")
    );
    let TransportConfig::Http(http) = &github.transport else {
        panic!("a URL")
    };
    assert_eq!(http.url.as_str(), "https://other.example/mcp");
    assert_eq!(http.headers[0].1, "Bearer canary-token");
    let memory = declarations[1].to_target(&environment).unwrap().target;
    let TransportConfig::Stdio(stdio) = &memory.transport else {
        panic!("a program")
    };
    assert_eq!(
        (stdio.args.as_slice(), stdio.env["N"].as_str()),
        (&["-y".into(), "memory".into()][..], "3")
    );
    let outline = declarations[0].summary();
    assert_eq!(outline.variables_read, ["PLACE", "TOKEN"]);
    assert_eq!(outline.headers, ["Authorization"]);

    let editor = read(
        "mcp.json",
        r#"{"servers": {"a": {"command": "x"}}, "inputs": []}"#,
    )
    .unwrap();
    assert_eq!(editor[0].summary().target, "x");
}

#[test]
fn a_broken_file_of_another_program_is_named_with_its_place() {
    use Code::{ConfigBadValue as Value, ConfigUnreadable as File};
    #[rustfmt::skip]
    let table = [
        ("{\n  nonsense",                                                File,  Some((2, 3))),
        ("{}",                                                           Value, None),
        ("{\"mcpServers\": 3}",                                          Value, Some((1, 16))),
        ("{\"mcpServers\": {\n \"a\": {\"command\": [\"canary\"]}}}",    Value, Some((2, 19))),
        ("{\"mcpServers\": {\n \"a\": {}}}",                             Value, Some((2, 7))),
        ("{\"mcpServers\": {\"a b\": {\"url\": \"http://x\"},\n\"A-B\": {\"url\": \"http://y\"}}}", Value, None),
    ];
    for (text, code, at) in table {
        let error = read(".mcp.json", text).unwrap_err();
        assert_eq!(error.code, code, "{text}");
        assert!(!format!("{error:?}").contains("canary"), "{error:?}");
        if at.is_some() {
            assert_eq!(error.location.unwrap().position, at, "{text}");
        }
    }
}

/// reliability P30: errors repeat no secret.
#[test]
fn what_cannot_be_filled_in_is_named_and_nothing_secret_is_repeated() {
    let text = "[servers.a]\nurl = 'https://x'\ncredential = { env = 'NOT_SET' }";
    let error = read("warmline.toml", text).unwrap()[0]
        .to_target(&environment)
        .unwrap_err();
    assert_eq!(
        error.message,
        "`NOT_SET` is not set, and `a` takes its token from it"
    );
    assert_eq!(error.location.unwrap().position, Some((3, 1)));

    let text = "[servers.a]\nurl = 'nonsense?canary'";
    let error = read("warmline.toml", text).unwrap()[0]
        .to_target(&environment)
        .unwrap_err();
    assert!(!format!("{error:?}").contains("canary"), "{error:?}");

    let debug = format!(
        "{:?}",
        read(
            "warmline.toml",
            "[servers.a]\ncommand = ['x']\nenv = { A = 'canary' }"
        )
    );
    assert!(!debug.contains("canary"), "{debug}");
}

/// reliability F65: what could never be reached is told when its file is read, not to the first
/// caller.
#[test]
fn what_could_never_be_reached_is_wrong_where_it_stands() {
    let folder = tempfile::tempdir().unwrap();
    let garbage = folder.path().join("garbage.pem");
    std::fs::write(&garbage, "garbage").unwrap();
    let trusting = |file: &str| format!("url = 'https://x/mcp'\nca_file = '{file}'");
    let table = [
        ("url = 'http://user@x/mcp'".to_owned(), "a user name"),
        ("url = 'http://:pw@x/mcp'".to_owned(), "a user name"),
        ("url = 'http:///mcp'".to_owned(), "names no host"),
        ("url = 'http://x:0/mcp'".to_owned(), "port 0"),
        (trusting("/does/not/exist.pem"), "cannot be read"),
        (trusting(garbage.to_str().unwrap()), "holds no certificate"),
        ("command = ['']".to_owned(), "names no program"),
        ("command = ['x', \"a\\u0000b\"]".to_owned(), "a NUL"),
        (
            "command = ['x']\nenv = { 'A=B' = 'canary' }".to_owned(),
            "named `A=B`",
        ),
        (
            "command = ['x']\nenv = { A = \"canary\\u0000\" }".to_owned(),
            "a NUL",
        ),
    ];
    for (reached, what) in table {
        let text = format!("[servers.a]\n{reached}\n");
        let error = match read("warmline.toml", &text) {
            Ok(read) => read[0].to_server(&environment, &None).unwrap_err(),
            Err(error) => error,
        };
        let told = format!("{} {:?}", error.message, error.cause);
        assert!(told.contains(what), "{text}{told}");
        assert!(!told.contains("canary"), "{told}");
        assert_eq!(error.code, Code::ConfigBadValue, "{text}");
        assert!(error.location.is_some(), "{text}");
    }
}

#[test]
fn a_url_for_people_holds_no_secret() {
    #[rustfmt::skip]
    let table = [
        ("https://example.com/mcp",                "https://example.com/mcp"),
        ("https://u:canary@example.com/mcp",       "https://example.com/mcp"),
        ("https://example.com/mcp?key=canary",     "https://example.com/mcp?…"),
        ("${BASE}/mcp?key=canary",                 "${BASE}/mcp?…"),
        ("https://u:canary@${HOST}/mcp",           "https://${HOST}/mcp"),
        ("https://canary:${PW}@example.com/",      "https://example.com/"),
        ("https://example.com/${KEY}/mcp",         "https://example.com/${KEY}/mcp"),
        ("https://example.com/${KEY}?k=canary",    "https://example.com/${KEY}?…"),
        ("https://example.com/s/ghp_canary/mcp",   "https://example.com/s/…/mcp"),
        ("https://${HOST}/s/ghp_canary?k=canary",  "https://${HOST}/s/…?…"),
        ("nonsense?canary",                        "nonsense?…"),
    ];
    for (written, shown) in table {
        assert_eq!(redact_url(written), shown);
    }
}

#[test]
fn a_file_in_the_working_folder_is_used_only_after_it_was_trusted() {
    let place = std::env::temp_dir().join(format!("warmline-trust-{}", std::process::id()));
    let working = place.join("project");
    std::fs::create_dir_all(&working).unwrap();
    let path = working.join("warmline.toml");
    std::fs::write(&path, "[servers.a]\nurl = 'http://127.0.0.1/mcp'\n").unwrap();
    let folders = ConfigFolders {
        working,
        user: Some(place.join("user")),
        system: place.join("system"),
        state: Some(place.join("state")),
    };
    let store = TrustStore::in_state_folder(folders.state.as_deref());

    let file = &Config::read(None, &folders).unwrap().files()[0].clone();
    assert_eq!(
        file.require_trusted(&store).unwrap_err().code,
        Code::ConfigUntrusted
    );
    store.trust(file.path(), file.digest()).unwrap();
    let trusted = file.require_trusted(&store).unwrap();
    let server = trusted.server(&file.declarations()[0]).unwrap();
    assert_eq!(server.to_target().unwrap().target.name, "a");

    std::fs::write(&path, "[servers.a]\nurl = 'http://127.0.0.1/other'\n").unwrap();
    let config = Config::read(None, &folders).unwrap();
    let error = config.files()[0].require_trusted(&store).unwrap_err();
    assert_eq!(
        error.message,
        "`warmline.toml` of this folder changed since it was trusted"
    );

    let given = Config::read(Some(&path), &folders).unwrap();
    assert!(
        given.files()[0].require_trusted(&store).is_ok(),
        "a file that is named is trusted"
    );
    let error = config.find_server("b", &store).unwrap_err();
    assert_eq!(
        (error.code, error.hint.as_deref()),
        (Code::ServerUnknown, Some("did you mean `a`?"))
    );

    // What is wrong and not trusted is left out; what was trusted as it stands is not.
    std::fs::write(&path, "[servers.a]\nulr = 'http://127.0.0.1/mcp'\n").unwrap();
    let config = Config::read_skipping_untrusted(None, &folders, &store).unwrap();
    assert_eq!(config.files().len(), 0);
    assert_eq!(config.skipped_files()[0].path, path);
    let error = config.find_server("a", &store).unwrap_err();
    assert_eq!(error.code, Code::ConfigUnknownKey);
    let bytes = std::fs::read(&path).unwrap();
    store.trust(&path, &sha256_hex(&bytes)).unwrap();
    for read in [
        Config::read_skipping_untrusted(None, &folders, &store),
        Config::read_skipping_untrusted(Some(&path), &folders, &store),
        Config::read(None, &folders),
    ] {
        assert_eq!(read.unwrap_err().code, Code::ConfigUnknownKey);
    }
    std::fs::remove_dir_all(place).unwrap();
}

#[cfg(unix)]
#[test]
fn what_others_may_write_proves_no_trust() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = std::env::temp_dir().join(format!("warmline-private-{}", std::process::id()));
    std::fs::create_dir_all(&place).unwrap();
    let file = place.join("warmline.toml");
    std::fs::write(&file, "").unwrap();
    let store = TrustStore::in_state_folder(Some(&place));
    let digest = sha256_hex(b"");
    store.trust(&file, &digest).unwrap();
    assert!(store.is_trusted(&file, &digest));
    let entry = std::fs::read_dir(place.join("trust"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    assert_eq!(
        entry.metadata().unwrap().permissions().mode() & 0o777,
        0o600
    );
    std::fs::set_permissions(&entry, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert!(!store.is_trusted(&file, &digest));
    std::fs::remove_dir_all(place).unwrap();
}

/// reliability P19, reliability P30: no file makes it panic or tell a secret.
#[test]
fn a_broken_file_neither_panics_nor_tells_a_secret() {
    let toml = "[servers.a]\nurl = 'https://u:canary@x/?k=canary'\nheaders = { A = 'canary', B = \"canary\" }\n\
                era = 'auto'\n[servers.b]\ncommand = ['x', '--key', 'canary']\nenv = { K = 'canary' }\n";
    let json = r#"{"mcpServers": {"a": {"url": "https://x/?canary", "headers": {"K": "canary"}},
                "b": {"command": "x", "args": ["canary"], "env": {"K": "canary"}}}}"#;
    for (name, text) in [("warmline.toml", toml), (".mcp.json", json)] {
        assert!(read(name, text).is_ok());
        for place in 0..text.len() {
            let (before, after) = text.split_at(place);
            let rest = after.get(1..).unwrap_or_default();
            let broken = [
                before.to_owned(),
                format!("{before}{rest}"),
                format!("{before}\"{rest}"),
                format!("{before}'{rest}"),
                format!("{before}={rest}"),
                format!("{before}\n{rest}"),
                format!("{before}{{{rest}"),
                format!("{before}\u{1b}{rest}"),
            ];
            for text in broken {
                if let Err(error) = read(name, &text) {
                    let told = format!("{error:?}");
                    assert!(!told.contains("canary"), "{text}\n{told}");
                    assert!(!told.contains('\u{1b}'), "{text}\n{told}");
                }
            }
        }
    }
}

#[test]
fn a_variable_in_a_toml_file_is_an_error_and_not_a_dollar_sign() {
    #[rustfmt::skip]
    let table = [
        ("url = 'https://example.com/${TOK}/mcp'",                                "credential = { env = \"TOK\" }"),
        ("url = 'https://example.com'\nheaders = { Authorization = 'Bearer ${TOK}' }", "credential = { env = \"TOK\" }"),
        ("command = ['server', '--token', '${TOK}']",                             "exec PROGRAM … \\\"$TOK\\\"\"]` with `env_pass = [\"TOK\"]"),
        ("command = ['server']\nenv = { KEY = '${env:TOK}' }",                    "env_pass = [\"TOK\"]"),
    ];
    for (setting, instead) in table {
        let error = read("warmline.toml", &format!("[servers.a]\n{setting}\n")).unwrap_err();
        assert_eq!(error.code, Code::ConfigBadValue);
        assert_eq!(error.message, "warmline.toml does not fill in `${TOK}`");
        let hint = error.hint.unwrap();
        assert!(hint.contains(instead), "{hint}");
    }
    // A shell fills in variables itself.
    let shell = "[servers.a]\ncommand = ['sh', '-c', 'exec server --token ${TOK}']\n";
    assert!(read("warmline.toml", shell).is_ok());
}

#[test]
fn a_server_that_cannot_be_used_does_not_spoil_the_others() {
    #[rustfmt::skip]
    let table = [
        (r#"{"command": "x", "env": {"Z": ["canary"]}}"#, "`env.Z` of `odd` is a list, not a text"),
        (r#"{"command": "x", "disabled": true}"#,         "`odd` is switched off by `\"disabled\": true`"),
        (r#"{"type": "ws", "url": "wss://x/mcp"}"#,       "`odd` is of the kind `ws`, which is not an MCP server's"),
        (r#"{"type": "kiln_task", "url": "http://x"}"#,   "`odd` is of the kind `kiln_task`, which is not an MCP server's"),
    ];
    for (entry, what) in table {
        let text = format!(r#"{{"mcpServers": {{"good": {{"command": "x"}}, "odd": {entry}}}}}"#);
        let declarations = read("mcp.json", &text).unwrap();
        assert!(declarations[0].to_target(&environment).is_ok());
        let error = declarations[1].to_target(&environment).unwrap_err();
        assert_eq!(
            (error.code, error.message.as_str()),
            (Code::ConfigBadValue, what)
        );
    }
    let broken = r#"{"mcpServers": {"odd": {"command": ["x"]}}}"#;
    let error = read("mcp.json", broken).unwrap_err();
    assert_eq!(error.message, "`odd.command` is a text, not a list");
}

#[test]
fn every_key_stands_on_the_reference_page() {
    let page = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/settings.md"
    );
    let page = std::fs::read_to_string(page).unwrap();
    let keys = [keys::SERVER, keys::TOOL].concat();
    for key in keys.into_iter().filter(|key| *key != "tools") {
        assert!(page.contains(&format!("`{key}`")), "{key} is missing");
    }
    for key in keys::CREDENTIAL {
        assert!(page.contains(&format!("{{ {key} = ")), "{key} is missing");
    }
    for key in keys::CREDENTIAL_HEADER {
        assert!(page.contains(&format!("`{key} = ")), "{key} is missing");
    }
}
