//! Files and variables that set everything: each key is taken, under the name that it had.

use serde_json::Value;

use crate::before::{self, Lines, folder};
use crate::home::{Home, text};

/// A home with the files of before, and those that they name.
fn home() -> Home {
    let home = Home::new().with("TEAM", "lamp");
    for name in ["whole.toml", "mcp.json", "capabilities.json"] {
        let file = std::fs::read_to_string(folder().join(name)).unwrap();
        home.write(name, &file);
    }
    let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    home.write("ca.pem", &signed.cert.pem());
    home.write("certificate.pem", &signed.cert.pem());
    home.write("key.pem", &signed.signing_key.serialize_pem());
    home.write("keys.json", r#"{"keys": []}"#);
    home
}

/// Every setting as `doctor` sees it: server, key, value, and where it was decided.
fn settings(home: &Home, words: &[&str]) -> Lines {
    let mut lines = Lines::new();
    for line in home.json(words).lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        if row["kind"] == "setting" {
            let text = |key: &str| row[key].as_str().unwrap_or("-").to_owned();
            let (server, key, value) = (text("server"), text("key"), text("value"));
            let value = value.replace(home.path().to_str().unwrap(), "~");
            let by = match row["origin"].as_str() {
                Some("environment") => text("from"),
                _ => text("origin"),
            };
            lines.insert(format!("{server} {key} = {value} ({by})"));
        }
    }
    lines
}

/// Those of one plain server.
fn settings_of_one(home: &Home) -> Lines {
    home.write(
        "one.toml",
        "[servers.one]\nurl = 'http://127.0.0.1:9/mcp'\n",
    );
    settings(home, &["doctor", "--config", "one.toml"])
}

#[test]
fn every_setting_has_its_usual_value() {
    let lines = settings_of_one(&home());
    assert!(lines.len() > 80, "{lines:#?}");
    before::same("doctor-settings.txt", &lines);
}

#[test]
fn files_that_set_everything_are_taken() {
    let home = home();
    for name in ["whole.toml", "mcp.json", "capabilities.json"] {
        let output = home.run(&["check", name]);
        assert_eq!(output.status.code(), Some(0), "{name}: {}", text(&output));
    }
    let page = text(&home.run(&["check", "whole.toml"]));
    let rules = page
        .lines()
        .filter(|line| line.contains("allow") || line.contains("deny"));
    assert_eq!(rules.count(), 4, "{page}");
}

#[test]
fn every_key_of_a_file_sets_what_it_set() {
    let home = home();
    let mut now = settings(&home, &["doctor", "--config", "whole.toml"]);
    let of_json = ["mcp.json", "capabilities.json"];
    for name in of_json {
        let all = settings(&home, &["doctor", "--config", name]);
        now.extend(all.into_iter().filter(|line| line.ends_with("(file)")));
    }
    let mut missing = before::read("settings.txt");
    missing.retain(|line| {
        let key = line.split('`').nth(1).unwrap();
        let is_set = |line: &String| {
            let name = line.split(' ').nth(1).unwrap();
            line.ends_with("(file)") && (name == key || name.ends_with(&format!(".{key}")))
        };
        !now.iter().any(is_set)
    });
    // It stands for `keys_url`, which is set; the test of variables sets it.
    missing.retain(|line| !line.starts_with("jwt `keys_file`"));
    assert_eq!(missing, Lines::new(), "`whole.toml` sets everything");
    before::same("whole-settings.txt", &now);
}

/// Variables of the page, and the usual values of their settings.
fn variables() -> Vec<(Vec<String>, String)> {
    let page = before::read("settings.txt").into_iter();
    page.map(|line| {
        let mut cells = line.rsplit(" | ").map(str::to_owned);
        let (names, value) = (cells.next().unwrap(), cells.next().unwrap());
        let names = names
            .split(", ")
            .map(|name| name.trim_matches('`').to_owned());
        (names.collect(), value.trim_matches('`').to_owned())
    })
    .collect()
}

#[test]
fn every_variable_sets_what_it_set() {
    let mut home = home();
    for (names, value) in variables() {
        home = home.with(&names[0], &value);
    }
    let lines = settings_of_one(&home);
    let holds = lines.iter().all(|line| line.contains("(WARMLINE_"));
    assert!(holds, "{lines:#?}");
    before::same("variables.txt", &lines);
}

/// Variables of other programs that mean the same.
#[test]
fn variables_of_other_programs_set_what_they_set() {
    let mut said = Lines::new();
    for name in variables().iter().flat_map(|(names, _)| &names[1..]) {
        for value in ["7", "true"] {
            let lines = settings_of_one(&home().with(name, value));
            said.extend(lines.into_iter().filter(|line| line.contains(name)));
        }
    }
    assert!(said.len() > 10, "{said:#?}");
    before::same("variables-of-others.txt", &said);
}
