//! Variables of the environment that sound as if somebody read them, and nobody does.
//!
//! Asked by: `check` and `doctor`.

use warmline::config::Declaration;
use warmline::settings::{RETIRED, process_variable, stray_variables};

use crate::target::GENERAL_URL;

/// A variable that nobody reads: that it is so, and what to do.
#[derive(Debug)]
pub(crate) struct Unread {
    pub(crate) says: String,
    pub(crate) hint: String,
}

/// All of them, given the servers that are configured.
pub(crate) fn variables(servers: &[&Declaration]) -> Vec<Unread> {
    let strays = stray_variables().into_iter().map(|stray| {
        let says = format!("{} is set, and nothing reads it", stray.variable);
        let hint = match stray.meant {
            Some(meant) => format!("did you mean `{meant}`?"),
            None if stray.variable == RETIRED[0] => {
                "name the variable for its server: `credential = { env = \"…\" }`".to_owned()
            },
            None if RETIRED.contains(&stray.variable.as_str()) => {
                "say it for the server that needs it: `sessions = \"always\"`".to_owned()
            },
            None => "take it out: no setting has this name".to_owned(),
        };
        Unread { says, hint }
    });
    strays.chain(general_url(servers)).collect()
}

/// The variable for the URL of the only server, where there are several.
fn general_url(servers: &[&Declaration]) -> Option<Unread> {
    process_variable(GENERAL_URL).filter(|url| !url.is_empty())?;
    let is_named = |server: &&Declaration| server.url_env() == Some(GENERAL_URL);
    if servers.len() < 2 || servers.iter().any(is_named) {
        return None;
    }
    Some(Unread {
        says: format!(
            "{GENERAL_URL} is set, and speaks for none of {} servers",
            servers.len()
        ),
        hint: format!("say whose URL it is: `url_env = \"{GENERAL_URL}\"`"),
    })
}
