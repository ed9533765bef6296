//! The command line: what can be typed, and what `--help` says about it.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use warmline::settings::{AuthWord, OpsListen, parse_duration};

mod background;
mod complaint;
mod texts;

pub(crate) use background::{Down, End, Ps, Up};
pub(crate) use complaint::Complaint;

/// Everything that was typed.
#[derive(Debug, Parser)]
#[command(
    name = "warmline",
    version,
    about = texts::ABOUT,
    after_help = texts::AFTER,
    override_usage = "warmline COMMAND [TARGET] …",
    disable_help_subcommand = false,
    help_template = "{about}\n\n{usage-heading} {usage}\n\n{subcommands}\n{after-help}",
    max_term_width = 100
)]
pub(crate) struct Typed {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) look: Look,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Call a tool and print its answer
    #[command(long_about = texts::CALL, after_long_help = texts::CALL_EXAMPLES, override_usage = texts::CALL_USAGE)]
    Call(Call),
    /// Send any MCP request and print its result
    #[command(long_about = texts::REQUEST, after_long_help = texts::REQUEST_EXAMPLES, override_usage = texts::REQUEST_USAGE)]
    Request(Request),
    /// List the tools of a server
    #[command(after_long_help = texts::TOOLS_EXAMPLES, override_usage = texts::TOOLS_USAGE)]
    Tools(Tools),
    /// Find out what is wrong with a server, and what to do about it
    #[command(long_about = texts::DOCTOR, after_long_help = texts::DOCTOR_EXAMPLES, override_usage = texts::DOCTOR_USAGE)]
    Doctor(Doctor),
    /// Stand between MCP clients and servers, and keep sessions warm for them
    #[command(long_about = texts::SERVE, after_long_help = texts::SERVE_EXAMPLES, override_usage = texts::SERVE_USAGE)]
    Serve(Serve),
    /// Be an MCP server over stdio, in front of others: for desktop clients
    #[command(long_about = texts::STDIO, after_long_help = texts::STDIO_EXAMPLES, override_usage = texts::STDIO_USAGE)]
    Stdio(Stdio),
    /// Run a program inside a run: what it calls shares sessions, which end with it
    #[command(long_about = texts::RUN, after_long_help = texts::RUN_EXAMPLES, override_usage = texts::RUN_USAGE)]
    Run(Around),
    /// Start a gateway in the background, which holds sessions between commands
    #[command(long_about = texts::UP, after_long_help = texts::UP_EXAMPLES)]
    Up(Up),
    /// Stop the background gateway
    #[command(long_about = texts::DOWN, after_long_help = texts::DOWN_EXAMPLES)]
    Down(Down),
    /// Show servers, runs and sessions of the background gateway
    #[command(long_about = texts::PS, after_long_help = texts::PS_EXAMPLES)]
    Ps(Ps),
    /// End a run of the background gateway: its sessions are closed
    #[command(long_about = texts::END, after_long_help = texts::END_EXAMPLES)]
    End(End),
    /// Print what a client has to be told to use a server through the gateway
    #[command(long_about = texts::URL, after_long_help = texts::URL_EXAMPLES)]
    Url(Url),
    /// Make, list and revoke tokens that let callers into the gateway
    #[command(long_about = texts::TOKEN, after_long_help = texts::TOKEN_EXAMPLES, subcommand_required = true, arg_required_else_help = true)]
    Token(Token),
    /// Look whether configuration files are right, and execute nothing
    #[command(long_about = texts::CHECK, after_long_help = texts::CHECK_EXAMPLES)]
    Check(Check),
    /// Write a configuration file to begin with, with what desktop clients have already
    #[command(long_about = texts::INIT, after_long_help = texts::INIT_EXAMPLES)]
    Init(Init),
    /// Add a server to a configuration file
    #[command(after_long_help = texts::ADD_EXAMPLES, override_usage = texts::ADD_USAGE)]
    Add(Add),
    /// Explain an error code
    #[command(after_long_help = texts::EXPLAIN_EXAMPLES)]
    Explain(Explain),
    /// Look at a configuration file of this folder and accept it
    #[command(long_about = texts::TRUST, after_long_help = texts::TRUST_EXAMPLES)]
    Trust(Trust),
    /// See what Warmline is for, in a few seconds
    Demo(Demo),
    /// Run the server of the demo, to try things against
    #[command(after_long_help = texts::demo_server())]
    DemoServer(DemoServer),
    /// Print completions for a shell
    #[command(after_long_help = texts::COMPLETIONS_EXAMPLES)]
    Completions(Completions),
}

/// How long a command lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lasts {
    /// Until it has its answer.
    OneCommand,
    /// Until the program that started it has no more to say.
    UntilClosed,
    /// Until somebody stops it.
    UntilStopped,
}

impl Command {
    pub(crate) fn lasts(&self) -> Lasts {
        if let Self::Serve(_) | Self::Up(Up { stay: true, .. }) = self {
            Lasts::UntilStopped
        } else if let Self::Stdio(_) | Self::Run(_) = self {
            Lasts::UntilClosed
        } else {
            Lasts::OneCommand
        }
    }
}

/// How things are said. Works with every command.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct Look {
    /// Print one JSON object per line instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Use colours or not; the variable `NO_COLOR` is honoured too
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
    /// Print answers and errors, nothing else
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Tell on stderr what is sent and received; values are struck out
    #[arg(long, short, global = true)]
    pub(crate) verbose: bool,
}

impl Look {
    /// How things are said when the command line does not parse: as far as it can be told.
    pub(crate) fn guessed(words: impl Iterator<Item = OsString>) -> Self {
        let words: Vec<OsString> = words.take_while(|word| word != "--").collect();
        let has = |option: &str| words.iter().any(|word| word == option);
        Self {
            json: has("--json"),
            color: if has("--color=never") {
                Color::Never
            } else {
                Color::Auto
            },
            quiet: false,
            verbose: false,
        }
    }
}

/// When colours are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

/// How a server is reached, where the configuration does not say it.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Reaching the server")]
pub(crate) struct Connect {
    /// A configuration file, instead of those in the usual places
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// A header for every HTTP request; other users can read it in the process list
    #[arg(long, value_name = "NAME: VALUE")]
    pub(crate) header: Vec<String>,
    /// A header whose value stands in an environment variable
    #[arg(long, value_name = "NAME=VARIABLE")]
    pub(crate) header_env: Vec<String>,
    /// Speak one era instead of finding out
    #[arg(long, value_name = "ERA", default_value = "auto")]
    pub(crate) era: EraChoice,
    /// A PEM file of certificate authorities, instead of the system's
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// A variable for the program
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// A variable of ours that the program gets too
    #[arg(long, value_name = "NAME")]
    pub(crate) env_pass: Vec<String>,
    /// The working folder of the program
    #[arg(long, value_name = "FOLDER")]
    pub(crate) cwd: Option<PathBuf>,
    /// How long each step may take: 500ms, 30s, 2min. Without it 10s to connect, 60s to start a
    /// program, 30s for the handshake; a call may be silent for 300s and take 1h in all
    #[arg(long, value_name = "TIME", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) timeout: Option<Duration>,
}

/// Which era to speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum EraChoice {
    #[default]
    Auto,
    Legacy,
    Modern,
}

/// The run a command belongs to.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Runs")]
pub(crate) struct Together {
    /// The run this belongs to: commands that name the same one share a session, and what the
    /// server remembers in it. The variable `WARMLINE_RUN` names one too
    #[arg(long, value_name = "NAME")]
    pub(crate) run: Option<String>,
    /// End the run after this: its session is closed
    #[arg(long)]
    pub(crate) end_run: bool,
    /// The folder that runs are kept in between commands
    #[arg(long, value_name = "FOLDER")]
    pub(crate) state_dir: Option<PathBuf>,
}

/// `warmline call`.
#[derive(Debug, Args)]
pub(crate) struct Call {
    /// TARGET TOOL KEY=VALUE…, or TOOL KEY=VALUE… with a command behind `--`
    #[arg(value_name = "WORD", num_args = 0.., hide = true)]
    pub(crate) words: Vec<String>,
    /// A program that speaks MCP over stdio, with its arguments
    #[arg(last = true, value_name = "COMMAND", hide = true)]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) values: Values,
    #[command(flatten)]
    pub(crate) together: Together,
    #[command(flatten)]
    pub(crate) connect: Connect,
    #[command(flatten)]
    pub(crate) answers: Answers,
}

/// `warmline request`.
#[derive(Debug, Args)]
pub(crate) struct Request {
    /// TARGET METHOD KEY=VALUE…, or METHOD KEY=VALUE… with a command behind `--`
    #[arg(value_name = "WORD", num_args = 0.., hide = true)]
    pub(crate) words: Vec<String>,
    /// A program that speaks MCP over stdio, with its arguments
    #[arg(last = true, value_name = "COMMAND", hide = true)]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) values: Values,
    #[command(flatten)]
    pub(crate) together: Together,
    #[command(flatten)]
    pub(crate) connect: Connect,
    #[command(flatten)]
    pub(crate) answers: Answers,
}

/// Values given as a whole.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Values")]
pub(crate) struct Values {
    /// All values as one JSON object: text, `@file`, or `-` for stdin
    #[arg(long, value_name = "JSON")]
    pub(crate) args: Option<String>,
    /// Show values of arguments in the account of --verbose
    #[arg(long)]
    pub(crate) show_values: bool,
}

/// What a server that asks may get.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Questions of the server")]
pub(crate) struct Answers {
    /// A folder the server may be told of when it asks for roots
    #[arg(long, value_name = "FOLDER")]
    pub(crate) root: Vec<PathBuf>,
    /// Decline every question, also on a terminal
    #[arg(long)]
    pub(crate) no_ask: bool,
}

/// `warmline tools`.
#[derive(Debug, Args)]
pub(crate) struct Tools {
    /// TARGET, or nothing with a command behind `--`
    #[arg(value_name = "TARGET", num_args = 0.., hide = true)]
    pub(crate) words: Vec<String>,
    /// A program that speaks MCP over stdio, with its arguments
    #[arg(last = true, value_name = "COMMAND", hide = true)]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) together: Together,
    #[command(flatten)]
    pub(crate) connect: Connect,
}

/// `warmline doctor`.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// TARGET, or nothing for every configured server
    #[arg(value_name = "TARGET", num_args = 0.., hide = true)]
    pub(crate) words: Vec<String>,
    /// A program that speaks MCP over stdio, with its arguments
    #[arg(last = true, value_name = "COMMAND", hide = true)]
    pub(crate) command: Vec<OsString>,
    /// Start nothing and contact nobody
    #[arg(long)]
    pub(crate) offline: bool,
    #[command(flatten)]
    pub(crate) connect: Connect,
}

/// `warmline serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) served: Served,
    /// Where to listen; port 0 takes a free one [default: 127.0.0.1:8484]
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub(crate) listen: Option<SocketAddr>,
    /// How callers show who they are: `local`, `tokens`, `jwt`, `proxy` or `none` [default: local]
    #[arg(long, value_name = "HOW", value_parser = auth)]
    pub(crate) auth: Option<AuthWord>,
    /// Where machines find `/livez`, `/readyz`, `/metrics` and `/servers`, or `none` [default: on
    /// loopback, the port after that of --listen]
    #[arg(long, value_name = "ADDRESS", value_parser = ops)]
    pub(crate) ops: Option<OpsListen>,
    /// A Unix socket by which this user sees what runs in the gateway and steers it: `warmline ps
    /// --socket FILE`
    #[arg(long, value_name = "FILE")]
    pub(crate) admin: Option<PathBuf>,
}

/// What is served, and where what is kept of it lies.
#[derive(Clone, Debug, Args)]
pub(crate) struct Served {
    /// Names or URLs; nothing serves every configured server
    #[arg(value_name = "TARGET", num_args = 0.., hide = true)]
    pub(crate) words: Vec<String>,
    /// A program that speaks MCP over stdio, with its arguments
    #[arg(last = true, value_name = "COMMAND", hide = true)]
    pub(crate) command: Vec<OsString>,
    /// A configuration file, instead of those in the usual places
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The folder that sessions, keys and tokens are kept in
    #[arg(long, value_name = "FOLDER")]
    pub(crate) state_dir: Option<PathBuf>,
}

/// `warmline stdio`.
#[derive(Debug, Args)]
pub(crate) struct Stdio {
    #[command(flatten)]
    pub(crate) served: Served,
    /// The run this client belongs to: what servers remember in it stays, for whoever names it
    /// next. Without it the client has a run of its own
    #[arg(long, value_name = "NAME")]
    pub(crate) run: Option<String>,
}

/// `warmline run`.
#[derive(Debug, Args)]
pub(crate) struct Around {
    /// Names or URLs of servers; nothing takes every configured one
    #[arg(value_name = "TARGET", num_args = 0.., hide = true)]
    pub(crate) words: Vec<String>,
    /// The program, with its arguments
    #[arg(last = true, value_name = "PROGRAM", hide = true)]
    pub(crate) command: Vec<OsString>,
    /// The name of the run; without it a fresh one
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// A configuration file, instead of those in the usual places
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The folder that sessions and keys are kept in
    #[arg(long, value_name = "FOLDER")]
    pub(crate) state_dir: Option<PathBuf>,
}

impl Around {
    /// What is served to the program.
    pub(crate) fn served(&self) -> Served {
        Served {
            words: self.words.clone(),
            command: Vec::new(),
            config: self.config.clone(),
            state_dir: self.state_dir.clone(),
        }
    }
}

/// `warmline url`.
#[derive(Debug, Args)]
pub(crate) struct Url {
    /// The server; nothing means all of them in one
    pub(crate) name: Option<String>,
    /// Who shall use it: prints what to paste there
    #[arg(long = "for", value_name = "CLIENT")]
    pub(crate) client: Option<Client>,
    /// A run for the path: whoever uses this URL shares one session with the server
    #[arg(long, value_name = "NAME")]
    pub(crate) run: Option<String>,
    /// Where the gateway can be reached, if not where it listens
    #[arg(long, value_name = "URL")]
    pub(crate) at: Option<String>,
    /// A configuration file, instead of those in the usual places
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The folder that the gateway keeps its tokens in
    #[arg(long, value_name = "FOLDER")]
    pub(crate) state_dir: Option<PathBuf>,
}

/// Who uses the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Client {
    Langchain,
    Claude,
    Cursor,
    Vscode,
    OpenaiAgents,
    PydanticAi,
    Python,
    Typescript,
    Curl,
}

/// `warmline token`.
#[derive(Debug, Args)]
pub(crate) struct Token {
    #[command(subcommand)]
    pub(crate) what: TokenWhat,
    /// The folder that the gateway keeps its tokens in
    #[arg(long, value_name = "FOLDER", global = true)]
    pub(crate) state_dir: Option<PathBuf>,
}

/// What can be done with tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenWhat {
    /// Make a token; its text is shown once
    New {
        /// Its name, by which it is listed and revoked
        name: String,
        /// Whom it stands for, if not its name: two tokens of one identity share runs
        #[arg(long, value_name = "IDENTITY")]
        identity: Option<String>,
        /// How long it counts: `90d`, `12h`; without it until it is revoked
        #[arg(long, value_name = "TIME", value_parser = lasting)]
        expires: Option<Duration>,
    },
    /// List tokens, without their texts
    List,
    /// Take a token back: a running gateway refuses it from now on
    Revoke {
        /// Its name
        name: String,
    },
}

/// `warmline check`.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The file; nothing takes those in the usual places
    pub(crate) file: Option<PathBuf>,
    /// The same, as other commands have it
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    pub(crate) config: Option<PathBuf>,
}

/// `warmline init`.
#[derive(Debug, Args)]
pub(crate) struct Init {
    /// Write `warmline.toml` into the working folder, not into that of the user
    #[arg(long)]
    pub(crate) here: bool,
    /// Take nothing over from desktop clients
    #[arg(long)]
    pub(crate) no_import: bool,
}

/// `warmline add`.
#[derive(Debug, Args)]
pub(crate) struct Add {
    /// The name of the server
    pub(crate) name: String,
    /// Its URL
    pub(crate) url: Option<String>,
    /// A program that speaks MCP over stdio, with its arguments
    #[arg(last = true, value_name = "COMMAND", hide = true)]
    pub(crate) command: Vec<OsString>,
    /// The variable that holds the token for a URL
    #[arg(long, value_name = "VARIABLE")]
    pub(crate) token_env: Option<String>,
    /// A variable of ours that the program gets too
    #[arg(long, value_name = "NAME")]
    pub(crate) env_pass: Vec<String>,
    /// Write into `warmline.toml` of the working folder, not into that of the user
    #[arg(long)]
    pub(crate) here: bool,
    /// The file to write into
    #[arg(long, value_name = "FILE", conflicts_with = "here")]
    pub(crate) config: Option<PathBuf>,
}

/// `warmline explain`.
#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// The word in `error[…]`, or the number of a JSON-RPC error; nothing lists them all
    #[arg(allow_negative_numbers = true)]
    pub(crate) code: Option<String>,
}

/// `warmline trust`.
#[derive(Debug, Args)]
pub(crate) struct Trust {
    /// The file; nothing takes those of the working folder
    pub(crate) file: Option<PathBuf>,
    /// Accept without asking
    #[arg(long)]
    pub(crate) yes: bool,
}

/// `warmline demo`.
#[derive(Debug, Args)]
pub(crate) struct Demo {}

/// `warmline demo-server`.
#[derive(Debug, Args)]
pub(crate) struct DemoServer {
    /// Speak Streamable HTTP on a port of 127.0.0.1; without a number on any free one
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "0", value_parser = port)]
    pub(crate) http: Option<u16>,
    /// Speak over stdin and stdout (default)
    #[arg(long, conflicts_with = "http")]
    pub(crate) stdio: bool,
    /// Which era to speak; `auto` speaks both
    #[arg(long, value_name = "ERA", default_value = "auto")]
    pub(crate) era: EraChoice,
    /// What it shall do wrong, and other options listed below
    #[arg(last = true, value_name = "MORE", allow_hyphen_values = true)]
    pub(crate) more: Vec<String>,
}

/// `warmline completions`.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Which shell
    pub(crate) shell: clap_complete::Shell,
}

fn duration(written: &str) -> Result<Duration, String> {
    parse_duration(written)
        .ok_or_else(|| "write a number above 0 and a unit: 500ms, 30s, 2min, 1h".to_owned())
}

fn address(written: &str) -> Result<SocketAddr, String> {
    warmline::settings::parse_address(written).ok_or_else(|| {
        "write an IP address and a port: 127.0.0.1:8484, [::1]:8484, or a port alone".to_owned()
    })
}

/// How long something lasts, in days too: at most ten years.
fn lasting(written: &str) -> Result<Duration, String> {
    let days = written.trim().strip_suffix('d').map(str::trim);
    let days = days.and_then(|days| days.parse::<u64>().ok());
    let lasts = match days {
        Some(days) => Some(Duration::from_secs(days.saturating_mul(DAY))),
        None => parse_duration(written),
    };
    let within = Duration::from_secs(1)..=Duration::from_secs(3_650 * DAY);
    lasts
        .filter(|lasts| within.contains(lasts))
        .ok_or_else(|| "write a number and a unit: 90d, 12h, 30min".to_owned())
}

const DAY: u64 = 24 * 3_600;

fn auth(written: &str) -> Result<AuthWord, String> {
    AuthWord::parse(written).ok_or_else(|| "write local, tokens, jwt, proxy or none".to_owned())
}

fn ops(written: &str) -> Result<OpsListen, String> {
    match written {
        "none" => Ok(OpsListen::None),
        _ => address(written).map(OpsListen::At),
    }
}

fn port(written: &str) -> Result<u16, String> {
    written
        .parse()
        .map_err(|_| "a port is a number from 0 to 65535".to_owned())
}
