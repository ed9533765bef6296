#!/usr/bin/env python3
"""Follows one warm `tools/call` through the code, with callgrind.

A client calls a tool inside a run, through `warmline serve` in front of `warmline demo-server`.
The binary is that of the dev profile, so that nothing is inlined. After some calls to warm up,
callgrind counts a few windows of one call each, and windows of no call between them. Each function is
counted with its whole chain of callers. A chain of project functions belongs to the call when it was
seen in every window with a call and in none without: what runs in the background is left out.

Counted are
  files      project source files (`crates/*/src`) of which a function ran
  functions  project functions that ran; a closure or the body of an `async fn` is its function
  pairs      distinct (caller, callee) of project functions that stand in different files; functions of
             others (std, tokio, hyper) between the two are left out
  module pairs, crate pairs
             the same pairs where the top-level modules, or the crates, differ
  changes    how often the walk goes from one file (module, crate) into another: distinct chains of
             callers, so a function that is reached on two ways counts twice
The line `agreed` is what all windows have in common; the lines above it are the windows by themselves.

Needs valgrind. As another user than root, the system must allow ptrace.
"""

import argparse
import collections
import json
import os
import re
import sys
import time

import rust
import serve

CALLGRIND = [
    "--tool=callgrind",
    "--instr-atstart=no",
    "--separate-callers=250",
    "--demangle=no",
]
PART = re.compile(r"(\d+)")
CLOSURE = re.compile(r"::\{\{closure\}\}|::\{closure#\d+\}")
ESCAPES = {
    "$LT$": "<", "$GT$": ">", "$LP$": "(", "$RP$": ")", "$C$": ",", "$RF$": "&", "$BP$": "*",
    "$u7b$": "{", "$u7d$": "}", "$u20$": " ", "$u5b$": "[", "$u5d$": "]", "$u3b$": ";",
    "$u2b$": "+", "$u27$": "'", "$u22$": '"', "..": "::",
}  # fmt: skip
ESCAPE = re.compile("|".join(re.escape(key) for key in ESCAPES))
IDLE_SECONDS = 2.0


def readable(symbol):
    """A mangled name as one writes it, without the hash and without `{{closure}}`."""
    if not symbol.startswith("_ZN"):
        return symbol
    at, parts = 3, []
    while m := PART.match(symbol, at):
        length, at = int(m[1]), m.end()
        parts.append(symbol[at : at + length])
        at += length
    if parts and re.fullmatch(r"h[0-9a-f]{16}", parts[-1]):
        parts.pop()
    name = "::".join(part[1:] if part.startswith("_$") else part for part in parts)
    return CLOSURE.sub("", ESCAPE.sub(lambda m: ESCAPES[m[0]], name))


def chains(path):
    """What ran in one dump: chains of symbols, the function first, its callers after it; and the file
    of each function that ran."""
    files, names, ran, homes = {}, {}, [], {}

    def known(table, text):
        number, _, name = text.partition(" ")
        if name:
            table[number] = name
        return table.get(number, number)

    home = None
    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith("fl="):
                home = known(files, line[3:].rstrip("\n"))
            elif line.startswith("fn="):
                name = known(names, line[3:].rstrip("\n"))
                ran.append(name)
                homes.setdefault(name.split("'", 1)[0], home)
            elif line.startswith("cfn="):
                known(names, line[4:].rstrip("\n"))
            elif line.startswith(("fi=", "fe=", "cfi=", "cfl=")):
                known(files, line.partition("=")[2].rstrip("\n"))
    return [name.split("'") for name in ran], homes


class Walk:
    """What the windows showed."""

    def __init__(self, root):
        self.sources = {}
        for crate in rust.crates(root):
            if crate.name == rust.TESTKIT:
                continue
            for path, module in crate.modules.items():
                place = os.path.relpath(path, root)
                top = module[0] if module else os.path.basename(path)[:-3]
                self.sources[place] = (crate.name, f"{crate.name}/{top}")
        self.homes = {}  # symbol -> file, of project functions

    def paths(self, dumps):
        """Chains of project functions in these dumps, the outermost first."""
        found = set()
        read = [chains(dump) for dump in dumps]
        for _, homes in read:
            for symbol, home in homes.items():
                at = (home or "").find("crates/")
                if at >= 0 and home[at:] in self.sources:
                    self.homes[symbol] = home[at:]
        for ran, _ in read:
            for chain in ran:
                if chain[0] in self.homes:
                    chain = [symbol for symbol in chain if symbol in self.homes]
                    found.add(tuple(reversed(chain)))
        return found

    def figures(self, paths):
        """Everything that is counted, of a set of chains."""
        files, functions, steps = set(), set(), set()
        pairs = [{}, {}, {}]
        for path in paths:
            files.add(self.homes[path[-1]])
            names = []
            for symbol in path:
                place = (readable(symbol), self.homes[symbol])
                if not names or names[-1] != place:
                    names.append(place)
            functions.add(names[-1])
            steps.add(tuple(names))
        changes = [0, 0, 0]
        for names in steps:
            if len(names) < 2:
                continue
            (caller, here), (callee, there) = names[-2:]
            of = self.sources
            differ = (here != there, of[here][1] != of[there][1], of[here][0] != of[there][0])
            for level, other in enumerate(differ):
                if other:
                    changes[level] += 1
                    pairs[level][(caller, here), (callee, there)] = True
        return {
            "files": sorted(files),
            "functions": sorted(functions),
            "pairs": sorted(pairs[0]),
            "module pairs": sorted(pairs[1]),
            "crate pairs": sorted(pairs[2]),
            "modules": sorted({self.sources[file][1] for file in files}),
            "file pairs": sorted({(a[1], b[1]) for a, b in pairs[0]}),
            "changes of file": changes[0],
            "changes of module": changes[1],
            "changes of crate": changes[2],
        }


def number(value):
    return value if isinstance(value, int) else len(value)


def measure(root, binary, args):
    """Runs the gateway. Returns the figures of each window, of what they have in common, and how many
    chains were left out as background."""
    walk, called, idle = Walk(root), [], set()
    with serve.Setting(binary, args.era, CALLGRIND) as setting:
        client = setting.client()
        client.call(args.warm_up)
        setting.control("-i", "on")
        client.call(2)
        setting.dump()
        for _ in range(args.windows):
            client.call(args.calls)
            called.append(walk.paths(setting.dump()))
            time.sleep(IDLE_SECONDS)
            idle |= walk.paths(setting.dump())
    windows = [walk.figures(paths - idle) for paths in called]
    both = set.intersection(*called)
    return windows, walk.figures(both - idle), len(both & idle)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", default=".", help="the checkout to follow (default: here)")
    parser.add_argument("--binary", help="a binary `warmline` of the dev profile; built if not given")
    parser.add_argument("--era", choices=("legacy", "modern"), default="legacy", help="default: legacy")
    parser.add_argument("--calls", type=int, default=1, help="calls in each window (default: 1)")
    parser.add_argument("--warm-up", type=int, default=50, help="calls before counting (default: 50)")
    parser.add_argument("--windows", type=int, default=3, help="windows with calls (default: 3)")
    parser.add_argument("--runs", type=int, default=1, help="do all of it so often (default: 1)")
    parser.add_argument("--list", action="store_true", help="list files, pairs and their callers")
    parser.add_argument("--json", action="store_true", help="print the last run as JSON")
    args = parser.parse_args()
    serve.need_valgrind()
    root = os.path.abspath(args.root)
    binary = os.path.abspath(args.binary) if args.binary else serve.build(root, release=False)

    keys = (
        "files", "modules", "functions", "pairs", "module pairs", "crate pairs", "file pairs",
        "changes of file", "changes of module", "changes of crate",
    )  # fmt: skip
    spread = collections.defaultdict(list)
    for run in range(args.runs):
        windows, agreed, background = measure(root, binary, args)
        rows = [(f"window {n + 1}", figures) for n, figures in enumerate(windows)]
        for key in keys:
            spread[key].append(number(agreed[key]))
        if not args.json:
            print(f"run {run + 1}")
            print("".join(f"{head:>18}" for head in ("", *keys)))
            for name, figures in (*rows, ("agreed", agreed)):
                print("".join(f"{cell:>18}" for cell in (name, *(number(figures[k]) for k in keys))))
            print(f"left out: {background} chains that ran without a call too")
            sys.stdout.flush()
    if args.json:
        print(json.dumps({key: agreed[key] for key in keys}, indent=1))
        return
    if args.runs > 1:
        print("spread of `agreed` over the runs")
        for key in keys:
            print(f"{key:>18} {min(spread[key])} to {max(spread[key])}")
    if args.list:
        for file in agreed["files"]:
            print(f"file {file}")
        for (caller, here), (callee, there) in agreed["pairs"]:
            print(f"pair {caller} -> {callee}  ({here} -> {there})")


if __name__ == "__main__":
    main()
