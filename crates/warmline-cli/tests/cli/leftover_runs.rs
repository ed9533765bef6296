//! Runs that commands left to their records: `ps` shows them and `end` ends them, with no gateway.

use crate::prelude::*;

use crate::background::Background;

fn server() -> LedgerServer {
    LedgerServer::start(Personality::legacy()).unwrap()
}

/// Counts in a run, and leaves it to the next command.
fn count(warmline: &Warmline, target: &str, run: &str, words: &[&str]) -> CommandOutput {
    let all = [&["call", target, "counter", "--run", run], words].concat();
    let output = warmline.run(&all);
    output.exits(0);
    output
}

/// The names of the runs that `ps` says are kept.
fn kept(warmline: &Warmline) -> Vec<String> {
    let output = warmline.run(&["ps", "--json"]);
    output.exits(0);
    let lines = output.stdout.lines();
    let lines = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
    let kept = lines.filter(|line| line["kind"] == "kept");
    kept.map(|line| {
        let text = |key: &str| line[key].as_str().unwrap().to_owned();
        format!("{} of {}", text("run"), text("server"))
    })
    .collect()
}

fn notes(warmline: &Warmline) -> usize {
    let folder = warmline.state().join("runs");
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}

#[test]
fn runs_that_are_kept_are_shown_and_ended_by_name() {
    let (warmline, one, two) = (Warmline::new(), server(), server());
    let text = format!("[servers.two]\nurl = '{}'\n", two.url());
    warmline.write_user("warmline.toml", &text);
    count(&warmline, &one.url(), "trip", &[]);
    count(&warmline, "two", "trip", &[]);
    count(&warmline, "two", "other", &[]);
    count(&warmline, "two", "over", &[]);
    count(&warmline, "two", "over", &["--end-run"]);
    let told = warmline.run(&["ps"]);
    let name = one.url().replace("http://", "").replace("/mcp", "");
    let words = |line: &str| {
        line.split_whitespace()
            .take(2)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let lines: Vec<String> = told.stdout.lines().map(words).collect();
    let trip = format!("trip {name}");
    let expected = ["KEPT RUN", "other two", &trip, "trip two"];
    assert_eq!(lines, expected, "{told}");
    shows!(warmline, @r#"
    $ warmline ps --json
    {"kind":"gateway","up":false}
    {"kind":"kept","run":"other","server":"two","opened_at":[TIME],"used_at":[TIME]}
    {"kind":"kept","run":"trip","server":"127.0.0.1:[PORT]","opened_at":[TIME],"used_at":[TIME]}
    {"kind":"kept","run":"trip","server":"two","opened_at":[TIME],"used_at":[TIME]}
    $ warmline end trip
    2> run `trip` is ended
    "#);
    assert_eq!(one.counts().open_sessions, 0);
    assert_eq!(two.counts().open_sessions, 1, "the other run goes on");
    assert_eq!(kept(&warmline), ["other of two"]);
    let told = count(&warmline, "two", "other", &[]);
    assert_eq!(told.stdout.trim(), r#"{"count":2}"#);
    shows!(warmline, @r"
    $ warmline end trip
    2> error[run-unknown]: no run `trip` is live or kept
    2>   why: no background gateway is up
    2>   hint: `warmline ps` lists the runs; to end one of a `warmline serve --admin FILE`: `warmline end trip --socket FILE`, or `DELETE /runs/trip` at its URL
    exit: 2
    ");
    assert_eq!(warmline.run(&["end", "other"]).exit, 0);
    assert_eq!(notes(&warmline), 0);
    for server in [&one, &two] {
        assert_eq!(server.counts().open_sessions, 0);
        assert_eq!(server.violations(), Vec::<String>::new());
    }
    // Nothing was opened only to be ended.
    assert_eq!(one.counts().sessions + two.counts().sessions, 4);
}

/// What is noted is worth nothing to a thief, and no value of a header is in it.
#[test]
fn a_run_that_a_header_began_is_shown_and_nothing_of_it_is_written_out() {
    let (warmline, server) = (Warmline::new().with("CANARY", "Bearer canary-2"), server());
    let url = format!("{}?key=canary-0", server.url());
    count(
        &warmline,
        &url,
        "secret-trip",
        &["--header", "Authorization: Bearer canary-1"],
    );
    count(
        &warmline,
        &url,
        "by-env",
        &["--header-env", "Authorization=CANARY"],
    );
    let name = url::Url::parse(&url).unwrap();
    let name = format!("127.0.0.1:{}", name.port().unwrap());
    assert_eq!(
        kept(&warmline),
        [
            format!("by-env of {name}"),
            format!("secret-trip of {name}")
        ]
    );
    for entry in std::fs::read_dir(warmline.state().join("runs")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let all_hex = text.trim().bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(all_hex, "{text}");
    }
    shows!(warmline, @r"
    $ warmline end secret-trip
    2> error[usage-bad-argument]: the session of run `secret-trip` with `127.0.0.1:[PORT]` was opened with `--header`
    2>   why: the values of headers are not kept
    2>   hint: `warmline request SERVER ping --run secret-trip --header … --end-run`, with the same server and header
    exit: 2
    ");
    assert_eq!(warmline.run(&["end", "by-env"]).exit, 0);
    assert_eq!(kept(&warmline), [format!("secret-trip of {name}")]);
    assert_eq!(server.counts().open_sessions, 1);
    let again = ["--header", "Authorization: Bearer canary-1", "--end-run"];
    count(&warmline, &url, "secret-trip", &again);
    assert_eq!(kept(&warmline), Vec::<String>::new());
    assert_eq!(server.counts().open_sessions, 0);
}

/// A record is renewed once a minute at most; people want to know when they last called.
#[test]
fn how_long_a_run_was_idle_counts_from_its_last_command() {
    let (warmline, server) = (Warmline::new(), server());
    count(&warmline, &server.url(), "trip", &[]);
    let times = || {
        let output = warmline.run(&["ps", "--json"]);
        let line = output.stdout.lines().last().unwrap().to_owned();
        let line: Value = serde_json::from_str(&line).unwrap();
        let time = |key: &str| line[key].as_u64().unwrap();
        (time("opened_at"), time("used_at"))
    };
    let (opened, _) = times();
    // Times are told in whole seconds.
    until("the clock goes on", || {
        warmline_platform::clock::wall_seconds() > opened + 1
    });
    count(&warmline, &server.url(), "trip", &[]);
    let (still, used) = times();
    assert_eq!(still, opened);
    assert!(used > opened, "{used} after {opened}");
}

/// A note counts only as long as its record does.
#[test]
fn what_is_gone_is_not_shown() {
    let (warmline, server) = (Warmline::new(), server());
    count(&warmline, &server.url(), "trip", &[]);
    let records = warmline.state().join("sessions");
    let is_record = |path: &Path| path.extension().is_some_and(|end| end == "record");
    for entry in std::fs::read_dir(records).unwrap() {
        let path = entry.unwrap().path();
        if is_record(&path) {
            std::fs::remove_file(path).unwrap();
        }
    }
    assert_eq!(kept(&warmline), Vec::<String>::new());
    assert_eq!(notes(&warmline), 0);
    assert_eq!(warmline.run(&["end", "trip"]).exit, 2);
}

/// A file that declares the server may lie where the run was begun, and nowhere else.
#[test]
fn a_run_of_another_folder_says_where_it_was_begun() {
    let (warmline, server) = (Warmline::new(), server());
    let text = format!("[servers.here]\nurl = '{}'\n", server.url());
    warmline.write("warmline.toml", &text);
    assert_eq!(warmline.run(&["trust", "--yes"]).exit, 0);
    count(&warmline, "here", "trip", &[]);
    let mut elsewhere = warmline.command(&["end", "trip"]);
    let told = elsewhere.current_dir(warmline.home()).output().unwrap();
    tells!(warmline.told(&told), @r"
    exit: 2
    ----- stderr -----
    error[server-unknown]: no server is called `here`
      hint: the run was begun in [WORK]: end it there
    ");
    assert_eq!(warmline.run(&["end", "trip"]).exit, 0);
    assert_eq!(server.counts().open_sessions, 0);
}

/// The gateway leaves to their records what commands did through it, and `ps` and `end` know of it
/// as of what commands left by themselves.
#[test]
fn runs_of_a_gateway_that_went_down_are_shown_and_ended() {
    let (one, two) = (server(), server());
    let text = format!("[servers.two]\nurl = '{}'\n", two.url());
    let warmline = Warmline::new();
    warmline.write_user("warmline.toml", &text);
    let background = Background::up_in(warmline, &[]);
    let warmline = &background.warmline;
    // Two servers of one name: to the gateway the second one has another.
    let keyed = format!("{}?key=canary-0", one.url());
    for target in [&one.url(), &keyed, "two"] {
        count(warmline, target, "trip", &[]);
    }
    count(warmline, "two", "over", &[]);
    count(warmline, "two", "over", &["--end-run"]);
    assert_eq!(kept(warmline), Vec::<String>::new(), "the gateway has them");
    assert_eq!(warmline.run(&["down"]).exit, 0);
    let name = one.url().replace("http://", "").replace("/mcp", "");
    let of_name = format!("trip of {name}");
    assert_eq!(kept(warmline), [&of_name, &of_name, "trip of two"]);
    shows!(warmline, @r"
    $ warmline end trip
    2> run `trip` is ended
    ");
    assert_eq!(kept(warmline), Vec::<String>::new());
    for server in [&one, &two] {
        assert_eq!(server.counts().open_sessions, 0);
        assert_eq!(server.violations(), Vec::<String>::new());
    }
    assert_eq!(one.counts().sessions + two.counts().sessions, 4);
}

/// What one command of a run took up hides nothing of what its other commands left.
#[test]
fn a_run_is_ended_with_all_its_servers_whoever_holds_them() {
    let (one, two) = (server(), server());
    let background = Background::up_in(Warmline::new(), &[]);
    let warmline = &background.warmline;
    for server in [&one, &two] {
        count(warmline, &server.url(), "trip", &[]);
    }
    assert_eq!(warmline.run(&["down"]).exit, 0);
    assert_eq!(warmline.run(&["up", "--quiet"]).exit, 0);
    let told = count(warmline, &one.url(), "trip", &[]);
    assert_eq!(told.stdout.trim(), r#"{"count":2}"#);
    let name = two.url().replace("http://", "").replace("/mcp", "");
    assert_eq!(kept(warmline), [format!("trip of {name}")]);
    assert_eq!(warmline.run(&["end", "trip"]).exit, 0);
    for server in [&one, &two] {
        assert_eq!(server.counts().open_sessions, 0);
        assert_eq!(server.counts().sessions, 1);
    }
}

/// To the gateway a header that was typed makes nobody another; whoever ends the run without it
/// must mean the same session.
#[test]
fn a_run_of_a_gateway_that_a_header_began_is_ended_or_says_how() {
    let (one, server) = (server(), server());
    let warmline = Warmline::new().with("CANARY", "Bearer canary-2");
    let background = Background::up_in(warmline, &[]);
    let warmline = &background.warmline;
    let by_env = ["--header-env", "Authorization=CANARY"];
    count(warmline, &one.url(), "by-env", &by_env);
    let typed = ["--header", "Authorization: Bearer canary-1"];
    count(warmline, &server.url(), "typed", &typed);
    assert_eq!(warmline.run(&["down"]).exit, 0);
    assert_eq!(warmline.run(&["end", "by-env"]).exit, 0);
    assert_eq!(one.counts().open_sessions, 0);
    assert_eq!(one.counts().sessions, 1);
    shows!(warmline, @r"
    $ warmline end typed
    2> error[usage-bad-argument]: the session of run `typed` with `127.0.0.1:[PORT]` was opened with `--header`
    2>   why: the values of headers are not kept
    2>   hint: `warmline up`, then `warmline request SERVER ping --run typed --header … --end-run`, with the same server and header
    exit: 2
    ");
    assert_eq!(warmline.run(&["up", "--quiet"]).exit, 0);
    let again = [&typed[..], &["--end-run"]].concat();
    let told = count(warmline, &server.url(), "typed", &again);
    assert_eq!(told.stdout.trim(), r#"{"count":2}"#);
    assert_eq!(server.counts().open_sessions, 0);
}

/// S31: what a gateway is told to keep in memory is on no disk, and nowhere once it ended.
#[test]
fn a_gateway_that_keeps_its_sessions_in_memory_writes_none_down() {
    for (path, is_kept) in [("", true), ("[store]\npath = 'memory'\n", false)] {
        let (warmline, server) = (Warmline::new(), server());
        let text = format!("{path}[servers.ledger]\nurl = '{}'\n", server.url());
        warmline.write_user("warmline.toml", &text);
        let serving = Serving::start(&warmline, &[]);
        let header = format!("Authorization: Bearer {}", local_token(&warmline.state()));
        let url = format!("{}/runs/trip/servers/ledger/mcp", serving.base());
        let output = warmline.run(&["call", &url, "counter", "--header", &header]);
        assert_eq!(output.stdout.trim(), r#"{"count":1}"#, "{output}");
        serving.stop(&warmline);
        assert_eq!(warmline.state().join("sessions").exists(), is_kept);
        assert_eq!(server.counts().open_sessions, u64::from(is_kept));
    }
}
