//! One call to any MCP server, and what became of it.
//!
//! ```text
//! cargo run -p warmline --example one_call -- http://127.0.0.1:8080/mcp echo '{"message":"hi"}'
//! cargo run -p warmline --example one_call -- 'npx -y some-server' echo '{"message":"hi"}'
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what it got")]

use std::error::Error;

use warmline_core::exchange::{AttemptResult, Reply, Request};
use warmline_core::message::params::Params;
use warmline_upstream::{ClientProfile, ServerTarget, Upstream};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    warmline_upstream::child::warden::run_if_asked(); // first line: children die with us, whatever kills us
    let mut args = std::env::args().skip(1);
    let (Some(target), Some(tool)) = (args.next(), args.next()) else {
        return Err("usage: one_call TARGET TOOL [ARGUMENTS]".into());
    };
    let arguments = args.next().unwrap_or_else(|| "{}".to_owned());

    let server = match target.parse() {
        Ok(url) => ServerTarget::http("server", url),
        Err(_) => {
            let mut words = target.split_whitespace();
            ServerTarget::stdio("server", words.next().unwrap_or_default(), words)
        },
    };
    let session = Upstream::new()
        .open(&server, &ClientProfile::default())
        .await?;
    println!("{} {}", session.facts().era, session.facts().version);

    let arguments: &serde_json::value::RawValue = serde_json::from_str(&arguments)?;
    let params =
        Params::from_serialize(&serde_json::json!({ "name": tool, "arguments": arguments }))?;
    match session.call(Request::new("tools/call", params), &()).await {
        AttemptResult::Answered(Reply::Result(raw)) => {
            println!("{}", String::from_utf8_lossy(&raw));
        },
        AttemptResult::Answered(Reply::Error(raw)) => println!("{}", String::from_utf8_lossy(&raw)),
        AttemptResult::Failed(failure) => {
            println!("{}: {}", failure.delivery(), failure.diagnostic);
        },
    }
    session.close().await;
    Ok(())
}
