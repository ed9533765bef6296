//! `warmline init` and `warmline add`: a file to begin with, and more servers in it.

use crate::prelude::*;

/// What desktop clients have is taken over, without one secret.
#[test]
fn init_takes_over_what_desktop_clients_have_and_no_secret() {
    let warmline = Warmline::new();
    let at_home = |path: &str, text: &str| {
        let path = warmline.home().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    at_home(
        ".cursor/mcp.json",
        r#"{"mcpServers": {
            "Notes": {"command": "npx", "args": ["-y", "notes", "--api-key", "canary-1"], "env": {"NOTES_KEY": "canary-2"}},
            "remote": {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer canary-3"}}
        }}"#,
    );
    at_home(
        ".config/Code/User/mcp.json",
        r#"{"servers": {"remote": {"url": "https://other.example/mcp"}, "third": {"type": "http", "url": "https://third.example/mcp"}}}"#,
    );
    at_home(".claude.json", r#"{"projects": {}}"#);
    shows!(warmline, @r"
    $ warmline init
    wrote [HOME]/.config/warmline/warmline.toml · 3 servers imported
      notes   from Cursor
        to do: arguments that may be secret stand as `FILL_IN`
        to do: set the variable `NOTES_KEY` yourself
      remote  from Cursor
        to do: put the token, without `Bearer`, into `REMOTE_TOKEN`
      third   from VS Code
    2> note: not imported from VS Code: another `remote`, https://other.example/mcp; the one of Cursor is used
    2> next: `warmline add NAME …` for what is missing, `warmline doctor`, then `warmline serve`
    ");
    let file = warmline.home().join(".config/warmline/warmline.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("canary"), "{text}");
    insta::assert_snapshot!(text, @r#"
    # What Warmline stands in front of. `warmline check` looks at this file, `warmline doctor NAME` at
    # a server, `warmline serve` serves them all. Every setting: docs/guide/configuration.md

    [gateway]
    # listen = "127.0.0.1:8484"

    # [servers.browser]
    # command = ["npx", "-y", "@playwright/mcp"]
    # spares = 1                                  # one is opened ahead, for the next run

    # [servers.github]
    # url = "https://api.example.com/mcp"
    # credential = { env = "GITHUB_TOKEN" }       # the value stays in the environment

    # from Cursor
    [servers.notes]
    command = ["npx", "-y", "notes", "--api-key", "FILL_IN"]
    # arguments that may be secret stand as `FILL_IN`
    env_pass = ["NOTES_KEY"]
    # set the variable `NOTES_KEY` yourself

    # from Cursor
    [servers.remote]
    url = "https://example.com/mcp"
    credential = { env = "REMOTE_TOKEN" }
    # put the token, without `Bearer`, into `REMOTE_TOKEN`

    # from VS Code
    [servers.third]
    url = "https://third.example/mcp"
    "#);
    warmline.run(&["check"]).prints("3 servers");
    shows!(warmline, @r"
    $ warmline init --no-import
    2> error[usage-bad-argument]: `[HOME]/.config/warmline/warmline.toml` exists already
    2>   hint: `warmline add NAME …` adds a server to it
    exit: 2
    ");
    let again = warmline.run(&["init"]);
    again.exits(0).prints("is unchanged");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
}

/// To a file that is there, what desktop clients have besides is added: nothing in it is touched, what is
/// switched off stays off, and what is kept for single folders is named.
#[test]
fn init_adds_to_a_file_what_clients_have_besides() {
    let warmline = Warmline::new();
    let mine = "# mine\n[servers.demo]\nurl = 'https://demo.example/mcp'\n";
    warmline.write_user("mine.toml", mine);
    let folder = warmline.home().join(".config/warmline");
    std::os::unix::fs::symlink("mine.toml", folder.join("warmline.toml")).unwrap();
    let json = r#"{"mcpServers": {
        "demo": {"url": "https://other.example/mcp"},
        "idle": {"command": "idle", "disabled": true},
        "notes": {"command": "notes"}
    }, "projects": {"/x": {"mcpServers": {"of-x": {"command": "x"}}}, "/y": {}}}"#;
    std::fs::write(warmline.home().join(".claude.json"), json).unwrap();
    shows!(warmline, @r"
    $ warmline init
    added to [HOME]/.config/warmline/warmline.toml · 2 servers imported
      idle   from Claude Code
      notes  from Claude Code
    2> note: not imported from Claude Code: its servers of single folders (`of-x`)
    2> note: not imported from Claude Code: `demo`, https://other.example/mcp; the file has another server of that name
    2> next: `warmline add NAME …` for what is missing, `warmline doctor`, then `warmline serve`
    ");
    let file = warmline.home().join(".config/warmline/warmline.toml");
    assert!(file.is_symlink(), "it lies where it lay");
    let text = std::fs::read_to_string(&file).unwrap();
    let added = text.strip_prefix(mine).unwrap();
    insta::assert_snapshot!(added, @r#"
    # from Claude Code
    [servers.idle]
    command = ["idle"]
    enabled = false

    # from Claude Code
    [servers.notes]
    command = ["notes"]
    "#);
    let looked = warmline.run(&["doctor"]);
    looked.prints("off     disabled in its file");
}

/// What looks like a secret in the path of a URL is not copied either, as some services hand their
/// servers out; the whole URL comes from a variable.
#[test]
fn init_copies_no_secret_out_of_the_path_of_a_url() {
    let secrets = [
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "sk-proj-9aBcDeFgHiJkLmNoPqRsTuVwXyZ0123",
        "9f86d081884c7d659a2feaa0c55ad015",
        "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed",
    ];
    for secret in secrets {
        let warmline = Warmline::new();
        let path = warmline.home().join(".cursor/mcp.json");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let url = format!("https://mcp.example.com/s/{secret}/mcp");
        let json = format!(r#"{{"mcpServers": {{"hosted": {{"url": "{url}"}}}}}}"#);
        std::fs::write(path, json).unwrap();
        let output = warmline.run(&["init"]);
        let to_do = "to do: put the whole URL into `HOSTED_URL`: a part of \
                     https://mcp.example.com/s/…/mcp may be secret";
        output.prints(to_do);
        assert!(!output.everything().contains(secret), "{output}");
        let file = warmline.home().join(".config/warmline/warmline.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains("url_env = \"HOSTED_URL\""), "{text}");
        assert!(!text.contains(secret), "{text}");
        let filled = warmline.with("HOSTED_URL", &url);
        assert_eq!(filled.run(&["check"]).exit, 0);
    }
}

/// A file without servers has nothing to look at yet: the next step is a server.
#[test]
fn init_without_servers_says_how_to_add_one() {
    tells!(Warmline::new().run(&["init"]), @r"
    exit: 0
    ----- stdout -----
    wrote [HOME]/.config/warmline/warmline.toml · 0 servers imported
    ----- stderr -----
    next: `warmline add NAME URL`, or `warmline add NAME -- COMMAND`
    ");
}

/// Editors write comments and idle commas into their files: they are read over, and what is wrong
/// beside them is told at its place.
#[test]
fn init_takes_over_a_file_with_comments() {
    let warmline = Warmline::new();
    let path = warmline.home().join(".config/Code/User/mcp.json");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let text = "// mine\n{\n  \"servers\": {\n    // at work\n    \"a\": { \"url\": \"https://a.example/mcp\", },\n    /* later */ \"b\": { \"commnd\": \"x\" },\n  },\n}\n";
    std::fs::write(path, text).unwrap();
    shows!(warmline, @r"
    $ warmline init
    wrote [HOME]/.config/warmline/warmline.toml · 1 server imported
      a  from VS Code
    2> note: not imported from VS Code: `b` has neither a `command` nor a `url`
    2>   where: [HOME]/.config/Code/User/mcp.json:6:22
    2>   hint: did you mean `command` by `commnd`?
    2> next: `warmline add NAME …` for what is missing, `warmline doctor`, then `warmline serve`
    ");
}

/// Other programs fill variables in, and `warmline.toml` does not: who has one in the file of a client
/// gets a file that can be read, and is told what to write.
#[test]
fn init_takes_over_servers_that_count_on_variables() {
    let warmline = Warmline::new();
    let path = warmline.home().join(".cursor/mcp.json");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let text = r#"{"mcpServers": {
        "a": {"command": "x", "args": ["--root", "${HOME}/x"]},
        "b": {"url": "https://${HOST}/mcp"}
    }}"#;
    std::fs::write(path, text).unwrap();
    shows!(warmline, @r"
    $ warmline init
    wrote [HOME]/.config/warmline/warmline.toml · 2 servers imported
      a  from Cursor
        to do: arguments with a variable (`${…}`) stand as `FILL_IN`: none is filled in here
      b  from Cursor
        to do: put the whole URL into `B_URL`: nothing is filled into https://${HOST}/mcp here
    2> next: `warmline doctor`, then `warmline serve`
    ");
    // All that is missing is what was said.
    shows!(warmline, @r"
    $ warmline check
    2> error[config-bad-value]: `b` has no `url`, and `B_URL` is not set
    2>   where: [HOME]/.config/warmline/warmline.toml:21:10
    2>   hint: set `B_URL`, or write the URL into the file
    exit: 2
    ");
}

/// What cannot be read of the files of others is said, and what stands beside it is taken.
#[test]
fn init_says_what_it_could_not_take_over() {
    let warmline = Warmline::new();
    let at_home = |path: &str, text: &str| {
        let path = warmline.home().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    at_home(
        ".config/Code/User/mcp.json",
        "{\n  /* at work\n  \"servers\": {\"a\": {\"url\": \"https://a.example/mcp\"}}\n}",
    );
    at_home(
        ".cursor/mcp.json",
        r#"{"mcpServers": {"good": {"command": "x"}, "bad": {"commnd": "x"}}}"#,
    );
    at_home(
        ".codeium/windsurf/mcp_config.json",
        r#"{"mcpServers": {"good": {"command": "x"}}}"#,
    );
    at_home(".claude.json", "");
    shows!(warmline, @r#"
    $ warmline init --json --here
    {"kind":"init","file":"[WORK]/warmline.toml","servers":["good"]}
    {"kind":"note","what":"not imported from Cursor: `bad` has neither a `command` nor a `url`","where":"[HOME]/.cursor/mcp.json:1:50","hint":"did you mean `command` by `commnd`?"}
    {"kind":"note","what":"not imported from VS Code: the file is not JSON","where":"[HOME]/.config/Code/User/mcp.json:2:3","why":"key must be a string","hint":"this comment is never closed: end it with `*/`"}
    $ warmline init
    wrote [HOME]/.config/warmline/warmline.toml · 1 server imported
      good  from Cursor
    2> note: not imported from Cursor: `bad` has neither a `command` nor a `url`
    2>   where: [HOME]/.cursor/mcp.json:1:50
    2>   hint: did you mean `command` by `commnd`?
    2> note: not imported from VS Code: the file is not JSON
    2>   where: [HOME]/.config/Code/User/mcp.json:2:3
    2>   why: key must be a string
    2>   hint: this comment is never closed: end it with `*/`
    2> next: `warmline add NAME …` for what is missing, `warmline doctor`, then `warmline serve`
    "#);
}

#[test]
fn add_writes_one_more_server_and_breaks_nothing() {
    let warmline = Warmline::new();
    shows!(warmline, @r#"
    $ warmline add github https://example.com/mcp --token-env GITHUB_TOKEN
    added github to [HOME]/.config/warmline/warmline.toml
    2> next: `warmline doctor github`
    $ warmline add time --env-pass TZ_KEY -- sh -c 'echo '"'"'hi'"'"''
    added time to [HOME]/.config/warmline/warmline.toml
    2> next: `warmline doctor time`
    $ warmline add time -- sh
    2> error[usage-bad-argument]: `[HOME]/.config/warmline/warmline.toml` already declares `time`
    2>   hint: choose another name, or edit the file
    exit: 2
    $ warmline add 'My Server' https://example.com/mcp
    2> error[usage-bad-argument]: `My Server` is not a server name
    2>   hint: `my-server` is one
    exit: 2
    $ warmline add other
    2> error[usage-bad-argument]: no URL and no command given
    2>   hint: `warmline add NAME URL`, or `warmline add NAME -- COMMAND…`
    exit: 2
    $ warmline add other nonsense
    2> error[usage-bad-argument]: not a server URL
    2>   why: it does not begin with `https://` or `http://`
    exit: 2
    $ warmline add other https://me:secret@example.com/mcp
    2> error[config-bad-value]: the URL of `other` cannot be used
    2>   why: it holds a user name or a password
    2>   hint: leave them out of the URL, and send a credential in a header
    exit: 2
    $ warmline add other --env-pass A=B -- sh
    2> error[config-bad-value]: no variable of `other` can be named `A=B`
    exit: 2
    $ warmline add other https://example.com/mcp --env-pass A
    2> error[usage-bad-argument]: `--env-pass` is for a program, and this server is a URL
    2>   hint: `--token-env VARIABLE` names the variable that holds its token
    exit: 2
    $ warmline add other --token-env A -- sh
    2> error[usage-bad-argument]: `--token-env` is for a URL, and this server is a program
    2>   hint: `--env-pass VARIABLE` passes a variable to it
    exit: 2
    "#);
    let file = warmline.home().join(".config/warmline/warmline.toml");
    insta::assert_snapshot!(std::fs::read_to_string(&file).unwrap(), @r#"
    [servers.github]
    url = "https://example.com/mcp"
    credential = { env = "GITHUB_TOKEN" }

    [servers.time]
    command = ["sh", "-c", "echo 'hi'"]
    env_pass = ["TZ_KEY"]
    "#);
    warmline.run(&["doctor", "time", "--offline"]).exits(0);
    // A file that is broken is not made worse.
    std::fs::write(&file, "[servers.a]\nurll = 'x'\n").unwrap();
    warmline
        .run(&["add", "b", "https://example.com/mcp"])
        .exits(2);
    let found = std::fs::read_to_string(&file).unwrap();
    assert_eq!(found, "[servers.a]\nurll = 'x'\n");
    std::fs::remove_file(&file).unwrap();
    // What is written into this folder by its user is trusted; what somebody else adds is not.
    warmline
        .run(&["add", "mine", "--here", "--", "sh"])
        .exits(0);
    assert_eq!(warmline.run(&["trust"]).everything().lines().count(), 1);
    let here = warmline.work().join("warmline.toml");
    let more = std::fs::read_to_string(&here).unwrap() + "[servers.theirs]\ncommand = ['sh']\n";
    std::fs::write(&here, more).unwrap();
    warmline
        .run(&["add", "again", "--here", "--", "sh"])
        .exits(0);
    let output = warmline.run(&["tools", "theirs"]);
    output.says_first("error[config-untrusted]");
}

/// Whoever made the folder may have put links there: nothing is written through one.
#[test]
fn a_file_is_written_beside_links_and_never_through_them() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let warmline = Warmline::new();
    let precious = warmline.home().join("precious");
    std::fs::create_dir_all(warmline.home()).unwrap();
    std::fs::write(&precious, "mine").unwrap();
    for link in ["warmline.toml.new", "warmline.new"] {
        symlink(&precious, warmline.work().join(link)).unwrap();
    }
    let file = warmline.work().join("warmline.toml");
    symlink(warmline.home().join("nowhere"), &file).unwrap();
    warmline.run(&["init", "--here", "--no-import"]).exits(0);
    assert!(file.symlink_metadata().unwrap().is_file());
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    let output = warmline.run(&["add", "--here", "a", "https://example.com/mcp"]);
    output.exits(0);
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "mine");
    let beside = std::fs::read_dir(warmline.work()).unwrap().count();
    assert_eq!(beside, 3, "nothing is left beside it");
}
