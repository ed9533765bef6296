//! Between crates: dependencies point one way, and some never come in.

use std::process::Command;

use serde_json::Value;

/// Which crates of ours a crate may depend on, in what it ships. Development is free.
const MAY_USE: &[(&str, &[&str])] = &[
    ("warmline-core", &[]),
    ("warmline", &["warmline-core"]),
    ("warmline-testkit", &["warmline-core", "warmline"]),
    ("warmline-rmcp", &["warmline-core", "warmline"]),
    ("warmline-gateway", &["warmline-core", "warmline"]),
    // The command line offers the testkit's server as `demo-server`.
    (
        "warmline-cli",
        &[
            "warmline-core",
            "warmline",
            "warmline-gateway",
            "warmline-testkit",
        ],
    ),
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

fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(arguments)
        .args(["--locked", "--offline"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo {arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Each crate of the workspace with the names of what it ships with.
fn shipped() -> Vec<(String, Vec<String>)> {
    let metadata: Value =
        serde_json::from_str(&cargo(&["metadata", "--no-deps", "--format-version", "1"])).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let packages = metadata["packages"].as_array().unwrap();
    packages
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().unwrap();
            let shipped = dependencies.iter().filter(|one| one["kind"] != "dev");
            (
                text(&package["name"]),
                shipped.map(|one| text(&one["name"])).collect(),
            )
        })
        .collect()
}

fn complaints(crates: &[(String, Vec<String>)]) -> Vec<String> {
    let ours = |name: &String| MAY_USE.iter().any(|(known, _)| known == name);
    let mut found = Vec::new();
    for (name, uses) in crates {
        let Some((_, allowed)) = MAY_USE.iter().find(|(known, _)| known == name) else {
            found.push(format!("give `{name}` a place in the table"));
            continue;
        };
        let wrong = uses
            .iter()
            .filter(|used| ours(used) && !allowed.contains(&used.as_str()));
        found.extend(wrong.map(|used| format!("`{name}` depends on `{used}`")));
    }
    found
}

#[test]
fn dependencies_between_crates_point_one_way() {
    let found = complaints(&shipped());
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_planted_dependency_that_points_back_is_found() {
    let crates = [
        (
            "warmline-core".to_owned(),
            vec!["serde".to_owned(), "warmline".to_owned()],
        ),
        (
            "warmline".to_owned(),
            vec!["warmline-core".to_owned(), "warmline-testkit".to_owned()],
        ),
        ("warmline-new".to_owned(), vec![]),
    ];
    let found = complaints(&crates);
    assert_eq!(
        found,
        [
            "`warmline-core` depends on `warmline`",
            "`warmline` depends on `warmline-testkit`",
            "give `warmline-new` a place in the table",
        ]
    );
}

#[test]
fn the_core_names_no_runtime_no_socket_and_no_dice() {
    let crates = shipped();
    let (_, uses) = crates
        .iter()
        .find(|(name, _)| name == "warmline-core")
        .unwrap();
    let wrong: Vec<_> = uses
        .iter()
        .filter(|used| NEVER_IN_CORE.contains(&used.as_str()))
        .collect();
    assert!(wrong.is_empty(), "warmline-core depends on {wrong:?}");
}

#[test]
fn what_we_ship_brings_no_second_tls_or_http_client() {
    let tree = cargo(&[
        "tree",
        "-p",
        "warmline-cli",
        "-e",
        "normal",
        "--prefix",
        "none",
    ]);
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    let wrong: Vec<_> = names.filter(|name| NEVER_SHIPPED.contains(name)).collect();
    assert!(wrong.is_empty(), "warmline-cli brings in {wrong:?}");
}
