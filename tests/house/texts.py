#!/usr/bin/env python3
"""Lists the texts in shipped source that a user can see: errors, hints, help, log lines.

    tests/house/texts.py [--crate warmline-cli]

A text is a string of at least two words, outside of tests. Documentation comments of the command
line's arguments count too: they are its `--help`.
"""

import argparse
import os
import re

import rust

HELP = re.compile(r"^\s*/// ?(.*)$")
ESCAPES = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}


def unescape(text):
    text = re.sub(r"\\\n\s*", "", text)
    return re.sub(r'\\[n"\\]', lambda m: ESCAPES[m[0]], text)


def strings(source):
    """(offset, text) of each string, comments left out."""
    text, at = source.plain, 0
    while found := rust.TOKEN.search(text, at):
        at = found.end()
        if found["raw"]:
            closing = '"' + found["hashes"]
            end = text.find(closing, at)
            yield found.start(), text[at:end]
            at = end + len(closing)
        elif found["string"]:
            end = rust.STRING_END.match(text, at).end()
            yield found.start(), unescape(text[at : end - 1])
            at = end


def texts(crate):
    """(file, line, text) of each text of a crate."""
    for path in crate.shipped():
        source = crate.source(path)
        tests = source.test_lines()
        for offset, text in strings(source):
            line = source.line_of(offset)
            if line not in tests and re.search(r"\w\S* +\S*\w", text):
                yield path, line, text
        if "clap" in source.code:
            for number, row in enumerate(source.rows(source.text), 1):
                found = HELP.match(row)
                if found and number not in tests and " " in found[1]:
                    yield path, number, found[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=os.path.join(os.path.dirname(__file__), "../.."))
    parser.add_argument("--crate", help="one crate instead of all shipped ones")
    options = parser.parse_args()
    for crate in rust.crates(options.root):
        if crate.name == rust.TESTKIT or options.crate not in (None, crate.name):
            continue
        for path, line, text in texts(crate):
            print(f"{os.path.relpath(path, options.root)}:{line}: {text!r}")


if __name__ == "__main__":
    main()
