//! Variables that a program wants: it gets few of ours, and whoever misses one is told how to hand
//! it on.

use crate::prelude::*;

/// A program that wants a variable, and is a server where it has it.
fn needy() -> String {
    format!(
        "if test -z \"$BRAVE_API_KEY\"; then echo 'Error: BRAVE_API_KEY environment variable is \
         required' >&2; exit 1; fi; exec {BINARY} demo-server --stdio"
    )
}

/// The variable that a program asks for is named with the option that hands it on.
#[test]
fn a_variable_that_a_program_asks_for_is_handed_on_by_the_option_that_the_error_names() {
    let warmline = Warmline::new().with("BRAVE_API_KEY", "canary");
    warmline.write("need.sh", &needy());
    let command = ["--", "sh", "need.sh"];
    let typed = |words: &[&str]| warmline.run(&[words, &command].concat());
    tells!(typed(&["tools"]), @r"
    exit: 3
    ----- stderr -----
    error[open-failed]: `sh` ended with exit status 1
      where: sh need.sh
      why: Error: BRAVE_API_KEY environment variable is required
      delivery: unsent (not executed, safe to call again)
      hint: `BRAVE_API_KEY` is set here, but not passed to the program: `--env-pass BRAVE_API_KEY`
    ");
    tells!(typed(&["call", "counter", "--run", "trip"]), @r"
    exit: 3
    ----- stderr -----
    error[open-failed]: `sh` ended with exit status 1
      where: sh need.sh
      why: Error: BRAVE_API_KEY environment variable is required
      delivery: unsent (not executed, safe to call again)
      hint: `BRAVE_API_KEY` is set here, but not passed to the program: `--env-pass BRAVE_API_KEY`
    ");
    tells!(typed(&["doctor"]), @r"
    exit: 2
    ----- stdout -----
    config       ok      command line: sh need.sh
    program      ok      sh → [BIN]/sh
    environment  ok      1 variable is not passed on; BRAVE_API_KEY looks like a secret
    would send   ok      the default variables (PATH, HOME, LANG …) · no secrets
    start        broken  `sh` ended with exit status 1
                 why: Error: BRAVE_API_KEY environment variable is required
                 hint: `BRAVE_API_KEY` is set here, but not passed to the program: `--env-pass BRAVE_API_KEY`

    5 questions · 1 broken
    ");
    let output = typed(&["call", "counter", "--env-pass", "BRAVE_API_KEY"]);
    output.exits(0);
    assert_eq!(output.stdout, "{\"count\":1}\n");
    assert!(!typed(&["tools", "--json"]).everything().contains("canary"));
}

#[test]
fn a_variable_that_nobody_set_is_to_be_set_first() {
    let warmline = Warmline::new();
    warmline.write("need.sh", &needy());
    tells!(warmline.run(&["tools", "--", "sh", "need.sh"]), @r"
    exit: 3
    ----- stderr -----
    error[open-failed]: `sh` ended with exit status 1
      where: sh need.sh
      why: Error: BRAVE_API_KEY environment variable is required
      delivery: unsent (not executed, safe to call again)
      hint: set `BRAVE_API_KEY`, and pass it on: `--env-pass BRAVE_API_KEY`
    ");
    let output = warmline.run(&[
        "tools",
        "--env-pass",
        "BRAVE_API_KEY",
        "--",
        "sh",
        "need.sh",
    ]);
    output.says("it is passed on, but not set");
}

#[test]
fn the_variable_of_a_configured_server_is_handed_on_by_its_file() {
    let warmline = Warmline::new().with("BRAVE_API_KEY", "canary");
    let script = warmline.write("need.sh", &needy());
    let file = format!(
        "[servers.search]\ncommand = ['sh', '{}']\n",
        script.display()
    );
    warmline.write_user("warmline.toml", &file);
    tells!(warmline.run(&["tools", "search"]), @r#"
    exit: 3
    ----- stderr -----
    error[open-failed]: `search` ended with exit status 1
      where: sh [WORK]/need.sh
      why: Error: BRAVE_API_KEY environment variable is required
      delivery: unsent (not executed, safe to call again)
      hint: `BRAVE_API_KEY` is set here, but not passed to the program: `env_pass = ["BRAVE_API_KEY"]` at [HOME]/.config/warmline/warmline.toml:1:10, or `--env-pass BRAVE_API_KEY` for one command
    "#);
    let passing = format!("{file}env_pass = ['BRAVE_API_KEY']\n");
    warmline.write_user("warmline.toml", &passing);
    warmline.run(&["tools", "search"]).exits(0);
}

#[test]
fn a_command_that_is_served_gets_the_variables_that_were_typed_beside_it() {
    let warmline = Warmline::new().with("BRAVE_API_KEY", "canary");
    warmline.write("need.sh", &needy());
    let words = [
        "--auth",
        "none",
        "--env-pass",
        "BRAVE_API_KEY",
        "--",
        "sh",
        "need.sh",
    ];
    let serving = Serving::start(&warmline, &words);
    let url = format!("{}/mcp", serving.base());
    warmline.run(&["tools", &url]).exits(0);
    serving.stop(&warmline);

    let greeting = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
    let words = ["stdio", "--env", "BRAVE_API_KEY=x", "--", "sh", "need.sh"];
    let output = warmline.run_with_input(&words, &format!("{greeting}\n"));
    output.prints(r#""serverInfo""#);

    tells!(warmline.run(&["serve", "--env-pass", "BRAVE_API_KEY", "http://127.0.0.1:1/mcp"]), @r#"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: `--env-pass` needs a command behind `--`
      hint: a server of a file has its variables there: `env_pass = ["NAME"]`, or `env`
    "#);
}
