//! Keys of signed tokens: which one is meant, and what counts while others are looked for.

use crate::prelude::*;

use std::sync::atomic::Ordering;

use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use warmline_gateway::KeySource;

use super::auth_jwt::{Publisher, Signer, ask, good, read_again, set_of, world_of};
use super::raw_client::initialize;

/// P43, reliability O5: a configuration that is read again while the keys' URL hangs holds up
/// nobody whose key is known.
#[tokio::test]
async fn known_keys_count_while_others_are_looked_for() {
    let signer = Signer::new("k1");
    let publisher = Publisher::start(set_of(&[&signer])).await;
    let keys = publisher.source();
    let world = world_of(keys.clone(), AccessRules::none()).await;
    let status = async |who: &str| {
        let token = signer.sign(&good(who));
        ask(&world, &token, &[], &initialize()).await.status
    };
    assert_eq!(status("alice").await, 200);
    publisher.hangs.store(true, Ordering::Relaxed);
    read_again(&world, &keys);
    let began = Instant::now();
    // One who was here before, and one whom nobody has seen.
    for who in ["alice", "bob", "alice", "carol"] {
        assert_eq!(status(who).await, 200);
    }
    let waited = began.elapsed();
    assert!(waited < Duration::from_secs(5), "{waited:?}");
    until("keys are looked for", || publisher.asked() == 2).await;
    world.finish().await;
}

/// reliability F82: without a name the key that is meant is the one that can have signed: of two curves only
/// one fits an algorithm.
#[tokio::test]
async fn a_key_of_another_curve_is_not_meant() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.json");
    let signer = Signer::new("small");
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
    let large = EncodingKey::from_ec_der(&pair.serialize_der());
    let mut set: Value = serde_json::from_str(&set_of(&[&signer])).unwrap();
    let published = Jwk::from_encoding_key(&large, Algorithm::ES384).unwrap();
    let keys = set["keys"].as_array_mut().unwrap();
    keys.push(json!(published));
    for key in keys {
        // Neither says how it signs.
        key.as_object_mut().unwrap().remove("alg");
    }
    fs::write(&file, set.to_string()).unwrap();
    let world = world_of(KeySource::File(file), AccessRules::none()).await;
    for (algorithm, key) in [(Algorithm::ES256, &signer.key), (Algorithm::ES384, &large)] {
        let token = encode(&Header::new(algorithm), &good("alice"), key).unwrap();
        let reply = ask(&world, &token, &[], &initialize()).await;
        assert_eq!(reply.status, 200, "{algorithm:?} {reply:?}");
    }
    world.finish().await;
}
