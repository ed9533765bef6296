//! Events of a stream as bytes.

use crate::faults::personality::{EventIds, EventName, SseFormat};

/// One event that carries a message.
pub(crate) fn message_event(form: &SseFormat, id: &str, data: &[u8]) -> Vec<u8> {
    let newline = form.newline.as_str();
    let mut out = Vec::with_capacity(data.len() + 64);
    let id_line = format!("id: {id}{newline}");
    if form.event_name == EventName::Message {
        out.extend(format!("event: message{newline}").into_bytes());
    }
    if form.event_ids == EventIds::BeforeData {
        out.extend(id_line.as_bytes());
    }
    for line in data.split(|&byte| byte == b'\n') {
        out.extend(b"data: ");
        out.extend(line);
        out.extend(newline.as_bytes());
    }
    if form.event_ids == EventIds::AfterData {
        out.extend(id_line.as_bytes());
    }
    out.extend(newline.as_bytes());
    out
}

/// The first, empty event of a stream that can be resumed.
pub(crate) fn priming_event(form: &SseFormat, id: &str) -> Option<Vec<u8>> {
    let retry = form.priming_retry_ms?;
    if form.event_ids == EventIds::Absent {
        return None;
    }
    let newline = form.newline.as_str();
    Some(format!("id: {id}{newline}retry: {retry}{newline}data: {newline}{newline}").into_bytes())
}

/// A comment, which keeps a connection warm and says nothing.
pub(crate) fn keep_alive_comment(form: &SseFormat) -> Vec<u8> {
    let newline = form.newline.as_str();
    format!(": keep-alive{newline}{newline}").into_bytes()
}
