//! Which run a request belongs to: by path, header, `_meta`, or the operator's own sources.
//!
//! A name can only split the work of one identity; it never reaches the run of another.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, StatusCode};
use warmline_core::message::params::Params;
use warmline_core::message::splice::Edit;
use warmline_engine::Run;
use warmline_store::keyring::Purpose;

use crate::GatewayState;
use crate::response::rejection::{RequestRejection, RpcCode};

pub(crate) const RUN_HEADER: HeaderName = HeaderName::from_static("warmline-run");
pub(crate) const RUN_META_KEY: &str = "dev.warmline/run";
/// The longest name of a conversation.
const MAX_CONVERSATION_NAME: usize = 1024;

/// Another place where clients name their conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunSource {
    /// A member of `_meta`.
    Meta(String),
    /// A header.
    Header(HeaderName),
}

impl RunSource {
    /// Reads `_meta:KEY` or `header:NAME`.
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once(':')? {
            ("_meta", key) if !key.is_empty() => Some(Self::Meta(key.to_owned())),
            ("header", name) => HeaderName::try_from(name).ok().map(Self::Header),
            _ => None,
        }
    }

    /// The default sources: some hosts never send a session id back, but name their conversation.
    pub fn defaults() -> Vec<Self> {
        vec![Self::Meta("openai/session".to_owned())]
    }
}

/// The name of the run that a request is for, if anything names one.
pub(crate) fn select_run<'a>(
    in_path: Option<&'a str>,
    headers: &'a HeaderMap,
    params: Option<&Params>,
    shared: &GatewayState,
) -> Result<Option<Cow<'a, str>>, RequestRejection> {
    if let Some(name) = in_path {
        return check_name(Cow::Borrowed(name), "the path").map(Some);
    }
    let mut named = headers.get_all(RUN_HEADER).iter();
    if let Some(name) = named.next() {
        let name = name.to_str().ok().filter(|_| named.next().is_none());
        let name = name.ok_or_else(|| invalid_name("the header `Warmline-Run`"))?;
        return check_name(Cow::Borrowed(name), "the header `Warmline-Run`").map(Some);
    }
    if let Some(raw) = params.and_then(|params| params.meta_member(RUN_META_KEY)) {
        let place = "`_meta[\"dev.warmline/run\"]`";
        let name = serde_json::from_slice::<String>(raw).map_err(|_| invalid_name(place))?;
        return check_name(Cow::Owned(name), place).map(Some);
    }
    let policy = shared.access_policy.load();
    let mut sources = policy.run_from.iter();
    let found = sources.find_map(|place| conversation_name(place, headers, params));
    // It may be any text, so the name is its keyed digest.
    Ok(found.map(|text| {
        let parts: [&[u8]; 2] = [b"found", text.as_bytes()];
        let digest = shared.warmline.vault().digest(Purpose::Run, &parts);
        Cow::Owned(format!("found_{}", digest.to_hex()))
    }))
}

/// The parameters without the name of the run, which is for the gateway alone.
pub(crate) fn strip_run(params: Params) -> Params {
    match params.meta_member(RUN_META_KEY) {
        Some(_) => params.edited(&[], &[Edit::Remove(RUN_META_KEY)]),
        None => params,
    }
}

fn check_name<'a>(
    name: Cow<'a, str>,
    place: &'static str,
) -> Result<Cow<'a, str>, RequestRejection> {
    match Run::check_name(&name) {
        Ok(()) => Ok(name),
        Err(_) => Err(invalid_name(place)),
    }
}

fn invalid_name(place: &str) -> RequestRejection {
    let what = format!(
        "{place} is not a name of a run: a name has 1 to 128 of A-Z, a-z, 0-9, `.`, `_`, `~` and `-`"
    );
    RequestRejection::new(StatusCode::BAD_REQUEST, RpcCode::Params, what)
        .with_audit_reason("bad-run")
}

fn conversation_name(
    place: &RunSource,
    headers: &HeaderMap,
    params: Option<&Params>,
) -> Option<String> {
    let text = match place {
        RunSource::Meta(key) => {
            let raw = params?.meta_member(key)?;
            serde_json::from_slice::<String>(raw).ok()?
        },
        RunSource::Header(name) => {
            let bytes = headers.get(name)?.as_bytes();
            // Bytes that are not UTF-8 are a name as well, each byte a letter.
            let letters = || bytes.iter().copied().map(char::from).collect();
            std::str::from_utf8(bytes).map_or_else(|_| letters(), str::to_owned)
        },
    };
    (1..=MAX_CONVERSATION_NAME)
        .contains(&text.len())
        .then_some(text)
}
