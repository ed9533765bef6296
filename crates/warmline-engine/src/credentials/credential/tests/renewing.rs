//! Tokens that come and go: the first, the next before its end, and the one after a 401.

use super::*;

/// A104, P53, P54: a thousand calls are refused at once, and the provider is asked once.
#[tokio::test]
async fn a_thousand_refused_calls_make_one_refresh() {
    let provider = Scripted::new([SourceReply::Token("old"), SourceReply::Token("new")]);
    let credential = provided(&provider);
    credential.ensure_ready().await.unwrap();
    assert_eq!(shown(&credential).unwrap(), "Bearer old");
    let seen = credential.epoch();
    let callers: Vec<_> = (0..1000)
        .map(|_| {
            let credential = credential.clone();
            clock::spawn("caller", async move { credential.refresh(seen).await })
        })
        .collect();
    for caller in callers {
        assert_eq!(caller.await.unwrap().unwrap(), RefreshOutcome::NewToken);
    }
    assert_eq!(provider.asked(), 2);
    assert_eq!(provider.refreshes.load(Ordering::SeqCst), 1);
    assert_eq!(shown(&credential).unwrap(), "Bearer new");
    // One that was refused with the old token, and comes late, asks for nothing.
    assert_eq!(
        credential.refresh(seen).await.unwrap(),
        RefreshOutcome::NewToken
    );
    assert_eq!(provider.asked(), 2);
}

/// A117: a thousand first calls ask once.
#[tokio::test]
async fn a_thousand_first_calls_ask_once() {
    let provider = Scripted::new([SourceReply::Token("first")]);
    let credential = provided(&provider);
    assert_eq!(shown(&credential), None);
    assert_eq!(provider.asked(), 0, "nothing is read before the first call");
    let callers = (0..1000).map(|_| credential.ensure_ready());
    for ready in futures_util::future::join_all(callers).await {
        ready.unwrap();
    }
    assert_eq!(provider.asked(), 1);
    assert_eq!(provider.refreshes.load(Ordering::SeqCst), 0);
}

/// A104: a failing refresh is told to all who wait; the old token stays, the next call tries again.
#[tokio::test]
async fn a_failing_refresh_is_told_to_all_and_tried_again() {
    let provider = Scripted::new([
        SourceReply::Token("old"),
        SourceReply::Fails("not logged in"),
        SourceReply::Token("new"),
    ]);
    let credential = provided(&provider);
    credential.ensure_ready().await.unwrap();
    let seen = credential.epoch();
    let callers = (0..100).map(|_| credential.refresh(seen));
    for told in futures_util::future::join_all(callers).await {
        let diagnostic = told.unwrap_err();
        assert_eq!(diagnostic.code, Code::CredentialUnavailable);
        assert_eq!(diagnostic.message, "not logged in");
    }
    assert_eq!(provider.asked(), 2);
    assert_eq!(shown(&credential).unwrap(), "Bearer old");
    assert_eq!(
        credential.refresh(seen).await.unwrap(),
        RefreshOutcome::NewToken
    );
    assert_eq!(provider.asked(), 3);
}

/// P54: those who give up do not take the refresh from the others.
#[tokio::test]
async fn a_caller_who_gives_up_does_not_cancel_the_refresh() {
    let provider = Scripted::new([SourceReply::Token("old"), SourceReply::Token("new")]);
    let credential = provided(&provider);
    credential.ensure_ready().await.unwrap();
    let seen = credential.epoch();
    {
        let mut given_up = std::pin::pin!(credential.refresh(seen));
        let polled = futures_util::future::poll_immediate(given_up.as_mut()).await;
        assert!(polled.is_none(), "the refresh is under way");
    }
    assert_eq!(
        credential.refresh(seen).await.unwrap(),
        RefreshOutcome::NewToken
    );
    assert_eq!(provider.asked(), 2);
}

/// A provider that hangs is cut off in its time, for everybody who waits.
#[tokio::test(start_paused = true)]
async fn a_provider_that_hangs_is_cut_off() {
    let provider = Scripted::new([SourceReply::Hangs, SourceReply::Token("at last")]);
    let credential = provided(&provider);
    let began = clock::now();
    let callers = (0..10).map(|_| credential.ensure_ready());
    for told in futures_util::future::join_all(callers).await {
        let diagnostic = told.unwrap_err();
        assert_eq!(diagnostic.code, Code::CredentialUnavailable);
        assert_eq!(
            diagnostic.message,
            "the credential of `github` gave no answer in 10s"
        );
    }
    assert_eq!(clock::now() - began, Duration::from_secs(10));
    credential.ensure_ready().await.unwrap();
    assert_eq!(provider.asked(), 2);
}

/// A104: a token is renewed before its end, while the old one still serves.
#[tokio::test(start_paused = true)]
async fn a_token_is_renewed_before_its_end_without_waiting() {
    let provider = Scripted::new([
        SourceReply::Lasting("one", 3600),
        SourceReply::Lasting("two", 3600),
    ]);
    let credential = provided(&provider);
    credential.ensure_ready().await.unwrap();
    clock::sleep(Duration::from_secs(3539)).await;
    credential.ensure_ready().await.unwrap();
    assert_eq!(provider.asked(), 1, "it is good for another minute");
    clock::sleep(Duration::from_secs(2)).await;
    let ready = futures_util::future::poll_immediate(credential.ensure_ready()).await;
    assert!(ready.unwrap().is_ok(), "nobody waits for the renewal");
    assert_eq!(shown(&credential).unwrap(), "Bearer one");
    while credential.epoch() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(shown(&credential).unwrap(), "Bearer two");
    assert_eq!(
        (provider.asked(), provider.refreshes.load(Ordering::SeqCst)),
        (2, 1)
    );
}

/// A104: who comes after the end of a token waits for the next.
#[tokio::test(start_paused = true)]
async fn a_token_that_is_over_is_replaced_before_the_call() {
    let provider = Scripted::new([
        SourceReply::Lasting("one", 40),
        SourceReply::Lasting("two", 40),
    ]);
    let credential = provided(&provider);
    credential.ensure_ready().await.unwrap();
    clock::sleep(Duration::from_secs(41)).await;
    credential.ensure_ready().await.unwrap();
    assert_eq!(shown(&credential).unwrap(), "Bearer two");
}

/// A104: a renewal that fails harms nobody while the old token is good.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_fails_is_told_only_when_the_token_is_over() {
    let provider = Scripted::new([
        SourceReply::Lasting("one", 40),
        SourceReply::Fails("closed"),
    ]);
    let credential = provided(&provider);
    credential.ensure_ready().await.unwrap();
    for _ in 0..9 {
        clock::sleep(Duration::from_secs(4)).await;
        credential.ensure_ready().await.unwrap();
    }
    let tried = provider.asked();
    assert!((2..=3).contains(&tried), "asked {tried} times in 36 s");
    clock::sleep(Duration::from_secs(5)).await;
    assert_eq!(
        credential.ensure_ready().await.unwrap_err().message,
        "closed"
    );
}

/// reliability D51: the same token again is not worth another try.
#[tokio::test]
async fn the_same_token_again_is_known_to_be_of_no_use() {
    let provider = Scripted::new([SourceReply::Token("same")]);
    let credential = provided(&provider);
    credential.ensure_ready().await.unwrap();
    let seen = credential.epoch();
    assert_eq!(
        credential.refresh(seen).await.unwrap(),
        RefreshOutcome::SameToken
    );
    assert_eq!(
        credential.refresh(seen).await.unwrap(),
        RefreshOutcome::SameToken
    );
    assert_eq!(provider.asked(), 2, "one refresh for any number of callers");
    let fixed = bearer(Secret::new("fixed"));
    fixed.ensure_ready().await.unwrap();
    let seen = fixed.epoch();
    assert_eq!(
        fixed.refresh(seen).await.unwrap(),
        RefreshOutcome::SameToken
    );
    assert!(!fixed.can_refresh());
    assert!(credential.can_refresh());
}

/// A119: a provider that wants to be asked every time is.
#[tokio::test]
async fn a_token_that_lasts_no_time_is_asked_for_before_each_call() {
    let provider = Scripted::new([
        SourceReply::Lasting("one", 0),
        SourceReply::Lasting("two", 0),
    ]);
    let credential = provided(&provider);
    for token in ["Bearer one", "Bearer two"] {
        credential.ensure_ready().await.unwrap();
        assert_eq!(shown(&credential).unwrap(), token);
    }
}

#[tokio::test]
async fn what_a_provider_says_comes_under_the_code_of_credentials() {
    #[derive(Debug)]
    struct Careless;
    impl CredentialProvider for Careless {
        fn fetch<'a>(&'a self, _: TokenRequest<'a>) -> BoxFuture<'a, Result<Token, Diagnostic>> {
            Box::pin(async { Err(Diagnostic::new(Reason::Unauthorized, "the vault said no")) })
        }
        fn label(&self) -> String {
            "careless".to_owned()
        }
    }
    let credential = credential(&CredentialSource::provider(Arc::new(Careless)));
    let diagnostic = credential.ensure_ready().await.unwrap_err();
    assert_eq!(diagnostic.code, Code::CredentialUnavailable);
    assert_eq!(diagnostic.cause.as_deref(), Some("the vault said no"));
}
