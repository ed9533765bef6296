//! Who may call, as a configuration file says it: signed tokens, proxies, rules, tokens that end.

use crate::prelude::*;

use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};

const ISSUER: &str = "https://login.example.com";
const AUDIENCE: &str = "https://mcp.example.com";

/// Somebody who signs tokens, with a key that is made for the test.
struct Signer(EncodingKey);

impl Signer {
    fn new() -> Self {
        let pair = rcgen::KeyPair::generate().unwrap();
        Self(EncodingKey::from_ec_der(&pair.serialize_der()))
    }

    /// What the issuer publishes.
    fn keys(&self) -> String {
        let mut key = Jwk::from_encoding_key(&self.0, Algorithm::ES256).unwrap();
        key.common.key_id = Some("k1".to_owned());
        json!({ "keys": [key] }).to_string()
    }

    /// A token for somebody in these groups.
    fn sign(&self, subject: &str, groups: &[&str]) -> String {
        self.claim(json!({ "sub": subject, "groups": groups }))
    }

    /// A token that claims this of somebody.
    fn claim(&self, mut claims: Value) -> String {
        let now = warmline_platform::clock::wall_seconds();
        claims["iss"] = json!(ISSUER);
        claims["aud"] = json!(AUDIENCE);
        claims["exp"] = json!(now + 600);
        let mut header = Header::new(Algorithm::ES256);
        header.kid = Some("k1".to_owned());
        encode(&header, &claims, &self.0).unwrap()
    }
}

/// A whole file about callers of one server.
fn file(server: &LedgerServer, rules: &str) -> String {
    format!(
        "[gateway]\nauth = 'jwt'\n\
         [gateway.jwt]\nissuer = '{ISSUER}'\naudiences = ['{AUDIENCE}']\nkeys_file = 'keys.json'\n\
         [gateway.resource]\nurl = 'https://mcp.example.com'\nscopes = ['tools']\n\
         [servers.ledger]\nurl = '{}'\n{rules}\n",
        server.url()
    )
}

fn call(warmline: &Warmline, serving: &Serving, tool: &str, header: &str) -> CommandOutput {
    let url = format!("{}/servers/ledger/mcp", serving.base());
    warmline.run(&["call", &url, tool, "--header", header])
}

/// The head of what a client gets that shows nothing.
fn turned_away(serving: &Serving) -> String {
    let address = serving.base();
    let address = address.strip_prefix("http://").unwrap();
    let mut socket = TcpStream::connect(address).unwrap();
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let text = format!(
        "POST /servers/ledger/mcp HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(text.as_bytes()).unwrap();
    let mut said = String::new();
    socket.read_to_string(&mut said).unwrap();
    said
}

/// reliability T5, reliability F82: a file says whose signed tokens count, where clients get them,
/// and which claims may call what; another file counts from the next request on, and one with an
/// error in any part changes no part.
#[test]
fn signed_tokens_and_rules_of_a_file_count_and_change_together() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let (warmline, signer) = (Warmline::new(), Signer::new());
    warmline.write_user("keys.json", &signer.keys());
    let finance = "allow = ['echo', { claim = 'groups', has = 'finance', tools = ['counter'] }]";
    let path = warmline.write_user("warmline.toml", &file(&server, finance));
    let serving = Serving::start(&warmline, &[]);
    assert_eq!(serving.said["auth"], "jwt");
    let shown = |groups: &[&str]| format!("Authorization: Bearer {}", signer.sign("alice", groups));
    let (of_finance, of_sales) = (shown(&["finance"]), shown(&["sales"]));
    let may = |tool: &str, header: &str| call(&warmline, &serving, tool, header).exit == 0;
    assert!(may("counter", &of_finance));
    assert!(may("echo", &of_sales));
    let url = format!("{}/servers/ledger/mcp", serving.base());
    // Asked for without looking at the list first.
    let words = ["request", &url, "tools/call", "name=counter", "--header"];
    let refused = warmline.run(&[&words[..], &[&of_sales]].concat());
    refused.fails().says("may not be called");
    for (header, listed) in [(&of_finance, "counter\necho\n"), (&of_sales, "echo\n")] {
        let tools = warmline.run(&["tools", &url, "--json", "--header", header]);
        let mut names: Vec<String> = names(&tools.stdout);
        names.sort();
        assert_eq!(names.join("\n") + "\n", listed, "{tools}");
    }
    let said = turned_away(&serving).to_ascii_lowercase();
    assert!(said.starts_with("http/1.1 401"), "{said}");
    let place = format!("{AUDIENCE}/.well-known/oauth-protected-resource/servers/ledger/mcp");
    let challenge = format!("resource_metadata=\"{place}\"");
    assert!(said.contains(&challenge), "{said}");

    // An error anywhere in the file: neither its rules nor its issuer count.
    let sales = "allow = [{ claim = 'groups', has = 'sales' }]";
    let broken = file(&server, sales).replace("audiences = ['", "audiences = [] # ['");
    std::fs::write(&path, broken).unwrap();
    serving.refuses_its_file();
    assert!(may("counter", &of_finance) && !may("counter", &of_sales));

    std::fs::write(&path, file(&server, sales)).unwrap();
    until("the other group may", || may("counter", &of_sales));
    assert!(!may("echo", &of_finance));

    let other = file(&server, "").replace(ISSUER, "https://other.example.com");
    std::fs::write(&path, other).unwrap();
    until("the issuer counts no more", || !may("echo", &of_sales));
    let log = serving.stop(&warmline);
    for line in [
        "does not set the audiences of tokens",
        r#""at_once":"rules of ledger""#,
        r#""at_once":"gateway.jwt.issuer, rules of ledger""#,
    ] {
        assert!(log.contains(line), "{line} is missing: {log}");
    }
    for token in [&of_finance, &of_sales] {
        let secret = token.rsplit('.').next().unwrap();
        assert!(!log.contains(secret), "{log}");
    }
}

fn names(lines: &str) -> Vec<String> {
    let said = lines.lines().map(serde_json::from_str::<Value>);
    let tools = said.map(|line| line.unwrap()["tool"].as_str().unwrap().to_owned());
    tools.collect()
}

/// A71: the claim that says who is calling stands in the file; a token without it lets nobody in.
#[test]
fn the_claim_that_names_a_caller_stands_in_the_file() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let (warmline, signer) = (Warmline::new(), Signer::new());
    warmline.write_user("keys.json", &signer.keys());
    let keys = "keys_file = 'keys.json'";
    let text = file(&server, "").replace(keys, &format!("{keys}\nidentity = 'email'"));
    warmline.write_user("warmline.toml", &text);
    let serving = Serving::start(&warmline, &[]);
    let count = |claims: Value| {
        let header = format!("Authorization: Bearer {}", signer.claim(claims));
        let url = format!("{}/runs/trip/servers/ledger/mcp", serving.base());
        let output = warmline.run(&["call", &url, "counter", "--header", &header]);
        output.stdout.trim().to_owned()
    };
    let mail = "alice@example.com";
    for (claims, counted) in [
        (json!({ "sub": "a", "email": mail }), r#"{"count":1}"#),
        (json!({ "sub": "b", "email": mail }), r#"{"count":2}"#),
        (json!({ "sub": "a", "email": "bob" }), r#"{"count":1}"#),
        (json!({ "sub": "a" }), ""),
    ] {
        assert_eq!(count(claims.clone()), counted, "{claims}");
    }
    serving.stop(&warmline);
}

/// A71, reliability F86: a proxy that a file trusts says who is calling; from anywhere else its header
/// counts for nothing, and what it says is held to the rules.
#[test]
fn a_proxy_of_a_file_names_the_caller() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    for (place, is_trusted) in [("127.0.0.0/8", true), ("10.0.0.0/8", false)] {
        let warmline = Warmline::new();
        let text = format!(
            "[gateway]\nauth = 'proxy'\ntrusted_proxies = ['{place}']\nproxy_header = 'X-User'\n\
             [servers.ledger]\nurl = '{}'\nallow = [{{ identity = 'alice' }}, {{ identity = 'bob', tools = ['echo'] }}]\n",
            server.url()
        );
        warmline.write_user("warmline.toml", &text);
        let serving = Serving::start(&warmline, &[]);
        let may = |tool: &str, who: &str| call(&warmline, &serving, tool, who).exit == 0;
        for (tool, who, is_allowed) in [
            ("counter", "X-User: alice", true),
            ("echo", "X-User: bob", true),
            ("counter", "X-User: bob", false),
            ("echo", "X-User: eve", false),
            ("echo", "X-Other: alice", false),
        ] {
            assert_eq!(may(tool, who), is_allowed && is_trusted, "{place} {who}");
        }
        serving.stop(&warmline);
    }
}

/// A token that was made for a time counts for that time, and says so.
#[test]
fn a_token_that_expires_counts_until_then() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let warmline = Warmline::new();
    let text = format!("[servers.ledger]\nurl = '{}'\n", server.url());
    warmline.write_user("warmline.toml", &text);
    let serving = Serving::start(&warmline, &[]);
    let new = |words: &[&str]| {
        let mut all = vec!["token", "new"];
        all.extend(words);
        let made = warmline.run(&all);
        made.exits(0).says("` until 20");
        format!("Authorization: Bearer {}", made.stdout.trim())
    };
    let long = new(&["carol", "--expires", "90d"]);
    let short = new(&["dave", "--expires", "2s"]);
    let may = |who: &str| call(&warmline, &serving, "echo", who).exit == 0;
    assert!(may(&long));
    until("it counts no longer", || !may(&short));
    assert!(may(&long));
    let listed = warmline.run(&["token", "list"]).stdout;
    assert!(listed.contains("carol  carol       20"), "{listed}");
    assert!(listed.contains("dave   dave        expired 20"), "{listed}");
    serving.stop(&warmline);
    tells!(warmline.run(&["token", "new", "erin", "--expires", "soon"]), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: `--expires <TIME>` cannot be `soon`
      hint: write a number and a unit: 90d, 12h, 30min
    ");
}

/// A71: what cannot be decided together is told with its place and what to write, and starts nothing.
#[test]
fn check_tells_what_callers_cannot_be_let_in_by() {
    let warmline = Warmline::new();
    let jwt = |more: &str| format!("[gateway.jwt]\nissuer = 'https://a'\n{more}");
    let server = |rules: &str| format!("[servers.a]\nurl = 'http://x'\n{rules}\n");
    #[rustfmt::skip]
    let table = [
        (jwt(""), 2, "does not set the audiences of tokens"),
        (jwt("audiences = ['b']\n"), 2, "does not set the source of the issuer's keys"),
        (jwt("audiences = ['b']\nkeys_url = 'http://elsewhere/keys'\n"), 4, "keys cannot be fetched from `http://elsewhere/keys`"),
        (jwt("audiences = ['b']\nkeys_file = 'k'\nalgorithms = ['HS256']\n"), 5, "`HS256` is not a supported algorithm"),
        (jwt("audiences = ['b']\nkeys_file = 'k'\nkey_url = 'x'\n"), 5, "did you mean `keys_url`?"),
        (jwt("audiences = ['b']\nkeys_file = 'k'\nidentity = ''\n"), 5, "`gateway.jwt.identity` is not a text"),
        ("[gateway.jwt]\naudiences = ['b']\n".to_owned(), 2, "`gateway.jwt.issuer` is not"),
        ("[gateway.jwt]\nidentity = 'email'\n".to_owned(), 2, "`gateway.jwt.issuer` is not"),
        ("[gateway]\nauth = 'jwt'\n".to_owned(), 2, "no issuer is configured"),
        ("[gateway]\nauth = 'proxy'\n".to_owned(), 2, "no proxy is trusted"),
        ("[gateway]\ntrusted_proxies = ['10.0.0.0/8']\n".to_owned(), 2, "proxy_header"),
        ("[gateway]\nproxy_header = 'X-User'\n".to_owned(), 2, "no proxy is trusted"),
        ("[gateway]\ntrusted_proxies = ['0.0.0.0/0']\nproxy_header = 'X-User'\n".to_owned(), 2, "`0.0.0.0/0` is not the address of a proxy"),
        ("[gateway]\ntrusted_proxies = ['::1']\nproxy_header = 'Authorization'\n".to_owned(), 3, "cannot be the header of a proxy"),
        ("[gateway]\nauth = 'none'\ntrusted_proxies = ['::1']\nproxy_header = 'X-User'\n".to_owned(), 2, "other settings require authentication"),
        ("[gateway.resource]\nscope = ['tools']\n".to_owned(), 2, "did you mean `scopes`?"),
        ("[gateway.resource]\nurl = 'https://x/path'\n".to_owned(), 2, "is not a URL without a path"),
        ("[gateway.resource]\nurl = 'https://x'\n".to_owned(), 2, "does not name an authorization server"),
        ("[gateway.resource]\nscopes = ['x']\n".to_owned(), 2, "`gateway.resource.url` is not"),
        (server("allow = [{ claim = 'groups', has = 'x' }]"), 0, "need a claim, and no signed token is accepted"),
        (server("allow = [{ claim = 'groups' }]"), 3, "does not say what its claim has"),
        (server("deny = [{ identity = 'a', tool = 'x' }]"), 3, "did you mean `tools`?"),
        (server("deny = [{ identity = 'a', tools = [] }]"), 3, "is about no tool at all"),
        (server("allow = []"), 3, "is empty, which would allow everything"),
        ("[gateway]\nlisten = '127.0.0.1:8484'\n[ops]\nlisten = '127.0.0.1:8484'\n".to_owned(), 4, "are both `127.0.0.1:8484`"),
        ("[auth]\nissuer = 'x'\n".to_owned(), 1, "who may call is decided by"),
    ];
    for (text, line, what) in table {
        warmline.write("warmline.toml", &text);
        let output = warmline.run(&["check", "warmline.toml"]);
        assert_eq!(output.exit, 2, "{text}{output}");
        assert!(output.stderr.contains(what), "{text}{output}");
        let place = format!("warmline.toml:{line}:");
        assert!(
            line == 0 || output.stderr.contains(&place),
            "{text}{output}"
        );
    }
}

#[test]
fn check_shows_what_it_understood() {
    let warmline = Warmline::new();
    let text = "[gateway]\nauth = 'jwt'\nmax_connections_per_address = 64\n\
        [gateway.jwt]\nissuer = 'https://login.example.com'\naudiences = ['a', 'b']\nkeys_url = 'https://login.example.com/keys'\n\
        [runs]\nidle = '10min'\n\
        [servers.ledger]\nurl = 'https://x/mcp'\n\
        allow = ['echo', { claim = 'groups', has = 'finance', tools = ['read_*', 'sum'] }, { identity = 'alice' }]\n\
        deny = [{ tools = ['delete_*'] }]\n";
    warmline.write("warmline.toml", text);
    tells!(warmline.run(&["check", "warmline.toml"]), @r"
    exit: 0
    ----- stdout -----
    ok  warmline.toml · 1 server
      gateway.auth[PAD]jwt
      gateway.max_connections_per_address  64
      gateway.jwt.issuer                   https://login.example.com
      gateway.jwt.audiences                a, b
      gateway.jwt.keys_url                 https://login.example.com/keys
      runs.idle[PAD]10min
      servers.ledger[PAD]allow echo for everybody
      servers.ledger[PAD]allow read_*, sum where groups has finance
      servers.ledger[PAD]allow every tool for alice
      servers.ledger[PAD]deny delete_* for everybody
    ");
    let output = warmline.run(&["check", "warmline.toml", "--json"]);
    for line in [
        r#"{"kind":"setting","key":"gateway.jwt.audiences","value":"a, b"}"#,
        r#"{"kind":"rule","server":"ledger","rule":"deny delete_* for everybody"}"#,
    ] {
        assert!(output.stdout.lines().any(|shown| shown == line), "{output}");
    }
}

/// Limits of the door count as soon as their file is read again; an address waits for the next
/// start, and that is said.
#[test]
fn limits_of_the_door_count_when_the_file_changed() {
    let warmline = Warmline::new();
    let declared = "[servers.one]\nurl = 'http://127.0.0.1:1/mcp'\n";
    let with = |lines: &str| format!("[gateway]\n{lines}\n{declared}");
    let file = warmline.write_user("warmline.toml", &with("max_connections = 100"));
    let serving = Serving::start(&warmline, &[]);
    let limit = |number: u32| format!("\nwarmline_gateway_connections_limit {number}\n");
    assert!(serving.page("/metrics").contains(&limit(100)));
    std::fs::write(
        &file,
        with("max_connections = 50\nsocket = 'elsewhere.sock'"),
    )
    .unwrap();
    until("the other limit counts", || {
        serving.page("/metrics").contains(&limit(50))
    });
    let log = serving.stop(&warmline);
    for told in [
        r#""at_once":"gateway.max_connections""#,
        r#""at_next_start":"gateway.socket""#,
    ] {
        assert!(log.contains(told), "{told} is missing: {log}");
    }
}
