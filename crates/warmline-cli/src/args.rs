//! The command line: what can be typed, and what `--help` says about it.

use clap::{Parser, Subcommand};

mod background;
mod calling;
mod complaint;
mod configuring;
mod learning;
mod letting_in;
mod look;
mod reaching;
mod serving;
mod texts;
mod written;

pub(crate) use background::{Down, End, Ps, Up};
pub(crate) use calling::{Doctor, Sending, Tools};
pub(crate) use complaint::Complaint;
pub(crate) use configuring::{Add, Check, Init, Trust};
pub(crate) use learning::{Completions, Demo, DemoServer, Explain};
pub(crate) use letting_in::{Client, Token, TokenWhat, Url};
pub(crate) use look::{Color, Look};
pub(crate) use reaching::{Answers, Connect, EraChoice, Together};
pub(crate) use serving::{Around, Serve, Served, Stdio};

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
    Call(Sending),
    /// Send any MCP request and print its result
    #[command(long_about = texts::REQUEST, after_long_help = texts::REQUEST_EXAMPLES, override_usage = texts::REQUEST_USAGE)]
    Request(Sending),
    /// List the tools of a server, or show what one of them takes
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
    /// Show what the background gateway holds, and runs that commands left
    #[command(long_about = texts::PS, after_long_help = texts::PS_EXAMPLES)]
    Ps(Ps),
    /// End a run: its sessions are closed
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
