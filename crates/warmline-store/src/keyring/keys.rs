//! The ring of sealing keys: the first one seals, all of them unseal.
//!
//! A seal is a byte for the form, four for the key, twelve for the nonce, the ciphertext and its tag
//! (AES-256-GCM-SIV: a nonce that comes twice by chance reveals only that two texts are equal, so any
//! number of processes may draw nonces).

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, Nonce, RandomizedNonceKey};
use aws_lc_rs::hmac;
use warmline_core::exchange::Diagnostic;

use super::no_randomness;
use super::secrets::{SealingKeySecret, Secrets};

/// The form that is written.
const FORMAT_VERSION: u8 = 1;

/// Why a seal cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnsealError {
    /// Its key is not in the ring.
    UnknownKey,
    /// A byte was changed, or it was sealed for something else.
    Changed,
    /// It is no seal.
    NotSealed,
}

impl std::fmt::Display for UnsealError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::UnknownKey => "it was sealed with another key",
            Self::Changed => "it was changed, or sealed for something else",
            Self::NotSealed => "it was never sealed",
        })
    }
}

impl std::error::Error for UnsealError {}

/// The sealing keys, ready for use. The first one seals; there is always one.
pub(super) struct SealingKeys(Vec<SealingKey>);

struct SealingKey {
    id: [u8; 4],
    key: RandomizedNonceKey,
}

impl SealingKey {
    fn from_secret(written: &SealingKeySecret) -> Result<Self, Diagnostic> {
        let secret = written.secret.as_ref();
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let tag = hmac::sign(&key, b"warmline sealing key id");
        let mut id = [0; 4];
        for (to, from) in id.iter_mut().zip(tag.as_ref()) {
            *to = *from;
        }
        let key = RandomizedNonceKey::new(&AES_256_GCM_SIV, secret).map_err(|_| no_randomness())?;
        Ok(Self { id, key })
    }
}

impl SealingKeys {
    pub(super) fn from_secrets(secrets: &Secrets) -> Result<Self, Diagnostic> {
        let keys = secrets.sealing.iter().map(SealingKey::from_secret);
        Ok(Self(keys.collect::<Result<_, _>>()?))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn seal(&self, context: &[u8], plain: &[u8]) -> Result<Vec<u8>, Diagnostic> {
        let first = self.0.first().ok_or_else(no_randomness)?;
        let mut text = Vec::with_capacity(plain.len() + 16);
        text.extend_from_slice(plain);
        let nonce = first
            .key
            .seal_in_place_append_tag(Aad::from(context), &mut text)
            .map_err(|_| no_randomness())?;
        Ok([&[FORMAT_VERSION], &first.id[..], nonce.as_ref(), &text].concat())
    }

    pub(super) fn unseal(&self, context: &[u8], sealed: &[u8]) -> Result<Vec<u8>, UnsealError> {
        let Some((&[FORMAT_VERSION, ref id @ ..], rest)) = sealed.split_first_chunk::<5>() else {
            return Err(UnsealError::NotSealed);
        };
        let (nonce, text) = rest
            .split_first_chunk::<12>()
            .ok_or(UnsealError::NotSealed)?;
        let mut outcome = Err(UnsealError::UnknownKey);
        for key in self.0.iter().filter(|key| &key.id == id) {
            let mut text = text.to_vec();
            let nonce = Nonce::assume_unique_for_key(*nonce);
            match key.key.open_in_place(nonce, Aad::from(context), &mut text) {
                Ok(plain) => return Ok(plain.to_vec()),
                Err(_) => outcome = Err(UnsealError::Changed),
            }
        }
        outcome
    }
}
