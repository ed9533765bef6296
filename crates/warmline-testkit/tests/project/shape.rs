//! The shape of the house: the few files that may touch sockets, time, locks, the environment and
//! the terminal, the drivers that know nothing of each other, and what never comes into a build.
//!
//! Who depends on whom is held by cargo between crates, and by `tests/house/cycles.py` inside them;
//! that the core waits for nothing and touches nothing outside, by its own `clippy.toml`.
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::{files_below, root};

/// Names that only some files of some crates may use: crates, names, files, why.
///
/// A file is named with its crate; a name that ends in `/` stands for everything in that folder.
type Rule = (
    &'static [&'static str],
    &'static [&'static str],
    &'static [&'static str],
    &'static str,
);

/// The crates below the gateway: all of them reach the outside through `warmline-platform`.
const LIBRARY: &[&str] = &[
    "warmline",
    "warmline-config",
    "warmline-engine",
    "warmline-platform",
    "warmline-pool",
    "warmline-store",
    "warmline-upstream",
];

const SEAMS: &[Rule] = &[
    (
        LIBRARY,
        &[
            "TcpStream",
            "TcpListener",
            "TcpSocket",
            "UdpSocket",
            "ToSocketAddrs",
            "lookup_host",
        ],
        &["warmline-platform/net.rs"],
        "the network is net.rs alone: simulations put theirs there",
    ),
    (
        LIBRARY,
        &["UnixStream", "UnixListener", "UnixDatagram"],
        &[
            "warmline-platform/net.rs",
            "warmline-upstream/child/process.rs",
            "warmline-upstream/child/warden.rs",
            "warmline-upstream/child/warden/",
        ],
        "local sockets lead to the warden, or stand in net.rs",
    ),
    (
        LIBRARY,
        &[
            "tokio::time",
            "tokio::spawn",
            "tokio::task::spawn",
            "Instant::now",
            "SystemTime",
            "std::time::Instant",
            "thread::sleep",
            "thread::spawn",
        ],
        &["warmline-platform/clock.rs"],
        "time and tasks come from clock.rs alone: a paused clock must move all of it",
    ),
    (
        LIBRARY,
        &[
            "parking_lot",
            "std::sync::Mutex",
            "std::sync::RwLock",
            "std::sync::Condvar",
            "tokio::sync::Mutex",
            "tokio::sync::RwLock",
        ],
        &["warmline-platform/lock.rs"],
        "locks come from lock.rs alone: schedule explorers put theirs there",
    ),
    (
        LIBRARY,
        &[
            "env::var",
            "env::var_os",
            "env::vars",
            "env::vars_os",
            "env::set_var",
        ],
        &[
            "warmline-config/ignored_variables.rs",
            "warmline-engine/credentials/source.rs",
            "warmline-engine/settings/environment.rs",
            "warmline-upstream/environment.rs",
        ],
        "variables are read where settings and secrets are, and where a child's are chosen",
    ),
];

const PRINTING: &[Rule] = &[
    (
        LIBRARY,
        &[
            "println!",
            "print!",
            "eprintln!",
            "eprint!",
            "io::stdout",
            "io::stderr",
            "anstream",
        ],
        &[],
        "a library does not print",
    ),
    (
        &["warmline-cli"],
        &["println!", "print!", "eprintln!", "eprint!", "anstream"],
        &["warmline-cli/output.rs", "warmline-cli/output/"],
        "what people read is written by the reporter alone",
    ),
    (
        &["warmline-cli"],
        &["io::stdout"],
        &[
            "warmline-cli/output.rs",
            "warmline-cli/output/",
            "warmline-cli/commands/stdio.rs",
        ],
        "stdout belongs to the reporter, and to the protocol where a client holds the other end",
    ),
    (
        &["warmline-cli"],
        &["io::stderr"],
        &[
            "warmline-cli/output.rs",
            "warmline-cli/output/",
            "warmline-cli/logging.rs",
        ],
        "stderr belongs to the reporter, and to the log",
    ),
];

const REFUSALS: &[Rule] = &[(
    &["warmline-gateway"],
    &["Response::new", "Response::builder"],
    &[
        "warmline-gateway/response.rs",
        "warmline-gateway/response/stream.rs",
    ],
    "response.rs makes every refusal, with its lines for the log and the audit; the other makes \
      streams",
)];

/// In `warmline-upstream`: who knows nothing of whom. Transports carry bytes of either era, and a
/// driver speaks its own.
const APART: &[(&str, &[&str])] = &[
    ("child", &["detect", "http", "http_sse", "legacy", "modern"]),
    ("http", &["child", "detect", "legacy", "modern", "stdio"]),
    ("legacy", &["modern", "detect"]),
    ("modern", &["detect"]),
];

/// What the core's manifest must not even name: its purity is a fact, not a promise.
const NEVER_IN_CORE: &[&str] = &[
    "tokio",
    "hyper",
    "rustls",
    "rustix",
    "fastrand",
    "rand",
    "parking_lot",
    "tracing",
    "reqwest",
];

/// What no shipped crate may bring in, by whatever way.
const NEVER_SHIPPED: &[&str] = &["openssl", "openssl-sys", "native-tls", "ring", "reqwest"];

fn crate_folder(name: &str) -> PathBuf {
    root().join("crates").join(name)
}

/// The source files of a crate, without those of tests: named `crate/file.rs`, and their text.
fn sources(name: &str) -> Vec<(String, String)> {
    let source = crate_folder(name).join("src");
    let named = |path: PathBuf| {
        let below = path.strip_prefix(&source).unwrap().to_str().unwrap();
        let file = format!("{name}/{below}");
        let is_test = file.ends_with("/tests.rs") || file.contains("/tests/");
        (!is_test).then(|| (file, fs::read_to_string(path).unwrap()))
    };
    let files = files_below(&source, "rs");
    files.into_iter().filter_map(named).collect()
}

/// The lines of code, each with its number: a `use` is one line, comments and inline tests are left
/// out.
fn code(text: &str) -> Vec<(usize, String)> {
    let shipped = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap();
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut in_use = false;
    for (number, line) in (1..).zip(shipped.lines().map(str::trim)) {
        if line.starts_with("//") {
            continue;
        }
        match lines.last_mut().filter(|_| in_use) {
            Some((_, tree)) => tree.push_str(line),
            None => lines.push((number, line.to_owned())),
        }
        in_use = is_use(&lines[lines.len() - 1].1) && !line.ends_with(';');
    }
    lines
}

fn is_use(line: &str) -> bool {
    let line = line
        .trim_start_matches("pub(crate) ")
        .trim_start_matches("pub ");
    line.starts_with("use ")
}

/// Whether a line names this path; of a `use` with braces, whether all its names stand there.
fn names(line: &str, path: &str) -> bool {
    let is_part = |sign: char| sign.is_alphanumeric() || sign == '_';
    let has = |word: &str| {
        let around: Vec<&str> = line.split(word).collect();
        around.windows(2).any(|sides| {
            let is_open = word.ends_with('!') || !sides[1].starts_with(is_part);
            is_open && !sides[0].ends_with(is_part)
        })
    };
    match is_use(line) && line.contains('{') {
        true => path.split("::").all(has),
        false => has(path),
    }
}

#[track_caller]
fn hold(rules: &[Rule]) {
    let mut broken = Vec::new();
    for (crates, paths, files, why) in rules {
        let may = |file: &str| {
            files
                .iter()
                .any(|one| *one == file || one.ends_with('/') && file.starts_with(one))
        };
        for (file, text) in crates.iter().flat_map(|name| sources(name)) {
            if may(&file) {
                continue;
            }
            for (number, line) in code(&text) {
                for path in paths.iter().filter(|path| names(&line, path)) {
                    broken.push(format!("{file}:{number}: names `{path}`: {why}"));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// reliability I36: timers use one door.
#[test]
fn sockets_time_locks_and_the_environment_have_one_door_each() {
    hold(SEAMS);
}

#[test]
fn libraries_print_nothing_and_the_command_line_in_one_file() {
    hold(PRINTING);
}

/// No refusal goes out without its lines in the log and in the audit: one file makes them all.
#[test]
fn the_gateway_refuses_in_one_file() {
    hold(REFUSALS);
}

#[test]
fn transports_do_not_know_drivers() {
    let mut broken = Vec::new();
    for (file, text) in sources("warmline-upstream") {
        let module = file.split(['/', '.']).nth(1).unwrap();
        let Some((_, others)) = APART.iter().find(|(from, _)| *from == module) else {
            continue;
        };
        for (number, line) in code(&text) {
            let uses = |other: &&&str| names(&line, &format!("crate::{other}"));
            let used = others.iter().find(uses);
            broken.extend(used.map(|used| format!("{file}:{number}: `{module}` uses `{used}`")));
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// A rule that could not fail would say nothing.
#[test]
fn a_line_that_breaks_a_rule_is_found() {
    for (text, path) in [
        ("use tokio::net::TcpStream;", "TcpStream"),
        (
            "pub(crate) use std::sync::{\n    Arc,\n    Mutex,\n};",
            "std::sync::Mutex",
        ),
        (
            "fn f() { let now = std::time::Instant::now(); }",
            "Instant::now",
        ),
        ("fn f() { println!(\"said\"); }", "println!"),
    ] {
        let holds = code(text).iter().any(|(_, line)| names(line, path));
        assert!(holds, "{text}");
    }
    for (text, path) in [
        ("use std::sync::Arc;", "std::sync::Mutex"),
        ("// tokio::net\nfn eprintln() {}", "println!"),
        (
            "fn f() {}\n#[cfg(test)]\nmod tests {\n    use tokio::time;\n}",
            "tokio::time",
        ),
    ] {
        let holds = !code(text).iter().any(|(_, line)| names(line, path));
        assert!(holds, "{text}");
    }
}

#[test]
fn the_core_names_no_runtime_no_socket_and_no_dice() {
    let manifest = fs::read_to_string(crate_folder("warmline-core").join("Cargo.toml")).unwrap();
    let (_, shipped) = manifest.split_once("[dependencies]").unwrap();
    let shipped = shipped.split("\n[").next().unwrap();
    let names = shipped
        .lines()
        .filter_map(|line| line.split(['.', ' ']).next());
    let wrong: Vec<_> = names.filter(|name| NEVER_IN_CORE.contains(name)).collect();
    assert!(wrong.is_empty(), "warmline-core depends on {wrong:?}");
}

#[test]
fn what_we_ship_brings_no_second_tls_or_http_client() {
    let tree = Command::new(env!("CARGO"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args([
            "tree",
            "-p",
            "warmline-cli",
            "-e",
            "normal",
            "--prefix",
            "none",
        ])
        .args(["--locked", "--offline"])
        .output()
        .unwrap();
    assert!(tree.status.success(), "{tree:?}");
    let tree = String::from_utf8(tree.stdout).unwrap();
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    let wrong: Vec<_> = names.filter(|name| NEVER_SHIPPED.contains(name)).collect();
    assert!(wrong.is_empty(), "warmline-cli brings in {wrong:?}");
}
