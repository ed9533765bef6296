//! What a server sees of the gateway: the members that are added to a call, and the run that a
//! client may name in one.

use serde_json::json;

use crate::before::{self, Lines, add_shape};
use crate::client::Client;
use crate::fake::Fake;
use crate::home::{Home, Running};

#[test]
fn a_server_sees_the_members_that_it_saw_before() {
    let fake = Fake::start();
    let home = Home::new();
    let url = &fake.base;
    home.write(
        "gateway.toml",
        &format!(
            "[servers.legacy]\nurl = '{url}/legacy/mcp'\ndedupe = 'call_id'\n\
             [servers.modern]\nurl = '{url}/modern/mcp'\ndedupe = 'call_id'\n"
        ),
    );
    let serving = Running::serve(&home, &["--config", "gateway.toml", "--auth", "none"]);
    let mut lines = Lines::new();
    for server in ["legacy", "modern"] {
        fake.asked();
        let url = format!("{}/servers/{server}/mcp", serving.url());
        let words = ["call", &url, "ask", "--era", server];
        home.run(&words);
        for asked in fake.asked() {
            let name = format!("{server} {} {}", asked.verb, asked.method());
            let mut message = asked.message.clone();
            // The client's own version of the protocol and name stand in it too.
            if let Some(message) = message.as_object_mut() {
                message.remove("id");
            }
            add_shape(&name, &message, &mut lines);
        }
    }
    before::nothing_is_lost("wire-servers.txt", &lines);
    drop(serving.stop());
}

/// `_meta["dev.warmline/run"]` names a run: calls that name the same one share its session.
#[test]
fn a_client_names_its_run_in_a_call() {
    let home = Home::new();
    let server = Running::demo_server(&home, &["--era", "legacy"]);
    let file = format!("[servers.demo]\nurl = '{}'\n", server.url());
    home.write("gateway.toml", &file);
    let serving = Running::serve(&home, &["--config", "gateway.toml", "--auth", "none"]);
    let client = Client {
        gateway: serving.url(),
        token: None,
    };
    let (path, meta) = ("/servers/demo/mcp", json!({"dev.warmline/run": "trip"}));
    for count in 1..=2 {
        let greeted = client.initialize(path, &meta);
        let session = greeted.header("mcp-session-id").unwrap();
        let called = client.ask(path, session, "tools/call", &json!({"name": "counter"}));
        let called = called.json();
        assert_eq!(
            called["result"]["structuredContent"]["count"], count,
            "{called}"
        );
    }
    drop(serving.stop());
}
