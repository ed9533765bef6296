//! Resources that no list names, at the place of all servers: whose they are has to be found out.

use crate::prelude::*;

/// A resource that `beta` made, of the scheme of which `alpha` lists some.
const MADE: &str = "one://made";

/// `alpha` lists resources of the scheme, and answers with this when one is read; `beta` lists those
/// of another or of the same, and has the one that it made. Nobody may use `gamma`, which would have
/// it as well.
async fn world(alpha: Fault, beta: &'static str) -> (Merged, Audited) {
    let audited = Audited::new();
    let of = |scheme| Personality::legacy().uri_scheme(scheme);
    let servers = vec![
        ("alpha", of("one")),
        ("beta", of(beta)),
        ("gamma", of("one")),
    ];
    let decide = |options| audited.options(options);
    let world = Merged::beside(servers, Vec::new(), decide).await;
    let reads = |fault| FaultRule::new(fault).on_method("resources/read").always();
    world.server("alpha").inject(reads(alpha));
    let made = || json!({ "contents": [{ "uri": MADE, "text": "beta's" }] });
    for name in ["beta", "gamma"] {
        world.server(name).inject(reads(Fault::Result(made())));
    }
    (world, audited)
}

/// The audit of a gateway, in a folder that goes with the story.
pub(crate) struct Audited(TempDir);

impl Audited {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("audit.jsonl")
    }

    /// A gateway that writes it, and behind which nobody may use `gamma`.
    pub(crate) fn options(&self, options: GatewayOptions) -> GatewayOptions {
        let rules = denied(None);
        GatewayOptions {
            rules: AccessRules::none().with_server("gamma", rules),
            audit: Some(audit_into(self.file())),
            list_share: Duration::from_millis(500),
            ..options
        }
    }

    /// Which servers were asked for something of resources, for what, and what became of it.
    pub(crate) fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(self.file()).unwrap();
        let lines = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let of_resources = lines.filter(|line| {
            let method = line["method"].as_str();
            method.is_some_and(|method| method.starts_with("resources/"))
        });
        let mut said: Vec<_> = of_resources
            .map(|line| {
                let word = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
                let how = ["refused", "code", "delivery"].map(word);
                let how = how.into_iter().find(|how| !how.is_empty());
                format!("{} {} {}", word("method"), word("server"), how.unwrap())
            })
            .collect();
        said.sort();
        said
    }
}

fn refuses(code: i64, what: &str) -> Fault {
    let refused = json!({ "code": code, "message": what });
    let refused = format!(r#"{{"jsonrpc":"2.0","id":$ID,"error":{refused}}}"#);
    Fault::Reply(CannedReply::new(200, &refused).json())
}

fn not_found() -> Fault {
    refuses(-32002, "Resource not found")
}

/// mcp-spec 8.7.1: a tool may hand out a resource that no list names. Those who list others of its
/// scheme are asked, and whoever has it is found, also where the first does not answer. Each of them
/// has its line in the audit.
#[tokio::test]
async fn a_resource_of_a_scheme_that_several_list_is_read_from_who_has_it() {
    let cases = [
        (not_found(), "answered"),
        (Fault::Silence(FaultTiming::BeforeExecuting), "deadline"),
    ];
    for (alpha, how) in cases {
        let (world, audited) = world(alpha, "one").await;
        let client = world.greet("/mcp", json!({})).await;
        let read = list(&client, "resources/read", json!({ "uri": MADE })).await;
        assert_eq!(read["contents"][0]["text"], "beta's");
        assert_eq!(world.asked("resources/read"), (1, 1));
        assert_eq!(world.server("gamma").ledger().entries().len(), 0);
        world.finish().await;
        let alphas = format!("resources/read alpha {how}");
        assert_eq!(audited.lines(), [&*alphas, "resources/read beta answered"]);
    }
    // What a list names is asked for where it is listed, and nowhere else.
    let (world, audited) = world(not_found(), "one").await;
    let client = world.greet("/mcp", json!({})).await;
    let read = ask(&client, "resources/read", json!({ "uri": "one://page/7" })).await;
    assert_eq!(read["error"]["code"], -32002, "{read}");
    assert_eq!(world.asked("resources/read"), (1, 0));
    world.finish().await;
    assert_eq!(audited.lines(), ["resources/read alpha answered"]);
}

/// A server that lists nothing of a scheme that another lists never hears of its resources; one of a
/// scheme that nobody lists may be anybody's.
#[tokio::test]
async fn a_uri_goes_only_to_servers_that_it_may_concern() {
    let (world, audited) = world(not_found(), "two").await;
    let client = world.greet("/mcp", json!({})).await;
    let read = ask(&client, "resources/read", json!({ "uri": MADE })).await;
    assert_eq!(read["error"]["code"], -32002, "{read}");
    assert_eq!(world.asked("resources/read"), (1, 0));
    let read = list(&client, "resources/read", json!({ "uri": "https://made" })).await;
    assert_eq!(read["contents"][0]["text"], "beta's");
    assert_eq!(world.asked("resources/read"), (2, 1));
    world.finish().await;
    let read = |name: &str| format!("resources/read {name} answered");
    assert_eq!(audited.lines(), ["alpha", "alpha", "beta"].map(read));
}

/// Where who alone lists others of its scheme does not have it, that one says why.
#[tokio::test]
async fn a_resource_that_nobody_has_is_refused_in_the_words_of_the_likeliest() {
    let (world, _audited) = world(refuses(-32001, "the disk is on fire"), "two").await;
    world.server("beta").control().clear_faults();
    let client = world.greet("/mcp", json!({})).await;
    let read = ask(&client, "resources/read", json!({ "uri": MADE })).await;
    assert_eq!(read["error"]["message"], "the disk is on fire", "{read}");
    assert_eq!(read["error"]["code"], -32001, "{read}");
    world.finish().await;
}

/// mcp-spec 8.7.1: who wants to hear of such a resource hears of it from who has it, until it wants
/// no more, also where the resource is gone by then. That it is read for this is in the audit.
#[tokio::test]
async fn a_subscription_goes_to_who_has_the_resource() {
    let (world, audited) = world(not_found(), "one").await;
    let client = world.greet("/mcp", json!({})).await;
    for method in ["resources/subscribe", "resources/unsubscribe"] {
        let answer = ask(&client, method, json!({ "uri": MADE })).await;
        assert_eq!(answer["result"], json!({}), "{answer}");
        assert_eq!(world.asked(method), (0, 1), "{method}");
        let beta = world.server("beta");
        beta.control().clear_faults();
        beta.inject(
            FaultRule::new(not_found())
                .on_method("resources/read")
                .always(),
        );
    }
    assert_eq!(world.server("gamma").ledger().entries().len(), 0);
    world.finish().await;
    let expected = [
        "resources/read alpha answered",
        "resources/read beta answered",
        "resources/subscribe beta answered",
        "resources/unsubscribe beta answered",
    ];
    assert_eq!(audited.lines(), expected);
}
