//! Hints that say at once what is to be done: nobody is sent to another command to read it there.

use crate::prelude::*;

#[test]
fn what_a_server_answers_an_opening_with_says_what_to_do() {
    let warmline = Warmline::new();
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    #[rustfmt::skip]
    let table = [
        (CannedReply::new(404, "not here"),                            "older ones at `/sse`"),
        (CannedReply::new(403, "no"),                                  "the credential may lack the permission"),
        (CannedReply::new(429, "slow").header("Retry-After", "30"),    "the server asks to wait 30 s"),
        (CannedReply::redirect(307, "/mcp/"),                          "/mcp/`"),
        (CannedReply::redirect(308, "/other"),                         "/other`"),
        (CannedReply::redirect(307, "/mcp?key=canary"),                "use the URL that it redirects to, if you trust it"),
        (CannedReply::redirect(307, "http://127.0.0.1:1/mcp"),         "use the URL that it redirects to, if you trust it"),
    ];
    for (canned, hint) in table {
        server.inject(FaultRule::new(Fault::Reply(canned)).always());
        for words in [
            ["call", &server.url(), "counter"].as_slice(),
            &["call", &server.url(), "counter", "--run", "trip"],
        ] {
            let output = warmline.run(words);
            let said = output.stderr.lines().last().unwrap_or_default();
            let holds = said.starts_with("  hint: ") && said.contains(hint);
            assert!(holds, "{output}");
        }
        server.control().clear_faults();
    }
    server.inject(FaultRule::new(Fault::Reply(CannedReply::redirect(307, "/mcp/"))).always());
    shows!(warmline, "[SERVER]" = server.url(), @r"
    $ warmline tools [SERVER]
    2> error[open-failed]: `127.0.0.1:[PORT]` redirects elsewhere, and redirects are not followed
    2>   where: http://127.0.0.1:[PORT]/mcp
    2>   why: HTTP 307 to /mcp/
    2>   delivery: unsent (not executed, safe to call again)
    2>   hint: use the URL that it redirects to: `http://127.0.0.1:[PORT]/mcp/`
    exit: 3
    ");
}

/// A token that a server refuses is told by where it came from, never by its value.
#[test]
fn a_refused_token_is_told_by_its_source() {
    let warmline = Warmline::new().with("LAMP_TOKEN", "canary-of-variable");
    let server = LedgerServer::start(Personality::legacy().token("another")).unwrap();
    let url = server.url();
    let (by_env, by_file) = (
        format!("[servers.env]\nurl = '{url}'\ncredential = {{ env = 'LAMP_TOKEN' }}\n"),
        format!("[servers.file]\nurl = '{url}'\ncredential = {{ file = 'lamp.txt' }}\n"),
    );
    let by_headers =
        format!("[servers.headers]\nurl = '{url}'\nheaders = {{ X-Key = 'canary' }}\n");
    let file = warmline.write("w.toml", &format!("{by_env}{by_file}{by_headers}"));
    warmline.write("lamp.txt", "canary-of-file");
    let file = file.display().to_string();
    let config = ["--config", &file];
    #[rustfmt::skip]
    let table: [(Vec<&str>, &str); 6] = [
        ([&["call", "env", "counter"], &config[..]].concat(),            "variable `LAMP_TOKEN`"),
        ([&["call", "env", "counter", "--run", "r"], &config[..]].concat(), "variable `LAMP_TOKEN`"),
        ([&["call", "file", "counter"], &config[..]].concat(),           "lamp.txt"),
        ([&["tools", "headers"], &config[..]].concat(),                  "`headers` in "),
        (vec!["call", &url, "counter", "--header", "Authorization: Bearer canary"], "`--header`"),
        (vec!["call", &url, "counter", "--header-env", "Authorization=LAMP_TOKEN"], "variable `LAMP_TOKEN`"),
    ];
    for (words, from) in table {
        let doctor = ["call", "tools"].contains(&words[0]).then(|| {
            let rest = words.iter().skip(1).filter(|word| **word != "counter");
            [&["doctor"], &rest.copied().collect::<Vec<_>>()[..]].concat()
        });
        let doctor = doctor.filter(|words| !words.contains(&"--run"));
        for words in std::iter::once(words).chain(doctor) {
            let output = warmline.run(&words);
            let hint = format!("{}{}", output.stdout, output.stderr);
            let hint = hint.lines().find(|line| line.contains("hint: the token"));
            let holds = hint.is_some_and(|hint| hint.contains(from));
            assert!(holds, "{from}: {output}");
            assert!(!output.to_string().contains("canary"), "{output}");
        }
    }
}

/// The session of a run is there, and its server is not.
#[test]
fn a_server_that_is_gone_between_two_commands_of_a_run_is_told_as_that() {
    let warmline = Warmline::new();
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let url = server.url();
    let words = ["call", &url, "counter", "--run", "trip"];
    assert_eq!(warmline.run(&words).exit, 0);
    drop(server);
    tells!(warmline.run(&words), @r"
    exit: 3
    ----- stderr -----
    error[cannot-reach]: `127.0.0.1:[PORT]` could not be reached at http://127.0.0.1:[PORT]/mcp
      where: tools/list
      why: Connection refused (os error 111)
      delivery: unsent (not executed, safe to call again)
      hint: nothing listens there: start the server, or check host and port
    ");
}

/// Which setting decides how long a program may be silent: that one is named, and no other counts.
#[test]
fn a_silent_program_is_told_with_the_setting_that_decides() {
    let warmline = Warmline::new();
    let hang = "[servers.hang]\ncommand = ['sleep', '600']\nstart_timeout = '1s'\n";
    let file = warmline.write("w.toml", hang).display().to_string();
    shows!(warmline, "[FILE]" = file, @r"
    $ warmline call hang x --config [FILE]
    2> error[open-failed]: `hang` showed no sign of life within [TIME] of its start (`start_timeout`)
    2>   where: sleep 600
    2>   delivery: unsent (not executed, safe to call again)
    2>   hint: start it by hand and read its output: `sleep 600`; or allow more time: `start_timeout` in [WORK]/w.toml:1:10, or `--timeout`
    exit: 3
    ");
}

/// What is not used is told, and what cannot be read is an error, also where nobody needs it.
#[test]
fn an_authority_for_a_url_without_tls_is_told() {
    let warmline = Warmline::new();
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let words = ["call", &server.url(), "counter", "--ca-file", "nope.pem"];
    tells!(warmline.run(&words), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: cannot read the file of `--ca-file`
      why: nope.pem: No such file or directory (os error 2)
      hint: name a file of certificates in PEM format
    ");
    warmline.write("nope.pem", "");
    tells!(warmline.run(&words), @r#"
    exit: 0
    ----- stdout -----
    {"count":1}
    ----- stderr -----
    note: `--ca-file` has no effect: a URL with `http://` has no certificate
    "#);
}

/// A program that echoes answers our question with our own refusal.
#[test]
fn a_program_that_repeats_what_it_hears_is_told() {
    let warmline = Warmline::new();
    shows!(warmline, @r"
    $ warmline call x -- cat
    2> error[open-failed]: `cat` repeats what is sent to it
    2>   why: it is not an MCP server
    2>   delivery: unsent (not executed, safe to call again)
    2>   hint: check the command: an argument that starts MCP may be missing
    exit: 3
    ");
}

/// Of many mistakes the first one is told, and how many there are.
#[test]
fn of_many_mistakes_the_first_is_told() {
    let warmline = Warmline::new();
    let text = "[servers.a]\nurl = 'http://a/mcp'\ncommand = ['x']\n\n[servers.b]\nurll = 'http://b'\n\n[gatewy]\n";
    let file = warmline.write("bad.toml", text).display().to_string();
    shows!(warmline, "[FILE]" = file, @r"
    $ warmline call a x --config [FILE]
    2> error[config-bad-value]: `a` has a `command` and a `url`; a server has one of them
    2>   where: [WORK]/bad.toml:1:10
    2>   hint: keep `command` for a program that is started here, `url` for a server that runs; and 2 more: `warmline check [WORK]/bad.toml`
    exit: 2
    ");
    let text = "[servers.a]\nera = 'legacy'\nurl = 'htp://a/mcp'\n";
    let file = warmline.write("bad.toml", text).display().to_string();
    shows!(warmline, "[FILE]" = file, @r"
    $ warmline call a x --config [FILE]
    2> error[config-bad-value]: the `url` of `a` is not a URL
    2>   where: [WORK]/bad.toml:3:7
    2>   why: `htp` is not a scheme of MCP; `http` and `https` are
    exit: 2
    ");
    let text = r#"{"mcpServers": {"a": {"url": "${NOPE}/mcp"}}}"#;
    let file = warmline.write("bad.json", text).display().to_string();
    shows!(warmline, "[FILE]" = file, @r"
    $ warmline call a x --config [FILE]
    2> error[config-bad-value]: a variable of `a` cannot be filled in
    2>   where: [WORK]/bad.json:1:22
    2>   why: `NOPE` is not set
    2>   hint: set it in the environment of this command, or write `${NAME:-VALUE}`
    exit: 2
    ");
}

/// What `init` leaves to be filled in, and what a program will miss.
#[test]
fn check_tells_of_gaps() {
    let warmline = Warmline::new();
    let text = "[servers.a]\ncommand = ['sh', '--key', 'FILL_IN']\nenv_pass = ['NOT_HERE']\n";
    warmline.write("warmline.toml", text);
    assert_eq!(warmline.run(&["trust", "--yes"]).exit, 0);
    warmline.write("warmline.toml", &format!("{text}# more\n"));
    shows!(warmline, @r"
    $ warmline check
    ok  [WORK]/warmline.toml · 1 server · changed since it was trusted: `warmline trust`
    2> note: `a` still has a `FILL_IN`: put the value there; for secrets better use `env_pass` (docs/guide/configuration.md, Secrets)
    2> note: `a` passes `NOT_HERE` on, and it is not set here
    $ warmline add b http://127.0.0.1:[PORT]/mcp --here
    added b to [WORK]/warmline.toml
    2> next: `warmline doctor b`
    2> note: [WORK]/warmline.toml is not trusted: `warmline trust`
    ");
}

/// A file that we wrote was never shown by `trust`.
#[test]
fn a_file_that_add_wrote_is_accepted_by_that() {
    let warmline = Warmline::new();
    let output = warmline.run(&["add", "b", "http://127.0.0.1:1/mcp", "--here"]);
    output.does_not_say("not trusted");
    let output = warmline.run(&["doctor", "b"]);
    output.prints("by `warmline trust` or `add --here`");
}

/// Whoever waits for a request in the clear is silent to a greeting of TLS.
#[test]
fn a_port_without_tls_is_told_to_be_tried_without() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/mcp", silent.local_addr().unwrap());
    let output = Warmline::new().run(&["call", &url, "x", "--timeout", "1s"]);
    let hint = output.stderr.lines().last().unwrap_or_default();
    assert!(hint.contains("try the URL with `http://`"), "{output}");
}
