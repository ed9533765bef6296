//! Tokens that somebody else signed: which of them let in, and as whom.

use crate::prelude::*;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use parking_lot::Mutex;
use warmline_config::gateway_settings::GatewaySettings;
use warmline_engine::settings::EngineSettings;
use warmline_gateway::options::AccessByServer;
use warmline_gateway::reload::{LoadedConfiguration, RunningConfiguration};
use warmline_gateway::{JwtOptions, KeySource};

use super::raw_client::{Reply, call, initialize, post, request, send};

pub(crate) const ISSUER: &str = "https://login.example.com";
pub(crate) const AUDIENCE: &str = "https://mcp.example.com";

/// Somebody who signs.
pub(crate) struct Signer {
    name: &'static str,
    pub(crate) key: EncodingKey,
}

impl Signer {
    pub(crate) fn new(name: &'static str) -> Self {
        let pair = rcgen::KeyPair::generate().unwrap();
        Self {
            name,
            key: EncodingKey::from_ec_der(&pair.serialize_der()),
        }
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        let mut header = Header::new(Algorithm::ES256);
        header.kid = Some(self.name.to_owned());
        encode(&header, claims, &self.key).unwrap()
    }

    pub(crate) fn published(&self) -> Jwk {
        let mut jwk = Jwk::from_encoding_key(&self.key, Algorithm::ES256).unwrap();
        jwk.common.key_id = Some(self.name.to_owned());
        jwk
    }
}

pub(crate) fn set_of(signers: &[&Signer]) -> String {
    let published = signers.iter().map(|signer| json!(signer.published()));
    // Keys of other kinds stand in many sets, and hide none.
    let others = [
        json!({ "kty": "OKP", "crv": "X25519", "x": "AA", "alg": "ECDH-ES", "use": "enc" }),
        json!({ "kty": "something new", "kid": "k1" }),
        json!({ "kty": "oct", "k": "AA", "kid": "k1" }),
    ];
    let keys: Vec<Value> = others.into_iter().chain(published).collect();
    json!({ "keys": keys }).to_string()
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

pub(crate) fn good(subject: &str) -> Value {
    json!({ "iss": ISSUER, "aud": AUDIENCE, "sub": subject, "exp": now() + 600 })
}

pub(crate) fn with(changes: Value) -> Value {
    let mut claims = good("alice");
    for (name, value) in changes.as_object().unwrap() {
        match value.is_null() {
            true => claims.as_object_mut().unwrap().remove(name),
            false => claims
                .as_object_mut()
                .unwrap()
                .insert(name.clone(), value.clone()),
        };
    }
    claims
}

/// Who has a token that these keys prove.
fn signed_by(keys: KeySource) -> Auth {
    let tokens = JwtOptions::new(ISSUER, AUDIENCE, keys);
    Auth::AnyOf(vec![AuthMethod::Jwt(tokens)])
}

pub(crate) async fn world_of(keys: KeySource, rules: AccessRules) -> World {
    World::with(Personality::legacy(), |options| GatewayOptions {
        auth: signed_by(keys),
        rules,
        ..options
    })
    .await
}

/// A file with the keys of these, in a folder that goes with the story.
fn key_file(signers: &[&Signer]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.json");
    fs::write(&file, set_of(signers)).unwrap();
    (folder, file)
}

pub(crate) async fn ask(
    world: &World,
    token: &str,
    more: &[(&str, &str)],
    message: &Value,
) -> Reply {
    let bearer = format!("Bearer {token}");
    let mut headers = vec![("Authorization", bearer.as_str())];
    headers.extend_from_slice(more);
    let text = post("/servers/ledger/mcp", &headers, message);
    send(world.gateway.address(), &text).await
}

/// reliability T5, reliability F82: a token counts if its issuer signed it, for us, and now.
#[tokio::test]
async fn a_signed_token_must_be_of_the_issuer_for_us_and_of_now() {
    let (signer, stranger) = (Signer::new("k1"), Signer::new("k1"));
    let (_folder, file) = key_file(&[&signer]);
    let world = world_of(KeySource::File(file), AccessRules::none()).await;
    let signed = |changes| signer.sign(&with(changes));
    let unsigned = {
        let text = signed(json!({}));
        let claims = text.split('.').nth(1).unwrap();
        format!("eyJhbGciOiJub25lIn0.{claims}.")
    };
    let shared_secret = {
        let key = EncodingKey::from_secret(set_of(&[&signer]).as_bytes());
        encode(&Header::new(Algorithm::HS256), &good("alice"), &key).unwrap()
    };
    let nameless = encode(&Header::new(Algorithm::ES256), &good("alice"), &signer.key).unwrap();
    for (what, token, status) in [
        ("good", signed(json!({})), 200),
        ("a list of issuers", signed(json!({ "iss": [ISSUER] })), 401),
        (
            "several audiences",
            signed(json!({ "aud": ["x", AUDIENCE] })),
            200,
        ),
        ("just over", signed(json!({ "exp": now() - 30 })), 200),
        ("nearly begun", signed(json!({ "nbf": now() + 30 })), 200),
        ("without the name of the only key", nameless, 200),
        ("long over", signed(json!({ "exp": now() - 120 })), 401),
        ("not begun", signed(json!({ "nbf": now() + 120 })), 401),
        ("for ever", signed(json!({ "exp": null })), 401),
        (
            "for somebody else",
            signed(json!({ "aud": "https://other.example.com" })),
            401,
        ),
        ("for nobody", signed(json!({ "aud": null })), 401),
        (
            "of somebody else",
            signed(json!({ "iss": "https://evil.example.com" })),
            401,
        ),
        ("of nobody", signed(json!({ "iss": null })), 401),
        ("about nobody", signed(json!({ "sub": null })), 401),
        ("signed by a stranger", stranger.sign(&good("alice")), 401),
        ("not signed", unsigned, 401),
        ("signed with what is public", shared_secret, 401),
        ("no token", "a.b.c".to_owned(), 401),
    ] {
        let reply = ask(&world, &token, &[], &initialize()).await;
        assert_eq!(reply.status, status, "{what}: {reply:?}");
    }
    world.finish().await;
}

/// A103: identity is issuer and subject: another token of the same person is the same person, whose
/// session goes on, and claims decide what they may call.
#[tokio::test]
async fn a_refreshed_token_is_the_same_somebody() {
    let signer = Signer::new("k1");
    let (_folder, file) = key_file(&[&signer]);
    let may = |subject, tool: &str| AccessRule {
        subject,
        tools: Some(vec![tool.to_owned()]),
    };
    let finance = AccessSubject::Claim {
        claim: "groups".to_owned(),
        value: "finance".to_owned(),
    };
    let rules = DeclaredAccess {
        allow: vec![
            may(finance, "counter"),
            may(AccessSubject::Everyone, "echo"),
        ],
        deny: Vec::new(),
    };
    let rules = AccessRules::none().with_server(LEDGER, rules);
    let world = world_of(KeySource::File(file), rules).await;
    let finance = with(json!({ "groups": ["finance"] }));
    let first = ask(&world, &signer.sign(&finance), &[], &initialize()).await;
    let ticket = first.header("mcp-session-id").unwrap().to_owned();
    let held = [("Mcp-Session-Id", ticket.as_str())];
    let count = call("counter", &json!({}));
    let again = with(json!({ "groups": ["finance"], "jti": "another" }));
    for (claims, expected) in [(&finance, 1), (&again, 2)] {
        let counted = ask(&world, &signer.sign(claims), &held, &count).await;
        assert_eq!(count_of(&counted), expected, "in the same session");
    }
    let without = with(json!({ "jti": "without groups" }));
    let refused = ask(&world, &signer.sign(&without), &held, &count).await;
    assert_eq!(
        refused.json()["error"]["data"]["warmline"]["code"],
        "not-allowed"
    );
    let list = request("tools/list", &json!({}));
    let other = ask(&world, &signer.sign(&good("bob")), &held, &list).await;
    assert_eq!(other.status, 404);
    world.finish().await;
}

fn count_of(reply: &Reply) -> i64 {
    let count = &reply.json()["result"]["structuredContent"]["count"];
    count.as_i64().unwrap_or_else(|| panic!("{reply:?}"))
}

/// A71: which claim says who somebody is can be decided: whoever has the same one is the same
/// somebody, and whoever has none is nobody.
#[tokio::test]
async fn the_claim_that_names_somebody_can_be_decided() {
    let signer = Signer::new("k1");
    let (_folder, file) = key_file(&[&signer]);
    let by_mail = JwtOptions {
        identity_claim: "email".to_owned(),
        ..JwtOptions::new(ISSUER, AUDIENCE, KeySource::File(file))
    };
    let world = World::with(Personality::legacy(), |options| GatewayOptions {
        auth: Auth::AnyOf(vec![AuthMethod::Jwt(by_mail)]),
        ..options
    })
    .await;
    let of =
        |subject: &str, email: Value| signer.sign(&with(json!({ "sub": subject, "email": email })));
    let mail = "alice@example.com";
    let first = ask(&world, &of("first", json!(mail)), &[], &initialize()).await;
    let ticket = first.header("mcp-session-id").unwrap().to_owned();
    let held = [("Mcp-Session-Id", ticket.as_str())];
    let count = call("counter", &json!({}));
    for (expected, subject) in (1..).zip(["first", "second"]) {
        let counted = ask(&world, &of(subject, json!(mail)), &held, &count).await;
        assert_eq!(count_of(&counted), expected, "{subject}");
    }
    for (email, status) in [
        (json!("bob@example.com"), 404),
        (json!("first"), 404),
        (json!(null), 401),
        (json!(""), 401),
        (json!([mail]), 401),
    ] {
        let other = ask(&world, &of("first", email.clone()), &held, &count).await;
        assert_eq!(other.status, status, "{email}");
    }
    world.finish().await;
}

/// A place that publishes keys, and counts who asks.
pub(crate) struct Publisher {
    pub(crate) address: SocketAddr,
    pub(crate) keys: Arc<Mutex<String>>,
    asked: Arc<AtomicUsize>,
    /// Whether it takes requests and answers none.
    pub(crate) hangs: Arc<AtomicBool>,
}

impl Publisher {
    pub(crate) async fn start(keys: String) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let publisher = Self {
            address: listener.local_addr().unwrap(),
            keys: Arc::new(Mutex::new(keys)),
            asked: Arc::default(),
            hangs: Arc::default(),
        };
        let (keys, asked) = (Arc::clone(&publisher.keys), Arc::clone(&publisher.asked));
        let hangs = Arc::clone(&publisher.hangs);
        drop(tokio::spawn(async move {
            let mut held = Vec::new();
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut head = [0; 4096];
                assert!(socket.read(&mut head).await.unwrap() > 0);
                asked.fetch_add(1, Ordering::Relaxed);
                if hangs.load(Ordering::Relaxed) {
                    held.push(socket);
                    continue;
                }
                let body = keys.lock().clone();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
                socket.write_all(answer.as_bytes()).await.unwrap();
            }
        }));
        publisher
    }

    pub(crate) fn source(&self) -> KeySource {
        KeySource::Url(format!("http://{}/keys", self.address))
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

/// Keys are fetched when the first token comes, and again for a key that is not known, at most
/// once a minute.
#[tokio::test]
async fn keys_that_are_not_known_are_fetched_once_a_minute() {
    let (old, new) = (Signer::new("old"), Signer::new("new"));
    let publisher = Publisher::start(set_of(&[&old])).await;
    let keys = publisher.source();
    let world = world_of(keys.clone(), AccessRules::none()).await;
    let asked = publisher.asked();
    assert_eq!(asked, 0, "nothing is fetched before it is needed");
    let (of_old, of_new) = (old.sign(&good("alice")), new.sign(&good("alice")));
    for (token, status) in [(&of_old, 200), (&of_new, 401), (&of_new, 401)] {
        let reply = ask(&world, token, &[], &initialize()).await;
        assert_eq!((reply.status, publisher.asked()), (status, 1));
    }
    *publisher.keys.lock() = set_of(&[&new]);
    assert_eq!(ask(&world, &of_new, &[], &initialize()).await.status, 401);
    pass(Duration::from_secs(61)).await;
    for (token, status) in [(&of_new, 200), (&of_new, 200), (&of_old, 401)] {
        // A token counts no longer than the key that signed it, even if it was good once.
        let reply = ask(&world, token, &[], &initialize()).await;
        assert_eq!((reply.status, publisher.asked()), (status, 2), "{reply:?}");
    }
    *publisher.keys.lock() = set_of(&[&old]);
    let reply = ask(&world, &of_new, &[], &initialize()).await;
    assert_eq!((reply.status, publisher.asked()), (200, 2), "{reply:?}");
    // Whoever has the configuration read again wants to know what counts now.
    read_again(&world, &keys);
    for (token, status) in [(&of_new, 401), (&of_old, 200)] {
        let reply = ask(&world, token, &[], &initialize()).await;
        assert_eq!((reply.status, publisher.asked()), (status, 3), "{reply:?}");
    }
    world.finish().await;
}

/// reliability O5: whoever signs need not name its keys. While it changes them, tokens of the old and
/// of the new one count, and one that no key fits is looked for where keys are published.
#[tokio::test]
async fn a_token_that_names_no_key_counts_while_keys_are_changed() {
    let (old, new) = (Signer::new("old"), Signer::new("new"));
    let nameless = |signer: &Signer, who: &str| {
        encode(&Header::new(Algorithm::ES256), &good(who), &signer.key).unwrap()
    };
    let set = |signers: &[&Signer]| {
        let keys = signers.iter().map(|signer| {
            let mut key = signer.published();
            key.common.key_id = None;
            json!(key)
        });
        json!({ "keys": keys.collect::<Vec<_>>() }).to_string()
    };
    let publisher = Publisher::start(set(&[&old])).await;
    let keys = publisher.source();
    let world = world_of(keys.clone(), AccessRules::none()).await;
    let (of_old, of_new) = (nameless(&old, "alice"), nameless(&new, "alice"));
    for (token, status) in [(&of_old, 200), (&of_new, 401)] {
        let reply = ask(&world, token, &[], &initialize()).await;
        assert_eq!((reply.status, publisher.asked()), (status, 1));
    }
    *publisher.keys.lock() = set(&[&old, &new]);
    pass(Duration::from_secs(61)).await;
    for (what, token) in [
        ("of the new key, which is fetched for it", &of_new),
        ("of the old key, and seen before", &of_old),
        ("of the old key", &nameless(&old, "bob")),
    ] {
        let reply = ask(&world, token, &[], &initialize()).await;
        assert_eq!((reply.status, publisher.asked()), (200, 2), "{what}");
    }
    // No end of keys is tried for whoever guesses.
    let others: Vec<Signer> = (0..8).map(|_| Signer::new("other")).collect();
    let many: Vec<&Signer> = others.iter().chain([&old]).collect();
    *publisher.keys.lock() = set(&many);
    read_again(&world, &keys);
    for (signer, status) in [(many[7], 200), (many[8], 401)] {
        let token = nameless(signer, "carol");
        let reply = ask(&world, &token, &[], &initialize()).await;
        assert_eq!(reply.status, status);
    }
    world.finish().await;
}

/// P59: keys that grow old are looked for where nobody waits for them. While their URL hangs, a
/// stream whose token was taken away ends as soon as ever.
#[tokio::test]
async fn keys_that_do_not_come_hold_up_no_end_of_a_stream() {
    let signer = Signer::new("k1");
    let publisher = Publisher::start(set_of(&[&signer])).await;
    let is_revoked = Arc::new(AtomicBool::new(false));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    fs::write(&file, "alice").unwrap();
    let world = World::knowing(Personality::legacy(), |mut options, vault| {
        let token = BearerToken::from_text(vault, "alice", "token-of-alice");
        let is_revoked = Arc::clone(&is_revoked);
        let kept = TokenSource::watching([file.clone()], move |_| {
            let is_revoked = is_revoked.load(Ordering::Relaxed);
            (!is_revoked).then(|| token.clone()).into_iter().collect()
        });
        let signed = JwtOptions::new(ISSUER, AUDIENCE, publisher.source());
        options.auth = Auth::AnyOf(vec![AuthMethod::TokenSource(kept), AuthMethod::Jwt(signed)]);
        options
    })
    .await;
    let token = signer.sign(&good("bob"));
    assert_eq!(ask(&world, &token, &[], &initialize()).await.status, 200);
    publisher.hangs.store(true, Ordering::Relaxed);
    pass(Duration::from_mins(56)).await;
    until("keys are looked for", || publisher.asked() == 2).await;
    let client = world.greet_as_alice("/servers/ledger/mcp").await;
    let mut standing = client.get(None).await;
    assert_eq!(standing.status, 200);
    is_revoked.store(true, Ordering::Relaxed);
    fs::write(&file, "nobody").unwrap();
    let ending = async { while standing.event().await.is_some() {} };
    let ended = tokio::time::timeout(Duration::from_secs(5), ending).await;
    assert!(ended.is_ok(), "it must not wait for keys");
    world.finish().await;
}

/// P43: behind one address there may be many. The guesses of one refuse no new token of another,
/// and keys are not looked for any more.
#[tokio::test]
async fn guesses_of_one_refuse_no_new_token_of_another() {
    let (signer, stranger) = (Signer::new("k1"), Signer::new("k2"));
    let publisher = Publisher::start(set_of(&[&signer])).await;
    let world = World::with(Personality::legacy(), |mut options| {
        options.auth = signed_by(publisher.source());
        options.limits.max_auth_failures_per_minute = 3;
        options
    })
    .await;
    let status = async |signer: &Signer, who: &str| {
        let token = signer.sign(&good(who));
        ask(&world, &token, &[], &initialize()).await.status
    };
    assert_eq!(status(&signer, "alice").await, 200);
    for expected in [401, 401, 401, 429, 429] {
        assert_eq!(status(&stranger, "mallory").await, expected);
    }
    let asked = publisher.asked();
    assert_eq!(status(&signer, "bob").await, 200);
    assert_eq!(status(&stranger, "mallory").await, 429);
    assert_eq!(publisher.asked(), asked);
    world.finish().await;
}

/// Reads a configuration again in which nothing changed.
pub(crate) fn read_again(world: &World, keys: &KeySource) {
    let wanted = || LoadedConfiguration {
        servers: vec![Server::http(LEDGER, world.server.url())],
        engine: EngineSettings::default(),
        gateway: GatewaySettings::default(),
        access: AccessByServer::new(),
    };
    let same = |_: &LoadedConfiguration| {
        Ok(GatewayOptions {
            auth: signed_by(keys.clone()),
            ..GatewayOptions::default()
        })
    };
    let fixed = RunningConfiguration::new(&wanted());
    world.gateway.reload(wanted(), &fixed, same).unwrap();
}

/// reliability O5: a key that is taken out of a file, or put in, counts so at the next request; a
/// stream that a token of it opened ends.
#[tokio::test]
async fn a_key_of_a_file_counts_as_long_as_it_stands_there() {
    let (first, second) = (Signer::new("first"), Signer::new("second"));
    let of_first = first.sign(&good("alice"));
    let of_second = second.sign(&good("bob"));
    let (_folder, file) = key_file(&[&first]);
    let world = world_of(KeySource::File(file.clone()), AccessRules::none()).await;
    let shown = vec![("Authorization".to_owned(), format!("Bearer {of_first}"))];
    let path = "/servers/ledger/mcp";
    let client = Legacy::greet_with(&world, path, "2025-11-25", json!({}), shown).await;
    let mut standing = client.get(None).await;
    assert_eq!(standing.status, 200);
    for (says, of_the_first, of_the_second) in [
        (set_of(&[&first]), 200, 401),
        (set_of(&[&first, &second]), 200, 200),
        ("half of what is being writ".to_owned(), 200, 200),
        (set_of(&[&second]), 401, 200),
        (set_of(&[]), 401, 401),
        (set_of(&[&second]), 401, 200),
    ] {
        fs::write(&file, &says).unwrap();
        for (token, status) in [(&of_first, of_the_first), (&of_second, of_the_second)] {
            let reply = ask(&world, token, &[], &initialize()).await;
            assert_eq!(reply.status, status, "{says}");
        }
    }
    while standing.event().await.is_some() {}
    fs::remove_file(&file).unwrap();
    let reply = ask(&world, &of_second, &[], &initialize()).await;
    assert_eq!(reply.status, 401);
    world.finish().await;
}
