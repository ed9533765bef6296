//! What cannot be used is left out and told, and stops nobody who can go on without it.

use crate::prelude::*;

/// Names of the servers that a gateway serves.
fn served(serving: &Serving) -> Vec<String> {
    let servers = serving.said["servers"].as_array().unwrap().iter();
    let names = servers.map(|server| server["name"].as_str().unwrap().to_owned());
    names.collect()
}

/// What a gateway cautions of at its start, in its log, which is in JSON.
fn said_at_the_start(warmline: &Warmline, words: &[&str]) -> (Vec<String>, CommandOutput) {
    let words = [&["--ops", "none"], words].concat();
    let serving = Serving::start(warmline, &words);
    let servers = served(&serving);
    let told = serving.stop(warmline);
    let lines = told.lines().map(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["caution"].as_str().map(str::to_owned)
    });
    let plain: Vec<String> = lines.flatten().collect();
    (servers, warmline.told_on_stderr(&plain.join("\n")))
}

const DECLARED: &str = r#"{"mcpServers": {"theirs": {"command": "touch", "args": ["executed"]}}}"#;

/// DESIGN 9: a file of the folder counts for nothing until it is trusted, whether it is right or
/// wrong, new or changed.
#[test]
fn a_file_that_is_not_trusted_stops_no_gateway_that_has_other_servers() {
    let states = ["new", "changed", "broken"];
    for state in states {
        let warmline = Warmline::new();
        warmline.write_user(
            "warmline.toml",
            "[servers.own]\nurl = 'http://127.0.0.1:1/mcp'\n",
        );
        let file = warmline.write(".mcp.json", DECLARED);
        if state == "changed" {
            assert_eq!(warmline.run(&["trust", "--yes"]).exit, 0);
            std::fs::write(&file, DECLARED.replace("executed", "changed")).unwrap();
        } else if state == "broken" {
            std::fs::write(&file, DECLARED.replace("command", "commnd")).unwrap();
        }
        let by_url = ["http://127.0.0.1:2/mcp"];
        let ways: [(&[&str], &str); 3] =
            [(&[], "own"), (&["own"], "own"), (&by_url, "127-0-0-1-2")];
        for (words, name) in ways {
            let (servers, output) = said_at_the_start(&warmline, words);
            assert_eq!(servers, [name], "{state}");
            let says = match state {
                "new" => ".mcp.json is not trusted, and is not used: `warmline trust`",
                "changed" => {
                    ".mcp.json changed since it was trusted, and is not used: `warmline trust`"
                },
                _ => ".mcp.json is not trusted, has an error, and is not used: `warmline check`",
            };
            assert!(
                output.stderr.trim_end().ends_with(says),
                "{state}: {output}"
            );
        }
        let output = warmline.run_with_input(&["stdio"], "");
        assert_eq!(output.exit, 0, "{state}: {output}");
        assert_eq!(output.stderr.lines().count(), 1, "{state}: {output}");
        let output = warmline.run(&["url", "own"]);
        assert_eq!(output.exit, 0, "{state}: {output}");
        let output = warmline.run(&["serve", "theirs"]);
        assert_eq!(output.exit, 2, "{state}: {output}");
        assert!(!warmline.work().join("executed").exists(), "{state}");
    }
}

/// A single command goes on with what it knows, and says what it did not look at.
#[test]
fn a_broken_file_that_nobody_trusted_stops_no_command() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let warmline = Warmline::new();
    let text = format!("[servers.own]\nurl = '{}'\n", server.url());
    warmline.write_user("warmline.toml", &text);
    warmline.write("warmline.toml", "[servers.theirs]\ncomand = ['x']\n");
    shows!(warmline, @r#"
    $ warmline call own counter
    {"count":1}
    2> note: [WORK]/warmline.toml is not trusted, has an error, and is not used
    $ warmline call theirs counter
    2> error[config-unknown-key]: `comand` is not a setting of a server
    2>   where: [WORK]/warmline.toml:2:1
    2>     |
    2>   2 | comand = …
    2>     | ^^^^^^ did you mean `command`?
    exit: 2
    $ warmline doctor
    config      ok      [HOME]/.config/warmline/warmline.toml: 1 server, no unknown keys
    own         unseen  http://127.0.0.1:[PORT]/mcp
    config      broken  [WORK]/warmline.toml:2:1: `comand` is not a setting of a server
                hint: did you mean `command`?

    3 questions · 1 unseen · 1 broken
    no server was started or contacted: `warmline doctor own` does
    exit: 2
    "#);
}

/// What is in use does not vanish by a slip of the hand: a changed file is refused as a whole.
#[test]
fn a_gateway_keeps_what_it_took_from_a_file_that_changes() {
    let warmline = Warmline::new();
    let file = warmline.write(".mcp.json", DECLARED);
    assert_eq!(warmline.run(&["trust", "--yes"]).exit, 0);
    for change in [
        DECLARED.replace("executed", "changed"),
        DECLARED.replace("command", "commnd"),
    ] {
        std::fs::write(&file, DECLARED).unwrap();
        let serving = Serving::start(&warmline, &["--ops", "127.0.0.1:0"]);
        assert_eq!(served(&serving), ["theirs"]);
        std::fs::write(&file, change).unwrap();
        serving.refuses_its_file();
        let told = serving.stop(&warmline);
        assert!(told.contains("configuration not read again"), "{told}");
    }
}

/// reliability F65: what could never be used does not take the place of what works.
#[test]
fn a_gateway_keeps_what_works_where_its_file_names_what_cannot() {
    let warmline = Warmline::new().with("A_TOKEN", "one");
    let working =
        "[servers.own]\nurl = 'http://127.0.0.1:1/mcp'\ncredential = { env = 'A_TOKEN' }\n";
    let file = warmline.write_user("warmline.toml", working);
    for change in [
        working.replace("A_TOKEN", "NO_SUCH_TOKEN"),
        working.replace("http://", "http://user:secret@"),
        working.replace("http:", "https:") + "ca_file = '/does/not/exist.pem'\n",
    ] {
        std::fs::write(&file, working).unwrap();
        let serving = Serving::start(&warmline, &["--ops", "127.0.0.1:0"]);
        assert_eq!(served(&serving), ["own"]);
        std::fs::write(&file, &change).unwrap();
        serving.refuses_its_file();
        serving.stop(&warmline);
        let output = warmline.run(&["check"]);
        // A token may be set where the gateway starts.
        let is_here = !change.contains("NO_SUCH_TOKEN");
        assert_eq!(output.exit, if is_here { 2 } else { 0 }, "{change}{output}");
        let holds = is_here || output.stderr.contains("`NO_SUCH_TOKEN` is not set");
        assert!(holds, "{output}");
    }
}

/// A66: a variable that a file fills into the path of a program is named, and its value is not told.
#[test]
fn a_program_that_is_not_there_is_told_without_what_was_filled_in() {
    let warmline = Warmline::new().with("SOME_KEY", "canary-4f1d");
    let json = r#"{"mcpServers": {"lost": {"command": "/no/such/${SOME_KEY}"}}}"#;
    warmline.write_user("mcp.json", json);
    let (servers, output) = said_at_the_start(&warmline, &[]);
    assert_eq!(servers, ["lost"]);
    tells!(output, @r"
    exit: 0
    ----- stderr -----
    `lost` may not start: there is no program /no/such/[redacted: SOME_KEY]
    ");
    for words in [
        &["doctor"][..],
        &["doctor", "lost", "-v"],
        &["doctor", "lost", "--offline"],
        &["tools", "lost", "-v"],
        &["doctor", "--json"],
    ] {
        let output = warmline.run(words);
        assert!(!output.everything().contains("canary-4f1d"), "{output}");
    }
}

/// P101: one server that cannot work is told at the start, and the others are served. Nothing is started
/// to find out.
#[test]
fn a_server_that_cannot_work_is_named_and_the_others_are_served() {
    let warmline = Warmline::new();
    let toml = format!(
        "[servers.good]\ncommand = ['{BINARY}', 'demo-server']\n\
         [servers.gone]\ncommand = ['no-such-program-here']\n\
         [servers.elsewhere]\ncommand = ['./no/such/file']\n\
         [servers.off]\ncommand = ['no-such-program-here']\nenabled = false\n\
         [servers.token]\nurl = 'https://example.com/mcp'\ncredential = {{ env = 'NO_SUCH_TOKEN' }}\n"
    );
    warmline.write_user("warmline.toml", &toml);
    let json = r#"{"mcpServers": {"unset": {"url": "https://example.com/${NO_SUCH_ONE}/${NO_SUCH_TWO}"}}}"#;
    warmline.write_user("mcp.json", json);
    let (servers, told) = said_at_the_start(&warmline, &[]);
    assert_eq!(servers, ["elsewhere", "gone", "good", "token"]);
    tells!(told, @r"
    exit: 0
    ----- stderr -----
    `gone` may not start: `no-such-program-here` is in none of the 2 folders of PATH
    `elsewhere` may not start: there is no program ./no/such/file
    `token` has no token to send: `NO_SUCH_TOKEN` is not set
    `unset` is left out: `NO_SUCH_ONE`, `NO_SUCH_TWO` are not set
    ");
    // Whoever is named is wanted.
    shows!(warmline, @r"
    $ warmline serve unset good
    2> error[config-bad-value]: a variable of `unset` cannot be filled in
    2>   where: [HOME]/.config/warmline/mcp.json:1:26
    2>   why: `NO_SUCH_ONE` is not set
    2>   hint: set it in the environment of this command, or write `${NAME:-VALUE}`
    exit: 2
    ");
    let required = json.replace(r#""unset""#, r#""unset-too""#);
    warmline.write_user("mcp.json", &required);
    let all = "[servers.unset]\nurl_env = 'NO_SUCH_ONE'\nrequired = true\n\
               [servers.good]\nurl = 'http://127.0.0.1:1/mcp'\n";
    warmline.write_user("warmline.toml", all);
    shows!(warmline, @r"
    $ warmline serve
    2> error[config-bad-value]: `unset` has no `url`, and `NO_SUCH_ONE` is not set
    2>   where: [HOME]/.config/warmline/warmline.toml:1:10
    2>   hint: set `NO_SUCH_ONE`, or write the URL into the file
    exit: 2
    ");
    // And where nothing is left, that is why.
    warmline.write_user("warmline.toml", "");
    shows!(warmline, @r"
    $ warmline serve
    2> error[config-bad-value]: a variable of `unset-too` cannot be filled in
    2>   where: [HOME]/.config/warmline/mcp.json:1:30
    2>   why: `NO_SUCH_ONE` is not set
    2>   hint: set it in the environment of this command, or write `${NAME:-VALUE}`
    exit: 2
    ");
}

/// A typed command that is not there is told as well: the client would wait for nothing.
#[test]
fn a_typed_program_that_is_not_there_is_named() {
    let warmline = Warmline::new();
    let words = ["stdio", "--", "no-such-program-here"];
    tells!(warmline.run_with_input(&words, ""), @r"
    exit: 0
    ----- stderr -----
    `no-such-program-here` may not start: `no-such-program-here` is in none of the 2 folders of PATH
    ");
}

/// reliability O2: by the admin socket the configuration is read again, too, and whoever asks is told what
/// came of it; one that cannot be used changes nothing.
#[test]
fn a_reload_is_asked_for_by_the_admin_socket_and_answered() {
    let warmline = Warmline::new();
    let one = "[servers.one]\nurl = 'http://127.0.0.1:1/mcp'\n";
    let two = format!("{one}[servers.two]\nurl = 'http://127.0.0.1:1/mcp'\n");
    warmline.write_user("warmline.toml", &format!("[gateway]\nwatch = false\n{one}"));
    let socket = warmline.work().join("admin");
    let serving = Serving::start(&warmline, &["--admin", socket.to_str().unwrap()]);
    let asked = |what: &str| {
        let mut stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        let head = format!("{what} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        said
    };
    warmline.write_user("warmline.toml", &format!("[gateway]\nwatch = false\n{two}"));
    let taken = asked("POST /admin/reload");
    assert!(taken.starts_with("HTTP/1.1 200 "), "{taken}");
    assert!(asked("GET /admin/servers").contains("\"two\""));
    warmline.write_user("warmline.toml", "[servers.one]\nurrl = 'x'\n");
    let refused = asked("POST /admin/reload");
    assert!(refused.starts_with("HTTP/1.1 409 "), "{refused}");
    for told in ["config-unknown-key", "warmline.toml:2:1", "url"] {
        assert!(refused.contains(told), "{told} in {refused}");
    }
    let holds = asked("GET /admin/servers").contains("\"two\"");
    assert!(holds, "what runs goes on");
    serving.stop(&warmline);
}
