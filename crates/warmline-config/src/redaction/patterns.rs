//! Names and looks of secrets.

use super::redact_url;

/// Whether a word looks like a secret: a URL with a user, a query or a secret in its path, a token
/// with the prefix of its service, or letters and digits that form no name.
pub(crate) fn looks_secret(word: &str) -> bool {
    if word.contains("://") {
        return redact_url(word).trim_end_matches('/') != word.trim_end_matches('/');
    }
    let digits = word.chars().filter(char::is_ascii_digit).count();
    let mut marks = TOKEN_PREFIXES.split_ascii_whitespace();
    marks.any(|mark| word.starts_with(mark))
        || (word.len() >= 32 && digits >= 6 && word.chars().all(is_token_char))
        || (word.len() >= 20 && (is_hexadecimal(word) || is_random_looking(word)))
        || is_bot_token(word)
}

fn is_hexadecimal(word: &str) -> bool {
    let has = |kind: fn(&u8) -> bool| word.as_bytes().iter().any(kind);
    word.bytes().all(|byte| byte.is_ascii_hexdigit())
        && has(u8::is_ascii_digit)
        && has(u8::is_ascii_alphabetic)
}

/// Whether small letters, capitals and digits alternate as they do by chance. In a name they change
/// only where the next word begins. Names also have dashes, so a word with dashes must have all three
/// kinds.
fn is_random_looking(word: &str) -> bool {
    let bytes = word.as_bytes();
    let has = |kind: fn(&u8) -> bool| bytes.iter().any(kind);
    let is_dash = |byte: &u8| b"-_".contains(byte);
    let is_plain = bytes
        .iter()
        .all(|byte| byte.is_ascii_alphanumeric() || is_dash(byte));
    let has_all = has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase);
    let may_be_name = bytes.iter().any(is_dash) && !has_all;
    if !is_plain || may_be_name || !has(u8::is_ascii_digit) {
        return false;
    }
    let kind = |byte: u8| (byte.is_ascii_digit(), byte.is_ascii_uppercase());
    let pairs = bytes.iter().zip(bytes.iter().skip(1));
    let pairs = pairs.filter(|(one, next)| !is_dash(one) && !is_dash(next));
    let (all, changes) = pairs.fold((0, 0), |(all, changes), (one, next)| {
        (all + 1, changes + usize::from(kind(*one) != kind(*next)))
    });
    changes * 5 >= all * 2
}

/// The token of a messenger's bot: a number, a colon and a long text, perhaps with `bot` in front.
fn is_bot_token(word: &str) -> bool {
    let Some((number, text)) = word.split_once(':') else {
        return false;
    };
    let number = number.trim_start_matches("bot");
    let is_number = number.len() >= 6 && number.bytes().all(|byte| byte.is_ascii_digit());
    word.len() >= 30 && is_number && text.len() >= 20 && text.chars().all(is_token_char)
}

/// Prefixes by which services mark their tokens.
const TOKEN_PREFIXES: &str = "sk- sk_live_ sk_test_ ghp_ gho_ ghs_ ghu_ github_pat_ xox glpat- wl_ eyJ \
    AKIA AIza hf_ npm_ ntn_ gsk_ figd_ sbp_ lin_api_ pplx- tvly- xai-";

pub(super) fn is_token_char(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "_-.~+=".contains(letter)
}

/// Whether the value of something with this name is a secret.
pub(crate) fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let last = name.rsplit(|letter: char| !letter.is_ascii_alphanumeric());
    let last = last.into_iter().next().unwrap_or_default();
    // `--token-env` names a variable, `--author` a person.
    let name = name.replace("authoriz", "auth-").replace("author", "");
    let has_part = SECRET_NAME_PARTS.iter().any(|part| name.contains(part));
    !NON_SECRET_SUFFIXES.contains(&last) && (has_part || SECRET_WORDS.contains(&last))
}

/// Only as whole words: `--bypass` and `--path` are none.
const SECRET_WORDS: &[&str] = &["pass", "pat", "pwd"];

const SECRET_NAME_PARTS: &[&str] = &[
    "key",
    "token",
    "secret",
    "passw",
    "auth",
    "credential",
    "cookie",
    "bearer",
    "dsn",
];

/// Names with these endings say where a secret is, or of which kind.
const NON_SECRET_SUFFIXES: &[&str] = &[
    "env", "file", "path", "dir", "name", "id", "type", "mode", "url", "uri", "host", "port",
];

#[cfg(test)]
mod tests {
    use super::looks_secret;

    #[test]
    fn a_secret_is_known_by_its_looks() {
        for word in [
            "bot123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw",
            "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw",
            "V1StGXR8-Z5jdHi6B-myT",
            "9f86d081884c7d659a2f",
            "9F86D081884C7D659A2F",
            "9f86d081884c7d659a2feaa0c55ad015",
            "pathtok9f8e7d6c5b4a39281706",
            "x7Yz9Qw2Er4Ty6Ui8Op0A",
            "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed",
        ] {
            assert!(looks_secret(word), "{word}");
            assert!(
                looks_secret(&format!("https://example.com/s/{word}/mcp")),
                "{word}"
            );
        }
    }

    /// What would be left out of a file for nothing, and struck out of what people have to read.
    #[test]
    fn names_are_no_secrets() {
        for word in [
            // Packages, with and without a version.
            "@modelcontextprotocol/server-filesystem",
            "@modelcontextprotocol/server-filesystem@2025.8.21",
            "@playwright/mcp@latest",
            "mcp-server-sqlite==2025.4.25",
            "some_python_mcp_server_v2",
            "k8s-mcp-server-e2e-tests",
            // Files, folders and modules.
            "/home/me/Projects2025/MyServerV2/index.js",
            "C:\\Users\\me\\AppData\\Local\\Programs",
            "~/Library/Application Support/Claude",
            "build/McpServer2025Build/main.py",
            "com.example.mcp.McpServerMain",
            "ModelContextProtocolServer",
            "McpServer2025Release2Build",
            // Models.
            "claude-sonnet-4-5-20250929",
            "anthropic.claude-3-5-sonnet-20241022-v2:0",
            "text-embedding-3-large",
            "gpt-4o-mini-2024-07-18",
            "Qwen2-VL-7B-Instruct-AWQ",
            "Llama-3-70B-Instruct-v2",
            "Mistral-7B-Instruct-v03",
            "meta-llama/Llama-3.1-8B-Instruct",
            // Refs and images.
            "refs/heads/feature/ABC-1234-better-names",
            "v2.15.0-rc.1-42-g1a2b3c4",
            "git+https://github.com/owner/repo@v1.2.3",
            "ghcr.io/github/github-mcp-server:v0.13.0",
            "123456789012.dkr.ecr.eu-west-1.amazonaws.com/mcp:2025-09-29",
            "node:22.20.0-bookworm-slim",
            "mcp/postgres:latest",
            // Addresses, times, numbers.
            "db-primary-1.eu-west-1.example.com",
            "127.0.0.1:8484:127.0.0.1:8484",
            "2025-09-29T11:22:33.123456Z",
            "12345678901234567890",
            "Europe/Berlin,America/New_York",
            "--max-old-space-size=4096",
            "AAAAAAAAAAAAAAAAAAAAAAAA",
            "donaudampfschifffahrtsgesellschaft",
        ] {
            assert!(!looks_secret(word), "{word}");
        }
    }
}
