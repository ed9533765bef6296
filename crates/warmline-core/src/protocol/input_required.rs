//! Rounds of a modern request: is a result complete, or does the server ask for input first? The
//! state that a server hands out goes back byte for byte.

use std::borrow::Cow;

use bytes::Bytes;

use crate::message::json;
use crate::message::parse_error::ParseError;
use crate::message::splice::write_string;

/// What kind of result it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResultType {
    /// The result; also the default.
    Complete,
    /// The server needs input first, in a further round of the same request.
    InputRequired {
        /// Its questions, in its order. None of them: come again with the state alone.
        requests: Vec<InputRequest>,
        /// The raw JSON string to hand back exactly.
        state: Option<Bytes>,
    },
    /// Something else, which belongs to an extension or is wrong.
    Other(String),
}

/// One question of an `input_required` result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputRequest {
    /// The key that its answer goes under.
    pub key: String,
    /// The method: `elicitation/create`, `sampling/createMessage` or `roots/list`.
    pub method: String,
    /// The raw parameters of the question; `{}` where it has none.
    pub params: Bytes,
}

/// Reads what kind of result a raw modern result is.
pub fn read_result_type(raw: &[u8]) -> Result<ResultType, ParseError> {
    let (mut kind, mut requests, mut state) = (None, Vec::new(), None);
    json::walk_members(json::parse_utf8(raw)?, |member| {
        match member.name.as_ref() {
            "resultType" => {
                let text = json::decode_string(member.value);
                kind = Some(text.ok_or(ParseError::missing("resultType", member.offset))?);
            },
            "inputRequests" if member.value != "null" => {
                requests = read_input_requests(member.value)
                    .map_err(|fault| fault.with_offset(member.offset))?;
            },
            "requestState" if member.value.starts_with('"') => {
                state = Some(Bytes::copy_from_slice(member.value.as_bytes()));
            },
            _ => {},
        }
        Ok(())
    })?;
    match kind.as_deref() {
        None | Some("complete") => Ok(ResultType::Complete),
        Some("input_required") if requests.is_empty() && state.is_none() => {
            Err(ParseError::missing("inputRequests", 0))
        },
        Some("input_required") => Ok(ResultType::InputRequired { requests, state }),
        Some(other) => Ok(ResultType::Other(other.to_owned())),
    }
}

/// Writes the `inputResponses` of a further round: each key with the raw JSON of its answer.
pub fn write_input_responses<'a, K, V>(
    out: &mut Vec<u8>,
    answers: impl IntoIterator<Item = (&'a K, &'a V)>,
) where
    K: AsRef<str> + ?Sized + 'a,
    V: AsRef<[u8]> + ?Sized + 'a,
{
    out.push(b'{');
    for (index, (key, answer)) in answers.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_string(out, key.as_ref());
        out.push(b':');
        out.extend_from_slice(answer.as_ref());
    }
    out.push(b'}');
}

fn read_input_requests(raw: &str) -> Result<Vec<InputRequest>, ParseError> {
    let mut requests = Vec::new();
    json::walk_members(raw, |entry| {
        let (mut method, mut params) = (None, Bytes::from_static(b"{}"));
        json::walk_members(entry.value, |member| {
            match member.name.as_ref() {
                "method" => method = json::decode_string(member.value).map(Cow::into_owned),
                "params" if member.value.starts_with('{') => {
                    params = Bytes::copy_from_slice(member.value.as_bytes());
                },
                _ => {},
            }
            Ok(())
        })
        .map_err(|fault| fault.with_offset(entry.offset))?;
        let method = method.ok_or(ParseError::missing("method", entry.offset))?;
        requests.push(InputRequest {
            key: entry.name.into_owned(),
            method,
            params,
        });
        Ok(())
    })?;
    Ok(requests)
}

#[cfg(test)]
mod tests;
