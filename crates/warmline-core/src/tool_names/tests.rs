//! Names are accepted by providers, different, and always the same.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// A156, P112: what a provider would refuse is cleaned; what it accepts stays.
#[test]
fn odd_names_are_cleaned_and_fine_ones_stay() {
    let long = "x".repeat(65);
    let cut = format!("{}_", "x".repeat(55));
    #[rustfmt::skip]
    let table = [
        // original          begins with           length
        ("read",             "read",               4),
        ("browser_click-2",  "browser_click-2",    15),
        ("files.read",       "files_read_",        19),
        ("files/read",       "files_read_",        19),
        ("größe",            "gr__e_",             14),
        ("工具",              "___",                11),
        ("",                 "tool_",              13),
        (&long,              &cut,                 64),
    ];
    for (original, head, length) in table {
        let names = ToolNames::from_originals([original], MAX_NAME_LENGTH);
        let exposed = names.exposed(original).expect("a name");
        assert!(exposed.starts_with(head), "{original}: {exposed}");
        assert_eq!(exposed.len(), length, "{original}: {exposed}");
        assert!(
            is_valid_name(exposed, MAX_NAME_LENGTH),
            "{original}: {exposed}"
        );
        assert_eq!(names.original(exposed), Some(original));
        assert_eq!(
            may_be_exposed_name(exposed),
            original != exposed,
            "{exposed}"
        );
    }
}

/// A156: names are remembered by models and in stored conversations: these never change.
#[test]
fn exposed_names_are_the_same_for_ever() {
    let names = ToolNames::from_originals(["files.read", "files/read", ""], MAX_NAME_LENGTH);
    #[rustfmt::skip]
    let table = [
        ("files.read", "files_read_059c287d"), ("files/read", "files_read_6d45e1c1"), ("", "tool_4fd0bfc1"),
    ];
    for (original, exposed) in table {
        assert_eq!(names.exposed(original), Some(exposed), "{original}");
    }
}

/// A156: a name that is taken is taken: the tool that has it by itself keeps it.
#[test]
fn names_that_meet_take_another_turn() {
    let odd = "files.read";
    let first = ToolNames::from_originals([odd], MAX_NAME_LENGTH)
        .exposed(odd)
        .expect("a name")
        .to_owned();
    let names = ToolNames::from_originals([odd, first.as_str()], MAX_NAME_LENGTH);
    assert_eq!(names.exposed(&first), Some(first.as_str()));
    let second = names.exposed(odd).expect("a name");
    assert_eq!(second, format!("{first}_1"));
    assert!(may_be_exposed_name(second));
}

/// P111: the gateway's names are shorter, and a long server's tools still differ.
#[test]
fn a_shorter_limit_is_kept() {
    let tools: Vec<String> = (0..100)
        .map(|number| format!("a-server-with-a-long-name__a_tool_with_a_long_name_{number}"))
        .collect();
    let names = ToolNames::from_originals(tools.iter().map(String::as_str), 48);
    let exposed: BTreeSet<&str> = tools.iter().filter_map(|t| names.exposed(t)).collect();
    assert_eq!(exposed.len(), 100);
    for name in exposed {
        assert_eq!(name.len(), 48, "{name}");
        assert!(
            name.starts_with("a-server-with-a-long-name__a_tool_with_"),
            "{name}"
        );
    }
    // A limit that leaves no room is not taken by its word.
    assert!(
        ToolNames::from_originals(["a.b"], 3)
            .exposed("a.b")
            .is_some_and(|name| name.len() <= 24)
    );
}

fn originals() -> impl Strategy<Value = Vec<String>> {
    // Short, from few letters, so that they meet often; and some that look like names of ours.
    let name = prop_oneof![
        "[ab._]{0,4}",
        ".{0,80}",
        "[ab._]{1,3}".prop_map(|odd| sanitize_name(&odd, 24, 0)),
        "[ab._]{1,3}".prop_map(|odd| sanitize_name(&odd, 24, 1)),
    ];
    prop::collection::vec(name, 0..40)
}

proptest! {
    /// A156, P112, P113: whatever a server calls its tools, in whatever order.
    #[test]
    fn every_tool_gets_a_name_of_its_own_that_does_not_depend_on_the_order(
        tools in originals(), longest in 24..64_usize,
    ) {
        let names = ToolNames::from_originals(tools.iter().map(String::as_str), longest);
        let different: BTreeSet<&String> = tools.iter().collect();
        prop_assert_eq!(names.len(), different.len());
        for tool in different {
            let exposed = names.exposed(tool).expect("a name");
            prop_assert!(is_valid_name(exposed, longest), "{tool:?}: {exposed}");
            prop_assert_eq!(names.original(exposed), Some(tool.as_str()));
        }
        let backwards = ToolNames::from_originals(tools.iter().rev().map(String::as_str), longest);
        prop_assert_eq!(names, backwards);
    }

    /// A190: a pattern means what the slow definition says.
    #[test]
    fn a_star_stands_for_any_characters(pattern in "[ab*]{0,8}", name in "[ab]{0,10}") {
        prop_assert_eq!(matches_pattern(&pattern, &name), slowly(pattern.as_bytes(), name.as_bytes()));
    }
}

fn slowly(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern, name) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => {
            slowly(rest, name) || (!name.is_empty() && slowly(pattern, &name[1..]))
        },
        ([a, rest @ ..], [b, tail @ ..]) => a == b && slowly(rest, tail),
        ([], _) | (_, []) => false,
    }
}

/// A190: what is denied is denied whatever is allowed.
#[test]
fn rules_allow_what_nothing_denies() {
    #[rustfmt::skip]
    let table: &[(&[&str], &[&str], &str, bool)] = &[
        // allow                deny            name            so
        (&[],                   &[],            "read_file",    true),
        (&["read_*"],           &[],            "read_file",    true),
        (&["read_*"],           &[],            "write_file",   false),
        (&["read_*", "list"],   &[],            "list",         true),
        (&[],                   &["*delete*"],  "row_delete_1", false),
        (&["*"],                &["write_*"],   "write_file",   false),
        (&["read_file"],        &[],            "read_file2",   false),
        (&["Read_*"],           &[],            "read_file",    false),
    ];
    let owned = |patterns: &[&str]| patterns.iter().map(ToString::to_string).collect::<Vec<_>>();
    for (allow, deny, name, expected) in table {
        let policy = crate::policy::Policy {
            allow: owned(allow),
            deny: owned(deny),
            ..Default::default()
        };
        assert_eq!(
            policy.allows_tool(name),
            *expected,
            "{allow:?} {deny:?} {name}"
        );
    }
}

#[test]
fn a_pattern_of_many_stars_takes_no_time() {
    assert!(!matches_pattern(&"*a".repeat(2_000), &"b".repeat(2_000)));
}
