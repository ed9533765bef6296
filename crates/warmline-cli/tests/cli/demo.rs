//! `demo` and `demo-server`.

use crate::prelude::*;

#[test]
fn the_demo_shows_state_kept_kept_apart_told_of_and_times() {
    let output = Warmline::new().run(&["demo"]);
    output.succeeds();
    for line in [
        "     a session per call   1 1 1",
        "     in a run             1 2 3",
        "     Alice's sub-agent    blue",
        "     Bob, in his `trip`   nothing       the tool says: there is no note colour",
        "     the server's ledger  1 × 10 paid",
        "     what Warmline says   may have been executed, check before calling again",
        "     a second call        2 × 10 paid",
        "; it was executed once\n",
        "     what the model gets  Note: the server `demo` lost its session and was\n",
        "                          {\"count\":1}\n",
        "     first call, from a spare  █",
        "     the next call        3 ",
        " later, in the same session\n",
    ] {
        assert!(output.stdout.contains(line), "{line}\n{output}");
    }
    let holds = output.stdout.lines().all(|line| line.chars().count() <= 80);
    assert!(holds, "{output}");
    output.does_not_print("\u{1b}");
}

#[test]
fn the_demo_speaks_to_programs_too() {
    let output = Warmline::new().run(&["demo", "--json"]);
    output.exits(0);
    let steps: Vec<String> = output
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|row| {
            assert_eq!(row["kind"], "demo");
            row["step"].as_str().unwrap().to_owned()
        })
        .collect();
    let mut in_order = steps.clone();
    in_order.dedup();
    let expected = ["count", "people", "pay", "heal", "time", "restart"];
    assert_eq!(in_order, expected, "{output}");
    assert_eq!(output.stdout.matches("took_us").count(), 6, "{output}");
}

#[test]
fn the_demo_server_says_where_it_listens_and_takes_calls() {
    let warmline = Warmline::new();
    for (words, has_kind) in [
        (&["demo-server", "--http"][..], false),
        (&["demo-server", "--http", "--json"], true),
    ] {
        let mut command = warmline.command(words);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let url = match has_kind {
            true => serde_json::from_str::<Value>(&line).unwrap()["url"]
                .as_str()
                .unwrap()
                .to_owned(),
            false => line.trim().to_owned(),
        };
        let output = warmline.run(&["call", &url, "pay", "amount=1"]);
        child.kill().unwrap();
        child.wait().unwrap();
        output.exits(0);
    }
}

#[test]
fn the_commands_that_the_demo_prints_do_what_it_shows() {
    let warmline = Warmline::new();
    let shown = warmline.run(&["demo"]).stdout;
    // Whoever types them has other jobs in the same shell, begun before and after.
    let mut typed = commands(&shown);
    let begun = typed
        .iter()
        .position(|command| command.contains("demo-server --http"));
    typed.insert(begun.unwrap() + 1, "sleep 600 & OTHER=$!".to_owned());
    typed.push("kill $OTHER && echo the other job went on".to_owned());
    let output = typed_in_a_shell(&warmline, &typed);
    let expected = [
        "{\"count\":1}",
        "written",
        "blue",
        "returned an error\n  where: tools/call note_read\n  why: there is no note colour",
        "may have been executed, check before calling again",
        "exit 4",
        "{\"count\":2}",
        "Note: the server `127.0.0.1:",
        "{\"count\":1}",
        "{\"count\":1}",
        "{\"count\":2}",
        "the other job went on",
    ];
    let mut rest = output.as_str();
    for part in expected {
        let (_, behind) = rest
            .split_once(part)
            .unwrap_or_else(|| panic!("{part}:\n{output}"));
        rest = behind;
    }
}

/// What stands behind a `$`, up to where one's own servers come: with the line that follows a `\\`.
fn commands(shown: &str) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in shown.lines() {
        if let Some(command) = line.strip_prefix("   $ ") {
            commands.push(command.to_owned());
        } else if goes_on {
            commands.last_mut().unwrap().push_str(line.trim_start());
        }
        goes_on = line.ends_with('\\');
        if let (true, Some(last)) = (goes_on, commands.last_mut()) {
            last.pop();
        }
    }
    // It is not shown once more, and nobody has the servers of the end.
    commands.retain(|command| !command.contains(" demo --json") && !command.contains(" doctor "));
    commands
}

/// Types the commands into one shell, on a port of its own, and waits until servers are up.
fn typed_in_a_shell(warmline: &Warmline, commands: &[String]) -> String {
    let free = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let [server, gateway] = free.map(|one| one.local_addr().unwrap().port().to_string());
    let up = |url| format!("until warmline tools {url} -q >/dev/null 2>&1; do :; done");
    let mut script = String::from("exec 2>&1; trap 'trap - TERM; kill 0' EXIT\n");
    for command in commands {
        let serves = command.contains(" serve ");
        let command = command
            .replace(
                " serve $U",
                &format!(" serve $U --listen 127.0.0.1:{gateway}"),
            )
            .replace("8400", &server)
            .replace("8484", &gateway)
            .replace("sleep 1", &up(if serves { "$G" } else { "$U" }));
        // What comes first asks for the server at once, and no person types that fast.
        let then = if command.starts_with("U=") {
            up("$U")
        } else {
            String::new()
        };
        script.push_str(&format!("{command}\n{then}\n"));
    }
    let folder = Path::new(BINARY).parent().unwrap();
    let path = format!("{}:/usr/bin:/bin", folder.display());
    // It ends all it started, also when a server does not come up.
    let mut typed = Command::new("/usr/bin/timeout");
    let words = ["60", "/bin/sh", "-c", &script];
    typed.args(words).stdin(Stdio::null());
    typed
        .env_clear()
        .env("PATH", path)
        .env("HOME", warmline.home());
    String::from_utf8(typed.output().unwrap().stdout).unwrap()
}

#[test]
fn an_option_that_the_demo_server_does_not_have_is_told() {
    let output = Warmline::new().run(&["demo-server", "--stdio", "--", "--nonsense", "1"]);
    output.exits(2);
}
