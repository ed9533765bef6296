"""Runs what somebody pastes into a notebook: a program that may `await` at its top level.

pasted.py    reads the program from standard input
"""

import ast
import asyncio
import inspect
import sys


async def main(text):
    ran = eval(compile(text, "pasted", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), {})
    if inspect.iscoroutine(ran):
        await ran


asyncio.run(main(sys.stdin.read()))
