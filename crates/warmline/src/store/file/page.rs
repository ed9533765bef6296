//! What stands in the file of a record: three letters, the version of the form, the edition, and
//! the sealed record.

use warmline_core::record::MAX_BYTES;

use crate::store::{StoreError, Stored};

const LETTERS: [u8; 3] = *b"WLR";
/// The version of the form that is written.
const FORM: u8 = 1;
/// What stands before the sealed record.
pub(super) const HEAD: usize = 4 + 8;
/// No file of ours is larger; sealing adds less than 64 bytes.
pub(super) const LARGEST: usize = HEAD + MAX_BYTES + 64;

/// The bytes of a file.
pub(super) fn write(stored: &Stored) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD + stored.sealed.len());
    out.extend_from_slice(&LETTERS);
    out.push(FORM);
    out.extend_from_slice(&stored.edition.to_le_bytes());
    out.extend_from_slice(&stored.sealed);
    out
}

/// The edition of a file by its first bytes.
pub(super) fn edition(head: &[u8]) -> Result<u64, StoreError> {
    let broken = || StoreError::Broken("its file is half written, or no record".to_owned());
    let (form, rest) = head.split_first_chunk::<4>().ok_or_else(broken)?;
    let [letters @ .., form] = form;
    if *letters != LETTERS || *form == 0 {
        return Err(broken());
    }
    if *form > FORM {
        let why = format!("a later version of Warmline wrote its file (form {form})");
        return Err(StoreError::Refused(why));
    }
    let edition = rest.first_chunk::<8>().ok_or_else(broken)?;
    Ok(u64::from_le_bytes(*edition))
}

/// What a file holds.
pub(super) fn read(bytes: &[u8]) -> Result<Stored, StoreError> {
    let edition = edition(bytes)?;
    if bytes.len() > LARGEST {
        return Err(StoreError::Broken("its file is too large".to_owned()));
    }
    let sealed = bytes.get(HEAD..).unwrap_or_default().to_vec();
    Ok(Stored { edition, sealed })
}
