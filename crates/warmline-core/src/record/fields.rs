//! The fields of a record: which tag means what, and what each may hold.
//!
//! A tag is never given a second meaning. What is written can be read, and what is read has been
//! checked as if a stranger had written it: a session id goes into a header, raw JSON into
//! messages.

use std::sync::Arc;

use ::bytes::Bytes;
use serde_json::value::RawValue;

use super::bytes::{MAY_BE_IGNORED, Reader, Writer};
use super::{Declared, Record, Unreadable, Unstorable};
use crate::era::{Era, Version};
use crate::key::{
    CredentialId, DeclaredId, Digest, Identity, Key, Owner, Place, Revision, RunId, Scope,
    Transport,
};
use crate::protocol::headers::is_session_id;

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
const LEFT_STATE: u8 = 19;
const OPENED_AT: u8 = 20;
const USED_AT: u8 = 21;
const EXPIRES_AT: u8 = 22;
const UNTOLD_LOSS: u8 = 23;

/// The record as bytes.
pub(super) fn write(record: &Record) -> Result<Vec<u8>, Unstorable> {
    check(record)?;
    let mut out = Writer::new();
    write_key(&mut out, &record.key);
    out.field(GENERATION, &record.generation.to_le_bytes());
    if let Some(id) = &record.session_id {
        out.field(SESSION_ID, id.as_bytes());
    }
    out.field(VERSION, record.version.as_str().as_bytes());
    out.field(CLIENT_NAME, record.declared.client_name.as_bytes());
    out.field(CLIENT_VERSION, record.declared.client_version.as_bytes());
    out.field(CLIENT_CAPABILITIES, &record.declared.capabilities);
    out.field(CAPABILITIES, &record.capabilities);
    if let Some(info) = &record.server_info {
        out.field(SERVER_INFO, info);
    }
    if let Some(text) = &record.instructions {
        out.field(INSTRUCTIONS, text.as_bytes());
    }
    if let Some(level) = &record.log_level {
        out.field(LOG_LEVEL, level.as_bytes());
    }
    for uri in &record.subscriptions {
        out.field(SUBSCRIPTION, uri.as_bytes());
    }
    if record.left_state {
        out.field(LEFT_STATE, &[]);
    }
    out.field(OPENED_AT, &record.opened_at.to_le_bytes());
    out.field(USED_AT, &record.used_at.to_le_bytes());
    if let Some(moment) = record.expires_at {
        out.field(EXPIRES_AT, &moment.to_le_bytes());
    }
    if record.untold_loss {
        out.field(UNTOLD_LOSS, &[]);
    }
    out.finish().ok_or(Unstorable("size"))
}

/// Whether a reader would take it.
fn check(record: &Record) -> Result<(), Unstorable> {
    let fits_header = |id: &String| is_session_id(id.as_bytes());
    if !record.session_id.as_ref().is_none_or(fits_header) {
        return Err(Unstorable("session id"));
    }
    if record.version.era() != record.key.place().era {
        return Err(Unstorable("version"));
    }
    if !is_object(&record.declared.capabilities) || !is_object(&record.capabilities) {
        return Err(Unstorable("capabilities"));
    }
    if !record.server_info.as_deref().is_none_or(is_object) {
        return Err(Unstorable("server info"));
    }
    Ok(())
}

fn is_object(raw: &[u8]) -> bool {
    serde_json::from_slice::<&RawValue>(raw).is_ok_and(|value| value.get().starts_with('{'))
}

fn write_key(out: &mut Writer, key: &Key) {
    let place = key.place();
    out.field(SERVER, place.server.as_bytes());
    out.field(REVISION, place.revision.0.bytes());
    out.field(ERA, &[era_byte(place.era)]);
    out.field(TRANSPORT, &[transport_byte(place.transport)]);
    match key.owner() {
        Owner::Identity(identity) => out.field(OWNER, identity.0.bytes()),
        Owner::Everybody => out.field(OWNER, &[]),
    }
    out.field(CREDENTIAL, key.credential().0.bytes());
    let (kind, digest) = match key.scope() {
        Scope::Run(run) => (1, run.0),
        Scope::Shared(declared) => (2, declared.0),
    };
    let mut scope = vec![kind];
    scope.extend_from_slice(digest.bytes());
    out.field(SCOPE, &scope);
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

/// Reads what [`write`] wrote.
pub(super) fn read(raw: &[u8]) -> Result<Record, Unreadable> {
    let mut reader = Reader::new(raw)?;
    let mut found = Found::default();
    while let Some((tag, value)) = reader.next(SUBSCRIPTION)? {
        found.take(tag, value)?;
    }
    found.record()
}

/// What was found so far.
#[derive(Default)]
struct Found<'a> {
    /// One place for each tag that stands there once.
    once: [Option<&'a [u8]>; UNTOLD_LOSS as usize + 1],
    subscriptions: Vec<String>,
}

impl<'a> Found<'a> {
    fn take(&mut self, tag: u8, value: &'a [u8]) -> Result<(), Unreadable> {
        if tag == SUBSCRIPTION {
            self.subscriptions.push(text(value, "subscription")?);
            return Ok(());
        }
        match self.once.get_mut(usize::from(tag)) {
            Some(_) if tag == 0 => Err(Unreadable::Broken("tag")),
            Some(place) => {
                *place = Some(value);
                Ok(())
            },
            None if tag >= MAY_BE_IGNORED => Ok(()),
            None => Err(Unreadable::TooNew),
        }
    }

    fn get(&self, tag: u8) -> Option<&'a [u8]> {
        self.once.get(usize::from(tag)).copied().flatten()
    }

    fn need(&self, tag: u8, name: &'static str) -> Result<&'a [u8], Unreadable> {
        self.get(tag).ok_or(Unreadable::Broken(name))
    }

    fn record(mut self) -> Result<Record, Unreadable> {
        let key = self.key()?;
        let version = self.version(key.place().era)?;
        let declared = Declared {
            client_name: text(self.need(CLIENT_NAME, "client name")?, "client name")?,
            client_version: text(
                self.need(CLIENT_VERSION, "client version")?,
                "client version",
            )?,
            capabilities: json(self.need(CLIENT_CAPABILITIES, "declared")?, "declared")?,
        };
        Ok(Record {
            key,
            version,
            declared,
            generation: u32::from_le_bytes(exact(self.need(GENERATION, "generation")?)?),
            session_id: self.session_id()?,
            capabilities: json(self.need(CAPABILITIES, "capabilities")?, "capabilities")?,
            server_info: self.maybe(SERVER_INFO, |raw| json(raw, "server info"))?,
            instructions: self.maybe(INSTRUCTIONS, |raw| text(raw, "instructions"))?,
            log_level: self.maybe(LOG_LEVEL, |raw| text(raw, "log level"))?,
            left_state: self.maybe(LEFT_STATE, exact::<0>)?.is_some(),
            untold_loss: self.maybe(UNTOLD_LOSS, exact::<0>)?.is_some(),
            opened_at: seconds(self.need(OPENED_AT, "times")?)?,
            used_at: seconds(self.need(USED_AT, "times")?)?,
            expires_at: self.maybe(EXPIRES_AT, seconds)?,
            subscriptions: std::mem::take(&mut self.subscriptions),
        })
    }

    fn maybe<T>(
        &self,
        tag: u8,
        read: impl FnOnce(&'a [u8]) -> Result<T, Unreadable>,
    ) -> Result<Option<T>, Unreadable> {
        self.get(tag).map(read).transpose()
    }

    fn key(&self) -> Result<Key, Unreadable> {
        let place = Place {
            server: Arc::from(text(self.need(SERVER, "server")?, "server")?),
            revision: Revision(digest(self.need(REVISION, "revision")?)?),
            era: match self.need(ERA, "era")? {
                [1] => Era::Legacy,
                [2] => Era::Modern,
                _ => return Err(Unreadable::Broken("era")),
            },
            transport: match self.need(TRANSPORT, "transport")? {
                [1] => Transport::Http,
                [2] => Transport::HttpSse,
                [3] => Transport::Stdio,
                _ => return Err(Unreadable::Broken("transport")),
            },
        };
        let owner = match self.need(OWNER, "owner")? {
            [] => Owner::Everybody,
            raw => Owner::Identity(Identity(digest(raw)?)),
        };
        let credential = CredentialId(digest(self.need(CREDENTIAL, "credential")?)?);
        let scope = match self.need(SCOPE, "scope")?.split_first() {
            Some((1, raw)) => Scope::Run(RunId(digest(raw)?)),
            Some((2, raw)) => Scope::Shared(DeclaredId(digest(raw)?)),
            Some(_) | None => return Err(Unreadable::Broken("scope")),
        };
        Ok(Key::of(place, owner, credential, scope))
    }

    fn version(&self, era: Era) -> Result<Version, Unreadable> {
        let date = text(self.need(VERSION, "version")?, "version")?;
        // A date that nobody here speaks yet.
        let version = Version::parse(&date).ok_or(Unreadable::TooNew)?;
        if version.era() == era {
            Ok(version)
        } else {
            Err(Unreadable::Broken("version"))
        }
    }

    fn session_id(&self) -> Result<Option<String>, Unreadable> {
        self.maybe(SESSION_ID, |raw| {
            if is_session_id(raw) {
                text(raw, "session id")
            } else {
                Err(Unreadable::Broken("session id"))
            }
        })
    }
}

fn exact<const N: usize>(raw: &[u8]) -> Result<[u8; N], Unreadable> {
    raw.try_into().map_err(|_| Unreadable::Broken("length"))
}

fn digest(raw: &[u8]) -> Result<Digest, Unreadable> {
    Ok(Digest::new(exact(raw)?))
}

fn seconds(raw: &[u8]) -> Result<u64, Unreadable> {
    Ok(u64::from_le_bytes(exact(raw)?))
}

fn text(raw: &[u8], name: &'static str) -> Result<String, Unreadable> {
    String::from_utf8(raw.to_vec()).map_err(|_| Unreadable::Broken(name))
}

fn json(raw: &[u8], name: &'static str) -> Result<Bytes, Unreadable> {
    if is_object(raw) {
        Ok(Bytes::copy_from_slice(raw))
    } else {
        Err(Unreadable::Broken(name))
    }
}
