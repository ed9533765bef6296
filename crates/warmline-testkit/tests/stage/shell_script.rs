//! A child that is a shell script.

use super::stdio_program::Program;

/// What scripts can say.
const WORDS: &str = r#"
hear() { IFS= read -r line || exit 0; id=${line#*\"id\":}; id=${id%%[,\}]*}; }
reply() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
"#;

impl Program {
    /// A shell script. It knows how to `hear` a message (its id is then `$id`) and to `reply`.
    pub(crate) fn script(script: &str) -> Self {
        let whole = format!("{WORDS}{script}");
        Self::of(["-c", whole.as_str(), "script"].into_iter())
    }
}
