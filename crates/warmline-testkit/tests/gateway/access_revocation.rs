//! Streams that stay open: they end soon after whoever opened them is not let in any more. And
//! connections that stay open between two requests.

use crate::prelude::*;

use std::time::{SystemTime, UNIX_EPOCH};

use super::modern::raw_client::{Stream, request};
use super::raw_client::{initialize, post};

const SOON: Duration = Duration::from_secs(10);

/// What takes somebody's right to be here away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    /// Their token was taken away.
    Revoked,
    /// Its time was over.
    Expired,
    /// Nobody's tokens count any more.
    AskedOtherwise,
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap().as_secs()
}

/// A gateway where a file says who has a token.
async fn world_of(personality: Personality, file: PathBuf, lasts: Option<u64>) -> World {
    fs::write(&file, "alice\nbob\n").unwrap();
    World::knowing(personality, |options, vault| {
        let tokens = ["alice", "bob"].map(|name| {
            let token = BearerToken::from_text(vault, name, &format!("token-of-{name}"));
            match lasts {
                Some(lasts) if name == "alice" => BearerToken {
                    expires_at: Some(now() + lasts),
                    ..token
                },
                _ => token,
            }
        });
        let source = TokenSource::watching([file.clone()], move |_| {
            let names = fs::read_to_string(&file).unwrap_or_default();
            let counts = |token: &&BearerToken| names.lines().any(|name| name == token.identity);
            tokens.iter().filter(counts).cloned().collect()
        });
        GatewayOptions {
            auth: Auth::AnyOf(vec![AuthMethod::TokenSource(source)]),
            ..options
        }
    })
    .await
}

async fn standing(world: &World, name: &str) -> Response {
    let client = Legacy::greet_with(world, PATH, "2025-11-25", json!({}), bearer(name)).await;
    let stream = client.get(None).await;
    assert_eq!(stream.status, 200);
    stream
}

async fn listening(world: &World, name: &str) -> Stream {
    let wanted = json!({ "notifications": { "toolsListChanged": true } });
    let mut wire = request("subscriptions/listen", wanted);
    wire.headers.extend(bearer(name));
    let mut stream = wire.begin(world).await;
    assert_eq!(stream.status, 200);
    assert!(stream.message().await.is_some(), "it is acknowledged");
    stream
}

fn take(world: &World, file: &PathBuf, taken: Taken) {
    match taken {
        Taken::Revoked => fs::write(file, "bob\n").unwrap(),
        Taken::Expired => {},
        Taken::AskedOtherwise => world.gateway.set_auth(Auth::tokens(Vec::new())),
    }
}

/// Reads to the end of a standing stream.
async fn end_of(mut stream: Response) {
    let reading = async { while stream.message().await.is_some() {} };
    tokio::time::timeout(SOON, reading).await.unwrap();
}

/// P59, reliability T3: a standing stream and a listen of somebody whose token was taken away, or is
/// over, end by themselves; those of others go on.
#[tokio::test]
async fn a_stream_ends_soon_after_its_token_counts_no_longer() {
    for taken in [Taken::Revoked, Taken::Expired, Taken::AskedOtherwise] {
        let lasts = (taken == Taken::Expired).then_some(2);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens");
        let world = world_of(Personality::legacy(), file.clone(), lasts).await;
        let of_bob = standing(&world, "bob").await;
        let of_alice = standing(&world, "alice").await;
        // A stream that is only on its way would meet the end of its session.
        let control = world.control();
        streams_held(&control, 2).await;
        take(&world, &file, taken);
        end_of(of_alice).await;
        if taken == Taken::AskedOtherwise {
            end_of(of_bob).await;
        } else {
            still_open(of_bob).await;
        }
        world.finish().await;

        let world = world_of(Personality::modern(), file.clone(), lasts).await;
        let mut of_alice = listening(&world, "alice").await;
        take(&world, &file, taken);
        let last = tokio::time::timeout(SOON, of_alice.message()).await;
        let last: Option<Value> = last.unwrap();
        assert_eq!(last.unwrap()["result"]["resultType"], "complete");
        world.finish().await;
    }
}

async fn still_open(mut stream: Response) {
    let more = tokio::time::timeout(Duration::from_millis(50), stream.message()).await;
    assert!(more.is_err(), "it goes on: {more:?}");
}

/// A connection that rests between two requests lives by another limit than a head that does not
/// come: it is used again after longer than a head may take.
#[tokio::test]
async fn a_connection_rests_for_longer_than_a_head_may_take() {
    let world = World::with(Personality::legacy(), |options| GatewayOptions {
        limits: ListenerLimits {
            head_timeout: Duration::from_millis(100),
            idle_timeout: Duration::from_millis(1_500),
            ..ListenerLimits::default()
        },
        ..options
    })
    .await;
    let mut socket = TcpStream::connect(world.gateway.address()).await.unwrap();
    let text = post(PATH, &[], &initialize()).replace("Connection: close\r\n", "");
    for _ in 0..3 {
        socket.write_all(text.as_bytes()).await.unwrap();
        let mut some = [0; 4096];
        let length = socket.read(&mut some).await.unwrap();
        assert!(some[..length].starts_with(b"HTTP/1.1 200"), "{length}");
        // Until the time of a head is well over; nothing says so but time itself.
        let quiet = tokio::time::timeout(Duration::from_millis(300), socket.read(&mut some)).await;
        assert!(quiet.is_err(), "it is kept open: {quiet:?}");
    }
    // A head that was begun is cut after its own time, and a connection at rest after its.
    socket.write_all(b"POST / HTTP/1.1\r\nHo").await.unwrap();
    let mut told = Vec::new();
    let reading = socket.read_to_end(&mut told);
    let cut = tokio::time::timeout(Duration::from_millis(1_200), reading).await;
    assert!(cut.is_ok() && told.starts_with(b"HTTP/1.1 408 "), "{cut:?}");
    world.finish().await;
}

/// A run that is live keeps a server that was taken away for as long as a drain takes, and then
/// finds none by that name, as everybody else does at once.
#[tokio::test]
async fn a_live_run_keeps_a_removed_server_until_the_time_of_a_drain_is_over() {
    let world = World::new(Personality::legacy()).await;
    let path = format!("/runs/trip{PATH}");
    let client = Legacy::greet(&world, &path, "2025-11-25", json!({})).await;
    assert_eq!(client.count().await, 1);
    world.warm.set_servers(Vec::new()).unwrap();
    assert_eq!(client.count().await, 2, "what it began with");
    let stranger = Legacy {
        path: format!("/runs/other{PATH}"),
        ticket: String::new(),
        ..client.clone()
    };
    let refused = stranger.call("counter", json!({})).await;
    let no_server = "Not Found: no server has this name; check the path";
    assert_eq!(refused["error"]["message"], no_server);
    pass(Duration::from_secs(24)).await;
    let gone = async {
        loop {
            let answer = client.call("counter", json!({})).await;
            if answer["error"]["message"] == no_server {
                return;
            }
            pass(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone)
        .await
        .unwrap();
    world.finish().await;
}
