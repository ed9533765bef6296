//! Whether a server says that it has no tool of that name: in an error, or in a result.
//!
//! Asked by: the engine, when a call was answered with "no". There is no code for it: servers use
//! -32602, which means bad arguments too, or a result that says it failed. So it is read from what
//! they say, and only from a sentence that is about nothing else.

/// What else may stand in such a sentence, beside the name.
const MOST_WORDS: usize = 80;

/// Whether these words say that the tool is not known.
pub fn says_unknown_tool(words: &str, tool: &str) -> bool {
    if tool.is_empty() || words.len() > 2 * tool.len() + MOST_WORDS {
        return false;
    }
    let Some((before, after)) = words.split_once(tool) else {
        return false;
    };
    let (before, after) = (before.to_lowercase(), after.to_lowercase());
    let before = before.trim_end_matches(is_around_a_name);
    let after = after.trim_start_matches(is_around_a_name);
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

/// What stands between a name and the words around it.
fn is_around_a_name(c: char) -> bool {
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
            assert_eq!(says_unknown_tool(words, "serch"), is_unknown, "{words}");
        }
        let long = format!("Unknown tool: serch{}", " and more".repeat(20));
        assert!(!says_unknown_tool(&long, "serch"));
        assert!(!says_unknown_tool("Unknown tool: ", ""));
    }
}
