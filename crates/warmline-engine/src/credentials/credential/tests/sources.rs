//! Where secrets come from, what counts as the same credential, and what is never printed.

use std::path::Path;

use super::*;

/// Variables that are set wherever tests run; a test may not set any.
const SET: &str = "CARGO_PKG_NAME";
const NOT_SET: &str = "WARMLINE_TEST_NOT_SET";

async fn ready(secret: Secret) -> Result<Option<String>, Diagnostic> {
    let credential = bearer(secret);
    credential.ensure_ready().await?;
    Ok(shown(&credential))
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

#[tokio::test]
async fn each_source_gives_its_secret() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    write(&file, "  from-file\n");
    let table = [
        (Secret::new(" value "), "Bearer value"),
        (Secret::env(SET), "Bearer warmline-engine"),
        (Secret::file(&file), "Bearer from-file"),
        (Secret::command(["printf", "printed"]), "Bearer printed"),
        (
            Secret::provider(Scripted::new([SourceReply::Token("given")])),
            "Bearer given",
        ),
    ];
    for (secret, value) in table {
        let name = format!("{secret:?}");
        assert_eq!(ready(secret).await.unwrap().unwrap(), value, "{name}");
    }
}

/// A177: the first source that is there speaks; A178: none sends nothing.
#[tokio::test]
async fn the_first_source_that_is_there_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    write(&file, "file");
    let missing = || Secret::env(NOT_SET);
    let table = [
        (
            Secret::first_of([Secret::new("call"), Secret::env(SET)]),
            Some("Bearer call"),
        ),
        (
            Secret::first_of([missing(), Secret::env(SET)]),
            Some("Bearer warmline-engine"),
        ),
        (
            Secret::first_of([missing(), Secret::file(&file)]),
            Some("Bearer file"),
        ),
        (
            Secret::first_of([Secret::new(""), missing()]).optional(),
            None,
        ),
        (missing().optional(), None),
        (Secret::file(folder.path().join("no")).optional(), None),
    ];
    for (secret, value) in table {
        assert_eq!(ready(secret).await.unwrap().as_deref(), value);
    }
    // One that is there and fails is not passed over for a lesser one.
    let failing = Secret::provider(Scripted::new([SourceReply::Fails("broken")]));
    let both = Secret::first_of([failing, Secret::new("lesser")]).optional();
    assert_eq!(ready(both).await.unwrap_err().message, "broken");
}

#[tokio::test]
async fn what_cannot_be_had_or_sent_is_a_typed_error_without_the_value() {
    let folder = tempfile::tempdir().unwrap();
    let large = folder.path().join("large");
    write(&large, &"canary".repeat(20_000));
    let empty = folder.path().join("empty");
    write(&empty, " \n");
    let binary = folder.path().join("binary");
    std::fs::write(&binary, b"canary\xff").unwrap();
    let table = [
        (Secret::env(NOT_SET), "is not set"),
        (Secret::env(""), "is not set"),
        (Secret::env("A=B"), "is not set"),
        (Secret::new("canary\nX-Evil: 1"), "no header can carry"),
        (Secret::new("canary-ä"), "no header can carry"),
        (Secret::new(" "), "is empty"),
        (
            Secret::command(["printf", "canary\\ncanary"]),
            "no header can carry",
        ),
        (
            Secret::file(folder.path().join("no")),
            "there is no such file",
        ),
        (Secret::file(folder.path()), "it is a folder, not a file"),
        (Secret::file(&large), "it is larger than 64 KiB"),
        (Secret::file(&empty), "it is empty"),
        (Secret::file(&binary), "it is no text"),
        (Secret::first_of([]), "no source is named"),
        (
            Secret::header("X-Token").unwrap(),
            "the caller sent no `x-token`",
        ),
    ];
    for (secret, words) in table {
        let diagnostic = ready(secret).await.unwrap_err();
        assert_eq!(diagnostic.code, Code::CredentialUnavailable);
        let said = format!(
            "{diagnostic} {}",
            diagnostic.cause.clone().unwrap_or_default()
        );
        assert!(said.contains(words), "{said}");
        assert!(
            !format!("{diagnostic:?}").contains("canary"),
            "{diagnostic:?}"
        );
    }
}

/// A119, P53: what a file says by now is what is sent, within a second.
#[tokio::test(start_paused = true)]
async fn a_file_that_changed_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    write(&file, "one");
    let credential = bearer(Secret::file(&file));
    credential.ensure_ready().await.unwrap();
    write(&file, "two");
    clock::sleep(Duration::from_secs(1)).await;
    credential.ensure_ready().await.unwrap();
    assert_eq!(shown(&credential).unwrap(), "Bearer two");
    let seen = credential.epoch();
    write(&file, "three");
    // After a 401 nobody waits for the second to be over.
    assert_eq!(
        credential.refresh(seen).await.unwrap(),
        RefreshOutcome::NewToken
    );
    assert_eq!(shown(&credential).unwrap(), "Bearer three");
}

#[tokio::test]
async fn a_file_per_identity_is_found_by_a_checked_name() {
    let folder = tempfile::tempdir().unwrap();
    let pattern = folder.path().join("{identity}").join("github");
    for name in ["alice", "bob"] {
        write(
            &folder.path().join(name).join("github"),
            &format!("of-{name}"),
        );
    }
    write(&folder.path().parent().unwrap().join("github"), "of-nobody");
    let source = CredentialSource::bearer(Secret::file(&pattern));
    for name in ["alice", "bob"] {
        let credential = credential_of(name, &source);
        credential.ensure_ready().await.unwrap();
        assert_eq!(shown(&credential).unwrap(), format!("Bearer of-{name}"));
    }
    for name in ["..", "../alice", "alice/../bob", ".", "", "a/b", "alice\0"] {
        let diagnostic = credential_of(name, &source)
            .ensure_ready()
            .await
            .unwrap_err();
        assert_eq!(diagnostic.code, Code::CredentialUnavailable, "{name:?}");
        assert!(
            diagnostic
                .cause
                .unwrap()
                .contains("cannot be part of a path")
        );
    }
    std::fs::remove_file(folder.path().parent().unwrap().join("github")).unwrap();
}

/// A103, P55: the id is that of the source, not of a token's bytes.
#[tokio::test]
async fn a_refreshed_token_keeps_its_id() {
    let provider = Scripted::new([SourceReply::Token("old"), SourceReply::Token("new")]);
    let credential = provided(&provider);
    let id = credential.id();
    credential.ensure_ready().await.unwrap();
    credential.refresh(credential.epoch()).await.unwrap();
    assert_eq!(credential.id(), id);
    assert_eq!(provided(&provider).id(), id);
}

/// A60, A102: sources, forms and values that were handed in are told apart.
#[test]
fn what_differs_is_another_credential() {
    let key = CredentialHeader::new("X-Api-Key", "{}").unwrap();
    let sources = [
        CredentialSource::bearer(Secret::new("one")),
        CredentialSource::bearer(Secret::new("two")),
        CredentialSource::in_header(Secret::new("one"), key),
        CredentialSource::bearer(Secret::env("one")),
        CredentialSource::bearer(Secret::file("one")),
        CredentialSource::bearer(Secret::file("{identity}")),
        CredentialSource::bearer(Secret::command(["one"])),
        CredentialSource::bearer(Secret::command(["one", ""])),
        CredentialSource::bearer(Secret::command(["on", "e"])),
        CredentialSource::bearer(Secret::header("one").unwrap()),
        CredentialSource::bearer(Secret::first_of([Secret::env("one")])),
        CredentialSource::bearer(Secret::first_of([Secret::env("one"), Secret::env("two")])),
        CredentialSource::provider(Scripted::new([])),
    ];
    let ids: Vec<CredentialId> = sources.iter().map(|one| credential(one).id()).collect();
    for (at, id) in ids.iter().enumerate() {
        assert!(!ids[at + 1..].contains(id), "number {at}");
    }
    for (source, id) in sources.iter().zip(&ids) {
        let splits = source.secret.is_per_identity();
        assert_eq!(
            credential_of("bob", source).id() != *id,
            splits,
            "{source:?}"
        );
    }
}

/// A secret of the caller's own request counts by its value, and never comes from `Authorization`.
#[tokio::test]
async fn a_header_of_the_caller_is_opted_in_by_name() {
    let form = CredentialHeader::new("Authorization", "Bearer {}").unwrap();
    let source = CredentialSource::in_header(Secret::header("X-GitHub-Token").unwrap(), form);
    let of = |value: &'static str| {
        let mut headers = HeaderMap::new();
        headers.insert("x-github-token", HeaderValue::from_static(value));
        headers.insert("authorization", HeaderValue::from_static("Bearer canary"));
        credential(&source.clone().with_caller_headers(&headers))
    };
    let one = of("one");
    one.ensure_ready().await.unwrap();
    assert_eq!(shown(&one).unwrap(), "Bearer one");
    assert_eq!(one.id(), of("one").id());
    assert_ne!(one.id(), of("two").id());
    for ours in ["Authorization", "proxy-authorization", "Cookie", "a b"] {
        assert_eq!(Secret::header(ours).unwrap_err().code, Code::ConfigBadValue);
    }
}

/// A66: nothing of a secret is printed, by nobody.
#[tokio::test]
async fn a_secret_is_never_printed() {
    let secret = Secret::new("canary");
    let argument = Secret::command(["printf", "canary"]);
    let credential = bearer(secret.clone());
    credential.ensure_ready().await.unwrap();
    let token = Token::new("canary");
    let texts = [
        format!("{secret:?} {secret:#?} {argument:?}"),
        format!("{token:?} {token:#?}"),
        format!("{credential:?} {credential:#?}"),
        format!("{:?}", credential.header()),
        format!("{:?}", CredentialSource::bearer(argument)),
        format!("{:?}", Secret::first_of([secret])),
    ];
    for text in texts {
        assert!(!text.contains("canary"), "{text}");
    }
}
