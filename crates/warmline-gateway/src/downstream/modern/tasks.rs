//! Task ids, sealed for the caller that got them.
//!
//! Every caller that knows a task's id can read its result. Two callers may look alike to the server,
//! and its ids may be easy to guess. So an id is sealed like a [`request_state`](super::request_state),
//! but without an expiry: the server decides how long a task lives. The gateway stores nothing, and a
//! client sees a task under the text that it got first.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use warmline_core::message::params::Params;
use warmline_core::message::splice::Edit;
use warmline_core::protocol::meta;

use super::listen;
use super::request_state::SealBinding;
use crate::downstream::message::edited;
use crate::response::rejection::RequestRejection;

pub(super) const MEMBER: &str = "taskId";
/// A task changed. Only the stream of a listen carries it.
pub(crate) const NOTIFICATION: &str = "notifications/tasks";
/// The protocol extension that defines tasks.
const EXTENSION: &str = "io.modelcontextprotocol/tasks";
pub(super) const RESULT_TYPE: &str = "task";

/// The capabilities that a client declares, raw.
#[derive(Clone, Debug)]
pub(crate) struct ClientExtensions(Option<Bytes>);

#[derive(Default, Deserialize)]
struct DeclaredCapabilities {
    #[serde(default)]
    extensions: BTreeMap<String, serde::de::IgnoredAny>,
}

impl ClientExtensions {
    pub(crate) fn from_params(params: &Params) -> Self {
        let declared = params.meta_member(meta::CLIENT_CAPABILITIES);
        Self(declared.map(|raw| params.raw().slice_ref(raw)))
    }

    /// Whether the client declared an extension that may define this kind of result.
    pub(super) fn allow_result_type(&self, kind: &str) -> bool {
        let raw = self.0.as_deref().unwrap_or(b"{}");
        let declared = serde_json::from_slice::<DeclaredCapabilities>(raw).unwrap_or_default();
        let mut names = declared.extensions.keys();
        names.any(|name| (name == EXTENSION) == (kind == RESULT_TYPE))
    }
}

/// The tasks that a request names: the server's id and the client's, both raw.
#[derive(Clone, Debug, Default)]
pub(super) struct TaskIds(Vec<(Bytes, Bytes)>);

#[derive(Deserialize)]
struct TaskIdMember<'a> {
    #[serde(borrow, default, rename = "taskId")]
    task: Option<&'a RawValue>,
}

/// A member of the parameters and its value for the server.
pub(super) type ParamEdit = (&'static str, Bytes);

impl TaskIds {
    /// The tasks that a request names, and the member that names them for the server.
    pub(super) fn from_request(
        binding: SealBinding<'_>,
        method: &str,
        params: &Params,
    ) -> Result<(Self, Option<ParamEdit>), RequestRejection> {
        if method == listen::METHOD {
            return Ok(Self::from_listen(binding, params).unwrap_or_default());
        }
        let raw = method
            .starts_with("tasks/")
            .then(|| params.member(MEMBER))
            .flatten();
        let Some(raw) = raw else {
            return Ok(Default::default());
        };
        let unknown = || RequestRejection::invalid_params("Invalid params: unknown task");
        let own = open_task(binding, raw).ok_or_else(unknown)?;
        let given = Bytes::copy_from_slice(raw);
        Ok((Self(vec![(own.clone(), given)]), Some((MEMBER, own))))
    }

    /// The tasks of a listen. Unknown ids are dropped, so the server does not agree to them.
    fn from_listen(binding: SealBinding<'_>, params: &Params) -> Option<(Self, Option<ParamEdit>)> {
        let wanted = params.member("notifications")?;
        memchr::memmem::find(wanted, b"ask")?;
        let mut wanted: Value = serde_json::from_slice(wanted).ok()?;
        let ids = wanted.get_mut("taskIds")?;
        let given = ids.as_array().into_iter().flatten().map(Value::to_string);
        let known = given.filter_map(|given| {
            let own = open_task(binding, given.as_bytes())?;
            Some((own, Bytes::from(given)))
        });
        let known: Vec<_> = known.collect();
        *ids = known.iter().map(|(own, _)| id_value(own)).collect();
        let wanted = Bytes::from(wanted.to_string());
        Some((Self(known), Some(("notifications", wanted))))
    }

    pub(super) fn rewrite_result(&self, result: Bytes) -> Bytes {
        let Some((_, given)) = self.0.first() else {
            return result;
        };
        match serde_json::from_slice::<TaskIdMember<'_>>(&result) {
            Ok(TaskIdMember { task: Some(_) }) => {
                edited(&result, &[Edit::Set(MEMBER, given)]).unwrap_or_default()
            },
            Ok(TaskIdMember { task: None }) | Err(_) => result,
        }
    }

    /// A notification with the client's ids; `None` for a task of somebody else.
    pub(super) fn rewrite_notification(&self, method: &str, params: &Bytes) -> Option<Bytes> {
        match method {
            NOTIFICATION => {
                let named = serde_json::from_slice::<TaskIdMember<'_>>(params).ok()?;
                edited(
                    params,
                    &[Edit::Set(MEMBER, self.client_id(named.task?.get())?)],
                )
            },
            listen::ACKNOWLEDGED if !self.0.is_empty() => {
                let mut agreed: Value = serde_json::from_slice(params).ok()?;
                if let Some(ids) = agreed.pointer_mut("/notifications/taskIds") {
                    let known = ids.as_array().into_iter().flatten().map(Value::to_string);
                    let given = known.filter_map(|own| self.client_id(&own));
                    *ids = given.map(id_value).collect();
                }
                Some(agreed.to_string().into())
            },
            _ => Some(params.clone()),
        }
    }

    /// The client's id of a task, by the server's.
    fn client_id(&self, own: &str) -> Option<&Bytes> {
        let meant = id_value(own.as_bytes());
        let mut known = self.0.iter();
        known
            .find(|(own, _)| id_value(own) == meant)
            .map(|(_, given)| given)
    }
}

fn open_task(binding: SealBinding<'_>, raw: &[u8]) -> Option<Bytes> {
    binding.open(RESULT_TYPE, &[], raw).map(Bytes::from)
}

/// An id by value: one text has several spellings in JSON.
fn id_value(raw: impl AsRef<[u8]>) -> Value {
    serde_json::from_slice(raw.as_ref()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmline_core::pool_key::Digest;
    use warmline_store::keyring::Keyring;

    #[test]
    fn a_task_is_known_by_the_text_that_was_given_and_to_nobody_else() {
        let vault = Keyring::ephemeral().unwrap();
        let of = |who, server, run| SealBinding {
            vault: &vault,
            caller_key: Digest::new([who; 16]),
            server,
            run,
        };
        let mine = of(1, "one", None);
        // However its server writes it.
        let given = mine.seal(RESULT_TYPE, &[], br#""t\u00e9\/1""#).unwrap();
        let raw = format!(r#"{{"taskId":{given}}}"#);
        let params = Params::parse(raw.into()).unwrap();
        let (tasks, changed) = TaskIds::from_request(mine, "tasks/get", &params).unwrap();
        assert_eq!(changed, Some((MEMBER, r#""t\u00e9\/1""#.into())));
        let told = tasks.rewrite_notification(NOTIFICATION, &r#"{"taskId":"té/1","x":1}"#.into());
        assert_eq!(told, Some(format!(r#"{{"taskId":{given},"x":1}}"#).into()));
        assert_eq!(
            tasks.rewrite_notification(NOTIFICATION, &r#"{"taskId":"t2"}"#.into()),
            None
        );
        assert_eq!(tasks.rewrite_notification(NOTIFICATION, &"{}".into()), None);
        assert_eq!(tasks.rewrite_result("{}".into()), "{}");
        for other in [
            of(2, "one", None),
            of(1, "two", None),
            of(1, "one", Some("r")),
        ] {
            assert!(TaskIds::from_request(other, "tasks/cancel", &params).is_err());
            let listens = format!(r#"{{"notifications":{{"taskIds":[{given},7]}}}}"#);
            let listens = Params::parse(listens.into()).unwrap();
            let (tasks, changed) = TaskIds::from_request(other, listen::METHOD, &listens).unwrap();
            assert!(tasks.0.is_empty());
            let nothing = Bytes::from_static(br#"{"taskIds":[]}"#);
            assert_eq!(changed, Some(("notifications", nothing)));
        }
        // What is no task is left alone.
        for (method, raw) in [("tools/call", r#"{"taskId":"x"}"#), ("tasks/get", "{}")] {
            let params = Params::parse(raw.into()).unwrap();
            assert_eq!(
                TaskIds::from_request(mine, method, &params).unwrap().1,
                None
            );
        }
    }
}
