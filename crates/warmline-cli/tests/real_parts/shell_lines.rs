//! The shell lines of the README and of the guides run as they are printed, page by page.

use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::Path;

use super::fixture::within_limits;
use super::isolated_binary::{BINARY, Warmline};

/// Beginnings of lines that are not run, each with its reason.
const NOT_RUN: &[(&str, &str)] = &[
    (
        "cargo ",
        "builds for minutes; the tests run what it would build",
    ),
    ("make ", "runs all tests, this one included"),
    (
        "pip install ",
        "installs from the network; the tests have the same packages, pinned",
    ),
    (
        "warmline call echo message=hi -- npx ",
        "installs from the network; the tests run that server from a folder",
    ),
];

/// Ports that the pages print: of the gateway, of its ops pages, of the demo server.
const PRINTED_PORTS: [u16; 3] = [8484, 8485, 8400];

const PREAMBLE: &str = r#"
set -u
export WARMLINE_GATEWAY_LISTEN=127.0.0.1:8484 WARMLINE_OPS_LISTEN=127.0.0.1:8485
trap 'warmline down >/dev/null 2>&1; kill $(jobs -p) 2>/dev/null; wait' EXIT
said() { # waits until a program in the background says where it listens
  for _ in $(seq 600); do grep -q 127.0.0.1 "$1" && return; sleep 0.05; done
  echo "it does not listen:"; cat "$1"; exit 1
}
"#;

#[test]
fn the_shell_lines_of_every_page_run() {
    assert!(NOT_RUN.len() <= 10, "lines that nobody runs go stale");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("README.md")];
    let guides = std::fs::read_dir(root.join("docs/guide")).unwrap();
    pages.extend(guides.map(|entry| entry.unwrap().path()));
    assert!(pages.len() >= 8, "{pages:?}");
    for page in pages {
        run_page(&page);
    }
}

fn run_page(page: &Path) {
    let lines = shell_lines(&std::fs::read_to_string(page).unwrap());
    let mut script = PREAMBLE.to_owned();
    for (index, line) in lines.iter().enumerate() {
        if NOT_RUN.iter().any(|(start, _)| line.starts_with(start)) {
            continue;
        }
        let shown = line.replace('\'', "'\\''");
        match line.strip_suffix('&') {
            Some(program) => writeln!(
                script,
                "{program} > background.{index} 2>&1 &\nsaid background.{index}"
            ),
            None => writeln!(
                script,
                "{line}\n[ $? = 0 ] || {{ echo 'this line fails: {shown}'; exit 1; }}"
            ),
        }
        .unwrap();
    }
    for (printed, free) in PRINTED_PORTS.into_iter().zip(free_ports()) {
        script = script.replace(&format!(":{printed}"), &format!(":{free}"));
        script = script.replace(&format!("--http {printed}"), &format!("--http {free}"));
    }
    let warmline = Warmline::new();
    let programs = Path::new(BINARY).parent().unwrap();
    let output = within_limits("/bin/bash")
        .args(["-c", &script])
        .env_clear()
        .env(
            "PATH",
            format!("{}:/usr/local/bin:/usr/bin:/bin", programs.display()),
        )
        .env("HOME", warmline.home())
        .current_dir(warmline.work())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}:\n{}{}",
        page.display(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Lines of `sh` blocks, and those behind `$ ` of `console` blocks.
fn shell_lines(page: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut block = None;
    for line in page.lines() {
        if let Some(language) = line.strip_prefix("```") {
            block = block.is_none().then_some(language);
            continue;
        }
        let command = match block {
            Some("sh") => Some(line),
            Some("console") => line.strip_prefix("$ "),
            _ => None,
        };
        lines.extend(command.filter(|line| !line.is_empty()).map(str::to_owned));
    }
    lines
}

/// Ports below those that the system gives to port 0, so that no other test gets them meanwhile.
fn free_ports() -> [u16; 3] {
    let first = 20_000 + u16::try_from(std::process::id() % 5_000).unwrap() * 2;
    let free = (first..32_000).filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    let ports: Vec<u16> = free.take(3).collect();
    ports.try_into().unwrap()
}
