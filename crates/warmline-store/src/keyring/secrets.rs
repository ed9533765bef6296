//! Secrets as they are written down, and their rotation.
//!
//! Words apart by blanks, line ends or commas: `instance=HEX`, one or more `seal=HEX`, each with
//! `@SECONDS` (when it was made) if that is known; or one HEX for both. Lines that begin with `#` are
//! for people.

use std::fmt::Write as _;
use std::time::Duration;

use aws_lc_rs::{hmac, rand};
use warmline_core::error::code::{Code, Reason};
use warmline_core::exchange::Diagnostic;
use zeroize::Zeroizing;

use super::{OLD_KEY_LIFETIME, no_randomness};

type SecretBytes = Zeroizing<[u8; 32]>;

/// The secrets of an instance. Overwritten when dropped.
pub(super) struct Secrets {
    pub(super) instance: SecretBytes,
    /// The first one seals; there is always one.
    pub(super) sealing: Vec<SealingKeySecret>,
}

pub(super) struct SealingKeySecret {
    pub(super) secret: SecretBytes,
    /// By some wall clock; 0 if unknown.
    made_at: u64,
}

impl SealingKeySecret {
    fn generate(now: u64) -> Result<Self, Diagnostic> {
        Ok(Self {
            secret: random_secret()?,
            made_at: now,
        })
    }
}

impl Secrets {
    pub(super) fn generate(now: u64) -> Result<Self, Diagnostic> {
        Ok(Self {
            instance: random_secret()?,
            sealing: vec![SealingKeySecret::generate(now)?],
        })
    }

    /// Puts a new sealing key in front if the first one is that old, drops keys that are too old, and
    /// says whether it did.
    pub(super) fn rotate_if_older(&mut self, age: Duration, now: u64) -> Result<bool, Diagnostic> {
        let made_at = self.sealing.first().map_or(0, |key| key.made_at);
        if !is_rotation_due(made_at, age, now) {
            return Ok(false);
        }
        self.sealing.insert(0, SealingKeySecret::generate(now)?);
        let (mut newer, mut replaced_at) = (0, now);
        self.sealing.retain(|key| {
            let is_kept = keeps_key(newer, replaced_at, now);
            (newer, replaced_at) = (newer + 1, key.made_at);
            is_kept
        });
        Ok(true)
    }

    pub(super) fn parse(text: &str) -> Result<Self, Diagnostic> {
        if text.len() > MAX_TEXT {
            return Err(parse_error("they are too long"));
        }
        let words: Vec<&str> = text
            .lines()
            .filter(|line| !line.trim_start().starts_with('#'))
            .flat_map(|line| line.split([' ', '\t', ',']))
            .filter(|word| !word.is_empty())
            .collect();
        if let [word] = words.as_slice()
            && !word.contains('=')
        {
            return Ok(Self::derive_from(&parse_hex(word)?));
        }
        let mut instance = None;
        let mut sealing = Vec::new();
        for word in words {
            match word.split_once('=') {
                Some(("instance", value)) if instance.is_none() => {
                    instance = Some(parse_hex(value)?);
                },
                Some(("instance", _)) => return Err(parse_error("there are two `instance=`")),
                Some(("seal", value)) => sealing.push(parse_sealing_key(value)?),
                Some(_) | None => return Err(parse_error("there is a word that means nothing")),
            }
        }
        match instance {
            Some(_) if sealing.is_empty() => Err(parse_error("there is no `seal=`")),
            Some(_) if sealing.len() > MAX_KEYS => Err(parse_error("there are too many `seal=`")),
            Some(instance) => Ok(Self { instance, sealing }),
            None => Err(parse_error("there is no `instance=`")),
        }
    }

    /// Both secrets from one.
    fn derive_from(secret: &SecretBytes) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_ref());
        let part = |name: &str| {
            let mut out = Zeroizing::new([0; 32]);
            let tag = hmac::sign(&key, name.as_bytes());
            out.copy_from_slice(tag.as_ref());
            out
        };
        Self {
            instance: part("warmline instance secret"),
            sealing: vec![SealingKeySecret {
                secret: part("warmline sealing key"),
                made_at: 0,
            }],
        }
    }

    pub(super) fn to_text(&self) -> Zeroizing<String> {
        // As large as it can get: a text that grows leaves copies of itself behind.
        let mut out = Zeroizing::new(String::with_capacity(512 + 128 * self.sealing.len()));
        out.push_str(COMMENT_HEADER);
        out.push_str("instance=");
        write_hex(&mut out, &self.instance);
        out.push('\n');
        for key in &self.sealing {
            out.push_str("seal=");
            write_hex(&mut out, &key.secret);
            // Writing into a String does not fail.
            writeln!(out, "@{}", key.made_at).ok();
        }
        out
    }
}

/// Whether a key of that time is to be replaced. A key from the future is new.
pub(super) const fn is_rotation_due(made_at: u64, age: Duration, now: u64) -> bool {
    now.saturating_sub(made_at) >= age.as_secs()
}

/// Whether a key stays in the ring, if that many keys are newer and the next newer one was made at
/// `replaced_at`. The last replaced one always stays: a wall clock that jumped must not cost
/// everything.
pub(super) const fn keeps_key(newer: usize, replaced_at: u64, now: u64) -> bool {
    let is_young = now.saturating_sub(replaced_at) < OLD_KEY_LIFETIME.as_secs();
    newer <= 1 || (is_young && newer < MAX_ROTATED_KEYS)
}

/// Most keys in a ring that we rotate.
const MAX_ROTATED_KEYS: usize = 16;

const COMMENT_HEADER: &str = "\
# The secrets of a Warmline instance. They open its records.\n\
# `instance` is kept for good; the first `seal` seals, the others only unseal.\n";

const MAX_TEXT: usize = 16 << 10;
/// More sealing keys than this are a mistake.
const MAX_KEYS: usize = 64;

fn random_secret() -> Result<SecretBytes, Diagnostic> {
    let mut out = Zeroizing::new([0; 32]);
    rand::fill(out.as_mut()).map_err(|_| no_randomness())?;
    Ok(out)
}

fn parse_sealing_key(value: &str) -> Result<SealingKeySecret, Diagnostic> {
    let (secret, made_at) = value.split_once('@').unwrap_or((value, "0"));
    let made_at = made_at.parse();
    Ok(SealingKeySecret {
        secret: parse_hex(secret)?,
        made_at: made_at.map_err(|_| parse_error("there is no number behind `@`"))?,
    })
}

fn parse_hex(digits: &str) -> Result<SecretBytes, Diagnostic> {
    let wrong = || parse_error("a secret is not 64 hexadecimal digits");
    if digits.len() != 64 {
        return Err(wrong());
    }
    let mut out = Zeroizing::new([0; 32]);
    for (to, pair) in out.iter_mut().zip(digits.as_bytes().chunks(2)) {
        for digit in pair {
            let digit = char::from(*digit).to_digit(16).ok_or_else(wrong)?;
            *to = (*to << 4) | u8::try_from(digit).map_err(|_| wrong())?;
        }
    }
    Ok(out)
}

fn write_hex(out: &mut String, secret: &SecretBytes) {
    for byte in secret.iter() {
        // Writing into a String does not fail.
        write!(out, "{byte:02x}").ok();
    }
}

/// Says what is wrong, and repeats nothing of the text.
fn parse_error(why: &str) -> Diagnostic {
    Diagnostic::new(
        Reason::InvalidRequest,
        "the secrets of the instance cannot be read",
    )
    .with_code(Code::ConfigBadValue)
    .with_cause(why)
    .with_hint("write `instance=HEX seal=HEX`, each HEX from `openssl rand -hex 32`")
}
