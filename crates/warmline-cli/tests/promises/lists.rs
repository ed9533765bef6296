//! Lists: commands and flags, codes, settings and their variables, metrics and labels.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::before::{self, Lines, add_shape};
use crate::home::{Home, text};

/// One item of a page of `--help`: its term, and the text below it.
struct Item {
    term: String,
    text: String,
}

/// The items of a page. What a command line can hold begins with `-`, `<` or `[`.
fn items(page: &str) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    let mut is_open = false;
    let (_, page) = page.split_once("Usage: ").unwrap();
    for line in page.lines().skip(1) {
        let words = line.trim();
        let is_term = line.starts_with("  ") && words.starts_with(['-', '<', '[']);
        let indent = line.len() - line.trim_start().len();
        if is_term && indent <= 6 {
            let (term, rest) = words.split_once("  ").unwrap_or((words, ""));
            let (term, text) = (term.to_owned(), rest.trim().to_owned());
            items.push(Item { term, text });
            is_open = true;
        } else if let (true, Some(item)) = (is_open && indent >= 8, items.last_mut()) {
            item.text.push(' ');
            item.text.push_str(words);
        } else if !words.is_empty() {
            is_open = false;
        }
    }
    items
}

/// The content of `[what: …]`, where that is one word or a list of possible values.
fn bracket(text: &str, what: &str) -> String {
    let inside = text
        .split_once(&format!("[{what}: "))
        .and_then(|(_, rest)| rest.split_once(']'))
        .map(|(inside, _)| inside);
    match inside {
        Some(inside) if what == "possible values" || !inside.contains(' ') => {
            format!(" {what}={}", inside.replace(' ', ""))
        },
        _ => String::new(),
    }
}

/// The names of the commands on a page.
fn commands(page: &str) -> Vec<String> {
    let (_, page) = page.split_once("Usage: ").unwrap();
    let mut names = Vec::new();
    for line in page.lines().skip(1) {
        let is_item = line.starts_with("  ") && !line.starts_with("   ");
        let name = line.split_whitespace().next().unwrap_or_default();
        let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
        if is_item && is_name && !name.starts_with('-') && line.trim().contains("  ") {
            names.push(name.to_owned());
        } else if line.starts_with("A target is") || line.starts_with("Options:") {
            break;
        }
    }
    names
}

fn walk(home: &Home, words: &[&str], lines: &mut Lines) {
    let mut all = words.to_vec();
    all.push("--help");
    let page = text(&home.run(&all));
    let name = [&["warmline"], words].concat().join(" ");
    lines.insert(name.clone());
    for Item { term, text } in items(&page) {
        let values = bracket(&text, "possible values");
        let default = bracket(&text, "default");
        lines.insert(format!("{name} {term}{default}{values}"));
    }
    let is_parent = words.is_empty() || page.contains("\nCommands:\n");
    let below = if is_parent {
        commands(&page)
    } else {
        Vec::new()
    };
    for command in below.iter().filter(|name| *name != "help") {
        walk(home, &[words, &[command.as_str()]].concat(), lines);
    }
}

#[test]
fn every_command_and_flag_of_before_is_there() {
    let mut lines = Lines::new();
    walk(&Home::new(), &[], &mut lines);
    assert!(lines.len() > 200, "{lines:#?}");
    before::same("commands.txt", &lines);
}

/// `warmline explain` knows each code and reason of before, and says the same of it in words that
/// programs read.
#[test]
fn every_code_reason_and_row_of_before_is_explained() {
    let home = Home::new();
    let mut lines = Lines::new();
    let mut words: Vec<String> = Vec::new();
    for line in home.json(&["explain"]).lines() {
        let code: Value = serde_json::from_str(line).unwrap();
        words.push(code["code"].as_str().unwrap().to_owned());
    }
    assert!(words.len() > 20, "{words:?}");
    // Nothing lists these: they stand in a file, and each must still be known.
    words.extend(before::read("words.txt"));
    for word in &words {
        let output = home.run(&["explain", "--json", "--", word]);
        assert_eq!(output.status.code(), Some(0), "{word} is not explained");
        for line in text(&output).lines() {
            let said: Value = serde_json::from_str(line).unwrap();
            let mut own = Lines::new();
            add_shape(said["kind"].as_str().unwrap(), &said, &mut own);
            lines.extend(own.into_iter().map(|line| format!("{word} {line}")));
        }
        // Only the page for people says it.
        let page = text(&home.run(&["explain", "--", word]));
        for line in page.lines().filter(|line| line.contains("exit code")) {
            let number = line.rsplit(' ').next().unwrap();
            lines.insert(format!("{word} exits with {number}"));
        }
    }
    before::same("explained.txt", &lines);
}

/// The rows of the tables of a page, between comments that name their part.
fn rows(page: &str, what: &str) -> Vec<(String, Vec<String>)> {
    let mut rows = Vec::new();
    for part in page.split(&format!("<!-- {what}: ")).skip(1) {
        let (name, table) = part.split_once(" -->").unwrap();
        let table = table.split("<!-- end -->").next().unwrap();
        for line in table.lines().filter(|line| line.starts_with("| `")) {
            let cells = line.trim_matches('|').split('|');
            let cells = cells.map(|cell| cell.trim().to_owned()).collect();
            rows.push((name.to_owned(), cells));
        }
    }
    rows
}

/// Settings with values, defaults and variables. A test of the library holds the page to its tables.
#[test]
fn every_setting_of_before_is_there() {
    let page = before::of_repository("docs/reference/settings.md");
    let lines: Lines = rows(&page, "settings")
        .into_iter()
        .map(|(part, cells)| {
            let [key, value, default, _means, variables] = cells.as_slice() else {
                panic!("{cells:?}")
            };
            format!("{part} {key} | {value} | {default} | {variables}")
        })
        .collect();
    assert!(lines.len() > 80, "{lines:#?}");
    before::same("settings.txt", &lines);
}

/// The schema of the file, without its prose.
#[test]
fn the_schema_allows_what_it_allowed_before() {
    let schema = before::of_repository("docs/reference/warmline.schema.json");
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let mut lines = Lines::new();
    flatten("schema", &schema, &mut lines);
    assert!(lines.len() > 300, "{}", lines.len());
    before::same("schema.txt", &lines);
}

fn flatten(path: &str, value: &Value, lines: &mut Lines) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                // A property may be called so too: that is an object.
                let is_prose = ["description", "title"].contains(&key.as_str());
                if !(is_prose && value.is_string()) {
                    flatten(&format!("{path}/{key}"), value, lines);
                }
            }
        },
        Value::Array(items) => {
            for item in items {
                flatten(&format!("{path}[]"), item, lines);
            }
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            lines.insert(format!("{path} {value}"));
        },
    }
}

/// Metrics with kinds and labels. A test holds the page to the tables of the code.
#[test]
fn every_metric_and_label_of_before_is_there() {
    let page = before::of_repository("docs/reference/metrics.md");
    let lines: Lines = rows(&page, "metrics")
        .into_iter()
        .map(|(part, cells)| {
            let [name, kind, labels, _says] = cells.as_slice() else {
                panic!("{cells:?}")
            };
            format!("{part} {name} {kind} {labels}")
        })
        .collect();
    assert!(lines.len() > 60, "{lines:#?}");
    before::same("metrics.txt", &lines);
}

/// The names of families and labels on a page of `/metrics`.
pub(crate) fn of_metrics_page(page: &str) -> Lines {
    let mut lines = Lines::new();
    let mut kinds = BTreeMap::new();
    for line in page.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            let (name, kind) = family.split_once(' ').unwrap();
            kinds.insert(name.to_owned(), kind.to_owned());
            lines.insert(format!("{name} {kind}"));
        } else if !line.starts_with('#') {
            let name = line.split([' ', '{']).next().unwrap();
            let inside = line
                .split_once('{')
                .and_then(|(_, rest)| rest.rsplit_once('}'));
            let labels = inside.map_or("", |(labels, _)| labels).split("\",");
            let labels = labels.filter_map(|label| label.split_once('='));
            let labels: Vec<&str> = labels.map(|(name, _)| name).collect();
            lines.insert(format!("{name}{{{}}}", labels.join(",")));
        }
    }
    lines
}
