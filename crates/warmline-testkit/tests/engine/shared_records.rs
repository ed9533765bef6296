//! Records that real processes share: this program starts itself again as the others.

use crate::prelude::*;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use warmline_core::era::Version;
use warmline_core::pool_key::{
    ConfigRevision, CredentialId, Digest, Identity, KeyOwner, KeyScope, PoolKey, RunId, TargetKey,
    Transport,
};
use warmline_core::record::{Record, StoredClientProfile};
use warmline_store::{FileStore, Records, WriteOutcome};

const ROLE: &str = "WARMLINE_TEST_ROLE";
const FOLDER: &str = "WARMLINE_TEST_FOLDER";
const RUNS: u8 = 20;

fn key(run: u8) -> PoolKey {
    let digest = |byte| Digest::new([byte; 16]);
    let place = TargetKey {
        server: Arc::from("browser"),
        revision: ConfigRevision(digest(1)),
        era: Era::Legacy,
        transport: Transport::Http,
    };
    let owner = KeyOwner::Identity(Identity(digest(2)));
    PoolKey::new(
        place,
        owner,
        CredentialId(digest(3)),
        KeyScope::Run(RunId(digest(run))),
    )
}

fn record(run: u8, generation: u32, id: String) -> Record {
    Record {
        key: key(run),
        generation,
        session_id: Some(id),
        version: Version::V2025_06_18,
        client_profile: StoredClientProfile {
            client_name: "warmline".to_owned(),
            client_version: "0.1.0".to_owned(),
            capabilities: Bytes::from_static(b"{}"),
        },
        capabilities: Bytes::from_static(b"{}"),
        server_info: None,
        instructions: Some("padding ".repeat(2_000)),
        log_level: None,
        subscriptions: Vec::new(),
        stateful: false,
        unreported_loss: false,
        opened_at: 0,
        last_used_at: 0,
        expires_at: None,
    }
}

/// Secrets and records of one folder, as each process opens them for itself.
fn records(folder: &Path) -> Records {
    let vault = Keyring::in_folder(folder).expect("secrets");
    let store = FileStore::in_folder(folder.join("sessions"));
    Records::new(Arc::new(store), Arc::new(vault), Duration::from_secs(20))
}

async fn id_of(records: &Records, run: u8) -> Option<(u32, String)> {
    let found = records.load(&key(run)).await.expect("a record or none")?;
    Some((found.generation, found.session_id.expect("an id")))
}

/// Another process of this program; killed if the test ends first.
struct Other(Child);

impl Other {
    fn start(role: &str, folder: &Path) -> Self {
        let program = std::env::current_exe().expect("this program");
        Self::run(&mut Command::new(program), role, folder)
    }

    fn run(command: &mut Command, role: &str, folder: &Path) -> Self {
        let child = command
            .args([
                "--exact",
                "shared_records::plays_the_other_process",
                "--nocapture",
            ])
            .env(ROLE, role)
            .env(FOLDER, folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        Self(child.expect("a process"))
    }

    /// Lets it begin.
    fn go(&mut self) {
        let stdin = self.0.stdin.as_mut().expect("a pipe");
        stdin.write_all(b"go\n").expect("it waits for it");
    }

    /// What it says until it ends.
    fn says(mut self) -> Vec<String> {
        let stdout = self.0.stdout.take().expect("a pipe");
        let lines = BufReader::new(stdout)
            .lines()
            .map(|line| line.expect("text"));
        lines
            .filter_map(|line| line.split_once("said: ").map(|(_, said)| said.to_owned()))
            .collect()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// What the other processes do; nothing when it is run as a test.
#[tokio::test]
async fn plays_the_other_process() {
    let (Ok(role), Some(folder)) = (std::env::var(ROLE), std::env::var_os(FOLDER)) else {
        return;
    };
    let folder = PathBuf::from(folder);
    let mut word = String::new();
    std::io::stdin().read_line(&mut word).expect("a word");
    let records = records(&folder);
    match role.as_str() {
        "opens" => opens(&records).await,
        "heals" => heals(&records).await,
        "saves" => saves(&records).await,
        other => panic!("no role {other}"),
    }
}

/// Opens a session for every run, and takes the winner's where it lost.
async fn opens(records: &Records) {
    for run in 0..RUNS {
        let own = record(run, 1, format!("of-{}-{run}", std::process::id()));
        let id = match records.save(&own, None).await {
            WriteOutcome::Written(_) => own.session_id,
            WriteOutcome::Conflict(winner) => winner.session_id,
            WriteOutcome::Failed(trouble) => panic!("{trouble:?}"),
        };
        println!("said: {run} {}", id.expect("an id"));
    }
}

/// Replaces one session after the other until it is killed.
async fn heals(records: &Records) {
    let mut last = records.load(&key(0)).await.expect("a record or none");
    loop {
        let generation = last.as_ref().map_or(1, |last| last.generation + 1);
        let next = record(0, generation, format!("session-{generation}"));
        let written = records.save(&next, last.as_ref()).await;
        assert!(matches!(written, WriteOutcome::Written(_)), "{written:?}");
        last = Some(next);
    }
}

/// Tries to save once, and says what came of it.
async fn saves(records: &Records) {
    let before = records.load(&key(0)).await.expect("a record or none");
    let next = record(0, 2, "healed".to_owned());
    match records.save(&next, before.as_ref()).await {
        WriteOutcome::Failed(trouble) => println!("said: {} {}", trouble.code, trouble.reason),
        WriteOutcome::Written(_) => println!("said: done"),
        WriteOutcome::Conflict(winner) => println!("said: lost to {winner:?}"),
    }
}

/// A144, reliability F48: processes that start on an empty folder at the same moment make the same
/// secrets and agree on one session for every run.
#[tokio::test]
async fn processes_that_open_at_once_agree_on_one_session_each() {
    let folder = tempfile::tempdir().unwrap();
    let mut others: Vec<_> = (0..3)
        .map(|_| Other::start("opens", folder.path()))
        .collect();
    others.iter_mut().for_each(Other::go);
    let said: Vec<_> = others.into_iter().map(Other::says).collect();
    assert_eq!(said[0].len(), usize::from(RUNS), "{said:?}");
    assert!(said.iter().all(|one| *one == said[0]), "{said:?}");
    let records = records(folder.path());
    for run in 0..RUNS {
        let (_, id) = id_of(&records, run).await.expect("a record");
        assert_eq!(said[0][usize::from(run)], format!("{run} {id}"));
    }
    assert_eq!(records.refusals(), 0);
}

/// reliability F46, reliability P29: killed at any moment, a process leaves an old state or a new
/// one, and the next one goes on from there.
#[tokio::test]
async fn a_process_that_is_killed_leaves_a_whole_record() {
    let folder = tempfile::tempdir().unwrap();
    let records = records(folder.path());
    let mut reached = 0;
    for round in 0..8 {
        let mut other = Other::start("heals", folder.path());
        other.go();
        // Some way into it; the exact place is the scheduler's choice.
        let enough = reached + 3 + round;
        loop {
            match id_of(&records, 0).await {
                Some((generation, _)) if generation >= enough => break,
                _ => tokio::task::yield_now().await,
            }
        }
        drop(other);
        let (generation, id) = id_of(&records, 0).await.expect("a record");
        assert_eq!(id, format!("session-{generation}"));
        reached = generation;
    }
    assert_eq!(records.refusals(), 0, "no half-written file was seen");
}

/// reliability F43: a disk that takes no byte more costs a word, and the old record stays.
#[tokio::test]
async fn a_disk_that_is_full_leaves_the_old_record() {
    let folder = tempfile::tempdir().unwrap();
    let records = records(folder.path());
    let old = record(0, 1, "old".to_owned());
    assert!(matches!(
        records.save(&old, None).await,
        WriteOutcome::Written(_)
    ));
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap());
    let mut other = Other::run(&mut limited, "saves", folder.path());
    other.go();
    assert_eq!(other.says(), ["store-unavailable store-unavailable"]);
    assert_eq!(id_of(&records, 0).await, Some((1, "old".to_owned())));
    let sessions = std::fs::read_dir(folder.path().join("sessions")).unwrap();
    let drafts = sessions.filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with(".draft-")
    });
    assert_eq!(drafts.count(), 0, "nothing half done is left");
}

/// A142, A136, A139: a store over HTTP is a small trait; 404 means none, a failed PUT fails no call.
#[test]
fn the_example_with_a_store_over_http_does_what_it_says() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let ran = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args([
            "run",
            "-q",
            "--locked",
            "-p",
            "warmline",
            "--example",
            "http_store",
        ])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    let holds = ran.status.success();
    assert!(holds, "{said}{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(
        said.lines().collect::<Vec<_>>(),
        [
            "before the restart  1 2",
            "after the restart   3, 1 handshake in all",
            "while PUT fails     1 2, calls go on",
        ]
    );
}
