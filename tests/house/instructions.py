#!/usr/bin/env python3
"""Counts the instructions of one warm `tools/call` in the gateway, with callgrind.

The binary is that of the release profile. A client calls a tool inside a run, through `warmline serve`
in front of `warmline demo-server`; legacy with legacy, modern with modern. Counted are the instructions
that the gateway runs in user space, all its threads together: those of 800 calls less those of 400
calls, divided by 400, so that what happens once is left out. What the gateway does in the background
is measured without calls, and taken off for the time that the calls took. Printed are the median of
several such differences and the spread of the medians over several starts of the gateway.

Needs valgrind. As another user than root, the system must allow ptrace.
"""

import argparse
import json
import os
import re
import statistics
import sys
import time

import serve

IDLE_SECONDS = 6.0
CALLGRIND = ["--tool=callgrind", "--instr-atstart=no"]


def total(dumps):
    """The instructions of one dump."""
    return sum(int(re.search(r"^totals: (\d+)", open(dump).read(), re.M)[1]) for dump in dumps)


def measure(binary, era, args):
    """Instructions per call, once for each round, and per second without a call."""
    found = []
    with serve.Setting(binary, era, CALLGRIND) as setting:
        client = setting.client()
        client.call(args.warm_up)
        setting.control("-i", "on")
        client.call(10)
        setting.dump()
        time.sleep(IDLE_SECONDS)
        idle = total(setting.dump()) / IDLE_SECONDS

        def window(calls):
            began = time.monotonic()
            client.call(calls)
            took = time.monotonic() - began
            return total(setting.dump()) - idle * took

        for _ in range(args.rounds):
            fewer = window(args.calls)
            found.append((window(2 * args.calls) - fewer) / args.calls)
    return found, idle


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", default=".", help="the checkout to count (default: here)")
    parser.add_argument("--binary", help="a binary `warmline` of the release profile; built if not given")
    parser.add_argument("--calls", type=int, default=400, help="calls in the difference (default: 400)")
    parser.add_argument("--warm-up", type=int, default=300, help="calls before counting (default: 300)")
    parser.add_argument("--rounds", type=int, default=5, help="differences of one run (default: 5)")
    parser.add_argument("--runs", type=int, default=3, help="starts of the gateway (default: 3)")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    args = parser.parse_args()
    serve.need_valgrind()
    root = os.path.abspath(args.root)
    binary = os.path.abspath(args.binary) if args.binary else serve.build(root, release=True)
    # On one processor the order of client, gateway and server varies least.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    found = {}
    for era in ("legacy", "modern"):
        medians = []
        for run in range(args.runs):
            rounds, idle = measure(binary, era, args)
            medians.append(statistics.median(rounds))
            if not args.json:
                each = " ".join(f"{value:,.0f}" for value in rounds)
                print(f"{era} run {run + 1}: median {medians[-1]:,.0f} of {each}; idle {idle:,.0f} a second")
                sys.stdout.flush()
        median = statistics.median(medians)
        spread = (max(medians) - min(medians)) / median
        found[era] = {"instructions": round(median), "spread": spread, "runs": medians}
        if not args.json:
            print(f"{era} tools/call: {median:,.0f} instructions, spread of runs {spread:.2%}")
    if args.json:
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
