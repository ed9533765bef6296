//! A command that names too little: its server, or what is asked of it. Who forgets the server begins
//! with the tool, and is told so.
//!
//! Asked by: `call` and `request`, where the words do not name both.

use warmline::core::code::Code;

use super::split::shown;
use super::{Aim, Named, Target, looks_like};
use crate::args::{Connect, Together};
use crate::problem::Problem;
use crate::run::ChosenRun;

/// What was typed.
pub(crate) struct Incomplete<'t> {
    pub(crate) named: Named,
    pub(crate) words: &'t [String],
    pub(crate) together: &'t Together,
    pub(crate) connect: &'t Connect,
}

impl Incomplete<'_> {
    /// What is missing, beside the target if there is one.
    pub(crate) fn problem(&self, aim: Option<&Aim>) -> Problem {
        let noun = match self.named {
            Named::Tool => "tool",
            Named::Method | Named::Nothing => "method",
        };
        match (aim, self.named) {
            (None, _) => Problem::usage(format!("neither a target nor a {noun} is named"))
                .hint(format!("`warmline help {}` shows how", self.verb())),
            (Some(Aim::Name(name)), _) if let Some(unknown) = self.forgotten(name) => unknown,
            (Some(Aim::Name(name)), Named::Tool) => {
                Problem::usage(format!("no tool is named after `{name}`")).hint(format!(
                    "`warmline tools {name}` lists the tools of `{name}`"
                ))
            },
            (Some(Aim::Url(_)), Named::Tool) => Problem::usage("no tool is named after the URL")
                .hint("`warmline tools URL` lists the tools of a server"),
            (Some(Aim::Command(_)), Named::Tool) => Problem::usage("no tool is named")
                .hint("`warmline tools -- COMMAND` lists the tools of a server"),
            (Some(_), Named::Method | Named::Nothing) => Problem::usage("no method is named")
                .hint("name one, as `tools/list` or `resources/list`"),
        }
    }

    fn verb(&self) -> &'static str {
        match self.named {
            Named::Tool => "call",
            Named::Method | Named::Nothing => "request",
        }
    }

    /// The problem of a first word that names no server: the server may be what is missing.
    fn forgotten(&self, name: &str) -> Option<Problem> {
        let aim = Aim::Name(name.to_owned());
        let run = ChosenRun::of(self.together, self.connect).ok()?;
        let unknown = Target::find_in(run.as_ref(), &aim, self.connect).err()?;
        if unknown.parts().code != Code::ServerUnknown {
            return None;
        }
        let is_near = |hint: &String| hint.starts_with("did you mean");
        if looks_like(name).is_some() || unknown.parts().hint.as_ref().is_some_and(is_near) {
            return Some(unknown);
        }
        let words: Vec<String> = self.words.iter().map(|word| shown(word)).collect();
        Some(unknown.hint(format!(
            "the server comes first: `warmline {} SERVER {}`",
            self.verb(),
            words.join(" ")
        )))
    }
}
