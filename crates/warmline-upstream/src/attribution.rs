//! Which call a server's message belongs to, on a stream that several calls share (rows Y of
//! `docs/reference/rows.md`). A guess would show one caller what another one's call does.

use std::num::ParseIntError;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use warmline_core::message::envelope::Message;

/// Identifies a caller: calls with the same listener are one caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallerId(usize);

impl CallerId {
    /// The id of a caller, unique while the caller lives.
    pub fn from_ref<T: ?Sized>(caller: &T) -> Self {
        Self(std::ptr::from_ref(caller).cast::<()>().addr())
    }
}

/// Whom a server request belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attribution {
    Call(u64),
    /// One of several calls of this caller.
    Caller(CallerId),
    /// Some call of several callers: nobody can know which.
    Ambiguous,
    NoCall,
}

/// A server request belongs to the call that it names, else to the only one in flight, else to the
/// caller if all calls in flight are one caller's. `in_flight` are the calls that wait for their
/// replies, oldest first. Nothing belongs to calls without a listener, such as our own.
pub(crate) fn attribute_request(
    message: &Message,
    is_abandoned: impl FnOnce(u64) -> bool,
    in_flight: impl Iterator<Item = (u64, Option<CallerId>)> + Clone,
) -> Attribution {
    if let Some(named) = named_call(message) {
        match in_flight.clone().find(|(id, _)| *id == named) {
            Some((_, Some(_))) => return Attribution::Call(named),
            Some((_, None)) => return Attribution::NoCall,
            None => {},
        }
        if is_abandoned(named) {
            return Attribution::NoCall;
        }
        // A token that is not ours: the server wants progress on its own request.
    }
    match sole_caller(in_flight) {
        Ok(sole) if sole.is_only_call => Attribution::Call(sole.oldest_call),
        Ok(sole) => Attribution::Caller(sole.caller),
        Err(attribution) => attribution,
    }
}

/// The call that gets a notification which names none: the oldest one, if all calls in flight are
/// one caller's.
pub(crate) fn attribute_notification(
    in_flight: impl Iterator<Item = (u64, Option<CallerId>)>,
) -> Option<u64> {
    sole_caller(in_flight).ok().map(|sole| sole.oldest_call)
}

/// The caller of all calls in flight that have a listener.
struct SoleCaller {
    caller: CallerId,
    oldest_call: u64,
    is_only_call: bool,
}

fn sole_caller(
    in_flight: impl Iterator<Item = (u64, Option<CallerId>)>,
) -> Result<SoleCaller, Attribution> {
    let mut calls = in_flight.filter_map(|(id, caller)| Some((id, caller?)));
    let (oldest_call, caller) = calls.next().ok_or(Attribution::NoCall)?;
    let mut is_only_call = true;
    for (_, other) in calls {
        if other != caller {
            return Err(Attribution::Ambiguous);
        }
        is_only_call = false;
    }
    Ok(SoleCaller {
        caller,
        oldest_call,
        is_only_call,
    })
}

/// The call that a message of the server names: by our progress token, by the request it cancels,
/// or by its subscription. All of them are ids of ours.
pub(crate) fn named_call(message: &Message) -> Option<u64> {
    let params = message.params()?;
    let named: AttributionParams<'_> = serde_json::from_slice(&params).ok()?;
    let meta = named.meta.unwrap_or_default();
    [
        named.progress_token,
        named.request_id,
        meta.subscription_id,
        meta.progress_token,
    ]
    .into_iter()
    .flatten()
    .find_map(|raw| parse_token(raw).ok())
}

/// The call that a progress notification is about, if it says so. A token that is no number of ours
/// was never given out.
pub(crate) fn progress_token(params: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct ProgressParams<'a> {
        #[serde(borrow, rename = "progressToken")]
        token: &'a RawValue,
    }
    let params: ProgressParams<'_> = serde_json::from_slice(params).ok()?;
    Some(parse_token(params.token).unwrap_or(u64::MAX))
}

/// Our tokens are numbers. Some servers write them back as text, or with a fraction of zero.
fn parse_token(raw: &RawValue) -> Result<u64, ParseIntError> {
    let digits = raw.get().trim_matches('"');
    digits.strip_suffix(".0").unwrap_or(digits).parse()
}

/// One call in flight, the oldest, of each caller that was not told yet.
pub(crate) fn calls_to_notify(
    in_flight: impl Iterator<Item = (u64, Option<CallerId>)>,
    told: &[CallerId],
) -> Vec<u64> {
    let mut told = told.to_vec();
    let mut calls = Vec::new();
    for (id, caller) in in_flight {
        if let Some(caller) = caller
            && !told.contains(&caller)
        {
            told.push(caller);
            calls.push(id);
        }
    }
    calls
}

/// The raw id of the server request that a notification cancels.
pub(crate) fn cancelled_request_id(message: &Message) -> Option<Bytes> {
    if message.method() != Some("notifications/cancelled") {
        return None;
    }
    let params = message.params()?;
    let named: AttributionParams<'_> = serde_json::from_slice(&params).ok()?;
    let id = named.request_id?;
    Some(Bytes::copy_from_slice(id.get().as_bytes()))
}

#[derive(Deserialize)]
struct AttributionParams<'a> {
    #[serde(borrow, default, rename = "progressToken")]
    progress_token: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "requestId")]
    request_id: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<AttributionMeta<'a>>,
}

#[derive(Default, Deserialize)]
struct AttributionMeta<'a> {
    #[serde(borrow, default, rename = "progressToken")]
    progress_token: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/subscriptionId")]
    subscription_id: Option<&'a RawValue>,
}

#[cfg(test)]
mod tests {
    use super::*;

    type InFlight = [(u64, Option<CallerId>)];

    fn asking(params: &str) -> Message {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{params}}}"#
        );
        Message::parse(text.into()).unwrap()
    }

    /// mcp-spec 4.4.5: the first row that fits decides.
    #[test]
    fn a_question_belongs_to_the_call_it_names_or_to_the_only_caller() {
        let (a, b) = (Some(CallerId(1)), Some(CallerId(2)));
        let named = r#"{"_meta":{"progressToken":8}}"#;
        let given_up = r#"{"_meta":{"progressToken":3}}"#;
        let foreign = r#"{"_meta":{"progressToken":99}}"#;
        let rows: [(&str, &InFlight, Attribution); 13] = [
            ("{}", &[], Attribution::NoCall),
            ("{}", &[(7, a)], Attribution::Call(7)),
            ("{}", &[(7, a), (8, a)], Attribution::Caller(CallerId(1))),
            ("{}", &[(7, a), (8, b)], Attribution::Ambiguous),
            ("{}", &[(7, a), (8, a), (9, b)], Attribution::Ambiguous),
            ("{}", &[(7, None)], Attribution::NoCall),
            ("{}", &[(7, None), (8, b)], Attribution::Call(8)),
            ("{}", &[(7, a), (8, None)], Attribution::Call(7)),
            ("{}", &[(7, None), (8, a), (9, b)], Attribution::Ambiguous),
            (named, &[(7, a), (8, b)], Attribution::Call(8)),
            (named, &[(7, a), (8, None)], Attribution::NoCall),
            (given_up, &[(7, a), (8, b)], Attribution::NoCall),
            (foreign, &[(7, a), (8, a)], Attribution::Caller(CallerId(1))),
        ];
        for (params, in_flight, expected) in rows {
            let found = attribute_request(&asking(params), |id| id == 3, in_flight.iter().copied());
            assert_eq!(found, expected, "{params} {in_flight:?}");
        }
    }
}
