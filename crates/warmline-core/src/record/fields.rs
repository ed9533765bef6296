//! The fields of a record: which tag means what, and what each may hold. As bytes a field is a tag, a
//! length of four bytes, and so many bytes.
//!
//! A tag never gets a second meaning. What is read is checked like untrusted input: a session id
//! goes into a header, raw JSON into messages.

use ::bytes::Bytes;
use serde_json::value::RawValue;

use super::{
    FORMAT_VERSION, MAX_BYTES, Record, RecordDecodeError, RecordEncodeError, StoredClientProfile,
};
use crate::era::{Era, Version};
use crate::pool_key::{
    ClientProfileId, ConfigRevision, CredentialId, Digest, Identity, KeyOwner, KeyScope, PoolKey,
    RunId, TargetKey, Transport,
};
use crate::protocol::headers::is_valid_session_id;

const SERVER: u8 = 1;
const REVISION: u8 = 2;
const ERA: u8 = 3;
const TRANSPORT: u8 = 4;
const OWNER: u8 = 5;
const CREDENTIAL: u8 = 6;
const SCOPE: u8 = 7;
const GENERATION: u8 = 8;
const SESSION_ID: u8 = 9;
const VERSION: u8 = 10;
const CLIENT_NAME: u8 = 11;
const CLIENT_VERSION: u8 = 12;
const CLIENT_CAPABILITIES: u8 = 13;
const CAPABILITIES: u8 = 14;
const SERVER_INFO: u8 = 15;
const INSTRUCTIONS: u8 = 16;
const LOG_LEVEL: u8 = 17;
const SUBSCRIPTION: u8 = 18;
const STATEFUL: u8 = 19;
const OPENED_AT: u8 = 20;
const LAST_USED_AT: u8 = 21;
const EXPIRES_AT: u8 = 22;
const UNREPORTED_LOSS: u8 = 23;

impl Record {
    /// The record as bytes, which [`Record::decode`] reads.
    ///
    /// # Errors
    /// It is larger than [`MAX_BYTES`], or holds what no session has.
    pub fn encode(&self) -> Result<Vec<u8>, RecordEncodeError> {
        let mut out = Vec::with_capacity(512);
        out.push(FORMAT_VERSION);
        write_key(&mut out, &self.key);
        let mut write = |tag, value: Option<&[u8]>| {
            if let Some(value) = value {
                write_field(&mut out, tag, value);
            }
        };
        let client = &self.client_profile;
        write(GENERATION, Some(&self.generation.to_le_bytes()));
        write(SESSION_ID, self.session_id.as_deref().map(str::as_bytes));
        write(VERSION, Some(self.version.as_str().as_bytes()));
        write(CLIENT_NAME, Some(client.client_name.as_bytes()));
        write(CLIENT_VERSION, Some(client.client_version.as_bytes()));
        write(CLIENT_CAPABILITIES, Some(&client.capabilities));
        write(CAPABILITIES, Some(&self.capabilities));
        write(SERVER_INFO, self.server_info.as_deref());
        write(
            INSTRUCTIONS,
            self.instructions.as_deref().map(str::as_bytes),
        );
        write(LOG_LEVEL, self.log_level.as_deref().map(str::as_bytes));
        for uri in &self.subscriptions {
            write(SUBSCRIPTION, Some(uri.as_bytes()));
        }
        write(STATEFUL, self.stateful.then_some(&[]));
        write(OPENED_AT, Some(&self.opened_at.to_le_bytes()));
        write(LAST_USED_AT, Some(&self.last_used_at.to_le_bytes()));
        let expires_at = self.expires_at.map(u64::to_le_bytes);
        write(EXPIRES_AT, expires_at.as_ref().map(|bytes| &bytes[..]));
        write(UNREPORTED_LOSS, self.unreported_loss.then_some(&[]));
        match Self::decode(&out) {
            Ok(_) | Err(RecordDecodeError::TooNew) => Ok(out),
            Err(RecordDecodeError::Corrupt(part)) => Err(RecordEncodeError(part)),
        }
    }

    /// Reads what [`Record::encode`] wrote.
    ///
    /// # Errors
    /// For anything else.
    pub fn decode(raw: &[u8]) -> Result<Self, RecordDecodeError> {
        let mut reader = FieldReader::new(raw)?;
        let mut found = FieldSet::default();
        while let Some((tag, value)) = reader.next_field(SUBSCRIPTION)? {
            found.add_field(tag, value)?;
        }
        found.into_record()
    }
}

fn write_key(out: &mut Vec<u8>, key: &PoolKey) {
    let place = &key.target;
    write_field(out, SERVER, place.server.as_bytes());
    write_field(out, REVISION, place.revision.0.as_bytes());
    write_field(out, ERA, &[era_byte(place.era)]);
    write_field(out, TRANSPORT, &[transport_byte(place.transport)]);
    match key.owner {
        KeyOwner::Identity(identity) => write_field(out, OWNER, identity.0.as_bytes()),
        KeyOwner::AnyIdentity => write_field(out, OWNER, &[]),
    }
    write_field(out, CREDENTIAL, key.credential.0.as_bytes());
    let (kind, digest) = match key.scope {
        KeyScope::Run(run) => (1, run.0),
        KeyScope::Shared(declared) => (2, declared.0),
    };
    let mut scope = vec![kind];
    scope.extend_from_slice(digest.as_bytes());
    write_field(out, SCOPE, &scope);
}

const fn era_byte(era: Era) -> u8 {
    match era {
        Era::Legacy => 1,
        Era::Modern => 2,
    }
}

const fn transport_byte(transport: Transport) -> u8 {
    match transport {
        Transport::Http => 1,
        Transport::HttpSse => 2,
        Transport::Stdio => 3,
    }
}

#[derive(Default)]
struct FieldSet<'a> {
    /// One slot for each tag that is not repeated.
    values: [Option<&'a [u8]>; UNREPORTED_LOSS as usize + 1],
    subscriptions: Vec<String>,
}

impl<'a> FieldSet<'a> {
    fn add_field(&mut self, tag: u8, value: &'a [u8]) -> Result<(), RecordDecodeError> {
        if tag == SUBSCRIPTION {
            self.subscriptions.push(read_text(value, "subscription")?);
            return Ok(());
        }
        match self.values.get_mut(usize::from(tag)) {
            Some(_) if tag == 0 => Err(RecordDecodeError::Corrupt("tag")),
            Some(place) => {
                *place = Some(value);
                Ok(())
            },
            None if tag >= FIRST_OPTIONAL_TAG => Ok(()),
            None => Err(RecordDecodeError::TooNew),
        }
    }

    fn get(&self, tag: u8) -> Option<&'a [u8]> {
        self.values.get(usize::from(tag)).copied().flatten()
    }

    fn required(&self, tag: u8, name: &'static str) -> Result<&'a [u8], RecordDecodeError> {
        self.get(tag).ok_or(RecordDecodeError::Corrupt(name))
    }

    fn into_record(mut self) -> Result<Record, RecordDecodeError> {
        let key = self.pool_key()?;
        let version = self.version(key.target.era)?;
        let client_profile = StoredClientProfile {
            client_name: self.text(CLIENT_NAME, "client name")?,
            client_version: self.text(CLIENT_VERSION, "client version")?,
            capabilities: self.object(CLIENT_CAPABILITIES, "client capabilities")?,
        };
        Ok(Record {
            key,
            version,
            client_profile,
            generation: u32::from_le_bytes(exact_bytes(self.required(GENERATION, "generation")?)?),
            session_id: self.session_id()?,
            capabilities: self.object(CAPABILITIES, "capabilities")?,
            server_info: self.optional(SERVER_INFO, |raw| read_json_object(raw, "server info"))?,
            instructions: self.optional(INSTRUCTIONS, |raw| read_text(raw, "instructions"))?,
            log_level: self.optional(LOG_LEVEL, |raw| read_text(raw, "log level"))?,
            stateful: self.optional(STATEFUL, exact_bytes::<0>)?.is_some(),
            unreported_loss: self.optional(UNREPORTED_LOSS, exact_bytes::<0>)?.is_some(),
            opened_at: read_seconds(self.required(OPENED_AT, "times")?)?,
            last_used_at: read_seconds(self.required(LAST_USED_AT, "times")?)?,
            expires_at: self.optional(EXPIRES_AT, read_seconds)?,
            subscriptions: std::mem::take(&mut self.subscriptions),
        })
    }

    fn text(&self, tag: u8, name: &'static str) -> Result<String, RecordDecodeError> {
        read_text(self.required(tag, name)?, name)
    }

    fn object(&self, tag: u8, name: &'static str) -> Result<Bytes, RecordDecodeError> {
        read_json_object(self.required(tag, name)?, name)
    }

    fn optional<T>(
        &self,
        tag: u8,
        read: impl FnOnce(&'a [u8]) -> Result<T, RecordDecodeError>,
    ) -> Result<Option<T>, RecordDecodeError> {
        self.get(tag).map(read).transpose()
    }

    fn pool_key(&self) -> Result<PoolKey, RecordDecodeError> {
        let place = TargetKey {
            server: self.text(SERVER, "server")?.into(),
            revision: ConfigRevision(read_digest(self.required(REVISION, "revision")?)?),
            era: match self.required(ERA, "era")? {
                [1] => Era::Legacy,
                [2] => Era::Modern,
                _ => return Err(RecordDecodeError::Corrupt("era")),
            },
            transport: match self.required(TRANSPORT, "transport")? {
                [1] => Transport::Http,
                [2] => Transport::HttpSse,
                [3] => Transport::Stdio,
                _ => return Err(RecordDecodeError::Corrupt("transport")),
            },
        };
        let owner = match self.required(OWNER, "owner")? {
            [] => KeyOwner::AnyIdentity,
            raw => KeyOwner::Identity(Identity(read_digest(raw)?)),
        };
        let credential = CredentialId(read_digest(self.required(CREDENTIAL, "credential")?)?);
        let scope = match self.required(SCOPE, "scope")?.split_first() {
            Some((1, raw)) => KeyScope::Run(RunId(read_digest(raw)?)),
            Some((2, raw)) => KeyScope::Shared(ClientProfileId(read_digest(raw)?)),
            Some(_) | None => return Err(RecordDecodeError::Corrupt("scope")),
        };
        Ok(PoolKey::new(place, owner, credential, scope))
    }

    fn version(&self, era: Era) -> Result<Version, RecordDecodeError> {
        let date = self.text(VERSION, "version")?;
        // An unknown version.
        let version = Version::parse(&date).ok_or(RecordDecodeError::TooNew)?;
        if version.era() == era {
            Ok(version)
        } else {
            Err(RecordDecodeError::Corrupt("version"))
        }
    }

    fn session_id(&self) -> Result<Option<String>, RecordDecodeError> {
        self.optional(SESSION_ID, |raw| {
            if is_valid_session_id(raw) {
                read_text(raw, "session id")
            } else {
                Err(RecordDecodeError::Corrupt("session id"))
            }
        })
    }
}

fn exact_bytes<const N: usize>(raw: &[u8]) -> Result<[u8; N], RecordDecodeError> {
    raw.try_into()
        .map_err(|_| RecordDecodeError::Corrupt("length"))
}

fn read_digest(raw: &[u8]) -> Result<Digest, RecordDecodeError> {
    Ok(Digest::new(exact_bytes(raw)?))
}

fn read_seconds(raw: &[u8]) -> Result<u64, RecordDecodeError> {
    Ok(u64::from_le_bytes(exact_bytes(raw)?))
}

fn read_text(raw: &[u8], name: &'static str) -> Result<String, RecordDecodeError> {
    String::from_utf8(raw.to_vec()).map_err(|_| RecordDecodeError::Corrupt(name))
}

fn read_json_object(raw: &[u8], name: &'static str) -> Result<Bytes, RecordDecodeError> {
    match serde_json::from_slice::<&RawValue>(raw) {
        Ok(value) if value.get().starts_with('{') => Ok(Bytes::copy_from_slice(raw)),
        Ok(_) | Err(_) => Err(RecordDecodeError::Corrupt(name)),
    }
}

/// From this tag on, a reader that does not know it goes on without it.
pub(super) const FIRST_OPTIONAL_TAG: u8 = 128;

/// Appends a field. A record that became too large stays too large.
pub(super) fn write_field(out: &mut Vec<u8>, tag: u8, value: &[u8]) {
    let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
    out.push(tag);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(value);
}

/// The fields of some bytes, one after another.
#[derive(Debug)]
pub(super) struct FieldReader<'a> {
    rest: &'a [u8],
    last_tag: u8,
}

impl<'a> FieldReader<'a> {
    pub(super) fn new(raw: &'a [u8]) -> Result<Self, RecordDecodeError> {
        if raw.len() > MAX_BYTES {
            return Err(RecordDecodeError::Corrupt("size"));
        }
        match raw.split_first() {
            Some((&FORMAT_VERSION, rest)) => Ok(Self { rest, last_tag: 0 }),
            Some((&version, _)) if version > FORMAT_VERSION => Err(RecordDecodeError::TooNew),
            Some(_) | None => Err(RecordDecodeError::Corrupt("version")),
        }
    }

    /// The next field; none at the end. Only `repeated` may occur more than once.
    pub(super) fn next_field(
        &mut self,
        repeated: u8,
    ) -> Result<Option<(u8, &'a [u8])>, RecordDecodeError> {
        let Some((&tag, rest)) = self.rest.split_first() else {
            return Ok(None);
        };
        let (length, rest) = rest
            .split_first_chunk::<4>()
            .ok_or(RecordDecodeError::Corrupt("length"))?;
        let length = usize::try_from(u32::from_le_bytes(*length))
            .map_err(|_| RecordDecodeError::Corrupt("length"))?;
        let (value, rest) = rest
            .split_at_checked(length)
            .ok_or(RecordDecodeError::Corrupt("length"))?;
        if tag < self.last_tag || (tag == self.last_tag && tag != repeated) {
            return Err(RecordDecodeError::Corrupt("order"));
        }
        self.last_tag = tag;
        self.rest = rest;
        Ok(Some((tag, value)))
    }
}
