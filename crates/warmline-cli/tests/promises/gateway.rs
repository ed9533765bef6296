//! A gateway as machines see it: its announcement, admin socket, pages, audit, log and `_meta`.

use std::path::Path;

use serde_json::{Value, json};

use crate::before::{self, Lines, add_shape, add_shapes};
use crate::client::Client;
use crate::home::{BINARY, Home, Response, Running, admin, http, until};
use crate::lists::of_metrics_page;

const CRASH: &str = r#"{"tool":"pay","fault":{"crash":"after-executing"}}"#;

fn config(home: &Home) -> String {
    let audit = home.path().join("audit").display().to_string();
    format!(
        r#"
        [gateway]
        sse = true
        [audit]
        file = "{audit}"
        arguments = ["title"]
        [servers.pipe]
        command = ["{BINARY}", "demo-server", "--stdio", "--era", "legacy"]
        spares = 1
        [servers.crash]
        command = ["{BINARY}", "demo-server", "--stdio", "--era", "legacy", "--", "--fault", '{CRASH}']
        required = false
        [servers.broken]
        command = ["/no/such"]
        "#
    )
}

/// A gateway with an admin socket, and a client of it.
struct Scene {
    home: Home,
    serving: Running,
    token: String,
}

impl Scene {
    fn new() -> Self {
        let home = Home::new();
        home.write("gateway.toml", &config(&home));
        let words = ["--config", "gateway.toml", "--admin", "admin"];
        let serving = Running::serve(&home, &words);
        let token = std::fs::read_to_string(home.state().join("local-token")).unwrap();
        Self {
            home,
            serving,
            token: token.trim().to_owned(),
        }
    }

    fn admin(&self, request: &str, path: &str) -> Value {
        let response = admin(&self.home.path().join("admin"), request, path, "");
        let is_ours = response.header("warmline-version").is_some();
        assert!(is_ours, "{}", response.head);
        response.json()
    }

    fn client(&self) -> Client<'_> {
        Client {
            gateway: self.serving.url(),
            token: Some(&self.token),
        }
    }

    fn call(&self, path: &str, tool: &str, arguments: &Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments});
        let session = self.client().session(path);
        self.client()
            .ask(path, &session, "tools/call", &params)
            .json()
    }

    fn page(&self, path: &str) -> Response {
        let url = format!("{}{path}", self.serving.said["ops"].as_str().unwrap());
        http(&url, "GET", &[], "")
    }

    fn has_a_spare(&self) {
        until("a spare is opened", || {
            let servers = self.admin("GET", "/admin/servers");
            let mut servers = servers["servers"].as_array().unwrap().iter();
            servers.any(|server| server["spares"] == 1)
        });
    }

    /// What clients do here: a call that works, one that is lost, one that is refused, a list with
    /// a server that cannot be met, and strangers.
    fn play(&self) -> Lines {
        let mut lines = Lines::new();
        let mut add = |name: &str, value: &Value| add_shape(name, value, &mut lines);
        let pipe = "/runs/trip/servers/pipe/mcp";
        add("call", &self.call(pipe, "counter", &json!({})));
        add(
            "call failed",
            &self.call(pipe, "note_read", &json!({"title": "x"})),
        );
        self.has_a_spare();
        let crash = "/runs/trip/servers/crash/mcp";
        add("call of a run", &self.call(crash, "counter", &json!({})));
        add("call lost", &self.call(crash, "pay", &json!({"amount": 1})));
        add("call healed", &self.call(crash, "counter", &json!({})));
        let client = self.client();
        let broken = client.initialize("/servers/broken/mcp", &json!({}));
        add("open nothing", &broken.json());
        add("open", &client.initialize(pipe, &json!({})).json());
        let list = |path: &str, session: &str| client.ask(path, session, "tools/list", &json!({}));
        let listed = list("/mcp", &client.session("/mcp")).json();
        add("list meta", &listed["result"]["_meta"]);
        add("unknown session", &list(pipe, "forged").json());
        add("no such path", &list("/nothing", "none").json());
        let stranger = Client {
            token: None,
            ..client
        };
        add("stranger", &stranger.initialize(pipe, &json!({})).json());
        lines
    }
}

fn pages(scene: &Scene) -> Lines {
    let mut lines = Lines::new();
    for path in ["/readyz", "/servers"] {
        let page = scene.page(path);
        lines.insert(format!("{path} answers {}", page.status));
        add_shape(path, &page.json(), &mut lines);
    }
    let alive = scene.page("/livez");
    lines.insert(format!(
        "/livez answers {} {}",
        alive.status,
        alive.body.trim()
    ));
    lines
}

fn admin_replies(scene: &Scene) -> Lines {
    let mut lines = Lines::new();
    for path in ["", "/servers", "/runs", "/sessions", "/nothing"] {
        let path = format!("/admin{path}");
        add_shape(&path, &scene.admin("GET", &path), &mut lines);
    }
    let mut pool = scene.admin("GET", "/admin/mcp-pool/metrics");
    let numbers = pool.as_object_mut().unwrap().remove("numbers").unwrap();
    add_shape("/admin/mcp-pool/metrics", &pool, &mut lines);
    for part in ["engine", "servers"] {
        let own = numbers[part].as_array().unwrap().iter();
        for number in own.flat_map(|one| one["numbers"].as_array().cloned().unwrap_or_default()) {
            let name = number["name"].as_str().unwrap();
            add_shape(&format!("numbers of {part} {name}"), &number, &mut lines);
        }
        for number in numbers[part].as_array().unwrap() {
            if let Some(name) = number["name"].as_str() {
                add_shape(&format!("numbers of {part} {name}"), number, &mut lines);
            }
        }
    }
    for (request, path) in [
        ("DELETE", "/admin/servers/pipe/sessions/9.9"),
        ("DELETE", "/admin/servers/none/sessions"),
        ("DELETE", "/admin/servers/pipe/sessions"),
        ("DELETE", "/admin/runs/none"),
        ("DELETE", "/admin/runs/trip"),
        ("POST", "/admin/reload"),
        ("PUT", "/admin/reload"),
        ("POST", "/admin/join"),
    ] {
        let name = format!("{request} {path}");
        add_shape(&name, &scene.admin(request, path), &mut lines);
    }
    scene.home.write("gateway.toml", "[servers.x]\nurl = 1\n");
    let refused = scene.admin("POST", "/admin/reload");
    add_shape("POST /admin/reload refused", &refused, &mut lines);
    scene.home.write("gateway.toml", &config(&scene.home));
    lines
}

fn file_lines(path: &Path) -> Lines {
    let mut lines = Lines::new();
    let text = std::fs::read_to_string(path).unwrap();
    add_shapes("audit", &text, &mut lines);
    lines
}

/// Messages that the runbook tells people to look for, and those of events; others may be reworded.
const MESSAGES: [&str; 6] = [
    "call failed",
    "child exited",
    "configuration not read again",
    "healed",
    "opening failed",
    "request refused",
];

/// Lines of the log, each under its message. Which file wrote it is no promise.
fn log_lines(log: &str) -> Lines {
    let mut lines = Lines::new();
    for line in log.lines() {
        let mut said: Value =
            serde_json::from_str(line).unwrap_or_else(|_| panic!("{line} is no JSON"));
        let message = said["message"].as_str().unwrap_or_default().to_owned();
        let mut known = MESSAGES.iter();
        let message = known.find(|known| message.starts_with(**known));
        let message = message.map_or("another message", |known| *known);
        let members = said.as_object_mut().unwrap();
        for (member, words) in [("message", "text"), ("what", "text"), ("why", "text")] {
            if members.contains_key(member) {
                members.insert(member.to_owned(), json!(words));
            }
        }
        add_shape(&format!("log `{message}`"), &said, &mut lines);
    }
    lines
}

#[test]
fn a_gateway_tells_machines_what_it_told_before() {
    let mut scene = Scene::new();
    let socket = scene.home.path().join("admin");
    // The stream ends with the gateway.
    let listening = std::thread::spawn(move || admin(&socket, "GET", "/admin/events", "").body);
    let mut announced = Lines::new();
    add_shape("serve", &scene.serving.said, &mut announced);
    before::same("gateway-announced.txt", &announced);
    before::same("gateway-replies.txt", &scene.play());
    before::same("gateway-pages.txt", &pages(&scene));
    let metrics = of_metrics_page(&scene.page("/metrics").body);
    before::nothing_is_lost("gateway-metrics.txt", &metrics);
    before::nothing_is_lost("gateway-admin.txt", &admin_replies(&scene));
    let draining = scene.admin("POST", "/admin/drain");
    assert_eq!(draining, json!({"draining": true}));
    let log = scene.serving.ended();
    before::nothing_is_lost("gateway-log.txt", &log_lines(&log));
    let audit = file_lines(&scene.home.path().join("audit"));
    before::nothing_is_lost("gateway-audit.txt", &audit);
    let mut events = Lines::new();
    add_shapes("event", &listening.join().unwrap(), &mut events);
    before::nothing_is_lost("gateway-events.txt", &events);
}
