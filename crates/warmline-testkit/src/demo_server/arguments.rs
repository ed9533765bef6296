//! The command line of the ledger server, for programs that hand theirs on.

use std::path::PathBuf;
use std::time::Duration;

use super::{Group, OnEndOfInput, OnTerm, Options, Transport};
use crate::dialects;
use crate::personality::{EraLock, ModernLeg, Personality, ReplyForm, SseForm, Writes};

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

impl Options {
    /// Reads the arguments; what is wrong is said in one sentence.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut options = Self::new(Transport::Http(0), Personality::dual());
        let mut left = arguments.into_iter();
        while let Some(flag) = left.next() {
            if options.switch(&flag) {
                continue;
            }
            let value = left
                .next()
                .ok_or_else(|| format!("{flag} is unknown, or lacks its value"))?;
            if !options.kind(&flag, &value)? && !options.manner(&flag, &value)? {
                return Err(format!("{flag} is unknown"));
            }
        }
        Ok(options)
    }

    /// Flags without a value.
    fn switch(&mut self, flag: &str) -> bool {
        match flag {
            "--stdio" => self.transport = Transport::Stdio,
            "--pieces" => self.personality.writes = Writes::Pieces,
            "--lock-era" => self.personality.lock = EraLock::FirstWins,
            "--ignore-term" => self.manners.on_term = OnTerm::Ignore,
            "--ignore-eof" => self.manners.on_end_of_input = OnEndOfInput::Ignore,
            "--grandchildren-own-group" => self.manners.grandchildren_group = Group::Own,
            _ => return false,
        }
        true
    }

    /// What kind of server it is. The personality comes first, for it resets the rest.
    fn kind(&mut self, flag: &str, value: &str) -> Result<bool, String> {
        let kind = &mut self.personality;
        match flag {
            "--port" => self.transport = Transport::Http(number(flag, value)?),
            "--personality" => *kind = personality(value)?,
            "--modern" => kind.modern = modern_leg(value)?,
            "--sse" => kind.reply = ReplyForm::Sse(sse_form(value)?),
            "--page-size" => kind.page_size = Some(number(flag, value)?),
            "--legacy-versions" => kind.legacy_versions = words(value),
            "--modern-versions" => kind.modern_versions = words(value),
            "--told-versions" => kind.told_versions = words(value),
            "--gone" => kind.gone = dialect(value)?,
            "--missing" => kind.missing = dialect(value)?,
            "--token" => kind.token = Some(value.to_owned()),
            "--session-idle-ms" => kind.session_idle = Some(millis(flag, value)?),
            "--idle-close-ms" => kind.idle_close = Some(millis(flag, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// What it does wrong, and how its process behaves.
    fn manner(&mut self, flag: &str, value: &str) -> Result<bool, String> {
        let manners = &mut self.manners;
        match flag {
            "--ledger" => self.ledger = Some(PathBuf::from(value)),
            "--fault" => {
                let rule = serde_json::from_str(value);
                self.rules
                    .push(rule.map_err(|error| format!("--fault {value}: {error}"))?);
            },
            "--start-delay-ms" => manners.start_delay = millis(flag, value)?,
            "--greeting" => manners.greeting.push(value.to_owned()),
            "--stderr-bytes" => manners.stderr_bytes = number(flag, value)?,
            "--grandchildren" => manners.grandchildren = number(flag, value)?,
            "--read-limit" => manners.read_limit = Some(number(flag, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn number<N: std::str::FromStr>(flag: &str, value: &str) -> Result<N, String> {
    value
        .parse()
        .map_err(|_| format!("{flag} needs a number, not {value:?}"))
}

fn millis(flag: &str, value: &str) -> Result<Duration, String> {
    number(flag, value).map(Duration::from_millis)
}

fn words(value: &str) -> Vec<String> {
    value
        .split(',')
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

fn personality(name: &str) -> Result<Personality, String> {
    match name {
        "legacy" => Ok(Personality::legacy()),
        "legacy-stateless" => Ok(Personality::legacy_stateless()),
        "modern" => Ok(Personality::modern()),
        "dual" => Ok(Personality::dual()),
        "dual-stateless" => Ok(Personality::dual_stateless()),
        _ => Err(format!("there is no personality {name:?}")),
    }
}

fn modern_leg(name: &str) -> Result<ModernLeg, String> {
    match name {
        "refused" => Ok(ModernLeg::RefusedByVersion),
        "served" => Ok(ModernLeg::Served),
        "unknown" => Ok(ModernLeg::Unknown),
        _ => Err(format!(
            "--modern is refused, served or unknown, not {name:?}"
        )),
    }
}

fn sse_form(name: &str) -> Result<SseForm, String> {
    match name {
        "plain" => Ok(SseForm::plain()),
        "python" => Ok(SseForm::python()),
        "rmcp" => Ok(SseForm::rmcp()),
        "resumable" => Ok(SseForm::resumable()),
        _ => Err(format!("there is no form of events {name:?}")),
    }
}

fn dialect(name: &str) -> Result<&'static dialects::Dialect, String> {
    dialects::named(name).ok_or_else(|| format!("there is no dialect {name:?}"))
}
