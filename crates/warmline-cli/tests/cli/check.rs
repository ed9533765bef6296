//! `warmline check`: what is wrong with a file, and that nothing in it is used.

use crate::prelude::*;

#[test]
fn check_names_the_place_and_the_right_word_and_executes_nothing() {
    let warmline = Warmline::new();
    shows!(warmline, @r"
    $ warmline check
    2> error[usage-bad-argument]: there is no configuration file to check
    2>   hint: `warmline init` writes one; or name a file
    exit: 2
    ");
    warmline.write_user("warmline.toml", "[gateway]\nlisten = '0.0.0.0:8484'\n");
    shows!(warmline, @r#"
    $ warmline check
    2> error[config-bad-value]: `0.0.0.0:8484` is reachable from the network, and `gateway.auth` is `local`
    2>   where: [HOME]/.config/warmline/warmline.toml:2:1
    2>   hint: create tokens with `warmline token new NAME` and set `gateway.auth = "tokens"`, or listen on 127.0.0.1
    exit: 2
    "#);
    let file = warmline.write(
        "warmline.toml",
        "[gateway]\nlissen = '127.0.0.1:8484'\n[servers.a]\ncommand = ['touch', 'executed']\n",
    );
    shows!(warmline, @r"
    $ warmline check warmline.toml
    2> error[config-unknown-key]: `lissen` is not a setting of `gateway`
    2>   where: warmline.toml:2:1
    2>     |
    2>   2 | lissen = …
    2>     | ^^^^^^ did you mean `listen`?
    exit: 2
    ");
    std::fs::write(&file, "[gateway]\nauth = 'non'\n").unwrap();
    shows!(warmline, @r"
    $ warmline check warmline.toml
    2> error[config-bad-value]: `gateway.auth` cannot be `non`
    2>   where: warmline.toml:2:8
    2>     |
    2>   2 | auth = 'non'
    2>     |        ^^^^^ did you mean `none`?
    exit: 2
    ");
    std::fs::write(&file, "[gateway]\nrun_from = ['thread']\n").unwrap();
    shows!(warmline, @r"
    $ warmline check warmline.toml
    2> error[config-bad-value]: `thread` is not a place where clients name a run
    2>   where: warmline.toml:2:1
    2>   hint: write `_meta:KEY` or `header:NAME`
    exit: 2
    ");
    std::fs::write(&file, "[gateway]\ntls_key = 'key.pem'\n").unwrap();
    shows!(warmline, @r"
    $ warmline check warmline.toml
    2> error[config-bad-value]: `gateway.tls_key` is set, and `gateway.tls_certificate` is not
    2>   where: warmline.toml:2:1
    2>   hint: set both files, or none
    exit: 2
    ");
    std::fs::write(&file, "[servers.a]\ncommand = ['touch', 'executed']\n").unwrap();
    shows!(warmline, @r#"
    $ warmline check warmline.toml --json
    {"kind":"check","file":"warmline.toml","servers":1,"trusted":true}
    "#);
    let again = warmline.run(&["check", "--config", "warmline.toml"]);
    again.succeeds();
    assert!(!warmline.work().join("executed").exists());
}

/// What a file of another program wants filled in has to be there: `serve` would not start.
#[test]
fn check_names_a_variable_that_is_not_there() {
    let declared = r#"{"mcpServers": {"a": {"url": "https://example.com/mcp",
        "headers": {"Authorization": "Bearer ${NO_SUCH_TOKEN}"}}}}"#;
    let warmline = Warmline::new();
    warmline.write("mcp.json", declared);
    shows!(warmline, @r"
    $ warmline check mcp.json
    2> error[config-bad-value]: a variable of `a` cannot be filled in
    2>   where: mcp.json:1:22
    2>   why: `NO_SUCH_TOKEN` is not set
    2>   hint: set it in the environment of this command, or write `${NAME:-VALUE}`
    exit: 2
    ");
    let warmline = Warmline::new().with("NO_SUCH_TOKEN", "secret-of-a-test");
    warmline.write("mcp.json", declared);
    let output = warmline.run(&["check", "mcp.json"]);
    output.exits(0);
    assert!(
        !output.everything().contains("secret-of-a-test"),
        "{output}"
    );
}

/// Keys of other programs are theirs; one that is nearly ours is told, and no error.
#[test]
fn check_tells_of_keys_that_are_probably_misspelt() {
    let warmline = Warmline::new();
    let declared = r#"{"mcpServers": {"a": {"command": "x", "agrs": ["y"], "timeout": 3, "alwaysAllow": []}}}"#;
    warmline.write("mcp.json", declared);
    shows!(warmline, @r"
    $ warmline check mcp.json
    ok  mcp.json · 1 server
    2> note: `agrs` of `a` in mcp.json has no meaning here: did you mean `args`?
    ");
}

/// Whoever mends a file wants to know all of it, not one mistake after the other.
#[test]
fn check_tells_everything_that_is_wrong_at_once() {
    let warmline = Warmline::new();
    let wrong = "[gateway]\nlissen = '127.0.0.1:1'\nauth = 'non'\n\
                 [servers.a]\ncomand = ['x']\nspares = 'many'\n\
                 [servers.B]\nurl = 'http://127.0.0.1:1'\n\
                 [servers.c]\nurl = 'http://127.0.0.1:1'\ncommand = ['x']\n\
                 [servers.c.tools.t]\nrepeatabel = true\n\
                 [servers.d]\n\
                 [sevrers.e]\nurl = 'http://127.0.0.1:1'\n";
    warmline.write("warmline.toml", wrong);
    shows!(warmline, @r#"
    $ warmline check warmline.toml
    2> error[config-unknown-key]: `lissen` is not a setting of `gateway`
    2>   where: warmline.toml:2:1
    2>     |
    2>   2 | lissen = …
    2>     | ^^^^^^ did you mean `listen`?
    2> error[config-bad-value]: `gateway.auth` cannot be `non`
    2>   where: warmline.toml:3:8
    2>     |
    2>   3 | auth = 'non'
    2>     |        ^^^^^ did you mean `none`?
    2> error[config-unknown-key]: `comand` is not a setting of a server
    2>   where: warmline.toml:5:1
    2>     |
    2>   5 | comand = …
    2>     | ^^^^^^ did you mean `command`?
    2> error[config-bad-value]: `spares` is not a whole number: `many`
    2>   where: warmline.toml:6:10
    2>     |
    2>   6 | spares = 'many'
    2>     |          ^^^^^^
    2> error[config-bad-value]: `B` cannot be the name of a server: names are made of `a` to `z`, `0` to `9` and `-`
    2>   where: warmline.toml:7:10
    2> error[config-unknown-key]: `repeatabel` is not a setting of a tool
    2>   where: warmline.toml:13:1
    2>      |
    2>   13 | repeatabel = …
    2>      | ^^^^^^^^^^ did you mean `repeatable`?
    2> error[config-bad-value]: `d` has neither a `command` nor a `url`
    2>   where: warmline.toml:14:10
    2>   hint: add `url = "https://…"` or `command = ["program", "argument"]`
    2> error[config-unknown-key]: `sevrers` is not a table of this file
    2>   where: warmline.toml:15:2
    2>   hint: did you mean `servers`?
    exit: 2
    "#);
    let output = warmline.run(&["check", "warmline.toml", "--json"]);
    assert_eq!(output.everything().lines().count(), 8, "{output}");
    let wrong = r#"{"mcpServers": {
        "a": {"comand": "x"},
        "b": {"command": 7},
        "c": {"url": "http://127.0.0.1:1", "command": "x"},
        "d": {"command": "x"},
        "D": {"command": "x"}}}"#;
    warmline.write("mcp.json", wrong);
    shows!(warmline, @r"
    $ warmline check mcp.json
    2> error[config-bad-value]: `a` has neither a `command` nor a `url`
    2>   where: mcp.json:2:14
    2>   hint: did you mean `command` by `comand`?
    2> error[config-bad-value]: `b.command` is a text, not an integer
    2>   where: mcp.json:3:26
    2> error[config-bad-value]: `c` has a `command` and a `url`; a server has one of them
    2>   where: mcp.json:4:14
    2> error[config-bad-value]: `d` and `D` both become `d` here
    2>   where: mcp.json:5:14
    2>   hint: rename one of them
    exit: 2
    ");
}

/// A file that is of another kind altogether is not told word by word.
#[test]
fn check_ends_where_nothing_is_right() {
    let warmline = Warmline::new();
    let nothing: String = (0..10_000)
        .map(|number| format!("x{number} = 1\n"))
        .collect();
    let servers: Vec<String> = (0..10_000)
        .map(|number| format!("\"x{number}\": 1"))
        .collect();
    let files = [
        ("warmline.toml", nothing.clone()),
        ("more.toml", format!("[gateway]\n{nothing}")),
        ("servers.toml", format!("[servers.a]\n{nothing}")),
        (
            "mcp.json",
            format!("{{\"mcpServers\": {{{}}}}}", servers.join(",")),
        ),
    ];
    for (file, text) in files {
        warmline.write(file, &text);
        let output = warmline.run(&["check", file, "--json"]);
        assert_eq!(output.everything().lines().count(), 50, "{file}: {output}");
    }
}

/// What can only be seen with the environment is told of each server as well.
#[test]
fn check_tells_of_each_server_that_cannot_be_used() {
    let warmline = Warmline::new();
    let wrong = r#"{"mcpServers": {
        "a": {"url": "http://127.0.0.1:1/${NO_SUCH_ONE}"},
        "b": {"command": "x", "env": {"K": "${NO_SUCH_TWO}"}},
        "c": {"url": "somewhere"}}}"#;
    warmline.write("mcp.json", wrong);
    shows!(warmline, @r"
    $ warmline check mcp.json
    2> error[config-bad-value]: a variable of `a` cannot be filled in
    2>   where: mcp.json:2:14
    2>   why: `NO_SUCH_ONE` is not set
    2>   hint: set it in the environment of this command, or write `${NAME:-VALUE}`
    2> error[config-bad-value]: a variable of `b` cannot be filled in
    2>   where: mcp.json:3:14
    2>   why: `NO_SUCH_TWO` is not set
    2>   hint: set it in the environment of this command, or write `${NAME:-VALUE}`
    2> error[config-bad-value]: the `url` of `c` is not a URL
    2>   where: mcp.json:4:22
    2>   why: it does not begin with `https://` or `http://`
    exit: 2
    ");
}

/// A token that stands in a file is read by everybody who reads the file; it is not repeated.
#[test]
fn check_tells_of_secrets_in_plain_text() {
    let warmline = Warmline::new();
    let declared = "[servers.git-hub]\nurl = 'https://example.com/mcp'\n\
                    [servers.git-hub.headers]\nAuthorization = 'Bearer canary'\nX-Api-Key = 'canary'\n\
                    Accept-Language = 'de'\n";
    warmline.write("warmline.toml", declared);
    shows!(warmline, @r#"
    $ warmline check warmline.toml
    ok  warmline.toml · 1 server
    2> note: `Authorization` of `git-hub` in warmline.toml:4:17 is a secret in plain text: put it into a variable, and write `credential = { env = "GIT_HUB_TOKEN" }`
    2> note: `X-Api-Key` of `git-hub` in warmline.toml:5:13 is a secret in plain text: put it into a variable, and write `credential = { env = "GIT_HUB_TOKEN", as = "X-Api-Key" }`
    "#);
    let declared = r#"{"mcpServers": {"a": {"url": "https://example.com/mcp",
        "headers": {"Authorization": "Bearer canary"}}}}"#;
    warmline.write("mcp.json", declared);
    shows!(warmline, @r"
    $ warmline check mcp.json
    ok  mcp.json · 1 server
    2> note: `Authorization` of `a` in mcp.json:2:38 is a secret in plain text: put it into a variable, and write `Bearer ${A_TOKEN}`
    ");
}

/// Words that people bring from elsewhere are answered with the right ones, all at once.
#[test]
fn check_knows_what_people_write_instead() {
    let warmline = Warmline::new();
    let write = |name: &str, text: &str| warmline.write(name, text);
    write(
        "warmline.toml",
        "[gateway]\nport = 8484\n[servers.a]\ncommand = 'npx -y @playwright/mcp --token ghp_canary'\nargs = ['x']\n\
         [servers.b]\nurl = 'example.com/mcp'\ncredential = 'sk-canary'\n[servers.c]\nurl = 'nowhere'\n",
    );
    shows!(warmline, @r#"
    $ warmline check warmline.toml
    2> error[config-unknown-key]: `port` is not a setting of `gateway`
    2>   where: warmline.toml:2:1
    2>     |
    2>   2 | port = …
    2>     | ^^^^ it is a part of `listen`: `listen = "127.0.0.1:[PORT]"`
    2> error[config-bad-value]: `command` is one text, and no shell will split it
    2>   where: warmline.toml:4:11
    2>   hint: write a list: `command = ["npx", "…", "…", "…", "…"]`
    2> error[config-unknown-key]: `args` is not a setting of a server
    2>   where: warmline.toml:5:1
    2>     |
    2>   5 | args = …
    2>     | ^^^^ `command` is one list, the program and its arguments: `command = ["npx", "-y", "some-server"]`
    2> error[config-bad-value]: the `url` of `b` is not a URL
    2>   where: warmline.toml:6:10
    2>   why: it does not begin with `https://` or `http://`
    2> error[config-bad-value]: `credential` is a table, not a string
    2>   where: warmline.toml:8:14
    2>   hint: use one of `credential = { env = "NAME" }`, `{ file = "path" }`, `{ command = ["program"] }` or `{ header = "X-Name" }`
    2> error[config-bad-value]: the `url` of `c` is not a URL
    2>   where: warmline.toml:10:7
    2>   why: it does not begin with `https://` or `http://`
    exit: 2
    "#);
    write(
        "mcp.json",
        r#"{"mcpServers": {"a": {"cmd": "x"}, "b": {"command": "x", "args": ["${NOPE}"]}}}"#,
    );
    shows!(warmline, @r"
    $ warmline check mcp.json
    2> error[config-bad-value]: `a` has neither a `command` nor a `url`
    2>   where: mcp.json:1:22
    2>   hint: did you mean `command` by `cmd`?
    2> error[config-bad-value]: a variable of `b` cannot be filled in
    2>   where: mcp.json:1:41
    2>   why: `NOPE` is not set
    2>   hint: set it in the environment of this command, or write `${NAME:-VALUE}`
    exit: 2
    ");
    write(
        "mcp.json",
        "{\"mcpServers\": {\"a\": {\"command\": \"x\",}}}",
    );
    shows!(warmline, @r"
    $ warmline check mcp.json
    ok  mcp.json · 1 server
    ");
    write(
        "mcp.json",
        "{\"mcpServers\": {\"a\": {\"command\": \"x\"},\n/* }}",
    );
    shows!(warmline, @r"
    $ warmline check mcp.json
    2> error[config-unreadable]: the file is not JSON
    2>   where: mcp.json:2:1
    2>   why: key must be a string
    2>   hint: this comment is never closed: end it with `*/`
    exit: 2
    ");
}
