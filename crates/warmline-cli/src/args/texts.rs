//! The longer texts of `--help`, in one place, so that they can be read as one.

pub(super) const ABOUT: &str =
    "Call any MCP server, of either era, over HTTP or stdio, and know what became of every call.";

pub(super) const AFTER: &str = "\
A target is a URL, a name from warmline.toml or an mcpServers file, or a command behind `--`:
  warmline tools https://example.com/mcp
  warmline call github list_issues owner=acme repo=lamp
  warmline call echo message=hi -- npx -y some-server
  warmline doctor -- npx -y some-server
  warmline demo

With every command: --json, --color WHEN, -q/--quiet, -v/--verbose.
Exit: 0 fine · 1 the tool said no · 2 usage or configuration · 3 not executed, safe to call
again · 4 may have been executed. `warmline help COMMAND` tells all.";

pub(super) const CALL_USAGE: &str = "\
warmline call TARGET TOOL [KEY=VALUE]… [OPTIONS]
       warmline call TOOL [KEY=VALUE]… [OPTIONS] -- COMMAND…";

pub(super) const CALL: &str = "\
Call a tool and print its answer.

The answer goes to stdout, everything else to stderr. The exit code says what became of the
call: 0 fine, 1 the tool said no, 2 usage or configuration, 3 not executed and safe to call
again, 4 may have been executed.

Values:
  KEY=VALUE    typed by the tool's schema: 10 is a number where it wants one. Where it allows
               a text, or says nothing, the value stays a text. Of a list each KEY=VALUE is
               one item.
  KEY:=JSON    exactly this JSON; KEY:=@FILE is that of a file
  KEY=@FILE    the text of a file (of JSON, where the schema wants no text)
  --args JSON  all values as one object; alone, it is sent without looking at the tool's schema

With --run NAME the session is left open for the next command that names the run, and what the
server remembers in it stays: a page, a transaction, a counter. That works where a session
outlives a command: over HTTP, with a server that issues session ids; and with every server, also
a program, while `warmline up` holds them. Where it does not, a note says so. If the server forgot
the session, it gets a new one, and the answer begins with that.";

pub(super) const CALL_EXAMPLES: &str = "\
Examples:
  warmline call https://example.com/mcp add a=1 b=2
  warmline call github create_issue title='Lamp stays on' labels=bug labels=lamp
  warmline call notes save text=@draft.md 'meta:={\"draft\":true}'
  warmline call echo message=hi -- npx -y some-server
  warmline call https://example.com/mcp whoami --header-env 'Authorization=MY_AUTH'
  warmline call https://example.com/mcp open_page url=https://example.com --run trip
  warmline call github list_issues owner=acme repo=lamp --json | jq .call_ms";

pub(super) const REQUEST_USAGE: &str = "\
warmline request TARGET METHOD [KEY=VALUE]… [OPTIONS]
       warmline request METHOD [KEY=VALUE]… [OPTIONS] -- COMMAND…";

pub(super) const REQUEST: &str = "\
Send any MCP request and print its result as JSON.

KEY=VALUE is a text, KEY:=JSON is exactly this JSON, KEY=@FILE is the text of a file, KEY:=@FILE
its JSON; --args gives all parameters as one object.";

pub(super) const REQUEST_EXAMPLES: &str = "\
Examples:
  warmline request https://example.com/mcp resources/list
  warmline request notes resources/read uri=note://today
  warmline request notes prompts/get name=summary 'arguments:={\"day\":\"today\"}'
  warmline request tools/list -- npx -y some-server";

pub(super) const TOOLS_USAGE: &str = "\
warmline tools TARGET [TOOL] [OPTIONS]
       warmline tools [TOOL] [OPTIONS] -- COMMAND…";

pub(super) const TOOLS_EXAMPLES: &str = "\
Examples:
  warmline tools https://example.com/mcp
  warmline tools github create_issue
  warmline tools github --json
  warmline tools -- npx -y some-server";

pub(super) const DOCTOR_USAGE: &str = "\
warmline doctor [TARGET] [OPTIONS]
       warmline doctor [OPTIONS] -- COMMAND…";

pub(super) const DOCTOR: &str = "\
Find out what is wrong with a server, and what to do about it.

One line per question: ok, look or broken, with the evidence, and a hint where something is
wrong. Nothing is called but lists. Without a target the configuration is looked at, and no server
is started or contacted: those are `unseen`. Exit 2 if anything is broken.";

pub(super) const DOCTOR_EXAMPLES: &str = "\
Examples:
  warmline doctor
  warmline doctor github
  warmline doctor https://example.com/mcp --timeout 5s
  warmline doctor --offline github
  warmline doctor -- npx -y some-server";

pub(super) const SERVE_USAGE: &str = "\
warmline serve [TARGET]… [OPTIONS]
       warmline serve [TARGET]… [OPTIONS] -- COMMAND…";

pub(super) const SERVE: &str = "\
Stand between MCP clients and servers, and keep sessions warm for them.

Without a target every server of the configuration is served; with names only those; with URLs
and a command no file is needed. Each server has a place of its own, /servers/NAME/mcp, for
clients of both eras; /runs/RUN/servers/NAME/mcp is the same inside a run, for clients that open
a session per call; /mcp is all servers in one.

Callers show a token. On loopback that of this machine is enough: it is made at the first start,
and `warmline url NAME` prints it with what to paste.

SIGHUP, or a changed file, reads the configuration again: whole or not at all. SIGTERM and SIGINT
let calls end (24 seconds in all), a second one closes at once. Exit 3 if calls were cut.";

pub(super) const SERVE_EXAMPLES: &str = "\
Examples:
  warmline serve
  warmline serve github browser --listen 127.0.0.1:9000
  warmline serve https://example.com/mcp
  warmline serve --auth none -- npx -y some-server
  warmline serve --env-pass BRAVE_API_KEY -- npx -y some-server
  warmline serve --config /etc/warmline/warmline.toml --json";

pub(super) const STDIO_USAGE: &str = "\
warmline stdio [TARGET]… [OPTIONS]
       warmline stdio [TARGET]… [OPTIONS] -- COMMAND…";

pub(super) const STDIO: &str = "\
Be an MCP server over stdio, in front of others: for desktop clients.

With one target it is that server; with several, or with none and several configured, all of
them in one. Both eras are understood, message by message. Sessions are opened at first use,
replaced when a server forgets them, and end with the client; with --run those over HTTP stay.
A program ends with its client in any case, and a line says so: `warmline serve` keeps programs.";

pub(super) const STDIO_EXAMPLES: &str = "\
Examples:
  warmline stdio github
  warmline stdio github --run trip
  warmline stdio -- npx -y some-server
In the file of a desktop client:
  {\"mcpServers\": {\"github\": {\"command\": \"warmline\", \"args\": [\"stdio\", \"github\"]}}}";

pub(super) const RUN_USAGE: &str = "warmline run [TARGET]… [OPTIONS] -- PROGRAM…";

pub(super) const RUN: &str = "\
Run a program inside a run: what it calls shares sessions, which end with it.

The program finds a gateway of its own by these variables:
  WARMLINE_URL      what URLs begin with: $WARMLINE_URL/servers/NAME/mcp is a server inside the
                    run, $WARMLINE_URL/mcp is all of them in one
  WARMLINE_TOKEN    what lets it in: `Authorization: Bearer $WARMLINE_TOKEN`
  WARMLINE_RUN      the name of the run
  WARMLINE_SERVERS  the names of its servers; `warmline call NAME …` inside the program goes there
Its exit code is passed on, and one line tells what was saved. Exit 127 if there is no such program,
126 if it cannot be executed, 128 and the signal's number if one ended it.";

pub(super) const RUN_EXAMPLES: &str = "\
Examples:
  warmline run -- python agent.py
  warmline run github browser --name trip -- node agent.mjs
  warmline run https://example.com/mcp -- sh -c 'curl $WARMLINE_URL/mcp …'";

pub(super) const UP: &str = "\
Start a gateway in the background, which holds sessions between commands.

While it is up, `call`, `request` and `tools` with --run go through it. It holds the sessions, so
that a program keeps its page, its transaction or its counter from one command to the next. One
that is up already is left as it is.

What a command names is handed to it, with everything that was typed: names of the configuration,
URLs and commands behind `--`. A file that is not trusted is not handed on. A program starts in
the working folder of the command that used it first in its run, and with the few variables that
this command would hand on itself (`--env-pass NAME` hands on more); later commands of the run get
that same process, from wherever they come.

It listens on a socket in a folder that only this user can enter, and nowhere else. It ends by
itself when no run has lived and nobody has asked for anything for 30 minutes; its programs end
with it.";

pub(super) const UP_EXAMPLES: &str = "\
Examples:
  warmline up
  warmline call browser_navigate url=https://example.com --run trip -- npx -y @playwright/mcp
  warmline call browser_snapshot --run trip -- npx -y @playwright/mcp
  warmline ps
  warmline end trip
  warmline down";

pub(super) const DOWN: &str = "\
Stop the background gateway.

Calls under way may end, within 24 seconds in all; then sessions are closed and programs ended.
Runs with servers over HTTP are kept for the next command; what programs remember is lost. With
--now nothing is waited for. One that does not answer is ended by signals.";

pub(super) const DOWN_EXAMPLES: &str = "\
Examples:
  warmline down
  warmline down --now";

pub(super) const PS: &str = "\
Show servers, runs and sessions of the background gateway, and runs that commands left.

A run over HTTP is kept without a gateway too: it is shown with its server, its age and how long
nobody used it. On a terminal as tables; with --json one object per line: its `kind` is `gateway`,
`server`, `run`, `session` or `kept`.";

pub(super) const PS_EXAMPLES: &str = "\
Examples:
  warmline ps
  warmline ps --json | jq -r 'select(.kind == \"run\").name'";

pub(super) const END: &str = "\
End a run: its sessions are closed, those of the background gateway and those that commands left.

No new call is let in; those under way get a grace of 5 seconds. What programs and servers remember
of the run is gone.";

pub(super) const END_EXAMPLES: &str = "\
Examples:
  warmline end trip
  warmline ps";

pub(super) const URL: &str = "\
Print what a client has to be told to use a server through the gateway.

Nothing is contacted: the address comes from the configuration, the token from the folder of the
gateway. What is printed holds the token of this machine: it is a secret.";

pub(super) const URL_EXAMPLES: &str = "\
Examples:
  warmline url github
  warmline url github --for langchain
  warmline url --for claude
  warmline url browser --for curl --run trip";

pub(super) const TOKEN: &str = "\
Make, list and revoke tokens that let callers into the gateway.

A token stands for an identity: what is called with it shares nothing with others. Its text is
shown once, when it is made; only its digest is kept. A running gateway notices by itself.";

pub(super) const TOKEN_EXAMPLES: &str = "\
Examples:
  warmline token new alice
  warmline token new alice-laptop --identity alice
  warmline token new ci --expires 90d
  warmline token list
  warmline token revoke alice-laptop";

pub(super) const CHECK: &str = "\
Look whether configuration files are right, and execute nothing.

Nothing is started or contacted: what stands in the file is looked at, and what the environment
says of settings; a variable that is named in ${NAME} has to be there. An error names file, line
and column, and the nearest right word; all that can be told apart are told at once. A secret that
stands in a header in plain text gets a note. Exit 2 if there is an error.";

pub(super) const CHECK_EXAMPLES: &str = "\
Examples:
  warmline check
  warmline check warmline.toml
  warmline check ~/.cursor/mcp.json --json";

pub(super) const INIT: &str = "\
Write a configuration file to begin with, with what desktop clients have already.

Servers of Claude Desktop, Claude Code, Cursor, VS Code and Windsurf are taken over. No secret is
copied: values of variables, headers and what looks like a secret among arguments stay where they
are, and the file says what is to be filled in. Nothing is started or contacted.";

pub(super) const INIT_EXAMPLES: &str = "\
Examples:
  warmline init
  warmline init --here --no-import";

pub(super) const ADD_USAGE: &str = "\
warmline add NAME URL [OPTIONS]
       warmline add NAME [OPTIONS] -- COMMAND…";

pub(super) const ADD_EXAMPLES: &str = "\
Examples:
  warmline add github https://example.com/mcp --token-env GITHUB_TOKEN
  warmline add browser -- npx -y @playwright/mcp
  warmline add notes --here --env-pass NOTES_KEY -- npx -y notes-server";

pub(super) const EXPLAIN_EXAMPLES: &str = "\
Examples:
  warmline explain answer-lost
  warmline explain child-exit
  warmline explain 7503
  warmline explain P9
  warmline explain";

pub(super) const TRUST: &str = "\
Look at a configuration file of this folder and accept it.

A configuration file can start programs. One that lies in the working folder may come from
somebody else, so nothing in it is used until its commands, URLs and variables were shown here
and accepted. What is accepted are the bytes: a changed file asks again.";

pub(super) const TRUST_EXAMPLES: &str = "\
Examples:
  warmline trust
  warmline trust .mcp.json --yes";

/// Examples, and what the server itself can be told.
pub(super) fn demo_server() -> String {
    let more = warmline_testkit::demo_server::HELP.trim_start();
    format!("{DEMO_SERVER_EXAMPLES}\n\nBehind `--`:\n  {more}")
}

const DEMO_SERVER_EXAMPLES: &str = "\
Examples:
  warmline demo-server --http
  warmline demo-server --http 8400 --era legacy
  warmline demo-server --http -- --fault '{\"tool\":\"pay\",\"fault\":{\"silence\":\"after-executing\"}}'
  warmline tools -- warmline demo-server --stdio";

pub(super) const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  warmline completions bash > ~/.local/share/bash-completion/completions/warmline
  warmline completions fish > ~/.config/fish/completions/warmline.fish";
