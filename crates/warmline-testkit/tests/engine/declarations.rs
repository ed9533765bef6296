//! What is wrong with a declaration is said when it is built: which server, what, why, what to do.

use crate::prelude::*;

use warmline::Code;

fn browser() -> Server {
    Server::stdio("browser", ["npx", "-y", "some-server"])
}

fn github() -> Server {
    Server::http("github", "https://example.com/mcp")
}

/// Names the server, says what cannot be used and what to do, in words of a program.
#[track_caller]
fn tells(error: &Error, says: &str) {
    assert_eq!(error.code(), Code::ConfigBadValue, "{error:?}");
    let page = error.report().to_string();
    for part in says.split(" … ") {
        assert!(page.contains(part), "no `{part}` in\n{page}");
    }
    assert!(page.contains("hint: "), "{page}");
    let holds = !page.contains("--") && !page.contains("line and column");
    assert!(holds, "{page}");
}

#[tokio::test]
async fn a_server_that_cannot_work_is_refused_when_it_is_built() {
    let bearer = |secret| github().bearer(secret);
    let slow = ToolPolicy {
        total: Some(Duration::ZERO),
        ..ToolPolicy::default()
    };
    #[rustfmt::skip]
    let table = [
        (Server::http("x", "htp:/x"),                      "`x` … its URL … `htp` … http://"),
        (Server::http("x", "example.com/mcp"),             "`x` … its URL … does not begin … http://"),
        (Server::http("x", "https://"),                    "`x` … its URL"),
        (Server::http("x", "https://me:pw@example.com/"),  "`x` … its URL … a password … `bearer`"),
        (Server::stdio("x", [""]),                         "`x` … its command … names no program"),
        (Server::stdio("x", Vec::<String>::new()),         "`x` … its command … names no program"),
        (Server::http("My Server", "https://a.example"),   "`My Server` … a-z"),
        (browser().bearer(Secret::new("t")),               "`browser` … a credential … a program … `env`"),
        (browser().header("X-A", "b"),                     "`browser` … a header … a program"),
        (browser().ca_file("/x.pem"),                      "`browser` … `ca_file` … a program"),
        (browser().env("", "x"),                           "`browser` … a variable … not the name"),
        (browser().env_pass("A=B"),                        "`browser` … a variable … `A=B`"),
        (github().env("A", "b"),                           "`github` … `env` … a URL"),
        (github().cwd("/tmp"),                             "`github` … `cwd` … a URL"),
        (github().header("Mcp-Session-Id", "x"),           "`github` … a header … written by Warmline"),
        (github().header("X-A", "a\nb"),                   "`github` … a header … cannot be sent"),
        (bearer(Secret::env("")),                          "`github` … its credential … not the name of a variable"),
        (bearer(Secret::env("A=B")),                       "`github` … its credential … `A=B`"),
        (bearer(Secret::new(" ")),                         "`github` … its credential … is empty"),
        (bearer(Secret::file("")),                         "`github` … its credential … is empty"),
        (bearer(Secret::command(Vec::<String>::new())),    "`github` … its credential … names no program"),
        (bearer(Secret::first_of([])),                     "`github` … its credential … no sources"),
        (bearer(Secret::first_of([Secret::env("")])),      "`github` … its credential … variable"),
        (github().max_per_key(0),                          "`github` … `max_per_key` cannot be 0 … 1 to"),
        (github().with_policy(|p| p.max_sessions = Some(0)), "`github` … `max_sessions` cannot be 0"),
        (github().deadlines(Duration::ZERO, Duration::from_secs(1)), "`github` … `call_idle_timeout`"),
        (github().deadlines(Duration::from_secs(1), Duration::ZERO), "`github` … `call_timeout`"),
        (github().tool("pay", slow),                       "`github` … `pay` … no time"),
        (browser().spares(1_000),                          "`browser` … `spares` cannot be 1000"),
    ];
    for (server, says) in table {
        let build = || Warmline::builder().server(server.clone()).build();
        tells(&build().unwrap_err(), says);
        // The other ways to declare one say the same.
        let warm = Warmline::builder().build().unwrap();
        tells(&warm.add_server(server.clone()).unwrap_err(), says);
        tells(&warm.once(server).call("tool", ()).await.unwrap_err(), says);
        warm.close().await;
    }
}

#[test]
fn a_name_is_declared_once() {
    let twice = Warmline::builder()
        .server(github())
        .server(browser())
        .server(github());
    tells(
        &twice.build().unwrap_err(),
        "`github` is declared twice … another name",
    );
}

#[test]
fn limits_of_the_whole_engine_are_checked_too() {
    let none = Warmline::builder().limits(|limits| limits.sessions = 0);
    tells(
        &none.build().unwrap_err(),
        "`limits.sessions` cannot be 0 … 1 to",
    );
    let none = Warmline::builder().limits(|limits| limits.waiters_per_key = 0);
    tells(
        &none.build().unwrap_err(),
        "`limits.waiters_per_key` cannot be 0",
    );
}

#[test]
fn what_can_work_is_built_without_a_look_at_anything() {
    let optional = Secret::first_of([Secret::env("NOT_SET"), Secret::new("")]).optional();
    let built = Warmline::builder()
        .server(github().bearer(optional))
        .server(browser().env("A", "").spares(1))
        .server(Server::http("local", "http://127.0.0.1:1/mcp").bearer(Secret::file("/not/there")))
        .build();
    let server_names = built.unwrap().server_names();
    assert_eq!(server_names, ["browser", "github", "local"]);
}
