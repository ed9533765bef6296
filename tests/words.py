#!/usr/bin/env python3
"""Looks for names and phrases that must not come back (tests/words.txt).

Names are looked for among types, traits and files; phrases in pages and in texts that users see.
Exits with 1 and names each place if there is one.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/house"))

import rust  # noqa: E402
import texts  # noqa: E402

DEFINITION = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:struct|enum|trait|union|type)\s+(\w+)")


def sections():
    """The lines beneath each heading `[names]`, `[files]` and `[phrases]`."""
    found, current = {}, None
    for line in (ROOT / "tests/words.txt").read_text(encoding="utf-8").splitlines():
        if heading := re.fullmatch(r"\[(\w+)\]", line):
            current = found.setdefault(heading[1], [])
        elif line and not line.startswith("#"):
            current.append(line)
    return found


def listed(pattern):
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", pattern]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    return [name for name in names if (ROOT / name).exists()]


def names_and_files(names, files):
    for name in listed("crates/*.rs"):
        if Path(name).name in files:
            yield f"{name}: the file name is in tests/words.txt"
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1):
            found = DEFINITION.match(line)
            if found and found[1] in names:
                yield f"{name}:{number}: `{found[1]}` is in tests/words.txt"


def phrases_in_use(phrases):
    wanted = re.compile(r"\b(" + "|".join(map(re.escape, phrases)) + r")\b", re.IGNORECASE)
    for name in listed("*.md"):
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1):
            if found := wanted.search(line):
                yield f"{name}:{number}: `{found[1]}`"
    for crate in rust.crates(ROOT):
        if crate.name == rust.TESTKIT:
            continue
        for path, line, text in texts.texts(crate):
            if found := wanted.search(text):
                yield f"{Path(path).relative_to(ROOT)}:{line}: `{found[1]}` in {text[:60]!r}"


def main():
    words = sections()
    places = [
        *names_and_files(set(words["names"]), set(words["files"])),
        *phrases_in_use(words["phrases"]),
    ]
    print("\n".join(places) if places else "words: none of the old names and phrases is back")
    return 1 if places else 0


if __name__ == "__main__":
    sys.exit(main())
