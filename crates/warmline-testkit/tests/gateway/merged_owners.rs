//! Resources that no list names, at the place of all servers: whose they are has to be found out.

use std::time::Duration;

use serde_json::json;
use warmline_gateway::Options;
use warmline_testkit::{Canned, Fault, Moment, Personality, Rule};

use super::merged_world::{Merged, ask, list};

/// A resource that `beta` made, of the scheme of which `alpha` lists some.
const MADE: &str = "one://made";

/// `alpha` lists resources of the scheme, and answers with this when one is read; `beta` has the
/// one that it made.
async fn world(alpha: Fault) -> Merged {
    let of = |scheme| Personality::legacy().scheme(scheme);
    let servers = vec![("alpha", of("one")), ("beta", of("two"))];
    let decide = |options| Options {
        list_share: Duration::from_millis(500),
        ..options
    };
    let world = Merged::beside(servers, Vec::new(), decide).await;
    let reads = |fault| Rule::new(fault).on("resources/read").always();
    world.server("alpha").inject(reads(alpha));
    let made = json!({ "contents": [{ "uri": MADE, "text": "beta's" }] });
    world.server("beta").inject(reads(Fault::Result(made)));
    world
}

fn refuses(code: i64, what: &str) -> Fault {
    let refused = json!({ "code": code, "message": what });
    let refused = format!(r#"{{"jsonrpc":"2.0","id":$ID,"error":{refused}}}"#);
    Fault::Reply(Canned::new(200, &refused).json())
}

fn asked(world: &Merged, method: &str) -> (usize, usize) {
    let of = |name| world.server(name).ledger().received(method);
    (of("alpha"), of("beta"))
}

/// mcp-spec 8.7.1: a tool may hand out a resource that no list names. A scheme is a guess: who lists
/// others of it is asked first, and whoever has it is found, also where the first does not answer.
#[tokio::test]
async fn a_resource_of_a_scheme_that_another_lists_is_read_from_who_has_it() {
    let not_found = || refuses(-32002, "Resource not found");
    let cases = [not_found(), Fault::Silence(Moment::BeforeExecuting)];
    for alpha in cases {
        let world = world(alpha).await;
        let client = world.greet("/mcp", json!({})).await;
        let read = list(&client, "resources/read", json!({ "uri": MADE })).await;
        assert_eq!(read["contents"][0]["text"], "beta's");
        assert_eq!(asked(&world, "resources/read"), (1, 1));
        world.finish().await;
    }
    // What a list names is asked for where it is listed, and nowhere else.
    let world = world(not_found()).await;
    let client = world.greet("/mcp", json!({})).await;
    let read = ask(&client, "resources/read", json!({ "uri": "one://page/7" })).await;
    assert_eq!(read["error"]["code"], -32002, "{read}");
    assert_eq!(asked(&world, "resources/read"), (1, 0));
    world.finish().await;
}

/// Where nobody has it, who lists others of its scheme says why.
#[tokio::test]
async fn a_resource_that_nobody_has_is_refused_in_the_words_of_the_likeliest() {
    let world = world(refuses(-32001, "the disk is on fire")).await;
    world.server("beta").control().clear();
    let client = world.greet("/mcp", json!({})).await;
    let read = ask(&client, "resources/read", json!({ "uri": MADE })).await;
    assert_eq!(read["error"]["message"], "the disk is on fire", "{read}");
    assert_eq!(read["error"]["code"], -32001, "{read}");
    world.finish().await;
}

/// mcp-spec 8.7.1: who wants to hear of such a resource hears of it from who has it, until it wants
/// no more, also where the resource is gone by then.
#[tokio::test]
async fn a_subscription_goes_to_who_has_the_resource() {
    let world = world(refuses(-32002, "Resource not found")).await;
    let client = world.greet("/mcp", json!({})).await;
    for method in ["resources/subscribe", "resources/unsubscribe"] {
        let answer = ask(&client, method, json!({ "uri": MADE })).await;
        assert_eq!(answer["result"], json!({}), "{answer}");
        assert_eq!(asked(&world, method), (0, 1), "{method}");
        let gone = refuses(-32002, "Resource not found");
        let beta = world.server("beta");
        beta.control().clear();
        beta.inject(Rule::new(gone).on("resources/read").always());
    }
    world.finish().await;
}
