//! A note beside the answer: what to know, and what to do about it.

use warmline_core::error::code::Code;

use super::text::one_line;
use super::{JsonFields, Report};

#[derive(Clone, Debug, Default)]
pub(crate) struct Note {
    pub(crate) code: Option<Code>,
    pub(crate) message: String,
    pub(crate) location: Option<String>,
    pub(crate) cause: Option<String>,
    pub(crate) hint: Option<String>,
}

impl Note {
    pub(crate) fn new(message: String) -> Self {
        Self {
            message,
            ..Self::default()
        }
    }

    /// Prints it, unless `--quiet` is given. `context` are further fields for programs.
    pub(crate) fn print(&self, context: &JsonFields, report: &Report) {
        let code = self.code.map(Code::as_str);
        let fields = JsonFields::with("code", code).put_fields(context);
        let mut fields = fields.put("what", &self.message);
        let code = code.map(|code| format!("[{code}]")).unwrap_or_default();
        let mut text = format!("note{code}: {}", one_line(&self.message));
        let details = [
            ("where", &self.location),
            ("why", &self.cause),
            ("hint", &self.hint),
        ];
        for (name, detail) in details {
            fields = fields.put(name, detail);
            text.extend(
                detail
                    .iter()
                    .map(|said| format!("\n  {name}: {}", one_line(said))),
            );
        }
        report.print_notice(&text, &fields);
    }
}
