//! Whose call is it? What a server asks outside the stream of any call, on a stream or a pipe that
//! calls share (rows Y of `docs/reference/rows.md`).
//!
//! Asked by: [`calls`](super::calls) for standing streams, and the routing of a child's pipe. It is
//! decided here alone, because a guess would show one caller what another is asked.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use warmline_core::protocol::envelope::Message;

/// Whose calls are one caller's. Two are equal where the same one listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Whose(usize);

impl Whose {
    /// Those of this one, for as long as it lives.
    pub fn of<T: ?Sized>(caller: &T) -> Self {
        Self(std::ptr::from_ref(caller).cast::<()>().addr())
    }
}

/// To whom a question belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Belongs {
    /// To this call.
    To(u64),
    /// To one of several calls of this caller.
    ToCaller(Whose),
    /// To some call of several callers: nobody can know to which.
    ToSomebody,
    /// To no call at all.
    ToNoCall,
}

/// To whom a question belongs: to the call it names, else to the only one in flight, else to the
/// caller whose calls are in flight, if it is one. `in_flight` are the calls that wait for their answers, oldest first; to those that
/// nobody listens to, as our own are, nothing belongs.
pub(crate) fn question(
    message: &Message,
    is_given_up: impl FnOnce(u64) -> bool,
    in_flight: impl Iterator<Item = (u64, Option<Whose>)> + Clone,
) -> Belongs {
    if let Some(named) = named_call(message) {
        match in_flight.clone().find(|(id, _)| *id == named) {
            Some((_, Some(_))) => return Belongs::To(named),
            Some((_, None)) => return Belongs::ToNoCall,
            None => {},
        }
        if is_given_up(named) {
            return Belongs::ToNoCall;
        }
        // A token that is not ours: the server wants progress on its own question.
    }
    match callers(in_flight) {
        Callers::Nobody => Belongs::ToNoCall,
        Callers::One { oldest, alone, .. } if alone => Belongs::To(oldest),
        Callers::One { whose, .. } => Belongs::ToCaller(whose),
        Callers::Several => Belongs::ToSomebody,
    }
}

/// The call that a notice which names none is given to: the oldest of the one caller whose calls
/// are in flight. None where nobody's are, or those of several: to guess would tell one caller
/// what another one's call did.
pub(crate) fn notice(in_flight: impl Iterator<Item = (u64, Option<Whose>)>) -> Option<u64> {
    match callers(in_flight) {
        Callers::One { oldest, .. } => Some(oldest),
        Callers::Nobody | Callers::Several => None,
    }
}

/// The oldest call of a caller that is still in flight.
pub(crate) fn oldest_of(
    whose: Whose,
    mut in_flight: impl Iterator<Item = (u64, Option<Whose>)>,
) -> Option<u64> {
    let found = in_flight.find(|(_, caller)| *caller == Some(whose));
    found.map(|(id, _)| id)
}

/// Whose the only call on a stream is; none where there are several, or where nobody listens to it.
pub(crate) fn only(mut calls: impl Iterator<Item = Option<Whose>>) -> Option<Whose> {
    let first = calls.next().flatten();
    first.filter(|_| calls.next().is_none())
}

/// Whose calls are in flight, of those that somebody listens to.
enum Callers {
    Nobody,
    One {
        whose: Whose,
        oldest: u64,
        /// Whether it is the only call.
        alone: bool,
    },
    Several,
}

fn callers(in_flight: impl Iterator<Item = (u64, Option<Whose>)>) -> Callers {
    let mut found = Callers::Nobody;
    for (id, whose) in in_flight {
        let Some(caller) = whose else { continue };
        match &mut found {
            Callers::Nobody => {
                found = Callers::One {
                    whose: caller,
                    oldest: id,
                    alone: true,
                };
            },
            Callers::One { whose, alone, .. } if *whose == caller => *alone = false,
            Callers::One { .. } | Callers::Several => return Callers::Several,
        }
    }
    found
}

/// The call a message of the server names: by our progress token, by the request it cancels, or by
/// the subscription it belongs to. All of them are ids of ours.
pub(crate) fn named_call(message: &Message) -> Option<u64> {
    let params = message.params()?;
    let named: Named<'_> = serde_json::from_slice(&params).ok()?;
    let meta = named.meta.unwrap_or_default();
    [
        named.progress_token,
        named.request_id,
        meta.subscription_id,
        meta.progress_token,
    ]
    .into_iter()
    .flatten()
    .find_map(|raw| raw.get().parse().ok())
}

/// Of calls in flight, oldest first, one of each caller who was not told yet.
pub(crate) fn to_tell(
    in_flight: impl Iterator<Item = (u64, Option<Whose>)>,
    told: &[Whose],
) -> Vec<u64> {
    let mut told = told.to_vec();
    let mut calls = Vec::new();
    for (id, whose) in in_flight {
        if let Some(whose) = whose
            && !told.contains(&whose)
        {
            told.push(whose);
            calls.push(id);
        }
    }
    calls
}

/// The raw id of the question that a server takes back, if that is what it says.
pub(crate) fn taken_back(message: &Message) -> Option<Bytes> {
    if message.method() != Some("notifications/cancelled") {
        return None;
    }
    let params = message.params()?;
    let named: Named<'_> = serde_json::from_slice(&params).ok()?;
    let id = named.request_id?;
    Some(Bytes::copy_from_slice(id.get().as_bytes()))
}

#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow, default, rename = "progressToken")]
    progress_token: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "requestId")]
    request_id: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<NamedInMeta<'a>>,
}

#[derive(Default, Deserialize)]
struct NamedInMeta<'a> {
    #[serde(borrow, default, rename = "progressToken")]
    progress_token: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/subscriptionId")]
    subscription_id: Option<&'a RawValue>,
}

#[cfg(test)]
mod tests {
    use super::*;

    type InFlight = [(u64, Option<Whose>)];

    fn asking(params: &str) -> Message {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{params}}}"#
        );
        Message::split(text.into()).unwrap()
    }

    /// mcp-spec 4.4.5: the first row that fits decides.
    #[test]
    fn a_question_belongs_to_the_call_it_names_or_to_the_only_caller() {
        let (a, b) = (Some(Whose(1)), Some(Whose(2)));
        let named = r#"{"_meta":{"progressToken":8}}"#;
        let given_up = r#"{"_meta":{"progressToken":3}}"#;
        let foreign = r#"{"_meta":{"progressToken":99}}"#;
        let rows: [(&str, &InFlight, Belongs); 13] = [
            ("{}", &[], Belongs::ToNoCall),
            ("{}", &[(7, a)], Belongs::To(7)),
            ("{}", &[(7, a), (8, a)], Belongs::ToCaller(Whose(1))),
            ("{}", &[(7, a), (8, b)], Belongs::ToSomebody),
            ("{}", &[(7, a), (8, a), (9, b)], Belongs::ToSomebody),
            ("{}", &[(7, None)], Belongs::ToNoCall),
            ("{}", &[(7, None), (8, b)], Belongs::To(8)),
            ("{}", &[(7, a), (8, None)], Belongs::To(7)),
            ("{}", &[(7, None), (8, a), (9, b)], Belongs::ToSomebody),
            (named, &[(7, a), (8, b)], Belongs::To(8)),
            (named, &[(7, a), (8, None)], Belongs::ToNoCall),
            (given_up, &[(7, a), (8, b)], Belongs::ToNoCall),
            (foreign, &[(7, a), (8, a)], Belongs::ToCaller(Whose(1))),
        ];
        for (params, in_flight, expected) in rows {
            let found = question(&asking(params), |id| id == 3, in_flight.iter().copied());
            assert_eq!(found, expected, "{params} {in_flight:?}");
        }
    }
}
