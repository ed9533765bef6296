//! What is told of a loss, and that nothing else changes.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;

const NOTES: ResultMeta = ResultMeta {
    generation: Some(3),
    state_lost: true,
    attempts: 2,
};

/// reliability P11, reliability 4.12: what each policy makes of each method.
#[test]
fn a_loss_is_told_to_whoever_can_act_on_it() {
    use StateLossAction::*;
    #[rustfmt::skip]
    let table = [
        //                        tell      continue  fail     end_run
        ("tools/call",            [TextAndMeta,    MetaOnly,     Fail,    EndRun]),
        ("resources/read",        [MetaThenText, MetaOnly,     Fail,    EndRun]),
        ("prompts/get",           [MetaThenText, MetaOnly,     Fail,    EndRun]),
        ("completion/complete",   [MetaThenText, MetaOnly,     Fail,    EndRun]),
        ("tasks/result",          [MetaThenText, MetaOnly,     Fail,    EndRun]),
        ("example/unheard-of",    [MetaThenText, MetaOnly,     Fail,    EndRun]),
        ("tools/list",            [Ignore, Ignore,  Ignore, Ignore]),
        ("ping",                  [Ignore, Ignore,  Ignore, Ignore]),
        ("server/discover",       [Ignore, Ignore,  Ignore, Ignore]),
        ("logging/setLevel",      [Ignore, Ignore,  Ignore, Ignore]),
        ("resources/subscribe",   [Ignore, Ignore,  Ignore, Ignore]),
    ];
    let policies = [
        StateLossPolicy::Tell,
        StateLossPolicy::Continue,
        StateLossPolicy::Fail,
        StateLossPolicy::EndRun,
    ];
    for (method, row) in table {
        for (policy, expected) in policies.into_iter().zip(row) {
            assert_eq!(
                state_loss_action(policy, method),
                expected,
                "{policy:?} {method}"
            );
        }
    }
}

fn block() -> String {
    json!({ "type": "text", "text": state_loss_notice("shop") }).to_string()
}

fn told(raw: &str) -> (String, NoticePlacement) {
    let (bytes, told) =
        with_state_loss_notice(&Bytes::copy_from_slice(raw.as_bytes()), "shop", &NOTES);
    (String::from_utf8(bytes.to_vec()).expect("text"), told)
}

const META: &str =
    r#""dev.warmline/generation":3,"dev.warmline/stateLost":true,"dev.warmline/attempts":2"#;

/// reliability P11: a model reads the text of a result, so the loss stands at its head.
#[test]
fn the_sentence_stands_at_the_head_of_the_content_and_the_rest_is_as_it_was() {
    let block = order_of_ours();
    #[rustfmt::skip]
    let table = [
        (r#"{"content":[]}"#.to_owned(),
         format!(r#"{{"content":[{block}],"_meta":{{{META}}}}}"#)),
        (r#"{"content":[ ] }"#.to_owned(),
         format!(r#"{{"content":[{block} ] ,"_meta":{{{META}}}}}"#)),
        (r#"{"content":[{"type":"text","text":"a"}],"isError":true}"#.to_owned(),
         format!(r#"{{"content":[{block},{{"type":"text","text":"a"}}],"isError":true,"_meta":{{{META}}}}}"#)),
        (r#"{"structuredContent":{"n":1.0e2},"_meta":{"k":[1]},"content":[1, 2]}"#.to_owned(),
         format!(r#"{{"structuredContent":{{"n":1.0e2}},"_meta":{{"k":[1],{META}}},"content":[{block},1, 2]}}"#)),
        // A result without content gets one; it must have one anyway.
        (r#"{"structuredContent":{}}"#.to_owned(),
         format!(r#"{{"structuredContent":{{}},"content":[{block}],"_meta":{{{META}}}}}"#)),
        (r#"{"resultType":"complete","content":[]}"#.to_owned(),
         format!(r#"{{"resultType":"complete","content":[{block}],"_meta":{{{META}}}}}"#)),
        (r#"{"\u0063ontent":["]"],"_meta":null}"#.to_owned(),
         format!(r#"{{"\u0063ontent":[{block},"]"],"_meta":{{{META}}}}}"#)),
        // Notes of an earlier hop are replaced, never doubled.
        (r#"{"content":[],"_meta":{"dev.warmline/attempts":9}}"#.to_owned(),
         format!(r#"{{"content":[{block}],"_meta":{{"dev.warmline/attempts":2,"dev.warmline/generation":3,"dev.warmline/stateLost":true}}}}"#)),
        // A `_meta` that is no object is a server's mistake; the sentence is told all the same.
        (r#"{"content":[],"_meta":7}"#.to_owned(),
         format!(r#"{{"content":[{block}],"_meta":7}}"#)),
    ];
    for (before, after) in table {
        assert_eq!(told(&before), (after, NoticePlacement::InText), "{before}");
    }
}

/// Our block as it is written: type first.
fn order_of_ours() -> String {
    let text = Value::from(state_loss_notice("shop")).to_string();
    format!(r#"{{"type":"text","text":{text}}}"#)
}

#[test]
fn a_result_without_room_for_text_tells_in_meta_and_leaves_the_sentence_to_the_next() {
    #[rustfmt::skip]
    let table = [
        (r#"{"resultType":"input_required","inputRequests":{}}"#,
         format!(r#"{{"resultType":"input_required","inputRequests":{{}},"_meta":{{{META}}}}}"#)),
        (r#"{"task":{"taskId":"1"}}"#,
         format!(r#"{{"task":{{"taskId":"1"}},"_meta":{{{META}}}}}"#)),
        (r#"{"content":"text"}"#,
         format!(r#"{{"content":"text","_meta":{{{META}}}}}"#)),
        // What is no object, or says a thing twice, passes as it is.
        ("7", "7".to_owned()),
        ("[]", "[]".to_owned()),
        (r#"{"content":[],"content":[]}"#, r#"{"content":[],"content":[]}"#.to_owned()),
        ("{\"content\":[", "{\"content\":[".to_owned()),
    ];
    for (before, after) in table {
        assert_eq!(told(before), (after, NoticePlacement::Deferred), "{before}");
    }
}

/// DESIGN 4: a straight reply stays byte-equal when there is nothing to tell.
#[test]
fn notes_are_written_only_when_there_is_something_to_say() {
    let raw = Bytes::from_static(b"{ \"content\" : [] }");
    let nothing = ResultMeta {
        attempts: 1,
        ..ResultMeta::default()
    };
    assert_eq!(with_result_meta(&raw, &nothing).as_ptr(), raw.as_ptr());
    #[rustfmt::skip]
    let table = [
        (ResultMeta { attempts: 2, ..nothing },         r#""dev.warmline/attempts":2"#),
        (ResultMeta { generation: Some(7), ..nothing }, r#""dev.warmline/generation":7"#),
        (ResultMeta { state_lost: true, ..nothing },    r#""dev.warmline/stateLost":true"#),
    ];
    for (notes, member) in table {
        let expected = format!("{{ \"content\" : [] ,\"_meta\":{{{member}}}}}");
        assert_eq!(
            with_result_meta(&raw, &notes),
            expected.as_bytes(),
            "{notes:?}"
        );
    }
}

#[test]
fn what_people_and_models_read_names_the_server() {
    assert!(state_loss_notice("shop").contains("`shop`"));
    for reaction in [StateLossAction::Fail, StateLossAction::EndRun] {
        let refused = state_loss_diagnostic("shop", reaction, &NOTES);
        assert!(refused.message.contains("`shop`"));
        assert_eq!(refused.code, crate::error::code::Code::SessionLost);
        let says_again = refused.hint.unwrap().contains("called again");
        assert_eq!(says_again, reaction == StateLossAction::Fail);
    }
    assert!(block().contains("pages, variables or transactions"));
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(".{0,6}", inner, 0..4)
                .prop_map(|map| Value::from(map.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn results() -> impl Strategy<Value = Map<String, Value>> {
    let member = prop_oneof![
        Just("content".to_owned()),
        Just("_meta".to_owned()),
        Just("structuredContent".to_owned()),
        Just("isError".to_owned()),
        ".{0,8}",
    ];
    prop::collection::btree_map(member, values(), 0..6)
        .prop_map(|members| members.into_iter().collect())
}

/// A text with white space strewn between its tokens, as some servers write.
fn spaced(result: &Map<String, Value>, is_wide: bool) -> String {
    if is_wide {
        serde_json::to_string_pretty(result).expect("JSON")
    } else {
        serde_json::to_string(result).expect("JSON")
    }
}

/// The members of an object as they stand there.
fn members(text: &str) -> Vec<(String, String)> {
    let mut members = Vec::new();
    json::walk_members(text, |member| {
        members.push((member.name.into_owned(), member.value.to_owned()));
        Ok(())
    })
    .expect("an object");
    members
}

proptest! {
    /// reliability P11: whatever a result holds, everything in it but the head of `content` and our members of
    /// `_meta` keeps its bytes and its order.
    #[test]
    fn telling_changes_nothing_but_the_head_and_our_notes(result in results(), is_wide: bool) {
        let before = spaced(&result, is_wide);
        let (after, placed) = told(&before);
        let (old, mut new) = (members(&before), members(&after));
        let has_room = result.get("content").is_none_or(Value::is_array)
            && !result.contains_key("task")
            && result.get("resultType").is_none_or(|kind| kind == "complete");
        prop_assert_eq!(placed == NoticePlacement::InText, has_room);
        // What was added at the end stands there alone; what was there stays in its place.
        for (index, (name, value)) in old.iter().enumerate() {
            let (new_name, new_value) = &new[index];
            prop_assert_eq!(name, new_name);
            match name.as_str() {
                "content" if has_room => {
                    let ours = order_of_ours();
                    let rest = new_value.strip_prefix(&format!("[{ours}")).expect("our block first");
                    let rest = rest.strip_prefix(',').unwrap_or(rest);
                    prop_assert_eq!(rest, value.strip_prefix('[').expect("an array"));
                },
                "_meta" if result["_meta"].is_object() => {
                    let mut kept = members(new_value);
                    kept.truncate(members(value).len());
                    prop_assert_eq!(kept, members(value));
                },
                "_meta" if result["_meta"].is_null() => {},
                _ => prop_assert_eq!(value, new_value),
            }
        }
        new.drain(..old.len());
        prop_assert!(new.iter().all(|(name, _)| name == "content" || name == "_meta"));
    }
}
