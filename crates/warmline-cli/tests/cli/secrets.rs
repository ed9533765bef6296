//! Secrets are sent where they belong and told to nobody.

use crate::prelude::*;

use std::ffi::OsStr;
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;

const CANARY: &str = "canary-4f1d";

fn silent_about_it(output: &CommandOutput) {
    assert!(!output.everything().contains(CANARY), "{output}");
}

/// A66, reliability P30: headers appear in no output.
#[test]
fn a_header_reaches_the_server_and_no_output() {
    let server = LedgerServer::start(Personality::legacy().token(CANARY)).unwrap();
    let url = server.url();
    let bearer = format!("Authorization: Bearer {CANARY}");
    let warmline = Warmline::new()
        .with("MY_AUTH", &format!("Bearer {CANARY}"))
        .with("WARMLINE_LOG", "trace");
    let ways: [&[&str]; 2] = [
        &["--header", &bearer],
        &["--header-env", "Authorization=MY_AUTH"],
    ];
    for way in ways {
        for command in [
            &["call", &url, "pay", "amount=1"][..],
            &["tools", &url],
            &["doctor", &url],
        ] {
            for more in [
                &[][..],
                &["--verbose"],
                &["--json"],
                &["--verbose", "--json"],
            ] {
                let words: Vec<&str> = [command, way, more].concat();
                let output = warmline.run(&words);
                assert_eq!(output.exit, 0, "{words:?}: {output}");
                silent_about_it(&output);
            }
        }
    }
    assert!(server.ledger().executions("pay") > 0);
}

/// A66, reliability P30: nor do tokens that were refused.
#[test]
fn a_refused_token_is_not_repeated() {
    let server = LedgerServer::start(Personality::legacy().token("another")).unwrap();
    let warmline = Warmline::new()
        .with("MY_AUTH", &format!("Bearer {CANARY}"))
        .with("WARMLINE_LOG", "trace");
    for command in ["tools", "doctor"] {
        let output = warmline.run(&[
            command,
            &server.url(),
            "--header-env",
            "Authorization=MY_AUTH",
            "-v",
        ]);
        output.fails();
        silent_about_it(&output);
    }
}

/// A66, reliability P30: nor values of variables.
#[test]
fn values_of_variables_and_urls_stay_inside() {
    let warmline = Warmline::new()
        .with("TOKEN", CANARY)
        .with("WARMLINE_LOG", "trace");
    warmline.write_user("warmline.toml", &format!(
        "[servers.prog]\ncommand = [{BINARY:?}, 'demo-server', '--stdio']\nenv = {{ KEY = '{CANARY}' }}\nenv_pass = ['TOKEN']\n\
         [servers.web]\nurl = 'http://127.0.0.1:1/mcp?key={CANARY}'\ncredential = {{ env = 'TOKEN' }}\n"
    ));
    let output = warmline.run(&["call", "prog", "env", "--verbose"]);
    output.prints("\"KEY\"").prints("\"TOKEN\"");
    silent_about_it(&output);
    for words in [
        &["doctor", "prog", "-v"][..],
        &["doctor", "web", "-v"],
        &["doctor", "--json"],
        &["tools", "web", "-v"],
        &["tools", "web", "--json"],
    ] {
        silent_about_it(&warmline.run(words));
    }
    let url = format!("http://user:{CANARY}@127.0.0.1:1/mcp?key={CANARY}");
    for words in [
        &["tools", &url, "-v"][..],
        &["doctor", &url],
        &["tools", &format!("ftp://{CANARY}@x/")],
    ] {
        silent_about_it(&warmline.run(words));
    }
}

/// A66, reliability P30: a server that repeats what it was sent tells nobody here: when a session is
/// opened and when a tool is called, wherever the secret comes from, at every level of the log.
#[test]
fn what_a_server_repeats_of_a_request_is_told_to_nobody() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let url = server.url();
    let warmline = Warmline::new()
        .with("TOKEN", CANARY)
        .with("WHOLE_URL", &format!("{url}?key={CANARY}"))
        .with("WARMLINE_LOG", "trace");
    warmline.write_user("token", CANARY);
    warmline.write_user(
        "warmline.toml",
        &format!(
            "[servers.env]\nurl = '{url}'\ncredential = {{ env = 'TOKEN' }}\n\
             [servers.file]\nurl = '{url}'\n\
             credential = {{ file = 'token', as = 'X-Api-Key', form = '{{}}' }}\n\
             [servers.whole]\nurl_env = 'WHOLE_URL'\n"
        ),
    );
    let json = serde_json::json!({ "mcpServers": {
        "headers": { "url": url, "headers": { "X-Api-Key": "${TOKEN}" } },
        "path": { "url": "http://127.0.0.1:1/hooks/${TOKEN}/mcp" },
        "query": { "url": format!("{url}?key=${{TOKEN}}") },
        "program": { "command": "sh", "args": ["-c", "echo $0 >&2; exit 3", "${TOKEN}"] },
    } });
    warmline.write_user("mcp.json", &json.to_string());
    let said = format!("you sent Bearer {CANARY} and /mcp?key={CANARY}");
    let error = serde_json::json!({
        "jsonrpc": "2.0", "id": null, "error": { "code": -32600, "message": said },
    });
    let mut echoes = [401, 403, 404, 500]
        .map(|status| CannedReply::new(status, &said))
        .to_vec();
    echoes.push(CannedReply::new(400, &error.to_string()).json());
    for echo in echoes {
        for method in ["initialize", "server/discover", "tools/call"] {
            let fault = Fault::Reply(echo.clone());
            server.inject(FaultRule::new(fault).on_method(method).always());
        }
        for name in ["env", "file", "whole", "headers", "query"] {
            for words in [
                &["doctor", name, "-v"][..],
                &["call", name, "pay", "amount=1", "-v"],
                &["tools", name, "--json"],
            ] {
                let output = warmline.run(words);
                assert_ne!(output.exit, 0, "{words:?}: {output}");
                silent_about_it(&output);
            }
        }
        server.control().clear_faults();
    }
    for name in ["path", "program"] {
        for command in ["doctor", "tools"] {
            let output = warmline.run(&[command, name, "-v"]);
            output.fails();
            silent_about_it(&output);
        }
    }
}

#[test]
fn what_a_file_expands_is_told_as_it_is_written() {
    let warmline = Warmline::new().with("TOKEN", CANARY);
    warmline.write_user(
        "mcp.json",
        r#"{"mcpServers": {"prog": {"command": "false", "args": ["--token", "${TOKEN}"]}}}"#,
    );
    let commands = [
        &["tools", "prog", "-v"][..],
        &["doctor", "prog"],
        &["doctor"],
        &["tools", "prog", "--json"],
    ];
    for words in commands {
        let output = warmline.run(words);
        silent_about_it(&output);
        assert!(output.everything().contains("--token ${TOKEN}"), "{output}");
    }
}

#[test]
fn a_secret_in_the_wrong_place_is_not_repeated() {
    let warmline = Warmline::new().with("KEY", CANARY);
    warmline.write_user(
        "mcp.json",
        r#"{"mcpServers": {"web": {"url": "http://127.0.0.1:1/${KEY}/mcp"}}}"#,
    );
    let url = format!("http://127.0.0.1:1/mcp?key={CANARY}");
    let header = format!("Authorization=Bearer {CANARY}");
    #[rustfmt::skip]
    let table: [(&[&str], &str); 6] = [
        (&["tools", "http://127.0.0.1:1/mcp", "--header-env", &header], "is not the name of a variable"),
        (&["tools", "web", "-v"],                                      "127.0.0.1:1/"),
        (&["doctor", "web", "-v"],                                     "127.0.0.1"),
        (&["call", "web", "x", "--json"],                              "127.0.0.1:1/"),
        (&["tools", "web", &url],                                      "unexpected argument"),
        (&["call", &format!("x/mcp?key={CANARY}"), "pay"],              "expected a target, not"),
    ];
    for (words, said) in table {
        let output = warmline.run(words);
        silent_about_it(&output);
        output.fails();
        assert!(output.everything().contains(said), "{words:?} {output}");
    }
}

/// A variable that is no text is told by its name wherever something is taken from it; nothing is
/// put in its place, nothing of it is shown, and nothing is sent.
#[test]
fn a_variable_that_is_no_text_is_told_by_its_name() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let url = server.url();
    let json = |entry: &str| ("mcp.json", format!(r#"{{"mcpServers":{{"one":{entry}}}}}"#));
    let toml = |line: &str| ("warmline.toml", format!("[servers.one]\n{line}\n"));
    let with_url = |line: &str| toml(&format!("url = '{url}'\n{line}"));
    let configured: &[&str] = &["tools", "one"];
    let (header, plain) = (
        ["tools", &url, "--header-env", "X-Tenant=BAD"],
        ["tools", &url],
    );
    #[rustfmt::skip]
    let table = [
        (Some(json(r#"{"url":"${BAD}"}"#)),                                   configured, "BAD"),
        (Some(json(&format!(r#"{{"url":"{url}","headers":{{"X-A":"${{BAD:-x}}"}}}}"#))), configured, "BAD"),
        (Some(json(r#"{"command":"true","args":["${env:BAD}"]}"#)),           configured, "BAD"),
        (Some(json(r#"{"command":"true","env":{"TOKEN":"${BAD}"}}"#)),        configured, "BAD"),
        (Some(with_url("credential = { env = 'BAD' }")),                      configured, "BAD"),
        (Some(with_url("url_env = 'BAD'")),                                   configured, "BAD"),
        (Some(with_url("auth_env = 'BAD'")),                                  configured, "BAD"),
        (Some(with_url("")),                                                  configured, "MCP_SERVER_URL"),
        (Some(with_url("")),                                                  configured, "MCP_AUTH_TOKEN"),
        (None,                                                                &plain,     "MCP_AUTH_TOKEN"),
        (None,                                                                &header,    "BAD"),
    ];
    for (file, words, variable) in table {
        let warmline = Warmline::new();
        if let Some((name, text)) = &file {
            warmline.write_user(name, text);
        }
        let mut command = warmline.command(words);
        command.env(variable, OsStr::from_bytes(b"canary\xff"));
        let output = warmline.told(&command.output().unwrap());
        assert_eq!(output.exit, 2, "{variable} in {file:?}: {output}");
        for word in [variable, "no text"] {
            assert!(
                output.stderr.contains(word),
                "{variable} in {file:?}: {output}"
            );
        }
        assert!(!output.to_string().contains("canary"), "{output}");
    }
    assert_eq!(server.counts().requests, 0);
}

/// reliability T9, reliability P30, reliability O24, A66: a gateway tells no secret of its
/// configuration, of its environment or of its clients: not in what it prints, logs at any level,
/// writes into its audit or shows to machines that watch it, nor what a program tells of its own.
/// Callers also read no path and no address of what stands behind it, but for our own user.
#[test]
fn a_gateway_tells_no_secret_anywhere() {
    let server = LedgerServer::start(Personality::legacy().token(CANARY)).unwrap();
    let address = server.address();
    let warmline = Warmline::new()
        .with("TOKEN", CANARY)
        .with("WARMLINE_LOG", "trace");
    let audit = warmline.work().join("audit.jsonl");
    // A secret that no variable holds: nothing can be struck out of what its program says.
    let minted = warmline.work().join("minted");
    std::fs::write(&minted, "canary-that-was-minted").unwrap();
    warmline.write_user("warmline.toml", &format!(
        "[audit]\nfile = '{}'\n[log]\nformat = 'json'\n\
         [servers.prog]\ncommand = [{BINARY:?}, 'demo-server', '--stdio']\nenv = {{ KEY = '{CANARY}' }}\nenv_pass = ['TOKEN']\n\
         [servers.web]\nurl = 'http://{address}/mcp?key={CANARY}'\ncredential = {{ env = 'TOKEN' }}\n\
         [servers.dying]\ncommand = ['sh', '-c', 'echo \"no login with $KEY, $TOKEN\" >&2; echo \"$KEY\"; exit 3']\nenv = {{ KEY = '{CANARY}-key' }}\nenv_pass = ['TOKEN']\n\
         [servers.missing]\ncommand = ['/nowhere/inner/prog']\n\
         [servers.unlocked]\nurl = 'http://{address}/mcp'\ncredential = {{ command = ['sh', '-c', 'echo $TOKEN >&2; exit 1'] }}\n\
         [servers.minted]\nurl = 'http://{address}/mcp'\ncredential = {{ command = ['sh', '-c', 'echo wl_; cat {minted:?}; cat {minted:?} >&2; exit 5'] }}\n\
         [servers.dead]\nurl = 'http://127.0.0.1:1/mcp?key={CANARY}'\ncredential = {{ env = 'TOKEN' }}\n",
        audit.display()
    ));
    let serving = Serving::start(&warmline, &[]);
    let own = local_token(&warmline.state());
    let made = warmline.run(&["token", "new", "alice"]).stdout;
    let made = made.trim();
    let mut told = serving.said.to_string();
    let names = [
        "prog", "web", "dead", "dying", "missing", "unlocked", "minted",
    ];
    let everybody = [own.as_str(), made].into_iter();
    let each = everybody.flat_map(|token| names.map(|name| (name, token)));
    for (name, token) in each.chain([("web", "wl_another-secret")]) {
        let url = format!(
            "{}/runs/trip/servers/{name}/mcp?key={CANARY}",
            serving.base()
        );
        let header = format!("Authorization: Bearer {token}");
        for tool in ["counter", "no-such-tool"] {
            let words = [
                "call",
                &url,
                tool,
                "--header",
                &header,
                "--header",
                "X-My: header",
            ];
            let answer = warmline.run(&words);
            let answer = answer.everything();
            for inner in ["/nowhere/inner", "127.0.0.1:1/", "no login with"] {
                let is_told = answer.contains(inner);
                assert!(!is_told || token == own, "{name}: {answer}");
            }
            told.push_str(&answer);
        }
    }
    for path in ["/metrics", "/servers", "/readyz", "/livez", "/nothing"] {
        let said = serving.page(path);
        assert!(said.contains("HTTP/1.1 "), "{path}: {said}");
        told.push_str(&said);
    }
    assert!(
        told.contains("warmline_calls_total{"),
        "the numbers were heard"
    );
    // Of all servers in one, each that cannot be met is named in the log.
    let all = format!("{}/mcp", serving.base());
    assert!(told.contains("/nowhere/inner"), "our own user reads it");
    let header = format!("Authorization: Bearer {own}");
    told.push_str(
        &warmline
            .run(&["tools", &all, "--header", &header])
            .everything(),
    );
    for words in [
        &["doctor", "--json"][..],
        &["doctor", "dying", "-v"],
        &["doctor", "minted", "-v"],
        &["tools", "minted", "-v"],
    ] {
        told.push_str(&warmline.run(words).everything());
    }
    let log = serving.stop(&warmline);
    let struck = "no login with [redacted: KEY], [redacted: TOKEN]";
    assert!(log.contains(struck), "the log says why: {log}");
    let failed = "the credential command of `minted`, failed";
    assert!(log.contains(failed), "it is told, without words: {log}");
    told.push_str(&log);
    let audit = std::fs::read_to_string(audit).unwrap();
    assert!(
        audit.contains("\"server\":\"web\"") && audit.contains("unknown-token"),
        "{audit}"
    );
    told.push_str(&audit);
    for hidden in [CANARY, &own, made, "wl_another-secret", "that-was-minted"] {
        let place = told.find(hidden);
        let around = place.map(|at| told.get(at.saturating_sub(200)..at + 40));
        assert_eq!(around, None, "{hidden} was told");
    }
    for line in told.lines().filter(|line| line.contains("\"target\"")) {
        serde_json::from_str::<Value>(line).unwrap();
    }
}

/// reliability T10: nobody reads the memory of a running process of ours, not even who started it.
///
/// What the system keeps of such a process in `/proc` belongs to root. Where the test is root
/// itself, it starts the program as nobody.
#[test]
#[cfg(target_os = "linux")]
fn no_other_program_of_the_user_looks_into_ours() {
    const NOBODY: u32 = 65_534;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    // Where the build lies not everybody may look.
    let binary = folder.path().join("warmline");
    std::fs::copy(BINARY, &binary).unwrap();
    let own = std::fs::metadata("/proc/self").unwrap().uid();
    let mut command = Command::new(&binary);
    command.args(["demo-server", "--stdio"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    if own == 0 {
        command.uid(NOBODY);
    }
    let mut child = command.spawn().unwrap();
    let mut asked = child.stdin.take().unwrap();
    writeln!(asked, r#"{{"jsonrpc":"2.0","id":1,"method":"ping"}}"#).unwrap();
    let mut answer = String::new();
    let mut answers = BufReader::new(child.stdout.take().unwrap());
    answers.read_line(&mut answer).unwrap();
    assert!(answer.contains("\"id\":1"), "{answer}");
    let environment = std::fs::metadata(format!("/proc/{}/environ", child.id())).unwrap();
    drop(asked);
    child.wait().unwrap();
    assert_eq!(environment.uid(), 0);
}

/// Values of a command line that look like secrets stand on no screen, whoever prints it; what
/// `trust` shows is still enough to decide.
#[test]
fn a_command_line_is_printed_without_its_secrets() {
    let warmline = Warmline::new();
    let file = format!(
        "[servers.prog]\ncommand = [{BINARY:?}, 'demo-server', '--stdio', '--api-key', '{CANARY}', '--token={CANARY}']\n"
    );
    warmline.write("warmline.toml", &file);
    let output = warmline.run(&["trust", "--yes"]);
    silent_about_it(&output);
    let shown = format!("{BINARY} demo-server --stdio --api-key … --token=…");
    output
        .says(&shown)
        .says("looks like a secret: see the file");
    let typed = ["--", BINARY, "demo-server", "--stdio", "--api-key", CANARY];
    for words in [
        &["doctor"][..],
        &["doctor", "prog", "-v"],
        &["tools", "prog", "-v"],
        &["call", "prog", "nothing", "-v"],
        &["check"],
        &["trust", "--json"],
    ] {
        silent_about_it(&warmline.run(words));
        silent_about_it(&warmline.run(&[words, &["--json"]].concat()));
    }
    for words in [&["doctor"][..], &["tools", "-v"], &["call", "nothing"]] {
        silent_about_it(&warmline.run(&[words, &typed].concat()));
    }
}

/// `init` holds to "without one secret" in what it says, too.
#[test]
fn init_says_no_secret_of_a_server_that_two_clients_have() {
    let warmline = Warmline::new();
    for (place, token) in [
        (".config/Claude/claude_desktop_config.json", "ghp_first"),
        (".cursor/mcp.json", CANARY),
    ] {
        let path = warmline.home().join(place);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let more = if token == CANARY { "other" } else { "z" };
        let text = format!(
            r#"{{"mcpServers": {{"gh": {{"command": "npx", "args": ["-y", "{more}", "--token", "{token}"]}}}}}}"#
        );
        std::fs::write(path, text).unwrap();
    }
    let output = warmline.run(&["init"]);
    silent_about_it(&output);
    output.says("another `gh`, npx -y other --token …;");
}

/// Secrets that `add` writes, and that `check` finds, are told with their line and what to write.
#[test]
fn a_secret_that_is_written_down_is_told() {
    let warmline = Warmline::new();
    shows!(warmline, "[CANARY]" = CANARY, @r#"
    $ warmline add q -- npx z --api-key [CANARY]
    added q to [HOME]/.config/warmline/warmline.toml
    2> next: `warmline doctor q`
    2> note: `--api-key` of `q` in [HOME]/.config/warmline/warmline.toml:2:37 is a secret in plain text: pass it on as the variable that the program reads (`env_pass = ["NAME"]`), or let a shell fill in `$Q_API_KEY`: `command = ["sh", "-c", …]`
    "#);
    tells!(warmline.run(&["add", "w", &format!("http://127.0.0.1:1/mcp?api_key={CANARY}")]), @r#"
    exit: 0
    ----- stdout -----
    added w to [HOME]/.config/warmline/warmline.toml
    ----- stderr -----
    next: `warmline doctor w`
    note: `api_key` of `w` in [HOME]/.config/warmline/warmline.toml:5:7 is a secret in plain text: put the whole URL into a variable, and write `url_env = "W_URL"`
    "#);
    let file = warmline.home().join(".config/warmline/warmline.toml");
    let mut text = std::fs::read_to_string(&file).unwrap();
    text.push_str("[servers.e]\ncommand = ['true']\nenv = { API_KEY = 'sk-1' }\n");
    std::fs::write(&file, text).unwrap();
    shows!(warmline, @r#"
    $ warmline check
    ok  [HOME]/.config/warmline/warmline.toml · 3 servers
    2> note: `--api-key` of `q` in [HOME]/.config/warmline/warmline.toml:2:37 is a secret in plain text: pass it on as the variable that the program reads (`env_pass = ["NAME"]`), or let a shell fill in `$Q_API_KEY`: `command = ["sh", "-c", …]`
    2> note: `api_key` of `w` in [HOME]/.config/warmline/warmline.toml:5:7 is a secret in plain text: put the whole URL into a variable, and write `url_env = "W_URL"`
    2> note: `API_KEY` of `e` in [HOME]/.config/warmline/warmline.toml:8:19 is a secret in plain text: put it into a variable, and write `env_pass = ["API_KEY"]`
    "#);
}
