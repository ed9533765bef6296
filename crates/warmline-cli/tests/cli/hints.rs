//! Hints that say at once what is to be done: nobody is sent to another command to read it there.

use warmline_testkit::personality::Personality;
use warmline_testkit::{Canned, Fault, LedgerServer, Rule};

use crate::tells;
use crate::warmline::Warmline;

#[test]
fn what_a_server_answers_an_opening_with_says_what_to_do() {
    let warmline = Warmline::new();
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    #[rustfmt::skip]
    let table = [
        (Canned::new(404, "not here"),                            "older ones at `/sse`"),
        (Canned::new(403, "no"),                                  "the credential may not do that"),
        (Canned::new(429, "slow").header("Retry-After", "30"),    "it asks to wait 30 s, then try again"),
        (Canned::redirect(307, "/mcp/"),                          "/mcp/`"),
        (Canned::redirect(308, "/other"),                         "/other`"),
        (Canned::redirect(307, "/mcp?key=canary"),                "use the URL it sends to, if you trust it"),
        (Canned::redirect(307, "http://127.0.0.1:1/mcp"),         "use the URL it sends to, if you trust it"),
    ];
    for (canned, hint) in table {
        server.inject(Rule::new(Fault::Reply(canned)).always());
        for words in [
            ["call", &server.url(), "counter"].as_slice(),
            &["call", &server.url(), "counter", "--run", "trip"],
        ] {
            let told = warmline.run(words);
            let said = told.stderr.lines().last().unwrap_or_default();
            assert!(
                said.starts_with("  hint: ") && said.contains(hint),
                "{told}"
            );
        }
        server.control().clear();
    }
    server.inject(Rule::new(Fault::Reply(Canned::redirect(307, "/mcp/"))).always());
    tells!(warmline.run(&["tools", &server.url()]), @r"
    exit: 3
    ----- stderr -----
    error[open-failed]: `127.0.0.1:[PORT]` sends us elsewhere, which we do not follow
      where: http://127.0.0.1:[PORT]/mcp
      why: HTTP 307 to /mcp/
      delivery: unsent (not executed, safe to call again)
      hint: use the URL it sends to: `http://127.0.0.1:[PORT]/mcp/`
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
            let told = warmline.run(&words);
            let hint = format!("{}{}", told.stdout, told.stderr);
            let hint = hint.lines().find(|line| line.contains("hint: the token"));
            assert!(
                hint.is_some_and(|hint| hint.contains(from)),
                "{from}: {told}"
            );
            assert!(!told.to_string().contains("canary"), "{told}");
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
      hint: nobody listens there: start the server, or check host and port
    ");
}

/// Which setting decides how long a program may be silent: that one is named, and no other counts.
#[test]
fn a_silent_program_is_told_with_the_setting_that_decides() {
    let warmline = Warmline::new();
    let hang = "[servers.hang]\ncommand = ['sleep', '600']\nstart_timeout = '1s'\n";
    let file = warmline.write("w.toml", hang).display().to_string();
    tells!(warmline.run(&["call", "hang", "x", "--config", &file]), @r"
    exit: 3
    ----- stderr -----
    error[open-failed]: `hang` showed no sign of life within [TIME] of its start (`start_timeout`)
      where: sleep 600
      delivery: unsent (not executed, safe to call again)
      hint: start it by hand and see what it says: `sleep 600`; or allow more time: `start_timeout` in [WORK]/w.toml:1:10, or `--timeout`
    ");
}
