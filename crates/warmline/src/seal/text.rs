//! Secrets written down: the form they have in a file or a variable.
//!
//! Words apart by blanks, line ends or commas: `instance=HEX`, one or more `seal=HEX`, each with
//! `@SECONDS` (when it was made) if anybody knows it; or one HEX for both. Lines that begin with
//! `#` are for people. No error shows a word of it.

use std::fmt::Write as _;

use aws_lc_rs::{hmac, rand};
use warmline_core::code::{Code, Reason};
use warmline_core::exchange::Trouble;
use zeroize::Zeroizing;

use super::no_dice;

/// Thirty-two secret bytes.
pub(super) type Bytes32 = Zeroizing<[u8; 32]>;

/// The secrets of an instance as they are written down. Overwritten when dropped.
pub(super) struct Secrets {
    instance: Bytes32,
    /// The first one seals. Never empty.
    sealing: Vec<WrittenKey>,
}

/// A sealing key as it is written down.
pub(super) struct WrittenKey {
    pub(super) secret: Bytes32,
    /// When it was made, by some wall clock; the epoch if nobody knows.
    pub(super) made_at: u64,
}

impl WrittenKey {
    fn fresh(now: u64) -> Result<Self, Trouble> {
        Ok(Self {
            secret: random()?,
            made_at: now,
        })
    }
}

impl Secrets {
    /// New ones.
    pub(super) fn fresh(now: u64) -> Result<Self, Trouble> {
        Ok(Self {
            instance: random()?,
            sealing: vec![WrittenKey::fresh(now)?],
        })
    }

    pub(super) fn instance(&self) -> &[u8] {
        self.instance.as_ref()
    }

    /// The ring, the key that seals first.
    pub(super) fn sealing(&self) -> &[WrittenKey] {
        &self.sealing
    }

    /// Puts a new sealing key in front, and drops those that `keeps` does not want: it is told
    /// how many are newer and when the next newer one was made.
    pub(super) fn push_fresh(
        &mut self,
        now: u64,
        keeps: impl Fn(usize, u64) -> bool,
    ) -> Result<(), Trouble> {
        self.sealing.insert(0, WrittenKey::fresh(now)?);
        let replaced: Vec<u64> = self.sealing.iter().map(|key| key.made_at).collect();
        let mut newer = 0;
        self.sealing.retain(|_| {
            let keep = newer == 0 || replaced.get(newer - 1).is_some_and(|at| keeps(newer, *at));
            newer += 1;
            keep
        });
        Ok(())
    }

    /// Reads the form above.
    pub(super) fn parse(text: &str) -> Result<Self, Trouble> {
        if text.len() > MAX_TEXT {
            return Err(bad("they are too long"));
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
            return Ok(Self::derived(&hex(word)?));
        }
        let mut instance = None;
        let mut sealing = Vec::new();
        for word in words {
            match word.split_once('=') {
                Some(("instance", value)) if instance.is_none() => instance = Some(hex(value)?),
                Some(("instance", _)) => return Err(bad("`instance=` stands there twice")),
                Some(("seal", value)) => sealing.push(sealing_key(value)?),
                Some(_) | None => return Err(bad("there is a word that means nothing")),
            }
        }
        match instance {
            Some(_) if sealing.is_empty() => Err(bad("there is no `seal=`")),
            Some(_) if sealing.len() > MAX_KEYS => Err(bad("there are too many `seal=`")),
            Some(instance) => Ok(Self { instance, sealing }),
            None => Err(bad("there is no `instance=`")),
        }
    }

    /// Both from one secret.
    fn derived(secret: &Bytes32) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_ref());
        let part = |name: &str| {
            let mut out = Zeroizing::new([0; 32]);
            let tag = hmac::sign(&key, name.as_bytes());
            out.copy_from_slice(tag.as_ref());
            out
        };
        Self {
            instance: part("warmline instance secret"),
            sealing: vec![WrittenKey {
                secret: part("warmline sealing key"),
                made_at: 0,
            }],
        }
    }

    /// The form above, for a file.
    pub(super) fn write(&self) -> Zeroizing<String> {
        // As large as it can get: a text that grows leaves copies of itself behind.
        let mut out = Zeroizing::new(String::with_capacity(512 + 128 * self.sealing.len()));
        out.push_str(FOR_PEOPLE);
        out.push_str("instance=");
        write_hex(&mut out, &self.instance);
        out.push('\n');
        for key in &self.sealing {
            out.push_str("seal=");
            write_hex(&mut out, &key.secret);
            // Writing into a String does not fail.
            write!(out, "@{}", key.made_at).ok();
            out.push('\n');
        }
        out
    }
}

const FOR_PEOPLE: &str = "\
# The secrets of a Warmline instance. Whoever has them can read its records.\n\
# `instance` is kept for good; the first `seal` seals, the others only unseal.\n";

/// Nobody writes more than this.
const MAX_TEXT: usize = 16 << 10;
/// More sealing keys than this are no ring but a mistake.
const MAX_KEYS: usize = 64;

fn random() -> Result<Bytes32, Trouble> {
    let mut out = Zeroizing::new([0; 32]);
    rand::fill(out.as_mut()).map_err(|_| no_dice())?;
    Ok(out)
}

fn sealing_key(value: &str) -> Result<WrittenKey, Trouble> {
    let (secret, made_at) = match value.split_once('@') {
        Some((secret, at)) => {
            let at = at
                .parse()
                .map_err(|_| bad("`@` is followed by no number"))?;
            (secret, at)
        },
        None => (value, 0),
    };
    Ok(WrittenKey {
        secret: hex(secret)?,
        made_at,
    })
}

fn hex(digits: &str) -> Result<Bytes32, Trouble> {
    let wrong = || bad("a secret is not 64 hexadecimal digits");
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

fn write_hex(out: &mut String, secret: &Bytes32) {
    for byte in secret.iter() {
        // Writing into a String does not fail.
        write!(out, "{byte:02x}").ok();
    }
}

/// What is wrong with the form, never what stands there.
fn bad(why: &str) -> Trouble {
    Trouble::new(
        Reason::InvalidRequest,
        "the secrets of the instance cannot be read",
    )
    .coded(Code::ConfigBadValue)
    .because(why)
    .hint("write `instance=HEX seal=HEX`, each HEX from `openssl rand -hex 32`")
}
