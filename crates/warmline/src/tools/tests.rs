//! Tool lists: what is read, what is found, what is kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use warmline_core::code::{Code, Reason};
use warmline_core::exchange::Trouble;
use warmline_core::policy::Policy;
use warmline_core::repeat::Steadiness;

use super::kept::{Age, KeptFor};
use super::*;
use crate::clock;
use crate::error::{Error, Result};
use crate::store::ServerCard;

fn items(tools: &[Value]) -> Vec<Bytes> {
    tools
        .iter()
        .map(|tool| Bytes::from(tool.to_string()))
        .collect()
}

fn list(tools: &[Value], policy: &Policy) -> ToolList {
    let mut card = ServerCard::new("shop");
    card.folder = Some("Sales".to_owned());
    card.slug = Some("shop-eu".to_owned());
    ToolList::of(&card, items(tools), policy)
}

fn named(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| json!({ "name": name })).collect()
}

fn buy() -> Value {
    json!({
        "name": "cart.buy",
        "title": "Buy",
        "description": "Buys what is in the cart.",
        "inputSchema": { "type": "object", "properties": { "cart": { "type": "string" } } },
        "outputSchema": { "type": "object" },
        "annotations": { "readOnlyHint": false, "idempotentHint": true, "destructiveHint": "yes" },
        "_meta": { "shop": 1 },
        "x-unknown": [1, 2],
    })
}

/// A155: everything that a server says of a tool, and where the tool belongs.
#[test]
fn a_tool_has_its_description_its_schemas_and_its_place() {
    let tools = list(&[buy()], &Policy::default());
    let tool = tools.find("cart.buy").expect("the tool");
    assert_eq!(tool.name(), "cart.buy");
    assert_eq!(tool.title(), Some("Buy"));
    assert_eq!(tool.description(), Some("Buys what is in the cart."));
    assert_eq!(tool.input_schema(), buy()["inputSchema"]);
    assert_eq!(tool.output_schema(), Some(json!({ "type": "object" })));
    assert_eq!(tool.meta(), Some(json!({ "shop": 1 })));
    assert_eq!(tool.raw(), buy().to_string().as_bytes());
    let metadata = tool.metadata();
    assert_eq!(metadata.kind, "mcp");
    assert_eq!(metadata.display_name, "Buy");
    assert_eq!(metadata.folder.as_deref(), Some("Sales"));
    assert_eq!(metadata.slug.as_deref(), Some("shop-eu"));
    assert_eq!(metadata.server, "shop");
}

#[test]
fn a_tool_that_says_little_or_nonsense_is_still_a_tool() {
    #[rustfmt::skip]
    let table = [
        (json!({ "name": "t" }),                                            Value::Null),
        (json!({ "name": "t", "inputSchema": true, "annotations": 7 }),     json!(true)),
        (json!({ "name": "t", "annotations": { "readOnlyHint": "yes" } }),  Value::Null),
    ];
    for (tool, schema) in table {
        let tools = list(std::slice::from_ref(&tool), &Policy::default());
        let found = tools.find("t").expect("the tool");
        assert_eq!(found.input_schema(), schema, "{tool}");
        assert!(!found.hints().read_only, "{tool}");
        assert_eq!(found.metadata().display_name, "t");
        assert_eq!(found.output_schema(), None);
    }
    // What has no name cannot be called, and what is listed twice is one tool.
    let odd = [
        json!({}),
        json!(7),
        json!({ "name": "t" }),
        json!({ "name": "t" }),
    ];
    assert_eq!(list(&odd, &Policy::default()).len(), 1);
}

/// P113: the same list in the same order, whatever the names.
#[test]
fn tools_stand_in_the_order_of_the_server() {
    let names = ["z", "a.b", "m", "a"];
    let tools = list(&named(&names), &Policy::default());
    let listed: Vec<&str> = tools.into_iter().map(Tool::name).collect();
    assert_eq!(listed, names);
}

/// A18: an unknown tool is named, with its server and what was probably meant.
#[test]
fn an_unknown_tool_is_named_with_its_server_and_the_nearest() {
    #[rustfmt::skip]
    let table = [
        ("serch",  Some("did you mean `search`?")),
        ("weather", None),
        ("",       None),
    ];
    let tools = list(&named(&["search", "buy"]), &Policy::default());
    for (typed, hint) in table {
        let trouble = tools.find(typed).expect_err(typed);
        assert_eq!(trouble.code, Code::ToolUnknown);
        assert_eq!(trouble.what, format!("tool `{typed}` not found on `shop`"));
        assert_eq!(trouble.hint.as_deref(), hint, "{typed}");
    }
}

/// A156, A207: the name that a model sees leads to the tool that the server knows.
#[test]
fn a_tool_is_found_by_either_name() {
    let tools = list(&named(&["cart.buy", "search"]), &Policy::default());
    let odd = tools.find("cart.buy").expect("by its own name");
    assert!(odd.exposed_name().starts_with("cart_buy_"));
    let found = tools.find(odd.exposed_name()).expect("by the other");
    assert_eq!(found.name(), "cart.buy");
    let fine = tools.find("search").expect("the tool");
    assert_eq!(fine.exposed_name(), "search");
}

/// A207: definitions in the forms that providers take, schemas made whole.
#[test]
fn definitions_have_the_form_of_each_provider() {
    let tools = list(
        &[buy(), json!({ "name": "ping", "title": "Ping" })],
        &Policy::default(),
    );
    let name = tools.find("cart.buy").expect("the tool").exposed_name();
    let described = "Buys what is in the cart.";
    let schema = &buy()["inputSchema"];
    let empty = json!({ "type": "object", "properties": {} });
    #[rustfmt::skip]
    let table = [
        (ModelProvider::OpenAi, json!([
            { "type": "function", "function": { "name": name, "description": described, "parameters": schema } },
            { "type": "function", "function": { "name": "ping", "description": "Ping", "parameters": empty } },
        ])),
        (ModelProvider::OpenAiResponses, json!([
            { "type": "function", "name": name, "description": described, "parameters": schema },
            { "type": "function", "name": "ping", "description": "Ping", "parameters": empty },
        ])),
        (ModelProvider::Anthropic, json!([
            { "name": name, "description": described, "input_schema": schema },
            { "name": "ping", "description": "Ping", "input_schema": empty },
        ])),
    ];
    for (form, expected) in table {
        assert_eq!(Value::from(tools.definitions(form)), expected, "{form:?}");
    }
}

/// A190: what the rules keep away is neither listed nor found.
#[test]
fn the_rules_hold_for_lists_and_for_calls() {
    let policy = Policy {
        allow: vec!["read_*".to_owned(), "cart.*".to_owned()],
        deny: vec!["*secret*".to_owned()],
        ..Policy::default()
    };
    let names = ["read_file", "read_secret", "write_file", "cart.buy"];
    let tools = list(&named(&names), &policy);
    let listed: Vec<&str> = tools.into_iter().map(Tool::name).collect();
    assert_eq!(listed, ["read_file", "cart.buy"]);
    for name in names {
        assert_eq!(may_call(&policy, name), listed.contains(&name), "{name}");
    }
    assert!(tools.find("read_secret").is_err());
    assert!(is_listed(&policy.allow, "read_file"));
}

/// A source of lists that counts how often it is read.
#[derive(Clone, Default)]
struct Source {
    reads: Arc<AtomicUsize>,
}

impl Source {
    fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    /// A reading that takes a second.
    fn read(&self, tools: Vec<Value>) -> impl Future<Output = Result<ToolList>> + Send + 'static {
        let reads = Arc::clone(&self.reads);
        async move {
            reads.fetch_add(1, Ordering::SeqCst);
            clock::sleep(Duration::from_secs(1)).await;
            Ok(list(&tools, &Policy::default()))
        }
    }

    fn fail(&self) -> impl Future<Output = Result<ToolList>> + Send + 'static {
        let reads = Arc::clone(&self.reads);
        async move {
            reads.fetch_add(1, Ordering::SeqCst);
            clock::sleep(Duration::from_secs(1)).await;
            Err(Error::unsent(Trouble::new(
                Reason::ConnectRefused,
                "nobody there",
            )))
        }
    }
}

const HORIZON: Duration = Duration::from_secs(300);

/// Somebody who may see a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Who {
    Alice,
    Bob,
    Number(u32),
}

impl KeptFor for Who {
    type Told = Self;

    fn told(&self) -> Self {
        *self
    }
}

fn always() -> bool {
    true
}

fn cache() -> Arc<ToolCache<Who>> {
    Arc::new(ToolCache::new(HORIZON))
}

/// P17, P25, A158: any number of callers cost one reading until the horizon.
#[tokio::test(start_paused = true)]
async fn any_number_of_callers_cost_one_reading() {
    let (cache, source) = (cache(), Source::default());
    let read = || {
        cache.list(
            Who::Alice,
            Age::ANY,
            always,
            source.read(named(&["search"])),
        )
    };
    let lists = futures_util::future::join_all((0..100).map(|_| read())).await;
    assert!(
        lists
            .iter()
            .all(|list| list.as_ref().is_ok_and(|list| list.len() == 1))
    );
    assert_eq!(source.reads(), 1);

    clock::sleep(HORIZON - Duration::from_secs(1)).await;
    read().await.expect("from the cache");
    assert_eq!(source.reads(), 1);

    clock::sleep(Duration::from_secs(1)).await;
    assert!(cache.peek(&Who::Alice).is_none());
    read().await.expect("read anew");
    assert_eq!(source.reads(), 2);
}

/// P99, reliability P4: what one may see is not shown to another.
#[tokio::test(start_paused = true)]
async fn lists_are_kept_apart_by_who_may_see_them() {
    let (cache, source) = (cache(), Source::default());
    cache
        .list(Who::Alice, Age::ANY, always, source.read(named(&["a"])))
        .await
        .expect("alice's");
    assert!(cache.peek(&Who::Bob).is_none());
    let bobs = cache
        .list(Who::Bob, Age::ANY, always, source.read(named(&["b"])))
        .await
        .expect("bob's");
    assert!(bobs.find("a").is_err());
    assert_eq!(source.reads(), 2);
}

/// P81, A163: after a change the list is read again, also where the old one was still on its way.
#[tokio::test(start_paused = true)]
async fn a_list_from_before_a_change_is_not_kept() {
    let (cache, source) = (cache(), Source::default());
    let late = clock::spawn("reader", {
        let (cache, source) = (Arc::clone(&cache), source.clone());
        async move {
            cache
                .list(Who::Alice, Age::ANY, always, source.read(named(&["old"])))
                .await
        }
    });
    clock::sleep(Duration::from_millis(500)).await;
    cache.forget_all();
    // Who asks now does not get what was asked for before the change.
    let new = cache
        .list(Who::Alice, Age::ANY, always, source.read(named(&["new"])))
        .await
        .expect("the new list");
    assert!(new.find("new").is_ok());
    let old = late.await.expect("a reader").expect("the old list");
    assert!(old.find("old").is_ok());
    assert!(
        cache
            .peek(&Who::Alice)
            .is_some_and(|kept| kept.find("new").is_ok())
    );
    assert_eq!(source.reads(), 2);

    cache.forget_all();
    assert!(cache.peek(&Who::Alice).is_none());
}

/// A25: who waited is told once, and the next caller reads anew.
#[tokio::test(start_paused = true)]
async fn a_failed_reading_is_told_to_all_who_waited_and_poisons_nothing() {
    let (cache, source) = (cache(), Source::default());
    let failures = (0..10).map(|_| cache.list(Who::Alice, Age::ANY, always, source.fail()));
    for failure in futures_util::future::join_all(failures).await {
        assert_eq!(
            failure.expect_err("a failure").reason(),
            Reason::ConnectRefused
        );
    }
    assert_eq!(source.reads(), 1);
    cache
        .list(
            Who::Alice,
            Age::ANY,
            always,
            source.read(named(&["search"])),
        )
        .await
        .expect("a list");
    assert_eq!(source.reads(), 2);
}

/// reliability P26: a caller that gives up takes nothing from the others.
#[tokio::test(start_paused = true)]
async fn a_cancelled_caller_does_not_cancel_the_reading_of_others() {
    let (cache, source) = (cache(), Source::default());
    let first = clock::timeout(
        Duration::from_millis(500),
        cache.list(
            Who::Alice,
            Age::ANY,
            always,
            source.read(named(&["search"])),
        ),
    );
    let second = cache.list(
        Who::Alice,
        Age::ANY,
        always,
        source.read(named(&["never read"])),
    );
    let (first, second) = futures_util::future::join(first, second).await;
    assert!(first.is_err(), "gave up");
    assert!(second.expect("the list").find("search").is_ok());
    assert_eq!(source.reads(), 1);
}

fn hinting(annotations: Value) -> Vec<Value> {
    vec![json!({ "name": "t", "annotations": annotations })]
}

/// reliability T14: hints that change are not believed again, not even when they change back.
#[tokio::test(start_paused = true)]
async fn a_tool_that_takes_back_what_it_said_is_doubted_from_then_on() {
    let (cache, source) = (cache(), Source::default());
    #[rustfmt::skip]
    let table = [
        (json!({ "readOnlyHint": true }),                  Steadiness::Steady),
        (json!({ "readOnlyHint": true, "title": "T" }),    Steadiness::Steady),
        (json!({ "readOnlyHint": false }),                 Steadiness::Changed),
        (json!({ "readOnlyHint": true }),                  Steadiness::Changed),
        (json!({ "readOnlyHint": true }),                  Steadiness::Changed),
    ];
    for (annotations, steady) in table {
        cache.forget_all();
        let tools = hinting(annotations.clone());
        let listed = cache
            .list(Who::Alice, Age::ANY, always, source.read(tools))
            .await
            .expect("a list");
        let hints = listed.hints("t").expect("the tool");
        assert_eq!(hints.steady, steady, "{annotations}");
    }
}

/// reliability P17: the cache has a bound, and what nobody asks for goes first.
#[tokio::test(start_paused = true)]
async fn what_nobody_asks_for_is_dropped_first() {
    let cache: ToolCache<Who> = ToolCache::new(HORIZON);
    let tools = || async { Ok(list(&named(&["search"]), &Policy::default())) };
    for key in 0..=1_024 {
        cache
            .list(Who::Number(key), Age::ANY, always, tools())
            .await
            .expect("a list");
        clock::sleep(Duration::from_millis(1)).await;
        assert!(
            cache.peek(&Who::Number(0)).is_some(),
            "somebody asks for it all the time"
        );
    }
    assert!(cache.peek(&Who::Number(1)).is_none());
    assert!(cache.peek(&Who::Number(2)).is_some());
}
