//! The ring of sealing keys: the first one seals, all of them unseal.
//!
//! A sealed thing is a byte for the form, four that tell the key, twelve of a nonce, the
//! ciphertext and its tag (AES-256-GCM-SIV: a nonce that comes twice by chance gives nothing
//! away but that two texts are equal, so that any number of processes may draw them).

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, Nonce, RandomizedNonceKey};
use aws_lc_rs::hmac;
use warmline_core::exchange::Trouble;

use super::text::{Secrets, WrittenKey};
use super::{OLD_KEYS_LIVE, no_dice};

/// The form that is written.
const FORM: u8 = 1;
/// What stands before the ciphertext: form, key, nonce.
const HEAD: usize = 1 + 4 + 12;

/// Why something sealed cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unsealable {
    /// It was sealed with a key that is not in the ring.
    UnknownKey,
    /// A byte was changed, or it was sealed for something else.
    Changed,
    /// It is nothing that was ever sealed.
    NotSealed,
}

impl std::fmt::Display for Unsealable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::UnknownKey => "it was sealed with another key",
            Self::Changed => "it was changed, or sealed for something else",
            Self::NotSealed => "it was never sealed",
        })
    }
}

impl std::error::Error for Unsealable {}

/// The sealing keys, ready for use.
pub(super) struct Ring {
    /// The first one seals. Never empty.
    keys: Vec<Arc<SealingKey>>,
}

struct SealingKey {
    id: [u8; 4],
    made_at: u64,
    key: RandomizedNonceKey,
}

impl SealingKey {
    fn of(written: &WrittenKey) -> Result<Self, Trouble> {
        let secret = written.secret.as_ref();
        let name = hmac::sign(
            &hmac::Key::new(hmac::HMAC_SHA256, secret),
            b"warmline sealing key id",
        );
        let mut id = [0; 4];
        for (to, from) in id.iter_mut().zip(name.as_ref()) {
            *to = *from;
        }
        Ok(Self {
            id,
            made_at: written.made_at,
            key: RandomizedNonceKey::new(&AES_256_GCM_SIV, secret).map_err(|_| no_dice())?,
        })
    }
}

impl Ring {
    pub(super) fn of(secrets: &Secrets) -> Result<Self, Trouble> {
        let keys = secrets.sealing().iter();
        let keys: Result<Vec<_>, _> = keys.map(|key| SealingKey::of(key).map(Arc::new)).collect();
        Ok(Self { keys: keys? })
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The same with the first key of `fresh` in front, and without those that are too old.
    pub(super) fn with_new(&self, fresh: &Secrets, now: u64) -> Result<Self, Trouble> {
        let mut keys = Self::of(fresh)?.keys;
        keys.truncate(1);
        let mut replaced_at = now;
        for (newer, key) in (1..).zip(&self.keys) {
            if keeps(newer, replaced_at, now) {
                keys.push(Arc::clone(key));
            }
            replaced_at = key.made_at;
        }
        Ok(Self { keys })
    }

    /// Whether the key that seals was made that long ago.
    pub(super) fn is_older(&self, age: Duration, now: u64) -> bool {
        let made_at = self.keys.first().map_or(0, |key| key.made_at);
        is_due(made_at, age, now)
    }

    pub(super) fn seal(&self, context: &[u8], plain: &[u8]) -> Result<Vec<u8>, Trouble> {
        let first = self.keys.first().ok_or_else(no_dice)?;
        let mut text = Vec::with_capacity(plain.len() + 16);
        text.extend_from_slice(plain);
        let nonce = first
            .key
            .seal_in_place_append_tag(Aad::from(context), &mut text)
            .map_err(|_| no_dice())?;
        let mut out = Vec::with_capacity(HEAD + text.len());
        out.push(FORM);
        out.extend_from_slice(&first.id);
        out.extend_from_slice(nonce.as_ref());
        out.extend_from_slice(&text);
        Ok(out)
    }

    pub(super) fn unseal(&self, context: &[u8], sealed: &[u8]) -> Result<Vec<u8>, Unsealable> {
        let Some((&[FORM, ref id @ ..], rest)) = sealed.split_first_chunk::<5>() else {
            return Err(Unsealable::NotSealed);
        };
        let (nonce, text) = rest
            .split_first_chunk::<12>()
            .ok_or(Unsealable::NotSealed)?;
        let mut outcome = Err(Unsealable::UnknownKey);
        for key in self.keys.iter().filter(|key| &key.id == id) {
            let mut text = text.to_vec();
            let nonce = Nonce::assume_unique_for_key(*nonce);
            match key.key.open_in_place(nonce, Aad::from(context), &mut text) {
                Ok(plain) => return Ok(plain.to_vec()),
                Err(_) => outcome = Err(Unsealable::Changed),
            }
        }
        outcome
    }
}

/// Whether a key made then is to be replaced now. A key from the future is new.
pub(super) const fn is_due(made_at: u64, age: Duration, now: u64) -> bool {
    now.saturating_sub(made_at) >= age.as_secs()
}

/// Whether a key stays in the ring that so many newer ones stand before, the next of them made at
/// `replaced_at`. The last one always stays: a wall clock that jumped must not cost everything.
pub(super) const fn keeps(newer: usize, replaced_at: u64, now: u64) -> bool {
    let is_young = now.saturating_sub(replaced_at) < OLD_KEYS_LIVE.as_secs();
    newer <= 1 || (is_young && newer < MOST_KEYS)
}

/// Most keys in a ring that we turn.
const MOST_KEYS: usize = 16;
