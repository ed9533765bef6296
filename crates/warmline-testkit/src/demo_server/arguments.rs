//! The command line of the ledger server, for programs that hand theirs on.

use std::path::PathBuf;
use std::time::Duration;

use super::{DemoServerOptions, EndOfInputAction, ProcessGroup, SigtermAction, Transport};
use crate::faults::dialects;
use crate::faults::personality::{
    EraLock, ModernSupport, Personality, ReplyFormat, SseFormat, WriteMode,
};

/// What can be said on the command line.
pub const HELP: &str = "\
  --stdio                     speak on standard input and output
  --port N                    listen on 127.0.0.1:N (0, the default: any free port)
  --personality NAME          legacy, legacy-stateless, modern, dual (default), dual-stateless
  --modern refused            refuse modern requests with a list of legacy versions
  --sse NAME                  reply by events: plain, python, rmcp, resumable (default: JSON)
  --pieces                    write replies in pieces, Nagle left on
  --page-size N               lists in pages of N
  --legacy-versions A,B       versions that initialize accepts, newest first
  --modern-versions A,B       versions that modern requests may name
  --told-versions A,B         supportedVersions of server/discover, true or not
  --gone NAME                 how an unknown session is refused (a1 to a38, e6 .., g5 ..)
  --missing NAME              how a missing session id is refused (b1 to b10)
  --lock-era                  on a pipe, refuse initialize after a modern request
  --token TOKEN               ask for this bearer token
  --session-idle-ms N         forget sessions after N ms without a request
  --idle-close-ms N           close idle connections after N ms
  --ledger FILE               write the ledger to FILE, one JSON object a line
  --fault JSON                a rule, for instance {\"tool\":\"pay\",\"fault\":{\"silence\":\"after-executing\"}}
  --start-delay-ms N          wait before the first word
  --greeting LINE             write LINE to stdout first (may be given again)
  --stderr-bytes N            write N bytes to stderr first
  --ignore-term               do not end on SIGTERM
  --ignore-eof                do not end with the input
  --grandchildren N           start N processes that outlive this one
  --grandchildren-own-group   each in a process group of its own
  --read-limit N              read N messages and then no more
";

impl DemoServerOptions {
    /// Reads the arguments; what is wrong is said in one sentence.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut options = Self::new(Transport::Http(0), Personality::dual());
        let mut left = arguments.into_iter();
        while let Some(flag) = left.next() {
            if options.apply_switch(&flag) {
                continue;
            }
            let value = left
                .next()
                .ok_or_else(|| format!("{flag} is unknown, or lacks its value"))?;
            if !options.apply_server_option(&flag, &value)?
                && !options.apply_process_option(&flag, &value)?
            {
                return Err(format!("{flag} is unknown"));
            }
        }
        Ok(options)
    }

    /// Flags without a value.
    fn apply_switch(&mut self, flag: &str) -> bool {
        match flag {
            "--stdio" => self.transport = Transport::Stdio,
            "--pieces" => self.personality.write_mode = WriteMode::Pieces,
            "--lock-era" => self.personality.era_lock = EraLock::FirstWins,
            "--ignore-term" => self.behavior.on_sigterm = SigtermAction::Ignore,
            "--ignore-eof" => self.behavior.on_end_of_input = EndOfInputAction::Ignore,
            "--grandchildren-own-group" => self.behavior.grandchildren_group = ProcessGroup::Own,
            _ => return false,
        }
        true
    }

    /// What kind of server it is. The personality comes first, for it resets the rest.
    fn apply_server_option(&mut self, flag: &str, value: &str) -> Result<bool, String> {
        let kind = &mut self.personality;
        match flag {
            "--port" => self.transport = Transport::Http(parse_number(flag, value)?),
            "--personality" => *kind = parse_personality(value)?,
            "--modern" => kind.modern = parse_modern_support(value)?,
            "--sse" => kind.reply = ReplyFormat::Sse(parse_sse_format(value)?),
            "--page-size" => kind.page_size = Some(parse_number(flag, value)?),
            "--legacy-versions" => kind.legacy_versions = split_list(value),
            "--modern-versions" => kind.modern_versions = split_list(value),
            "--told-versions" => kind.advertised_versions = split_list(value),
            "--gone" => kind.session_gone = parse_dialect(value)?,
            "--missing" => kind.session_missing = parse_dialect(value)?,
            "--token" => kind.token = Some(value.to_owned()),
            "--session-idle-ms" => kind.session_idle = Some(parse_millis(flag, value)?),
            "--idle-close-ms" => kind.idle_close = Some(parse_millis(flag, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// What it does wrong, and how its process behaves.
    fn apply_process_option(&mut self, flag: &str, value: &str) -> Result<bool, String> {
        let manners = &mut self.behavior;
        match flag {
            "--ledger" => self.ledger = Some(PathBuf::from(value)),
            "--fault" => {
                let rule = serde_json::from_str(value);
                self.rules
                    .push(rule.map_err(|error| format!("--fault {value}: {error}"))?);
            },
            "--start-delay-ms" => manners.start_delay = parse_millis(flag, value)?,
            "--greeting" => manners.stdout_preamble.push(value.to_owned()),
            "--stderr-bytes" => manners.stderr_bytes = parse_number(flag, value)?,
            "--grandchildren" => manners.grandchildren = parse_number(flag, value)?,
            "--read-limit" => manners.read_limit = Some(parse_number(flag, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn parse_number<N: std::str::FromStr>(flag: &str, value: &str) -> Result<N, String> {
    value
        .parse()
        .map_err(|_| format!("{flag} needs a number, not {value:?}"))
}

fn parse_millis(flag: &str, value: &str) -> Result<Duration, String> {
    parse_number(flag, value).map(Duration::from_millis)
}

fn split_list(value: &str) -> Vec<String> {
    value
        .split(',')
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

fn parse_personality(name: &str) -> Result<Personality, String> {
    match name {
        "legacy" => Ok(Personality::legacy()),
        "legacy-stateless" => Ok(Personality::legacy_stateless()),
        "modern" => Ok(Personality::modern()),
        "dual" => Ok(Personality::dual()),
        "dual-stateless" => Ok(Personality::dual_stateless()),
        _ => Err(format!("there is no personality {name:?}")),
    }
}

fn parse_modern_support(name: &str) -> Result<ModernSupport, String> {
    match name {
        "refused" => Ok(ModernSupport::RefusedByVersion),
        "served" => Ok(ModernSupport::Served),
        "unknown" => Ok(ModernSupport::Unknown),
        _ => Err(format!(
            "--modern is refused, served or unknown, not {name:?}"
        )),
    }
}

fn parse_sse_format(name: &str) -> Result<SseFormat, String> {
    match name {
        "plain" => Ok(SseFormat::plain()),
        "python" => Ok(SseFormat::python()),
        "rmcp" => Ok(SseFormat::rmcp()),
        "resumable" => Ok(SseFormat::resumable()),
        _ => Err(format!("there is no form of events {name:?}")),
    }
}

fn parse_dialect(name: &str) -> Result<&'static dialects::Dialect, String> {
    dialects::by_name(name).ok_or_else(|| format!("there is no dialect {name:?}"))
}
