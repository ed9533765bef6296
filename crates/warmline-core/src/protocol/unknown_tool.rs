//! Whether a server says that it has no tool of that name, in an error or in a result.
//!
//! There is no code for it: servers use -32602, which also means bad arguments, or a result that
//! says it failed. So it is read from the text, and only from a sentence about nothing else.

/// How much text such a sentence may hold beside the name.
const MAX_EXTRA_BYTES: usize = 80;

/// Whether these words say that the tool is not known.
pub fn is_unknown_tool_message(words: &str, tool: &str) -> bool {
    if tool.is_empty() || words.len() > 2 * tool.len() + MAX_EXTRA_BYTES {
        return false;
    }
    let Some((before, after)) = words.split_once(tool) else {
        return false;
    };
    let (before, after) = (before.to_lowercase(), after.to_lowercase());
    let before = before.trim_end_matches(is_name_delimiter);
    let after = after.trim_start_matches(is_name_delimiter);
    let said_before = [
        "unknown tool",
        "unknown tool name",
        "tool not found",
        "no such tool",
        "no tool named",
        "no tool called",
        "has no tool",
    ];
    let said_after = [
        "not found",
        "is not found",
        "was not found",
        "does not exist",
        "is unknown",
        "is not known",
        "not registered",
        "is not registered",
    ];
    said_before.iter().any(|said| before.ends_with(said))
        || (before.ends_with("tool") && said_after.iter().any(|said| after.starts_with(said)))
}

fn is_name_delimiter(c: char) -> bool {
    c.is_whitespace() || "`'\"“”‘’:".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_say_in_many_ways_that_a_tool_is_not_theirs() {
        #[rustfmt::skip]
        let table = [
            ("Unknown tool: serch",                           true),
            ("unknown tool \"serch\"",                        true),
            ("Tool serch not found",                          true),
            ("MCP error -32602: Tool serch not found",        true),
            ("Tool 'serch' does not exist",                   true),
            ("tool not found: serch",                         true),
            ("There is no tool named `serch`",                true),
            ("`ledger` has no tool `serch`",                  true),
            // Of another tool, or of none.
            ("Unknown tool: search",                          false),
            ("Invalid params",                                false),
            ("serch: file not found",                         false),
            ("nothing was found by serch",                    false),
            ("the tool serch failed: page not found",         false),
            ("",                                              false),
        ];
        for (words, is_unknown) in table {
            assert_eq!(
                is_unknown_tool_message(words, "serch"),
                is_unknown,
                "{words}"
            );
        }
        let long = format!("Unknown tool: serch{}", " and more".repeat(20));
        assert!(!is_unknown_tool_message(&long, "serch"));
        assert!(!is_unknown_tool_message("Unknown tool: ", ""));
    }
}
