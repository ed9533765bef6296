//! Declarations that cannot be meant: each is named with its place and the way out.

use warmline_core::error::code::Code;

use super::{http, json, toml};

/// A credential comes from one place and is shown in one form, or the file says what is wrong.
#[test]
fn a_credential_comes_from_one_place() {
    #[rustfmt::skip]
    let good = [
        "{ env = 'X' }", "{ file = 'secrets/{identity}/github' }", "{ command = ['pass', 'show', 'x'] }",
        "{ header = 'X-GitHub-Token', as = 'Authorization', form = 'Bearer {}' }", "{ env = 'X', as = 'X-API-Key' }",
    ];
    for credential in good {
        let text = format!("[servers.a]\nurl = 'https://x'\ncredential = {credential}");
        assert!(toml(&text).is_ok(), "{credential}: {:?}", toml(&text));
    }
    #[rustfmt::skip]
    let bad = [
        ("{}",                                    "`credential` does not say where it comes from"),
        ("{ as = 'X-API-Key' }",                  "`credential` does not say where it comes from"),
        ("{ env = 'X', file = 'y' }",             "`credential` comes from more than one place"),
        ("{ command = [] }",                      "the `command` of `credential` names no program"),
        ("{ env = 'ghp_canary-secret' }",         "`credential.env` is not the name of a variable"),
        ("{ header = 'Authorization' }",          "a credential cannot be taken from this header of a caller"),
        ("{ env = 'X', form = 'no place' }",      "the form of the credential cannot be used"),
        ("{ env = 'X', as = 'Content-Length' }",  "the form of the credential cannot be used"),
        ("{ file = 's/{identiy}/x' }",            "`{identiy}` stands for nothing in `credential.file`"),
        ("{ file = '${HOME}/{identity}' }",       "`{HOME}` stands for nothing in `credential.file`"),
        ("'canary'",                              "`credential` is a table, not a string"),
    ];
    for (credential, what) in bad {
        let text = format!("[servers.a]\nurl = 'https://x'\ncredential = {credential}");
        let error = toml(&text).unwrap_err();
        assert_eq!(
            (error.code, error.message.as_str()),
            (Code::ConfigBadValue, what)
        );
        assert!(!format!("{error:?}").contains("canary"), "{error:?}");
        assert_eq!(error.location.unwrap().position.unwrap().0, 3);
    }
    let near = "[servers.a]\nurl = 'https://x'\ncredential = { file = 's/{identiy}/x' }";
    let hint = toml(near).unwrap_err().hint;
    assert_eq!(hint.as_deref(), Some("did you mean `{identity}`?"));
    let shown = "[servers.a]\nurl = 'https://x'\ncredential = { env = 'T', as = 'X-API-Key' }";
    let lookup = |name: &str| (name == "T").then(|| "secret".to_owned());
    let reach = http(toml(shown).unwrap()[0].to_target(&lookup).unwrap());
    assert_eq!(
        (reach.headers[0].0.as_str(), &reach.headers[0].1),
        ("x-api-key", &"secret".parse().unwrap())
    );
    let outline =
        &toml("[servers.a]\nurl = 'https://x'\ncredential = { command = ['sh', '-c', 'cat x'] }")
            .unwrap()[0]
            .summary();
    assert_eq!(
        outline.credential_commands,
        ["sh -c 'cat x'"],
        "whoever trusts the file must see it"
    );
}

/// Wrong values of settings are named with key, value, place and the nearest word.
#[test]
fn a_wrong_setting_is_named_with_its_place() {
    #[rustfmt::skip]
    let table = [
        ("max_per_key = 0",                     "`max_per_key` cannot be 0",                   Some("1 to 10000 is possible")),
        ("wait = 10",                           "`wait` is not a duration: 10",                Some("write a number and a unit: `500ms`, `30s`, `2min`, `1h`")),
        ("wait = '10'",                         "`wait` is not a duration: `10`",              Some("write a number and a unit: `500ms`, `30s`, `2min`, `1h`")),
        ("wait = 1.5",                          "`wait` is a duration, not a number with a fraction", Some("write a number and a unit: `500ms`, `30s`, `2min`, `1h`")),
        ("spares = 'one'",                      "`spares` is not a whole number: `one`",       None),
        ("spares = 99999999999999999999",       "`spares` is a whole number, not a number out of all bounds", None),
        ("session_per = 'runs'",                "`session_per` cannot be `runs`",              Some("did you mean `run`?")),
        ("on_state_loss = 'end-run'",           "`on_state_loss` cannot be `end-run`",         Some("did you mean `end_run`?")),
        ("allow = 'x'",                         "`allow` is not a list of texts: `x`",         None),
        ("allow = [1]",                         "`allow` is a list of texts, not a list of other things", None),
        ("breaker = { threshhold = 1 }",        "`threshhold` is not a setting of `breaker`",  Some("did you mean `threshold`?")),
        ("breaker = { threshold = 0 }",         "`breaker.threshold` cannot be 0",             Some("1 to 1000 is possible")),
        ("breaker = 5",                         "`breaker` is a table, not an integer",        None),
        ("tools = { x = { repeatible = true } }", "`repeatible` is not a setting of a tool",   Some("did you mean `repeatable`?")),
        ("tools = { x = { session_per = 'never' } }", "`session_per` cannot be `never`",       Some("did you mean `server`?")),
        ("repeatable = true",                   "`repeatable` is not a setting of a server",   Some("say it for one tool: `tools.NAME.repeatable = true`")),
        ("protocol_version = '2025-11-26'",     "`protocol_version` cannot be `2025-11-26`",   Some("did you mean `2025-11-25`?")),
        ("timeout = '5s'",                      "`timeout` is not a setting of a server",      Some("`call_timeout` is for a whole call, `call_idle_timeout` for silence in it, \
            `connect_timeout`, `handshake_timeout` and `start_timeout` for opening")),
        ("url_env = 'http://x'",                "`url_env` is not the name of a variable",     Some("put the value into a variable, and name that")),
    ];
    for (line, what, hint) in table {
        let error = toml(&format!("[servers.a]\nurl = 'http://x'\n{line}\n")).unwrap_err();
        assert_eq!(
            (error.message.as_str(), error.hint.as_deref()),
            (what, hint),
            "{line}"
        );
        assert_eq!(error.location.unwrap().position.unwrap().0, 3, "{line}");
    }
    let error = toml("[limits]\nproceses = 1").unwrap_err();
    assert_eq!(error.message, "`proceses` is not a setting of `limits`");
    assert_eq!(error.hint.as_deref(), Some("did you mean `processes`?"));
    let error = toml("[limits]\nprocesses = 0").unwrap_err();
    assert_eq!(error.message, "`limits.processes` cannot be 0");
    let error = toml("[limit]\nprocesses = 1").unwrap_err();
    assert_eq!(error.hint.as_deref(), Some("did you mean `limits`?"));
}

/// reliability P28: a file applies whole or not at all; one mistake gives no server of it.
#[test]
fn a_file_with_one_mistake_gives_nothing_of_it() {
    let good =
        "[servers.a]\nurl = 'http://127.0.0.1:1/'\n[servers.b]\nurl = 'http://127.0.0.1:2/'\n";
    assert_eq!(toml(good).unwrap().len(), 2);
    for mistake in [
        "[servers.c]\nurl = 'http://x'\nspares = -1",
        "[servers.c]",
        "[limits]\nprocesses = 0",
        "[nonsense]",
        "[servers.c",
    ] {
        assert!(toml(&format!("{good}{mistake}\n")).is_err(), "{mistake}");
    }
}

/// Nobody can tell which of two is meant, so neither counts: in JSON as in TOML.
#[test]
fn a_name_that_stands_twice_in_a_json_file_is_named_with_its_place() {
    #[rustfmt::skip]
    let table = [
        ("{\"mcpServers\": {\n  \"a\": {\"url\": \"http://canary\"},\n  \"a\": {\"url\": \"http://y\"}}}", (3, 3)),
        ("{\"servers\": {\"a\": {\"command\": \"x\"}, \"\\u0061\": {\"command\": \"y\"}}}",           (1, 37)),
        ("{\"mcpServers\": {\"s\": {\"command\": \"x\",\n\"env\": {\"a\": \"canary\", \"a\": \"\"}}}}",  (2, 24)),
        ("{\"mcpServers\": {\"s\": {\"url\": \"http://x\",\n\"headers\": {\"a\": \"1\", \"a\": \"\"}}}}", (2, 23)),
        ("{\"capabilities\": {\"a\": {},\n\"a\": {}}}",                                                 (2, 1)),
    ];
    for (text, at) in table {
        let error = json(text).unwrap_err();
        assert_eq!(
            (error.code, error.message.as_str()),
            (Code::ConfigBadValue, "`a` stands here twice"),
            "{text}"
        );
        assert!(!format!("{error:?}").contains("canary"), "{error:?}");
        assert_eq!(
            error.hint.as_deref(),
            Some("rename one of them, or remove one")
        );
        assert_eq!(error.location.unwrap().position, Some(at), "{text}");
    }
    for text in [
        r#"{"mcpServers": {"s": {"command": "x", "command": "y"}}}"#,
        r#"{"mcpServers": {}, "mcpServers": {}}"#,
    ] {
        assert!(json(text).is_err(), "{text}");
    }
}

/// A variable that is not closed would reach the server as text.
#[test]
fn a_variable_that_is_not_closed_is_named_with_its_place() {
    #[rustfmt::skip]
    let table = [
        (r#""url": "https://${HOST/mcp""#,                             17),
        (r#""url": "https://x", "headers": {"X-Key": "${A} ${canary"}"#, 48),
        (r#""command": "p", "args": ["fine", "${A:-x} $B ${"]"#,        46),
        (r#""command": "p", "env": {"A": "${A", "B": "}"}"#,            31),
        (r#""command": "p", "args": ["${A:-\"x\"}", "${A:-\"x\""]"#,    42),
    ];
    for (entry, column) in table {
        let text = format!("{{\"mcpServers\": {{\"web\": {{\n{entry}}}}}}}");
        let error = json(&text).unwrap_err();
        assert_eq!(
            (error.code, error.message.as_str()),
            (
                Code::ConfigBadValue,
                "a `${` of `web` is not closed by a `}`"
            ),
            "{text}"
        );
        assert!(!format!("{error:?}").contains("canary"), "{error:?}");
        assert_eq!(
            error.hint.as_deref(),
            Some("write `${NAME}`; a `$` without a `{` behind it is a dollar sign")
        );
        assert_eq!(
            error.location.unwrap().position,
            Some((2, column)),
            "{text}"
        );
    }
    let fine =
        r#"{"mcpServers": {"web": {"command": "p", "args": ["$A", "$", "}", "{", "${A}"]}}}"#;
    assert!(json(fine).is_ok());
}
