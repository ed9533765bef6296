//! Which run a request belongs to: by path, header, `_meta`, or what the operator named.
//!
//! Asked by: the faces.  Whatever is named can only split the work of one identity; it never
//! reaches another's.

use std::borrow::Cow;

use http::request::Parts;
use http::{HeaderName, Response, StatusCode};
use warmline::core::protocol::params::Params;
use warmline::core::protocol::splice::Edit;
use warmline::seal::Purpose;
use warmline::{Run, Vault};

use crate::body::Body;
use crate::reply::{self, RpcCode};

/// The header that names a run.
pub(crate) const RUN: HeaderName = HeaderName::from_static("warmline-run");
/// The member of `_meta` that names a run.
pub(crate) const RUN_META: &str = "dev.warmline/run";
/// Nothing longer names a run, wherever it stands.
const MAX_FOUND: usize = 1024;

/// A place beside our own where clients name their conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunFrom {
    /// A member of `_meta`.
    Meta(String),
    /// A header.
    Header(HeaderName),
}

impl RunFrom {
    /// Reads `_meta:KEY` or `header:NAME`.
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once(':')? {
            ("_meta", key) if !key.is_empty() => Some(Self::Meta(key.to_owned())),
            ("header", name) => HeaderName::try_from(name).ok().map(Self::Header),
            _ => None,
        }
    }

    /// What is looked at unless somebody says otherwise: some hosts never send a session id back,
    /// but name their conversation.
    pub fn usual() -> Vec<Self> {
        vec![Self::Meta("openai/session".to_owned())]
    }
}

/// The word in the audit for a name that no run may have.
pub(crate) const BAD_RUN: &str = "bad-run";

/// A name that no run may have, and where it stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadName(pub(crate) &'static str);

impl BadName {
    /// What its client gets.
    pub(crate) fn response(self, id: Option<&[u8]>) -> Response<Body> {
        let what = self.sentence();
        let refusal = reply::error(StatusCode::BAD_REQUEST, id, RpcCode::Params, &what);
        reply::called(refusal, BAD_RUN)
    }

    /// What is wrong with it.
    pub(crate) fn sentence(self) -> String {
        let place = self.0;
        format!("{place} names no run: a name has 1 to 128 of A-Z, a-z, 0-9, `.`, `_`, `~` and `-`")
    }
}

/// The name of the run that a request is for; none where nothing names one.
pub(crate) fn run<'a>(
    in_path: Option<&'a str>,
    head: &'a Parts,
    params: Option<&Params>,
    run_from: &[RunFrom],
    vault: &Vault,
) -> Result<Option<Cow<'a, str>>, BadName> {
    if let Some(name) = in_path {
        return checked(Cow::Borrowed(name), "the path").map(Some);
    }
    let mut headers = head.headers.get_all(RUN).iter();
    if let Some(name) = headers.next() {
        let name = name.to_str().ok().filter(|_| headers.next().is_none());
        let name = name.ok_or(BadName("the header `Warmline-Run`"))?;
        return checked(Cow::Borrowed(name), "the header `Warmline-Run`").map(Some);
    }
    if let Some(raw) = params.and_then(|params| params.meta_member(RUN_META)) {
        let place = "`_meta[\"dev.warmline/run\"]`";
        let name = serde_json::from_slice::<String>(raw).map_err(|_| BadName(place))?;
        return checked(Cow::Owned(name), place).map(Some);
    }
    let found = run_from.iter().find_map(|place| found(place, head, params));
    // It may be any text, so its keyed digest is the name.
    Ok(found.map(|text| {
        let digest = vault.digest(Purpose::Run, &[b"found", text.as_bytes()]);
        Cow::Owned(format!("found_{}", digest.hex()))
    }))
}

/// The parameters without the name of a run, which was said to us alone.
pub(crate) fn without_run(params: Params) -> Params {
    if params.meta_member(RUN_META).is_none() {
        return params;
    }
    let mut raw = Vec::with_capacity(params.raw().len());
    params.write_with(&mut raw, &[], &[Edit::Remove(RUN_META)]);
    // Edits of a checked object make a checked object.
    Params::parse(raw.into()).unwrap_or(params)
}

fn checked<'a>(name: Cow<'a, str>, place: &'static str) -> Result<Cow<'a, str>, BadName> {
    match Run::check_name(&name) {
        Ok(()) => Ok(name),
        Err(_) => Err(BadName(place)),
    }
}

fn found(place: &RunFrom, head: &Parts, params: Option<&Params>) -> Option<String> {
    let text = match place {
        RunFrom::Meta(key) => {
            let raw = params?.meta_member(key)?;
            serde_json::from_slice::<String>(raw).ok()?
        },
        RunFrom::Header(name) => {
            let bytes = head.headers.get(name)?.as_bytes();
            // Bytes that are no text are a name all the same, each byte a letter.
            let letters = || bytes.iter().copied().map(char::from).collect();
            std::str::from_utf8(bytes).map_or_else(|_| letters(), str::to_owned)
        },
    };
    (1..=MAX_FOUND).contains(&text.len()).then_some(text)
}
