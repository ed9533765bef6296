//! Files that cannot be used: those that would have to be waited for, and those that a gateway
//! needs at its start.

use crate::prelude::*;

use rustix::fs::{CWD, Mode, mkfifoat};

/// DESIGN 9, reliability P28: a pipe where a file is read is refused and named, whatever it was to
/// be; the gateway goes on, reads the next file, and stops when it is told to.
#[test]
fn a_pipe_in_the_place_of_a_file_is_refused_and_named() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let declared = format!("[servers.kept]\nurl = '{}'\n", server.url());
    let tables = [
        "[servers.more]\nurl = 'http://127.0.0.1:1/mcp'\ncredential = { file = 'pipe' }\n",
        "[servers.more]\nurl = 'https://127.0.0.1:1/mcp'\nca_file = 'pipe'\n",
        "[gateway.jwt]\nissuer = 'i'\naudiences = ['a']\nkeys_file = 'pipe'\n",
    ];
    for more in tables {
        let warmline = Warmline::new();
        let file = warmline.write_user("warmline.toml", &declared);
        mkfifoat(CWD, file.with_file_name("pipe"), Mode::RUSR | Mode::WUSR).unwrap();
        let words = ["--auth", "none", "--config", file.to_str().unwrap()];
        let serving = Serving::start(&warmline, &words);
        let reloads = |times: usize| {
            serving.tell(Signal::HUP);
            until("it was read again", || {
                let page = serving.page("/metrics");
                let reads = page
                    .lines()
                    .filter(|line| line.starts_with("warmline_reload_total{"))
                    .filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok());
                reads.sum::<usize>() >= times
            });
        };
        std::fs::write(&file, format!("{declared}{more}")).unwrap();
        reloads(1);
        std::fs::remove_file(&file).unwrap();
        mkfifoat(CWD, &file, Mode::RUSR | Mode::WUSR).unwrap();
        reloads(2);
        std::fs::remove_file(&file).unwrap();
        let late = format!("{declared}[servers.late]\nurl = '{}'\n", server.url());
        std::fs::write(&file, late).unwrap();
        let at = format!("{}/servers/late/mcp", serving.base());
        until("the next file counts", || {
            warmline.run(&["call", &at, "echo"]).exit == 0
        });
        let log = serving.stop(&warmline);
        assert!(log.contains("it is a pipe"), "{more}: {log}");
        assert!(log.contains("what runs goes on"), "{more}: {log}");
    }
}

/// A certificate that cannot be used, and an audit that cannot be written, are told where they are
/// decided, at a start and by `check`.
#[test]
fn files_that_a_listener_cannot_use_are_told_where_they_are_named() {
    let warmline = Warmline::new();
    let made = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (one, other) = (made(), made());
    let file = warmline.write_user("warmline.toml", "");
    let beside = |name: &str, text: &str| std::fs::write(file.with_file_name(name), text).unwrap();
    beside("one.crt", &one.cert.pem());
    beside("one.key", &one.signing_key.serialize_pem());
    beside("other.key", &other.signing_key.serialize_pem());
    beside("empty", "");
    let tls = |certificate: &str, key: &str| {
        format!("[gateway]\ntls_certificate = '{certificate}'\ntls_key = '{key}'\n")
    };
    for (more, line, says) in [
        (tls("none.crt", "one.key"), 2, "none.crt` cannot be used"),
        (tls("empty", "one.key"), 2, "empty` holds no certificate"),
        (tls("one.crt", "one.crt"), 3, "one.crt` cannot be used"),
        (
            tls("one.crt", "other.key"),
            3,
            "other.key` cannot be used with",
        ),
        (
            "[audit]\nfile = 'nowhere/log'\n".to_owned(),
            2,
            "is no folder",
        ),
    ] {
        let declared = "[servers.a]\nurl = 'http://127.0.0.1:1/mcp'\n";
        std::fs::write(&file, format!("{more}{declared}")).unwrap();
        let place = format!("warmline.toml:{line}");
        warmline.run(&["check"]).fails().says(says).says(&place);
        let words = [
            "serve",
            "--auth",
            "none",
            "--listen",
            "127.0.0.1:0",
            "--ops",
            "none",
        ];
        let output = warmline.run(&words);
        output.fails().says(&place).does_not_say("listened on");
    }
    std::fs::write(&file, tls("one.crt", "one.key")).unwrap();
    assert_eq!(warmline.run(&["check"]).exit, 0);
}
