//! `warmline token`: who is let into the gateway.

use std::path::Path;
use std::time::Duration;

use warmline::Vault;
use warmline::config::nearest;
use warmline::core::code::Code;
use warmline::core::delivery::Delivery;
use warmline_gateway::tokens::{Kept, NotMade, TokenStore};

use crate::args::{self, TokenWhat};
use crate::problem::{Outcome, Problem};
use crate::report::{Fields, Report, table};
use crate::target::state_folder;

/// Makes, lists or revokes.
pub(super) fn run(typed: &args::Token, report: &Report) -> Outcome<u8> {
    let state = state_folder(typed.state_dir.as_deref())?;
    let store = TokenStore::in_state_folder(&state);
    match &typed.what {
        TokenWhat::New {
            name,
            identity,
            expires,
        } => {
            let identity = identity.as_deref().unwrap_or(name);
            make(&state, name, identity, *expires, report)
        },
        TokenWhat::List => {
            list(&store.list(), report);
            Ok(0)
        },
        TokenWhat::Revoke { name } => revoke(&store, name, report),
    }
}

fn make(
    state: &Path,
    name: &str,
    identity: &str,
    lasts: Option<Duration>,
    report: &Report,
) -> Outcome<u8> {
    // The digest is made with the gateway's own secret, so that it means nothing elsewhere.
    let vault = Vault::in_folder(state)
        .map_err(|trouble| Problem::of_trouble(&trouble, Delivery::Unsent))?;
    let store = TokenStore::in_state_folder(state);
    let made = store.make(&vault, name, identity, lasts);
    let text = made.map_err(|error| not_made(error, name))?;
    let made = store.list().into_iter().find(|kept| kept.name == name);
    let expires = made.and_then(|kept| kept.expires());
    if report.is_json() {
        let fields = Fields::new()
            .put("name", name)
            .put("identity", identity)
            .put("expires", expires)
            .put("token", &text);
        report.object("token", &fields);
        return Ok(0);
    }
    report.data(&text);
    let until = expires.map_or_else(String::new, |end| format!(" until {end}"));
    report.note(&format!(
        "token `{name}` stands for `{identity}`{until}; it is shown once and kept nowhere. Send it as `Authorization: Bearer …`"
    ));
    Ok(0)
}

fn not_made(error: NotMade, name: &str) -> Problem {
    let shown: String = name.chars().take(40).collect();
    let shown = shown.escape_debug();
    match error {
        NotMade::Exists => Problem::usage(format!("there is a token `{shown}` already"))
            .hint(format!(
                "take another name and `--identity {shown}`, or revoke it first: `warmline token revoke {shown}`"
            )),
        NotMade::Name => Problem::usage(format!("`{shown}` cannot be the name of a token")).hint(
            "a name has 1 to 128 of A-Z, a-z, 0-9, `.`, `_`, `~` and `-`, and begins with no dot",
        ),
        NotMade::Identity => Problem::usage("nobody can be called so")
            .hint("an identity has 1 to 256 bytes, and no control characters"),
        NotMade::Local => Problem::usage("`local` is whoever runs the gateway on this machine")
            .hint("take another name; `warmline url NAME` prints the token of this machine"),
        NotMade::Unkept(error) => unkept(&error),
        _ => Problem::usage(format!("token `{shown}` cannot be made")),
    }
}

fn list(all: &[Kept], report: &Report) {
    if report.is_json() {
        for kept in all {
            let fields = Fields::new()
                .put("name", &kept.name)
                .put("identity", &kept.identity)
                .put("made_at", kept.made_at)
                .put("expires", kept.expires());
            report.object("token", &fields);
        }
        return;
    }
    if all.is_empty() {
        report.note("no token was made yet: `warmline token new NAME`");
        return;
    }
    let row = |kept: &Kept| {
        let until = match (kept.expires(), kept.is_over()) {
            (None, _) => "-".to_owned(),
            (Some(end), false) => end,
            (Some(end), true) => format!("over since {end}"),
        };
        vec![kept.name.clone(), kept.identity.clone(), until]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    for line in table::lines(&["TOKEN", "STANDS FOR", "UNTIL"], &rows, report.width()) {
        report.data(&line);
    }
}

fn revoke(store: &TokenStore, name: &str, report: &Report) -> Outcome<u8> {
    if store.revoke(name).map_err(|error| unkept(&error))? {
        report.remark(
            &format!("token `{name}` is revoked: a running gateway refuses it from now on"),
            &Fields::new().put("revoked", name),
        );
        return Ok(0);
    }
    let all = store.list();
    let problem = Problem::usage(format!("there is no token `{}`", name.escape_debug()));
    Err(
        match nearest(name, all.iter().map(|kept| kept.name.as_str())) {
            Some(near) => problem.hint(format!("did you mean `{near}`?")),
            None => problem.hint("`warmline token list` shows them"),
        },
    )
}

fn unkept(error: &std::io::Error) -> Problem {
    Problem::new(Code::StoreUnavailable, "tokens cannot be kept")
        .because(error.to_string())
        .hint("they are kept in the state folder; name another one with --state-dir")
}
