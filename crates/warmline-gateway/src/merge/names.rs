//! Names of all servers in one: `{server}__{tool}`, short enough for every model provider.
//!
//! A server's name has no underscore, so the first two of them end it, also in a name that had to
//! be made fine: what is cut, is cut at the end. What a name stands for can be told from the name
//! alone, unless it was made.

use warmline::core::names::{self, Names};

/// No name is longer. Some clients put a name of their own before it, and providers take 64.
const LONGEST: usize = 48;
/// What stands between a server and its tool.
const BETWEEN: &str = "__";

/// The names of what one server lists.
#[derive(Debug)]
pub(super) struct Shown {
    names: Names,
    /// The server, and what stands behind it.
    before: String,
}

impl Shown {
    /// Gives each of a server's own names one that is fine.
    pub(super) fn of<'a>(server: &str, own: impl IntoIterator<Item = &'a str>) -> Self {
        let before = format!("{server}{BETWEEN}");
        let whole: Vec<String> = own
            .into_iter()
            .map(|name| format!("{before}{name}"))
            .collect();
        let names = Names::of(whole.iter().map(String::as_str), LONGEST);
        Self { names, before }
    }

    /// What clients see in place of the server's own name.
    pub(super) fn shown(&self, own: &str) -> Option<&str> {
        self.names.exposed(&format!("{}{own}", self.before))
    }

    /// The server's own name of what clients see under this one.
    pub(super) fn original(&self, shown: &str) -> Option<&str> {
        self.names.original(shown)?.strip_prefix(&self.before)
    }
}

/// The server, and what is left of a name: nothing, where the server's own is empty.
pub(super) fn split(shown: &str) -> Option<(&str, &str)> {
    let (server, rest) = shown.split_once(BETWEEN)?;
    (!server.is_empty()).then_some((server, rest))
}

/// Whether a name may have been made: then only the list says what it stands for.
pub(super) fn may_be_made(shown: &str) -> bool {
    names::may_be_exposed(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P111, P112: whatever tools are called, each has one fine name of its own that says whose it
    /// is, and leads back.
    #[test]
    fn every_name_is_fine_says_its_server_and_leads_back() {
        let long = "x".repeat(200);
        let near = format!("{}y", "x".repeat(199));
        let own = [
            "",
            "read",
            "files.read",
            "files/read",
            "a__b",
            "_c",
            "é",
            "read_059c287d",
            &long,
            &near,
        ];
        for server in ["a", "files-of-a-long-name-24"] {
            let shown = Shown::of(server, own);
            let mut seen = std::collections::BTreeSet::new();
            for name in own {
                let name_shown = shown.shown(name).unwrap();
                assert!(seen.insert(name_shown.to_owned()), "{name_shown}");
                assert!((1..=LONGEST).contains(&name_shown.len()), "{name_shown}");
                let (whose, rest) = split(name_shown).unwrap();
                assert_eq!(whose, server);
                let back = if may_be_made(name_shown) {
                    shown.original(name_shown).unwrap()
                } else {
                    rest
                };
                assert_eq!(back, name);
            }
        }
    }

    #[test]
    fn what_names_no_server_is_nobodys() {
        for name in ["", "read", "__read", "a_b"] {
            assert_eq!(split(name), None, "{name}");
        }
        assert_eq!(split("a__b__c"), Some(("a", "b__c")));
    }
}
