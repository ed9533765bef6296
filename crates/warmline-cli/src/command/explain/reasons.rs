//! The words of `reason=` in a log, for whoever sees one there: what went wrong, why a gateway turned
//! somebody away, what showed that a session was lost, and what a check found.

use warmline::core::code::{Code, Reason};
use warmline::metrics::{CheckResult, Explained, HealCause};
use warmline_gateway::metrics::TurnedAwayFor;

use crate::report::{Fields, Report, style};

/// A word, in one of the places where it may stand.
pub(super) struct Word {
    word: &'static str,
    /// Which lines of the log have it.
    of: &'static str,
    meaning: &'static str,
    /// The code it belongs to.
    code: Option<Code>,
}

const FAILED: &str = "what went wrong with an opening or a call";
const DOOR: &str = "`request refused`: a gateway turned somebody away";

/// What a gateway refuses that is let in: these are no reasons of its door.
const LET_IN: [(&str, &str); 2] = [
    ("message", "The message is none that may stand there."),
    (
        "era",
        "The client tried another era than its server's; one that speaks both falls back.",
    ),
];

impl Word {
    /// What a word means, once for each place where it may stand.
    pub(super) fn find(word: &str) -> Vec<Self> {
        let word = word.trim().trim_start_matches("reason=").trim_matches('"');
        let mut all = Self::all();
        all.retain(|one| one.word == word);
        all
    }

    /// Every word, in every place.
    pub(super) fn all() -> Vec<Self> {
        let failed = Reason::ALL.iter().map(|reason| Self {
            word: reason.word(),
            of: FAILED,
            meaning: reason.meaning(),
            code: Some(reason.code()),
        });
        let let_in = LET_IN.iter().map(|(word, meaning)| Self {
            word,
            of: DOOR,
            meaning,
            code: None,
        });
        failed
            .chain(set::<TurnedAwayFor>(DOOR, None))
            .chain(let_in)
            .chain(set::<HealCause>(
                "`session gone`: what showed it",
                Some(Code::SessionLost),
            ))
            .chain(set::<CheckResult>(
                "`check failed`: what was found before a session was used again",
                None,
            ))
            .collect()
    }

    pub(super) fn word(&self) -> &'static str {
        self.word
    }

    /// What went wrong while a session opened has a code of its own, unless nothing can have been
    /// sent, or the credential is to blame.
    fn while_opening(&self) -> &'static str {
        let reason = Reason::parse(self.word).filter(|_| self.of == FAILED);
        match reason.map(Reason::code) {
            Some(Code::AnswerLost | Code::BadAnswer | Code::Deadline) => {
                ", or `open-failed` while a session opens"
            },
            Some(_) | None => "",
        }
    }

    pub(super) fn page(&self, report: &Report) {
        let code = self.code.map(Code::word);
        if report.is_json() {
            let fields = Fields::new()
                .put("reason", self.word)
                .put("of", self.of)
                .put("meaning", self.meaning)
                .put("code", code);
            return report.object("reason", &fields);
        }
        let mut lines = vec![
            style::bold(self.word),
            format!("  {}", self.meaning),
            String::new(),
            format!("  a reason of: {}", self.of),
        ];
        if let Some(code) = code {
            let page = style::name(&format!("warmline explain {code}"));
            lines.push(format!(
                "  it belongs to the code {code}{}: `{page}`",
                self.while_opening()
            ));
        }
        report.data(&lines.join("\n"));
    }
}

/// All words of a closed set.
fn set<W: Explained>(of: &'static str, code: Option<Code>) -> impl Iterator<Item = Word> {
    W::ALL.iter().map(move |one| Word {
        word: one.word(),
        of,
        meaning: one.meaning(),
        code,
    })
}
