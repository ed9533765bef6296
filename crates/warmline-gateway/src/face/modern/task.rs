//! The tasks of a caller: handles that are sealed to whoever they were given to.
//!
//! Asked by: the modern face, on the way down and on the way up.
//!
//! A task outlives the request that made it, and whoever knows its id can read what came of it. To
//! the server two of our callers may look alike, and its ids need not be hard to guess. So an id is
//! sealed as a [`state`](super::state) is, to its caller, its server and its run, but for no time:
//! how long a task lasts its server says. Nothing is remembered here. A client finds a task under
//! the very text that it was given.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;
use warmline::core::exchange::Trouble;
use warmline::core::protocol::meta;
use warmline::core::protocol::params::Params;
use warmline::core::protocol::splice::{self, Edit};
use warmline::seal::Purpose;

use super::listen;
use super::state::Binding;

/// The member that holds the id of a task.
pub(super) const MEMBER: &str = "taskId";
/// What tells that a task is another than before; only on a stream that was opened for it.
pub(super) const NOTICE: &str = "notifications/tasks";
/// The extension of the protocol that tasks are.
const EXTENSION: &str = "io.modelcontextprotocol/tasks";
/// The kind of a result that hands out a task.
pub(super) const KIND: &str = "task";

/// There is no such task for this caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unknown;

/// What a client says that it understands beside the protocol itself, raw.
#[derive(Clone, Debug)]
pub(super) struct Extensions(Option<Bytes>);

#[derive(Default, Deserialize)]
struct Declared {
    #[serde(default)]
    extensions: BTreeMap<String, serde::de::IgnoredAny>,
}

impl Extensions {
    pub(super) fn of(params: &Params) -> Self {
        let declared = params.meta_member(meta::CLIENT_CAPABILITIES);
        Self(declared.map(|raw| params.raw().slice_ref(raw)))
    }

    /// Whether one of them may have brought this kind of result. What others than that of tasks
    /// bring is theirs to say.
    pub(super) fn cover(&self, kind: &str) -> bool {
        let raw = self.0.as_deref().unwrap_or(b"{}");
        let declared = serde_json::from_slice::<Declared>(raw).unwrap_or_default();
        let mut names = declared.extensions.keys();
        names.any(|name| (name == EXTENSION) == (kind == KIND))
    }
}

/// The tasks that a request names: the server's id and the client's own, both raw.
#[derive(Clone, Debug, Default)]
pub(super) struct Tasks(Vec<(Bytes, Bytes)>);

/// What of a result or a notice matters here.
#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow, default, rename = "taskId")]
    task: Option<&'a RawValue>,
}

impl Binding<'_> {
    /// The raw id of a task as its caller gets it.
    pub(super) fn seal_task(self, raw: &str) -> Result<String, Trouble> {
        let bound_to = self.digest(KIND, &[]);
        let vault = self.vault;
        let sealed = vault.seal(Purpose::RequestState, bound_to.bytes(), raw.as_bytes())?;
        Ok(format!("\"{}\"", URL_SAFE_NO_PAD.encode(sealed)))
    }

    /// The server's own id, raw.
    fn open_task(self, raw: &[u8]) -> Option<Bytes> {
        let text = serde_json::from_slice::<Cow<'_, str>>(raw).ok()?;
        let sealed = URL_SAFE_NO_PAD.decode(&*text).ok()?;
        let bound_to = self.digest(KIND, &[]);
        let opened = self
            .vault
            .unseal(Purpose::RequestState, bound_to.bytes(), &sealed);
        Some(opened.ok()?.to_vec().into())
    }
}

/// A member of the parameters, as the server gets it.
pub(super) type Changed = (&'static str, Bytes);

impl Tasks {
    /// The tasks that a request names, and the member that names them to the server.
    pub(super) fn of(
        binding: Binding<'_>,
        method: &str,
        params: &Params,
    ) -> Result<(Self, Option<Changed>), Unknown> {
        if method == listen::METHOD {
            return Ok(Self::listened_for(binding, params).unwrap_or_default());
        }
        let raw = method
            .starts_with("tasks/")
            .then(|| params.member(MEMBER))
            .flatten();
        let Some(raw) = raw else {
            return Ok(Default::default());
        };
        let own = binding.open_task(raw).ok_or(Unknown)?;
        let given = Bytes::copy_from_slice(raw);
        Ok((Self(vec![(own.clone(), given)]), Some((MEMBER, own))))
    }

    /// Those that a listen is for. What is not known is not agreed to.
    fn listened_for(binding: Binding<'_>, params: &Params) -> Option<(Self, Option<Changed>)> {
        let wanted = params.member("notifications")?;
        memchr::memmem::find(wanted, b"ask")?;
        let mut wanted: Value = serde_json::from_slice(wanted).ok()?;
        let ids = wanted.get_mut("taskIds")?;
        let given = ids.as_array().into_iter().flatten().map(Value::to_string);
        let known = given.filter_map(|given| {
            let own = binding.open_task(given.as_bytes())?;
            Some((own, Bytes::from(given)))
        });
        let known: Vec<_> = known.collect();
        *ids = known.iter().map(|(own, _)| value(own)).collect();
        let wanted = Bytes::from(wanted.to_string());
        Some((Self(known), Some(("notifications", wanted))))
    }

    /// The result of a request for a task, under the id that its client knows.
    pub(super) fn named(&self, result: Bytes) -> Bytes {
        let Some((_, given)) = self.0.first() else {
            return result;
        };
        match serde_json::from_slice::<Named<'_>>(&result) {
            Ok(Named { task: Some(_) }) => with_id(&result, given).unwrap_or_default(),
            Ok(Named { task: None }) | Err(_) => result,
        }
    }

    /// What a listen is told, under the ids that its client knows; none of what is not its own.
    pub(super) fn told(&self, method: &str, params: &Bytes) -> Option<Bytes> {
        match method {
            NOTICE => {
                let named = serde_json::from_slice::<Named<'_>>(params).ok()?;
                with_id(params, self.given(named.task?.get())?)
            },
            listen::ACKNOWLEDGED if !self.0.is_empty() => {
                let mut agreed: Value = serde_json::from_slice(params).ok()?;
                if let Some(ids) = agreed.pointer_mut("/notifications/taskIds") {
                    let known = ids.as_array().into_iter().flatten().map(Value::to_string);
                    let given = known.filter_map(|own| self.given(&own));
                    *ids = given.map(value).collect();
                }
                Some(agreed.to_string().into())
            },
            _ => Some(params.clone()),
        }
    }

    /// The client's id of a task, by the server's.
    fn given(&self, own: &str) -> Option<&Bytes> {
        let meant = value(own.as_bytes());
        let mut known = self.0.iter();
        known
            .find(|(own, _)| value(own) == meant)
            .map(|(_, given)| given)
    }
}

/// An id by value: the same text may be written in several ways.
fn value(raw: impl AsRef<[u8]>) -> Value {
    serde_json::from_slice(raw.as_ref()).unwrap_or_default()
}

/// The same object about a task of this id.
fn with_id(object: &[u8], id: &[u8]) -> Option<Bytes> {
    let mut out = Vec::with_capacity(object.len() + id.len());
    splice::edit_object(object, &[Edit::Set(MEMBER, id)], &mut out).ok()?;
    Some(out.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmline::Vault;
    use warmline::core::key::Digest;

    #[test]
    fn a_task_is_known_by_the_text_that_was_given_and_to_nobody_else() {
        let vault = Vault::ephemeral().unwrap();
        let of = |who, server, run| Binding {
            vault: &vault,
            who: Digest::new([who; 16]),
            server,
            run,
        };
        let mine = of(1, "one", None);
        // However its server writes it.
        let given = mine.seal_task(r#""t\u00e9\/1""#).unwrap();
        let raw = format!(r#"{{"taskId":{given}}}"#);
        let params = Params::parse(raw.into()).unwrap();
        let (tasks, changed) = Tasks::of(mine, "tasks/get", &params).unwrap();
        assert_eq!(changed, Some((MEMBER, r#""t\u00e9\/1""#.into())));
        let told = tasks.told(NOTICE, &r#"{"taskId":"té/1","x":1}"#.into());
        assert_eq!(told, Some(format!(r#"{{"taskId":{given},"x":1}}"#).into()));
        assert_eq!(tasks.told(NOTICE, &r#"{"taskId":"t2"}"#.into()), None);
        assert_eq!(tasks.told(NOTICE, &"{}".into()), None);
        assert_eq!(tasks.named("{}".into()), "{}");
        for other in [
            of(2, "one", None),
            of(1, "two", None),
            of(1, "one", Some("r")),
        ] {
            assert_eq!(
                Tasks::of(other, "tasks/cancel", &params).err(),
                Some(Unknown)
            );
            let listens = format!(r#"{{"notifications":{{"taskIds":[{given},7]}}}}"#);
            let listens = Params::parse(listens.into()).unwrap();
            let (tasks, changed) = Tasks::of(other, listen::METHOD, &listens).unwrap();
            assert!(tasks.0.is_empty());
            let nothing = Bytes::from_static(br#"{"taskIds":[]}"#);
            assert_eq!(changed, Some(("notifications", nothing)));
        }
        // What is no task is left alone.
        for (method, raw) in [("tools/call", r#"{"taskId":"x"}"#), ("tasks/get", "{}")] {
            let params = Params::parse(raw.into()).unwrap();
            assert_eq!(Tasks::of(mine, method, &params).unwrap().1, None);
        }
    }
}
