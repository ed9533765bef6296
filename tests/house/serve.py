"""The set-up that walk.py and instructions.py share: a demo server, a gateway under callgrind, a client.

The demo server is a process of its own and is not counted. The gateway runs with one worker thread,
with the token of this machine, and with the settings of `QUIET`, so that nothing but calls runs in it.
Nothing of the user's own configuration is read.
"""

import glob
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse

# No checks, no keep-alives, no sessions that end by age.
QUIET = {
    "WARMLINE_HEALTH_CHECK_INTERVAL": "24h",
    "WARMLINE_CHECK_AFTER": "24h",
    "WARMLINE_KEEP_ALIVE": "off",
    "WARMLINE_MAX_AGE": "none",
    "TOKIO_WORKER_THREADS": "1",
}
LEGACY, MODERN = "2025-11-25", "2026-07-28"
TOOL = "echo"
ARGUMENTS = {"text": "x" * 900}


def fail(why):
    sys.exit(f"error: {why}")


def need_valgrind():
    """Ends with advice when callgrind is not there."""
    for program in ("valgrind", "callgrind_control"):
        if not shutil.which(program):
            fail(f"`{program}` is missing: install the package `valgrind` (apt-get install valgrind)")


def build(root, release):
    """Builds the binary `warmline` of a checkout and returns its path."""
    command = ["cargo", "build", "--locked", "-p", "warmline-cli", "--message-format", "json"]
    command += ["--release"] if release else []
    built = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True)
    if built.returncode:
        fail("the build failed")
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == "warmline":
            return message["executable"]
    fail("cargo built no binary `warmline`")


class Setting:
    """Demo server and gateway, as long as the `with` block lasts."""

    def __init__(self, binary, era, valgrind=()):
        self.binary, self.era, self.valgrind = binary, era, list(valgrind)
        self.folder = tempfile.mkdtemp(prefix="warmline-house-")
        self.children = []

    def __enter__(self):
        try:
            demo = self._start([self.binary, "demo-server", "--http", "0", "--era", self.era], "demo")
            server = self._line(demo, "demo", r"(http://\S+)", 60)[1]
            command = [self.binary, "serve", server, "--listen", "127.0.0.1:0", "--ops", "none"]
            command += ["--state-dir", os.path.join(self.folder, "state"), "--json"]
            if self.valgrind:
                output = os.path.join(self.folder, "callgrind.out")
                command = ["valgrind", *self.valgrind, f"--callgrind-out-file={output}", *command]
            self.gateway = self._start(command, "gateway")
            said = self._line(self.gateway, "gateway", r'(\{"kind":"listening".*\})', 600)[1]
            said = json.loads(said)
            self.base, self.server = said["url"], said["servers"][0]["name"]
            with open(said["token_file"], encoding="utf-8") as file:
                self.token = file.read().strip()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for child in reversed(self.children):
            child.send_signal(signal.SIGINT)
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, command, name):
        environment = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
        environment |= QUIET | {"HOME": self.folder}
        with open(os.path.join(self.folder, name), "wb") as output:
            child = subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.children.append(child)
        return child

    def _line(self, child, name, pattern, seconds):
        """Waits until the output of a program has this in it."""
        until = time.monotonic() + seconds
        while True:
            with open(os.path.join(self.folder, name), encoding="utf-8", errors="replace") as file:
                said = file.read()
            if found := re.search(pattern, said):
                return found
            if child.poll() is not None or time.monotonic() > until:
                fail(f"the {name} did not start:\n{said}")
            time.sleep(0.1)

    def control(self, *words):
        """Asks callgrind for something, and waits until it is done."""
        pid = str(self.gateway.pid)
        done = subprocess.run(
            ["callgrind_control", *words, pid], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode or "Error" in done.stdout:
            fail(f"callgrind_control {' '.join(words)}: {done.stdout}")

    def dump(self):
        """Writes down what was counted since the last dump, counts from zero, and returns the files."""
        known = set(glob.glob(os.path.join(self.folder, "callgrind.out*")))
        self.control("-d")
        until = time.monotonic() + 60
        while True:
            new = sorted(set(glob.glob(os.path.join(self.folder, "callgrind.out*"))) - known)
            if new and all("\ntotals: " in open(path, errors="replace").read() for path in new):
                return new
            if time.monotonic() > until:
                fail("callgrind wrote no dump")
            time.sleep(0.1)

    def client(self):
        """An MCP client of the era of this setting, inside a run."""
        return Client(self)


class Client:
    """One connection to the gateway; calls one tool again and again."""

    def __init__(self, setting):
        at = urllib.parse.urlsplit(setting.base)
        self.connection = http.client.HTTPConnection(at.hostname, at.port, timeout=300)
        self.path = f"/runs/house/servers/{setting.server}/mcp"
        self.headers = {
            "Authorization": f"Bearer {setting.token}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        self.meta = {}
        who = {"name": "house", "version": "1"}
        if setting.era == "legacy":
            about = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": who}
            greeted, _ = self.post({"id": 0, "method": "initialize", "params": about})
            self.headers["Mcp-Session-Id"] = greeted.headers["Mcp-Session-Id"]
            self.headers["MCP-Protocol-Version"] = LEGACY
            self.post({"method": "notifications/initialized"})
        else:
            self.headers |= {
                "MCP-Protocol-Version": MODERN,
                "Mcp-Method": "tools/call",
                "Mcp-Name": TOOL,
            }
            prefix = "io.modelcontextprotocol/"
            self.meta = {
                "_meta": {
                    f"{prefix}protocolVersion": MODERN,
                    f"{prefix}clientCapabilities": {},
                    f"{prefix}clientInfo": who,
                }
            }

    def post(self, message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.connection.request("POST", self.path, body, self.headers)
        response = self.connection.getresponse()
        return response, response.read().decode()

    def call(self, times=1):
        """Makes so many tool calls, one after the other."""
        params = {"name": TOOL, "arguments": ARGUMENTS, **self.meta}
        for _ in range(times):
            # The same id each time, so that each request has the same length.
            response, body = self.post({"id": 7, "method": "tools/call", "params": params})
            if response.status != 200 or '"result"' not in body or ARGUMENTS["text"] not in body:
                fail(f"the call failed: {response.status} {body}")
        return response, body
