//! Playwright's browser server: what was navigated to is still there when it is clicked on, though
//! every call comes from a client session of its own.

use crate::prelude::*;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::thread;

use super::client::Client;
use super::server_lists::{Behind, off};
use super::stdio_process;

const PAGE: &str = "<!doctype html><title>Lamp</title>\
    <button onclick=\"document.body.append('the lamp is on')\">Switch on</button>";

/// A page on a free port; it is served for as long as the test runs.
fn page() -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let place = format!("http://{}/", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut socket in listener.incoming().map_while(Result::ok) {
            let mut lines = BufReader::new(socket.try_clone().unwrap()).lines();
            // The browser may leave before it is answered.
            while lines
                .next()
                .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
            {}
            let length = PAGE.len();
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close";
            write!(socket, "{head}\r\nContent-Length: {length}\r\n\r\n{PAGE}").ok();
        }
    });
    place
}

/// Where Debian puts it.
const CHROMIUM: &str = "/usr/bin/chromium";

/// The server, with the browser of this machine.
fn playwright(folder: &Path) -> Program {
    let is_there = Path::new(CHROMIUM).exists();
    assert!(is_there, "there is no {CHROMIUM}; run `make parts`");
    let words = [
        "--headless",
        "--browser",
        "chromium",
        "--executable-path",
        CHROMIUM,
        "--no-sandbox",
        "--isolated",
        "--output-dir",
    ];
    let server = node("node_modules/@playwright/mcp/cli.js");
    let server = words.iter().fold(server, |server, word| server.with(*word));
    server.with(text(folder))
}

/// Calls a tool from a client session of its own; gives the text of its result.
async fn call(url: &str, tool: &str, arguments: Value) -> String {
    let (url, params) = (
        url.to_owned(),
        json!({"name": tool, "arguments": arguments}),
    );
    let raw = off(move || Client::begin(&url, Era::Legacy).request("tools/call", params)).await;
    let result: Value = serde_json::from_str(&raw).unwrap();
    assert_ne!(result["isError"], json!(true), "{raw}");
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

/// P18: navigate, then click, each in a client session of its own.
#[tokio::test]
async fn a_browser_keeps_its_page_between_client_sessions() {
    let folder = TempDir::new().unwrap();
    let program = playwright(folder.path());
    let words = std::iter::once(program.program()).chain(program.args.clone());
    let behind = Behind::new(Server::stdio("real", words).cwd(folder.path())).await;
    let url = behind.url();
    let through = {
        let url = url.clone();
        off(move || Client::begin(&url, Era::Legacy).request("tools/list", json!({}))).await
    };
    let direct = off(move || stdio_process::tools(&program, &[], Era::Legacy)).await;
    assert_eq!(through, direct);

    call(&url, "browser_navigate", json!({"url": page()})).await;
    let seen = call(&url, "browser_snapshot", json!({})).await;
    let button = seen
        .split("[ref=")
        .nth(1)
        .and_then(|rest| rest.split(']').next());
    let target = button.unwrap_or_else(|| panic!("there is no button: {seen}"));
    call(
        &url,
        "browser_click",
        json!({"element": "the button", "target": target}),
    )
    .await;
    let seen = call(&url, "browser_snapshot", json!({})).await;
    assert!(seen.contains("the lamp is on"), "{seen}");
    behind.finish().await;
}
