//! What can be said of a server without starting or contacting it.

use warmline::upstream::{Reach, Server};

use super::{Finding, State};
use crate::program::Sought;

/// Whether its program can be found; a URL is left alone.
pub(super) fn look_without_starting(server: &Server) -> Vec<Finding> {
    match &server.reach {
        Reach::Stdio(stdio) => vec![match Sought::of(stdio) {
            Sought::Found(where_it_is) => Finding::ok("program", where_it_is),
            Sought::Unknown(why) => Finding::look("program", why),
            Sought::Missing(says) => Finding::new("program", State::Broken, says).hint(
                "install it, or give its full path as `command`; the login shell's PATH was not asked",
            ),
        }],
        Reach::Http(http) => {
            let host = http.url.host_str().unwrap_or_default();
            vec![Finding::unseen(
                "connect",
                format!("{host} was not contacted (--offline)"),
            )]
        },
    }
}

/// What is not known of a program that nobody started.
pub(super) fn not_started(server: &Server) -> Option<Finding> {
    let is_program = matches!(server.reach, Reach::Stdio(_));
    is_program.then(|| Finding::unseen("start", "it was not started (--offline)"))
}
