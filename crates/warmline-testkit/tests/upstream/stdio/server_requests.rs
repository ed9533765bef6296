//! Questions over the pipe: whose they are, who answers, and what a modern server must not do.

use crate::prelude::*;

use super::child_session::{Child, ERAS, result, tool};

/// Answers every question and remembers its kind.
#[derive(Debug, Default)]
struct Person(Mutex<Vec<ServerRequestKind>>);

impl Listener for Person {
    fn on_request(&self, question: ServerRequest) -> ReplyFuture<'_> {
        self.0.lock().unwrap().push(question.kind);
        let answer = match question.kind {
            ServerRequestKind::Elicitation => {
                json!({"action": "accept", "content": {"name": "Ada"}})
            },
            ServerRequestKind::Sampling => {
                json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "hi"}})
            },
            ServerRequestKind::Roots => json!({"roots": [{"uri": "file:///somewhere"}]}),
            ServerRequestKind::Other => json!({}),
        };
        Box::pin(std::future::ready(ServerRequestReply::Result(Bytes::from(
            answer.to_string(),
        ))))
    }
}

impl Person {
    fn asked(&self) -> Vec<ServerRequestKind> {
        self.0.lock().unwrap().clone()
    }
}

fn answers(result: &Value) -> &Value {
    &result["structuredContent"]["answers"]
}

#[tokio::test]
async fn a_question_reaches_the_caller_and_its_answer_the_server() {
    let rows = [
        (
            "ask_form",
            ServerRequestKind::Elicitation,
            "/content/name",
            json!("Ada"),
        ),
        (
            "ask_sampling",
            ServerRequestKind::Sampling,
            "/content/text",
            json!("hi"),
        ),
        (
            "ask_roots",
            ServerRequestKind::Roots,
            "/roots/0/uri",
            json!("file:///somewhere"),
        ),
    ];
    for era in ERAS {
        let child = Child::ledger(era, &[]).await;
        for (name, kind, place, said) in &rows {
            let person = Person::default();
            let request = tool(name, json!({"rounds": 2}));
            let result = result(child.session.call(request, &person).await);
            assert_eq!(person.asked(), [*kind, *kind], "{era} {name}");
            for round in 0..2 {
                let answer_there = answers(&result)[round].pointer(place);
                assert_eq!(answer_there, Some(said), "{era} {name}: {result}");
            }
        }
        child.ends().await;
    }
}

#[tokio::test]
async fn a_question_to_a_call_that_nobody_listens_to_is_refused_by_its_kind() {
    let child = Child::ledger(Era::Legacy, &[]).await;
    let form = result(child.call("ask_form", json!({})).await);
    assert_eq!(answers(&form)[0]["action"], "cancel");
    for name in ["ask_sampling", "ask_roots"] {
        let result = result(child.call(name, json!({})).await);
        assert_eq!(answers(&result)[0]["code"], -32601, "{name}: {result}");
    }
    child.ends().await;
}

/// mcp-spec 4.4.5 Y4, Y5: what names no call is asked of the one who listens to all calls in
/// flight; where several do, of nobody.
#[tokio::test]
async fn a_question_that_names_no_call_belongs_to_the_only_one_who_listens() {
    let child = Child::ledger(Era::Legacy, &[]).await;
    let (one, other) = (Person::default(), Person::default());
    for (ms, oldest, asker, action) in [(500, &one, &one, "accept"), (501, &one, &other, "cancel")]
    {
        let slow = child
            .session
            .call(tool("slow", json!({ "ms": ms })), oldest);
        let asking = async {
            child
                .until_line("the oldest runs", |line| {
                    line["phase"] == "begin" && line["arguments"]["ms"] == ms
                })
                .await;
            let request = tool("ask_form", json!({}));
            child.session.call(request, asker).await
        };
        let (slow, asked) = tokio::join!(slow, asking);
        result(slow);
        assert_eq!(answers(&result(asked))[0]["action"], action, "{ms}");
    }
    assert_eq!(one.asked(), [ServerRequestKind::Elicitation]);
    assert!(other.asked().is_empty());
    child.ends().await;
}

#[tokio::test]
async fn a_question_that_names_a_call_belongs_to_it() {
    // Asks on behalf of its second call, by the progress token of that call.
    let script = r#"
    hear; first=$id; hear; second=$id
    printf '{"jsonrpc":"2.0","id":"q","method":"roots/list","params":{"_meta":{"progressToken":%s}}}\n' $second
    hear; answer=$line; id=$first; reply '{}'; id=$second; reply "{\"heard\":$answer}"
    hear"#;
    let child = Child::script(script).await;
    let (first, second) = (Person::default(), Person::default());
    let (one, two) = tokio::join!(
        child.session.call(tool("first", json!({})), &first),
        child.session.call(tool("second", json!({})), &second),
    );
    result(one);
    assert_eq!(
        result(two)["heard"]["result"]["roots"][0]["uri"],
        "file:///somewhere"
    );
    assert!(first.asked().is_empty());
    assert_eq!(second.asked(), [ServerRequestKind::Roots]);
    child.ends().await;
}

#[tokio::test]
async fn without_a_call_questions_are_refused_and_a_ping_is_answered() {
    let script = r#"
    ask() { printf '{"jsonrpc":"2.0","id":"%s","method":"%s","params":{}}\n' "$1" "$2"; hear; echo "$line" >&2; }
    hear; reply '{}'
    ask e elicitation/create; ask s sampling/createMessage; ask r roots/list; ask p ping; ask u unheard/of
    echo over >&2; hear"#;
    let child = Child::script(script).await;
    result(child.call("any", json!({})).await);
    child.until_said("over").await;
    let heard: Vec<Value> = child
        .said()
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let of = |id: &str| heard.iter().find(|one| one["id"] == id).unwrap();
    assert_eq!(of("e")["result"], json!({"action": "cancel"}));
    assert_eq!(of("p")["result"], json!({}));
    for id in ["s", "r", "u"] {
        assert_eq!(of(id)["error"]["code"], -32601, "{id}");
    }
    child.ends().await;
}

#[tokio::test]
async fn in_a_call_a_ping_is_answered_and_an_unknown_method_refused() {
    let script = r#"
    ask() { printf '{"jsonrpc":"2.0","id":"%s","method":"%s","params":{}}\n' "$1" "$2"; hear; echo "$line" >&2; }
    hear; call=$id; ask p ping; ask u unheard/of; id=$call; reply '{}'; hear"#;
    let child = Child::script(script).await;
    result(child.call("any", json!({})).await);
    assert!(child.said().contains(r#""result":{}"#), "{}", child.said());
    assert!(child.said().contains("-32601"), "{}", child.said());
    child.ends().await;
}

#[tokio::test]
async fn what_a_modern_server_asks_is_ignored() {
    let script = r#"
    hear; reply '{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{}}'
    hear
    printf '{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{"message":"?"}}\n'
    printf '{"jsonrpc":"2.0","id":8,"method":"ping"}\n'
    reply '{"resultType":"complete"}'
    hear; echo "next: $line" >&2; reply '{"resultType":"complete"}'
    hear"#;
    let child = Child::start(Program::script(script), Era::Modern).await;
    let person = Person::default();
    result(child.session.call(tool("first", json!({})), &person).await);
    result(child.call("second", json!({})).await);
    assert!(person.asked().is_empty());
    let next = child.said();
    let holds = next.contains("second") && !next.contains("result");
    assert!(holds, "{next}");
    child.ends().await;
}
