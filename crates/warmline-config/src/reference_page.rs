//! The reference page of settings, written from the tables.

use crate::GatewaySettings;
use warmline_engine::settings::{EngineSettings, ServerSettings, Setting, SettingsGroup};

const PAGE_PATH: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/reference/settings.md"
);

/// Parts of the page that are written from the tables: the name of a part, and the first setting
/// of it. A part goes on until the next one begins.
const SERVER_PARTS: &[(&str, &str)] = &[
    ("sessions", "sessions"),
    ("health", "check_after"),
    ("calls", "on_state_loss"),
    ("protocol", "era"),
    ("times", "connect_timeout"),
    ("sizes", "max_reply"),
];
const ENGINE_PARTS: &[(&str, &str)] = &[
    ("pool", "pool.enabled"),
    ("limits", "limits.sessions"),
    ("runs", "runs.idle"),
    ("store", "store.path"),
    ("identity", "identity.headers"),
];
const GATEWAY_PARTS: &[(&str, &str)] = &[
    ("gateway", "gateway.listen"),
    ("jwt", "gateway.jwt.issuer"),
    ("resource", "gateway.resource.url"),
    ("admin", "admin.socket"),
    ("audit", "audit.file"),
    ("ops", "ops.listen"),
    ("log", "log.level"),
];

/// The page names every setting with what may be said, its default and its variables.
#[test]
fn the_reference_page_says_what_the_tables_say() {
    let page = std::fs::read_to_string(PAGE_PATH).unwrap();
    assert!(
        render_page(&page) == page,
        "docs/reference/settings.md is behind the tables; write it again:\n\
         make pages"
    );
}

#[test]
#[ignore = "writes the page instead of looking at it"]
fn write_the_reference_page() {
    let page = std::fs::read_to_string(PAGE_PATH).unwrap();
    std::fs::write(PAGE_PATH, render_page(&page)).unwrap();
}

/// The page with every part between `<!-- settings: NAME -->` and `<!-- end -->` written again.
fn render_page(page: &str) -> String {
    let mut parts = render_parts::<ServerSettings>(SERVER_PARTS);
    parts.extend(render_parts::<EngineSettings>(ENGINE_PARTS));
    parts.extend(render_parts::<GatewaySettings>(GATEWAY_PARTS));
    let mut out = page.to_owned();
    for (name, table) in parts {
        let begin = format!("<!-- settings: {name} -->\n");
        let (before, rest) = out
            .split_once(&begin)
            .unwrap_or_else(|| panic!("the page has no part `{name}`"));
        let (_, after) = rest.split_once("<!-- end -->").unwrap();
        out = format!("{before}{begin}{table}<!-- end -->{after}");
    }
    out
}

fn render_parts<T: SettingsGroup>(parts: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    let begins = |key: &str| {
        let at = T::TABLE.iter().position(|setting| setting.key == key);
        at.unwrap_or_else(|| panic!("no setting is called `{key}`"))
    };
    let mut out = Vec::new();
    for (place, (name, first)) in parts.iter().enumerate() {
        let end = parts
            .get(place + 1)
            .map_or(T::TABLE.len(), |(_, next)| begins(next));
        out.push((*name, render_table(&T::TABLE[begins(first)..end])));
    }
    let all: usize = T::TABLE.len();
    let told: usize = out.iter().map(|(_, table)| table.lines().count() - 2).sum();
    assert_eq!(told, all, "every setting stands in one part");
    out
}

fn render_table<T: SettingsGroup>(settings: &[Setting<T>]) -> String {
    let mut out =
        String::from("| key | value | default | means | variable |\n|---|---|---|---|---|\n");
    let usual = T::default();
    for setting in settings {
        let key = setting
            .key
            .rsplit_once('.')
            .map_or(setting.key, |(table, key)| {
                // Other tables have a heading of their own.
                if table == "breaker" { setting.key } else { key }
            });
        let mut variables = format!("`{}`", setting.variable());
        if let Some(other) = setting.foreign_variable {
            variables.push_str(&format!(", `{other}`"));
        }
        out.push_str(&format!(
            "| `{key}` | {} | `{}` | {} | {variables} |\n",
            setting.kind.describe(),
            (setting.get)(&usual),
            setting.help,
        ));
    }
    out
}
