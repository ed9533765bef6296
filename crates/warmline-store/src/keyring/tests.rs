//! Digests that cannot be mixed up, seals that open for nobody else, secrets that stay secret.

use std::collections::HashSet;
use std::fs;
use std::sync::{Arc, Barrier};

use proptest::prelude::*;

use super::*;

const INSTANCE: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const SEAL: &str = "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff000102030405060708090a0b0c0d0e0f";
const OTHER: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

fn vault(text: &str) -> Keyring {
    Keyring::from_text(text).expect("secrets")
}

#[track_caller]
fn opens(vault: &Keyring, sealed: &[u8]) -> Vec<u8> {
    vault.unseal(Purpose::Record, b"", sealed).unwrap()
}

fn usual() -> Keyring {
    vault(&format!("instance={INSTANCE} seal={SEAL}"))
}

/// reliability I5: parts are told apart by more than what stands in them.
#[test]
fn a_million_random_and_adversarial_splits_have_a_million_digests() {
    let vault = usual();
    let mut seen = HashSet::new();
    let mut count = 0_usize;
    let mut add = |parts: &[&[u8]]| {
        seen.insert(vault.digest(Purpose::Identity, parts));
        count += 1;
    };
    // Every way to cut a text into up to four parts, empty ones included: all of them say the
    // same if nobody writes down where a part ends.
    let text = [b'a'; 90];
    for i in 0..=text.len() {
        for j in i..=text.len() {
            for k in j..=text.len() {
                add(&[&text[..i], &text[i..j], &text[j..k], &text[k..]]);
            }
            add(&[&text[..i], &text[i..j], &text[j..]]);
        }
        add(&[&text[..i], &text[i..]]);
    }
    // Parts that look like lengths.
    for length in 0_u64..256 {
        let prefix = length.to_le_bytes();
        add(&[&prefix]);
        add(&[&prefix, &prefix]);
        add(&[&[prefix, prefix].concat(), &[]]);
    }
    let mut dice = fastrand::Rng::with_seed(5);
    while count < 1_000_000 {
        let random = dice.u128(..).to_le_bytes();
        let cut = dice.usize(..=16);
        let parts = [&random[..cut], &random[cut..]];
        seen.insert(vault.digest(Purpose::Identity, &parts));
        count += 1;
    }
    assert_eq!(seen.len(), count);
}

/// A66: nobody computes a digest without the instance secret, and a purpose is part of it.
#[test]
fn a_digest_hangs_on_the_secret_and_on_the_purpose() {
    let alice: [&[u8]; 1] = [b"alice"];
    let digest = usual().digest(Purpose::Identity, &alice);
    assert_eq!(digest, usual().digest(Purpose::Identity, &alice));
    let other = vault(&format!("instance={OTHER} seal={SEAL}"));
    assert_ne!(digest, other.digest(Purpose::Identity, &alice));
    assert_ne!(digest, usual().digest(Purpose::Run, &alice));
    // Another way of computing it would lose every record there is.
    assert_eq!(digest.to_hex(), "d3d75dc82114259e0c187126118eed4a");
}

/// reliability T13, reliability P32: another purpose, another binding, another instance: nothing opens.
#[test]
fn a_seal_opens_for_what_it_was_made_for_and_for_nothing_else() {
    let vault = usual();
    let sealed = vault.seal(Purpose::Record, b"key", b"secret").unwrap();
    assert_eq!(
        vault.unseal(Purpose::Record, b"key", &sealed),
        Ok(b"secret".to_vec())
    );
    let changed = Err(UnsealError::Changed);
    assert_eq!(vault.unseal(Purpose::Ticket, b"key", &sealed), changed);
    assert_eq!(vault.unseal(Purpose::Record, b"kez", &sealed), changed);
    assert_eq!(vault.unseal(Purpose::Record, b"", &sealed), changed);
    let other = vault_with_ring(&[OTHER]);
    assert_eq!(
        other.unseal(Purpose::Record, b"key", &sealed),
        Err(UnsealError::UnknownKey)
    );
    assert_ne!(
        sealed,
        vault.seal(Purpose::Record, b"key", b"secret").unwrap()
    );
    assert!(!sealed.windows(6).any(|window| window == b"secret"));
}

fn vault_with_ring(keys: &[&str]) -> Keyring {
    let ring: Vec<String> = keys.iter().map(|key| format!("seal={key}")).collect();
    vault(&format!("instance={INSTANCE},{}", ring.join(",")))
}

/// reliability F45: each byte cut, each bit flipped.
#[test]
fn a_changed_or_missing_bit_opens_nothing() {
    let vault = usual();
    let sealed = vault.seal(Purpose::Record, b"key", b"secret").unwrap();
    for at in 0..sealed.len() {
        assert!(
            vault
                .unseal(Purpose::Record, b"key", &sealed[..at])
                .is_err()
        );
        for bit in 0..8 {
            let mut changed = sealed.clone();
            changed[at] ^= 1 << bit;
            assert!(vault.unseal(Purpose::Record, b"key", &changed).is_err());
        }
    }
}

proptest! {
    #[test]
    fn whatever_is_sealed_comes_back(plain: Vec<u8>, bound: Vec<u8>) {
        let vault = usual();
        let sealed = vault.seal(Purpose::RequestState, &bound, &plain).unwrap();
        prop_assert_eq!(vault.unseal(Purpose::RequestState, &bound, &sealed), Ok(plain));
    }

    #[test]
    fn no_bytes_open_by_chance(bytes: Vec<u8>) {
        prop_assert!(usual().unseal(Purpose::Ticket, b"", &bytes).is_err());
    }
}

/// reliability T13: the first key seals, all of them unseal.
#[test]
fn a_new_key_in_front_seals_and_old_ones_go_on_unsealing() {
    let before = vault_with_ring(&[SEAL]);
    let after = vault_with_ring(&[OTHER, SEAL]);
    let old = before.seal(Purpose::Record, b"", b"old").unwrap();
    let new = after.seal(Purpose::Record, b"", b"new").unwrap();
    assert_eq!(opens(&after, &old), b"old");
    assert_eq!(opens(&after, &new), b"new");
    assert_eq!(
        before.unseal(Purpose::Record, b"", &new),
        Err(UnsealError::UnknownKey)
    );
}

#[test]
fn keys_of_a_process_rotate_in_it() {
    let vault = Keyring::ephemeral().unwrap();
    let old = vault.seal(Purpose::Ticket, b"", b"old").unwrap();
    let digest = vault.digest(Purpose::Identity, &[b"alice"]);
    vault.rotate().unwrap();
    let new = vault.seal(Purpose::Ticket, b"", b"new").unwrap();
    assert_ne!(old[1..5], new[1..5], "another key");
    assert_eq!(
        vault.unseal(Purpose::Ticket, b"", &old),
        Ok(b"old".to_vec())
    );
    assert_eq!(vault.digest(Purpose::Identity, &[b"alice"]), digest);
    assert!(!vault.rotate_if_older(Duration::from_secs(3600)).unwrap());
    let many = (0..40)
        .map(|_| vault.rotate())
        .collect::<Result<Vec<_>, _>>();
    assert!(
        many.is_ok() && vault.sealing_keys.load().0.len() <= 16,
        "{vault:?}"
    );
}

/// Clocks that jump: the key before the present one always stays.
#[test]
fn old_keys_leave_the_ring_by_age_but_never_all_of_them() {
    let day = 24 * 60 * 60;
    for (newer, replaced_at, now, stays) in [
        (1, 0, 99 * day, true),
        (2, 0, 29 * day, true),
        (2, 0, 31 * day, false),
        (2, 50 * day, 0, true),
        (16, 0, 0, false),
    ] {
        assert_eq!(
            secrets::keeps_key(newer, replaced_at, now),
            stays,
            "{newer} {now}"
        );
    }
    assert!(
        !secrets::is_rotation_due(1_000, Duration::from_secs(60), 500),
        "from the future"
    );
}

#[test]
fn secrets_that_cannot_be_read_are_refused_without_being_shown() {
    let twice = format!("instance={INSTANCE} instance={INSTANCE} seal={SEAL}");
    let short = "abcdef0123456789";
    for text in [
        "",
        "# nothing",
        short,
        &format!("{INSTANCE} {SEAL}"),
        &format!("instance={INSTANCE}"),
        &format!("seal={SEAL}"),
        &twice,
        &format!("instance={INSTANCE} seal={SEAL}@soon"),
        &format!("instance={INSTANCE} seal={short}"),
        &format!("instance={INSTANCE} seal={SEAL} password=hunter2"),
        &format!("instance={} seal={SEAL}", "é".repeat(32)),
        &"seal=0 ".repeat(9_000),
    ] {
        let diagnostic = Keyring::from_text(text).expect_err(text);
        assert_eq!(diagnostic.code, Code::ConfigBadValue);
        let shown = format!("{diagnostic:?}");
        for secret in [INSTANCE, SEAL, short, "hunter2"] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }
}

#[test]
fn one_secret_stands_for_both_and_forms_mean_the_same() {
    let one = vault(INSTANCE);
    let sealed = one.seal(Purpose::Record, b"", b"x").unwrap();
    let again = vault(&format!("  {INSTANCE}\n"));
    assert_eq!(opens(&again, &sealed), b"x");
    let lines = vault(&format!(
        "# for people\ninstance={INSTANCE}\nseal={SEAL}@12\n"
    ));
    let alice: [&[u8]; 1] = [b"alice"];
    let digest = |vault: &Keyring| vault.digest(Purpose::Identity, &alice);
    assert_eq!(digest(&lines), digest(&usual()));
    assert_ne!(digest(&one), digest(&usual()), "never the secret itself");
}

/// reliability P30: whoever prints a vault shows nothing.
#[test]
fn a_printed_vault_shows_no_secret() {
    let shown = format!("{:?}", usual());
    assert!(
        !shown.contains("0001") && !shown.contains("f0f1"),
        "{shown}"
    );
}

#[test]
fn given_secrets_are_rotated_by_whoever_gave_them() {
    assert_eq!(usual().rotate().unwrap_err().code, Code::ConfigBadValue);
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

#[test]
fn a_folder_gets_secrets_once_and_keeps_them() {
    let folder = folder();
    let inside = folder.path().join("state/warmline");
    let first = Keyring::in_folder(&inside).unwrap();
    let sealed = first.seal(Purpose::Record, b"", b"x").unwrap();
    let second = Keyring::in_folder(&inside).unwrap();
    assert_eq!(opens(&second, &sealed), b"x");
    let alice: [&[u8]; 1] = [b"alice"];
    assert_eq!(
        first.digest(Purpose::Run, &alice),
        second.digest(Purpose::Run, &alice)
    );
    let by_file = Keyring::from_file(&inside.join("secrets")).unwrap();
    assert_eq!(opens(&by_file, &sealed), b"x");
    let names: Vec<_> = fs::read_dir(&inside)
        .unwrap()
        .map(|it| it.unwrap().file_name())
        .collect();
    assert_eq!(names, ["secrets"], "no draft is left");
}

#[test]
fn secrets_in_a_folder_are_readable_by_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = folder();
    let inside = folder.path().join("state");
    drop(Keyring::in_folder(&inside).unwrap());
    let file = inside.join("secrets");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&inside), mode(&file)), (0o700, 0o600));

    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let diagnostic = Keyring::in_folder(&inside).unwrap_err();
    assert_eq!(diagnostic.code, Code::StoreUnavailable);
    assert!(diagnostic.hint.unwrap().contains("chmod 600"));
}

/// Any number of starts at once: one makes the secrets, all have the same.
#[test]
fn many_who_start_at_once_get_the_same_secrets() {
    let folder = folder();
    let together = Arc::new(Barrier::new(8));
    let digests: Vec<_> = (0..8)
        .map(|_| {
            let (folder, together) = (folder.path().to_owned(), Arc::clone(&together));
            std::thread::spawn(move || {
                together.wait();
                let vault = Keyring::in_folder(&folder).unwrap();
                let sealed = vault.seal(Purpose::Record, b"", b"x").unwrap();
                (vault.digest(Purpose::Run, &[b"r"]), sealed)
            })
        })
        .collect::<Vec<_>>()
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect();
    let vault = Keyring::in_folder(folder.path()).unwrap();
    for (digest, sealed) in digests {
        assert_eq!(digest, vault.digest(Purpose::Run, &[b"r"]));
        assert_eq!(opens(&vault, &sealed), b"x");
    }
}

/// A process that rotates does not lock out those that were there before.
#[test]
fn a_rotation_is_seen_by_others_that_share_the_folder() {
    let folder = folder();
    let one = Keyring::in_folder(folder.path()).unwrap();
    let other = Keyring::in_folder(folder.path()).unwrap();
    let old = one.seal(Purpose::Record, b"", b"old").unwrap();
    assert!(!one.rotate_if_older(Duration::from_secs(3600)).unwrap());
    one.rotate().unwrap();
    let new = one.seal(Purpose::Record, b"", b"new").unwrap();
    assert_eq!(opens(&other, &new), b"new");
    assert_eq!(opens(&one, &old), b"old");
    assert_eq!(one.sealing_keys.load().0.len(), 2);
    assert_eq!(
        other.digest(Purpose::Run, &[]),
        one.digest(Purpose::Run, &[])
    );
}

#[test]
fn only_one_of_many_rotates_what_is_due() {
    let folder = folder();
    drop(Keyring::in_folder(folder.path()).unwrap());
    let aged = fs::read_to_string(folder.path().join("secrets")).unwrap();
    let aged = aged.split('@').next().unwrap().to_owned() + "@1000\n";
    fs::write(folder.path().join("secrets"), aged).unwrap();
    let vaults: Vec<_> = (0..4)
        .map(|_| Keyring::in_folder(folder.path()).unwrap())
        .collect();
    let day = Duration::from_secs(24 * 60 * 60);
    let rotated = vaults
        .iter()
        .filter(|vault| vault.rotate_if_older(day).unwrap());
    assert_eq!(rotated.count(), 1);
    assert!(
        vaults
            .iter()
            .all(|vault| vault.sealing_keys.load().0.len() == 2)
    );
}

#[test]
fn a_folder_or_file_that_cannot_be_used_is_named() {
    let folder = folder();
    let file = folder.path().join("file");
    fs::write(&file, "no secrets").unwrap();
    let diagnostic = Keyring::in_folder(&file).unwrap_err();
    assert_eq!(diagnostic.code, Code::StoreUnavailable);
    assert!(diagnostic.message.contains("file"), "{diagnostic}");
    let diagnostic = Keyring::from_file(&folder.path().join("missing")).unwrap_err();
    assert_eq!(diagnostic.code, Code::StoreUnavailable);
    let diagnostic = Keyring::from_file(&file).unwrap_err();
    assert_eq!(diagnostic.code, Code::ConfigBadValue);
    assert!(diagnostic.message.contains("file"), "{diagnostic}");
    let state = folder.path().join("state");
    drop(Keyring::in_folder(&state).unwrap());
    fs::write(state.join("secrets"), "instance=").unwrap();
    assert_eq!(
        Keyring::in_folder(&state).unwrap_err().code,
        Code::ConfigBadValue
    );
}

/// A pipe where the secrets should be is never waited for.
#[test]
fn secrets_that_are_no_file_are_refused_at_once() {
    let folder = folder();
    let pipe = folder.path().join("secrets");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
    for refused in [Keyring::in_folder(folder.path()), Keyring::from_file(&pipe)] {
        let diagnostic = refused.unwrap_err();
        assert_eq!(diagnostic.code, Code::StoreUnavailable);
        assert!(diagnostic.message.contains("secrets"), "{diagnostic}");
    }
}

/// Another instance's file in the place of ours: its keys are not taken over, and it is told.
#[test]
fn secrets_that_are_replaced_while_we_run_are_not_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let vault = Keyring::in_folder(folder.path()).unwrap();
    let sealed = vault.seal(Purpose::Record, b"here", b"text").unwrap();
    let other = tempfile::tempdir().unwrap();
    let others = Keyring::in_folder(other.path()).unwrap();
    fs::rename(other.path().join("secrets"), folder.path().join("secrets")).unwrap();
    let theirs = others.seal(Purpose::Record, b"here", b"text").unwrap();
    let opened = vault.unseal(Purpose::Record, b"here", &theirs);
    assert_eq!(opened, Err(UnsealError::UnknownKey));
    let diagnostic = vault.rotate().unwrap_err();
    assert!(
        diagnostic.message.contains("was replaced"),
        "{diagnostic:?}"
    );
    let opened = vault.unseal(Purpose::Record, b"here", &sealed);
    assert_eq!(opened.unwrap(), b"text", "ours still open what they sealed");
}
