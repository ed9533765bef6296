//! `MCP_SERVER_URL` and `MCP_AUTH_TOKEN`: variables that name no server.
//!
//! They speak for the one target of a command: one that was typed, or the only one configured.
//! With several servers, none of them named, they speak for nobody. What was typed wins.

use http::header::AUTHORIZATION;
use warmline::config::{Declaration, bearer, is_in_the_clear, parse_url};
use warmline::core::code::Code;
use warmline::settings::process_text;
use warmline::upstream::Reach;

use super::{Note, Target};
use crate::problem::{Outcome, Problem};

impl Target {
    /// The URL of the only configured server is replaced, unless it names a variable of its own.
    pub(super) fn take_general_url(&mut self, of: &Declaration) -> Outcome<()> {
        let Reach::Http(http) = &mut self.server.reach else {
            return Ok(());
        };
        if of.url_env().is_some() {
            return Ok(());
        }
        let Some(url) = set(URL)? else {
            return Ok(());
        };
        http.url = parse_url(&url).map_err(|why| {
            Problem::new(Code::ConfigBadValue, format!("`{URL}` is not a URL")).because(why)
        })?;
        self.source.comes_from(URL, &url);
        self.notes
            .push(Note::Origin(format!("the URL comes from {URL}")));
        Ok(())
    }

    /// The token is sent where no other is given, and never in the clear.
    pub(super) fn take_general_token(&mut self) -> Outcome<()> {
        let Reach::Http(http) = &mut self.server.reach else {
            return Ok(());
        };
        if http.headers.iter().any(|(name, _)| name == AUTHORIZATION) {
            return Ok(());
        }
        let Some(token) = set(TOKEN)? else {
            return Ok(());
        };
        if is_in_the_clear(&http.url) {
            let warning = format!("{TOKEN} is set, but not sent over plain HTTP");
            self.notes.push(Note::Warning(warning));
        } else if let Some(value) = bearer(&token) {
            http.headers.push((AUTHORIZATION, value));
            self.token_from = Some(format!("variable `{TOKEN}`"));
            self.notes
                .push(Note::Origin(format!("the token comes from {TOKEN}")));
        }
        Ok(())
    }
}

/// A variable that is set to something: an empty one counts as none.
fn set(variable: &str) -> Outcome<Option<String>> {
    Ok(process_text(variable)?.filter(|said| !said.is_empty()))
}

pub(crate) const URL: &str = "MCP_SERVER_URL";
const TOKEN: &str = "MCP_AUTH_TOKEN";
