//! `warmline token`: tokens for callers of the gateway.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use warmline_core::delivery::Delivery;
use warmline_core::error::code::Code;
use warmline_engine::settings::parse_duration;
use warmline_gateway::auth::token_store::{CreateTokenError, TokenInfo, TokenStore};
use warmline_store::keyring::Keyring;

use crate::hints::did_you_mean;
use crate::output::{CliResult, Column, JsonFields, Problem, Report};
use crate::target::state_folder;

const LONG_HELP: &str = "\
Create, list and revoke tokens for callers of the gateway.

A token stands for an identity: its sessions are shared with no other identity. Its text is shown
once, when it is created; only its digest is kept. A running gateway picks up changes.";

const EXAMPLES: &str = "\
Examples:
  warmline token new alice
  warmline token new alice-laptop --identity alice
  warmline token new ci --expires 90d
  warmline token list
  warmline token revoke alice-laptop";

/// Create, list and revoke tokens for callers of the gateway
#[derive(Debug, Args)]
#[command(long_about = LONG_HELP, after_long_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
    /// The state folder of the gateway
    #[arg(long, value_name = "FOLDER", global = true)]
    state_dir: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Create a token; its text is shown once
    New {
        /// Its name in the list
        name: String,
        /// The identity of its callers; default is NAME. Tokens of one identity share runs
        #[arg(long, value_name = "IDENTITY")]
        identity: Option<String>,
        /// How long it is valid: `90d`, `12h`; default is until it is revoked
        #[arg(long, value_name = "TIME", value_parser = parse_lifetime)]
        expires: Option<Duration>,
    },
    /// List tokens, without their texts
    List,
    /// Revoke a token: a running gateway refuses it from now on
    Revoke {
        /// Its name
        name: String,
    },
}

pub(super) fn run(args: &TokenArgs, report: &Report) -> CliResult<u8> {
    let state = state_folder(args.state_dir.as_deref())?;
    let store = TokenStore::in_state_folder(&state);
    match &args.command {
        TokenCommand::New {
            name,
            identity,
            expires,
        } => {
            let identity = identity.as_deref().unwrap_or(name);
            create_token(&state, name, identity, *expires, report)?;
        },
        TokenCommand::List => list_tokens(&store.list(), report),
        TokenCommand::Revoke { name } => revoke_token(&store, name, report)?,
    }
    Ok(0)
}

fn create_token(
    state: &Path,
    name: &str,
    identity: &str,
    lifetime: Option<Duration>,
    report: &Report,
) -> CliResult<()> {
    // The digest is keyed with the gateway's own secret.
    let vault = Keyring::in_folder(state)
        .map_err(|diagnostic| Problem::from_diagnostic(&diagnostic, Delivery::Unsent))?;
    let store = TokenStore::in_state_folder(state);
    let text = store.create(&vault, name, identity, lifetime);
    let text = text.map_err(|error| create_error(error, name))?;
    let created = store.list().into_iter().find(|token| token.name == name);
    let expires = created.and_then(|token| token.expires_at_text());
    if report.is_json() {
        let fields = JsonFields::with("name", name)
            .put("identity", identity)
            .put("expires", expires)
            .put("token", &text);
        report.print_object("token", &fields);
        return Ok(());
    }
    report.print(&text);
    let until = expires.map_or_else(String::new, |end| format!(" until {end}"));
    report.print_note(&format!(
        "token `{name}` stands for `{identity}`{until}; it is shown once and not stored. Send it as `Authorization: Bearer …`"
    ));
    Ok(())
}

fn create_error(error: CreateTokenError, name: &str) -> Problem {
    let shown: String = name.chars().take(40).collect();
    let shown = shown.escape_debug();
    match error {
        CreateTokenError::AlreadyExists => Problem::usage(format!("token `{shown}` exists already"))
            .with_hint(format!(
                "choose another name with `--identity {shown}`, or revoke it first: `warmline token revoke {shown}`"
            )),
        CreateTokenError::InvalidName => Problem::usage(format!("`{shown}` is not a token name"))
            .with_hint(
                "a name has 1 to 128 of A-Z, a-z, 0-9, `.`, `_`, `~` and `-`, and does not begin with a dot",
            ),
        CreateTokenError::InvalidIdentity => Problem::usage("that is not an identity")
            .with_hint("an identity has 1 to 256 bytes, and no control characters"),
        CreateTokenError::ReservedIdentity => {
            Problem::usage("`local` is reserved for the user who runs the gateway").with_hint(
                "choose another name; `warmline url NAME` prints the token of this machine",
            )
        },
        CreateTokenError::Io(error) => store_error(&error),
        _ => Problem::usage(format!("cannot create token `{shown}`")),
    }
}

fn list_tokens(tokens: &[TokenInfo], report: &Report) {
    if report.is_json() {
        for token in tokens {
            let fields = JsonFields::with("name", &token.name)
                .put("identity", &token.identity)
                .put("made_at", token.made_at)
                .put("expires", token.expires_at_text());
            report.print_object("token", &fields);
        }
    } else if tokens.is_empty() {
        report.print_note("there are no tokens: `warmline token new NAME` creates one");
    } else {
        let columns: [Column<TokenInfo>; 3] = [
            ("TOKEN", |token| token.name.clone()),
            ("STANDS FOR", |token| token.identity.clone()),
            ("UNTIL", |token| {
                match (token.expires_at_text(), token.is_expired()) {
                    (None, _) => "-".to_owned(),
                    (Some(end), false) => end,
                    (Some(end), true) => format!("expired {end}"),
                }
            }),
        ];
        report.print_table(&columns, tokens);
    }
}

fn revoke_token(store: &TokenStore, name: &str, report: &Report) -> CliResult<()> {
    if store.revoke(name).map_err(|error| store_error(&error))? {
        let text = format!("token `{name}` is revoked: a running gateway refuses it from now on");
        report.print_notice(&text, &JsonFields::with("revoked", name));
        return Ok(());
    }
    let tokens = store.list();
    let hint = did_you_mean(name, tokens.iter().map(|token| token.name.as_str()));
    let hint = hint.unwrap_or_else(|| "`warmline token list` shows them".to_owned());
    let what = format!("there is no token `{}`", name.escape_debug());
    Err(Problem::usage(what).with_hint(hint))
}

fn store_error(error: &std::io::Error) -> Problem {
    Problem::new(Code::StoreUnavailable, "cannot store tokens")
        .with_cause(error.to_string())
        .with_hint("they are kept in the state folder; choose another one with --state-dir")
}

/// A lifetime, also in days: at most ten years.
fn parse_lifetime(written: &str) -> Result<Duration, String> {
    let days = written.trim().strip_suffix('d').map(str::trim);
    let lifetime = match days.and_then(|days| days.parse::<u64>().ok()) {
        Some(days) => Some(Duration::from_secs(days.saturating_mul(SECONDS_PER_DAY))),
        None => parse_duration(written),
    };
    let allowed = Duration::from_secs(1)..=Duration::from_secs(3_650 * SECONDS_PER_DAY);
    let lifetime = lifetime.filter(|lifetime| allowed.contains(lifetime));
    lifetime.ok_or_else(|| "write a number and a unit: 90d, 12h, 30min".to_owned())
}

const SECONDS_PER_DAY: u64 = 24 * 3_600;
