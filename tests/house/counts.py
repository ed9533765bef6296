#!/usr/bin/env python3
"""Counts the project: shipped lines, test lines, files, long files and functions, types, test binaries.

Shipped source is every Rust file in `crates/*/src` but the testkit's, without tests. Tests are files
named `tests.rs`, files in a folder `tests`, files that only a `#[cfg(test)] mod …;` declares, and every
item under `#[cfg(test)]`. Test lines are those, and the Rust files in `crates/*/tests`, `benches` and
`examples`. The source of the testkit and the fuzz targets are counted apart.

A top-level type is a `struct`, `enum`, `union`, `trait` or `type` that stands in a module and not in a
function, a trait or an `impl`. A function is long when more than 60 lines lie between `fn` and its
closing brace, both counted.
"""

import argparse
import collections
import json
import os
import re
import statistics
import tomllib

import rust

LONG_FILE = 500
LONG_FUNCTION = 60
FUNCTION = re.compile(r"\bfn\s+(\w+)")
TYPE = re.compile(r"\b(struct|enum|union|trait|type)\s+([A-Z]\w*)")
MODULE_BLOCK = re.compile(r"\bmod\s+\w+\s*$")
MACRO_CALL = re.compile(r"\b(?!macro_rules\b)\w+!\s*$")
KINDS = ("code", "comment", "blank")


def blocks(source, code):
    """All `{…}` that are neither a module nor a macro call: what stands in them is not top-level."""
    inner = []
    for m in re.finditer(r"\{", code):
        head = re.split(r"[;{}]", code[max(0, m.start() - 400) : m.start()])[-1]
        if not MODULE_BLOCK.search(head) and not MACRO_CALL.search(head):
            inner.append((m.start(), source.closing(m.start())))
    return inner


def types(source, code):
    """Names and lines of the top-level types of one file."""
    inner = blocks(source, code)
    for m in TYPE.finditer(code):
        if not any(start < m.start() < end for start, end in inner):
            yield m[2], source.line_of(m.start())


def functions(source, code):
    """Name, line and length of each function with a body."""
    for m in FUNCTION.finditer(code):
        at = m.end()
        while at < len(code) and code[at] not in ";{":
            at = source.closing(at) + 1 if code[at] in "([" else at + 1
        if at < len(code) and code[at] == "{":
            first = source.line_of(m.start())
            yield m[1], first, source.line_of(source.closing(at)) - first + 1


def test_binaries(crate):
    """Names of the files in `tests/` that cargo links into a program each."""
    folder = os.path.join(crate.folder, "tests")
    names = set()
    if os.path.isdir(folder):
        for name in os.listdir(folder):
            if name.endswith(".rs"):
                names.add(name[:-3])
            elif os.path.exists(os.path.join(folder, name, "main.rs")):
                names.add(name)
    with open(os.path.join(crate.folder, "Cargo.toml"), "rb") as file:
        names.update(test["name"] for test in tomllib.load(file).get("test", []))
    return sorted(names)


def lines_in(*folders):
    """Number of lines in all Rust files beneath these folders."""
    return sum(
        len(rust.Source.rows(open(path, encoding="utf-8").read()))
        for folder in folders
        for path in rust.files(folder)
    )


def count(root):
    """Everything, as one dictionary."""
    table, tests = [], collections.Counter()
    long_files, long_functions, lengths = [], [], []
    twice, places = {}, collections.defaultdict(list)

    def place(path, line):
        return f"{os.path.relpath(path, root)}:{line}"

    for crate in rust.crates(root):
        for folder in ("tests", "benches", "examples"):
            tests[folder] += lines_in(os.path.join(crate.folder, folder))
        if crate.name == rust.TESTKIT:
            tests["testkit"] += lines_in(crate.src)
            table.append({"crate": crate.name, "test_binaries": len(test_binaries(crate))})
            continue
        row, named = collections.Counter(), collections.defaultdict(list)
        for path in crate.test_files:
            tests["inline"] += len(crate.source(path).lines())
        for path in crate.shipped():
            source = crate.source(path)
            in_tests, size = source.test_lines(), 0
            for number, kind in enumerate(source.lines(), 1):
                if number in in_tests:
                    tests["inline"] += 1
                else:
                    row[kind] += 1
                    size += 1
            row["files"] += 1
            row["small_files"] += size < 100
            if size > LONG_FILE:
                long_files.append((size, os.path.relpath(path, root)))
            code = source.without_tests()
            for name, line in types(source, code):
                row["types"] += 1
                named[name].append(place(path, line))
                places[name].append(place(path, line))
            for name, line, length in functions(source, code):
                row["functions"] += 1
                lengths.append(length)
                if length > LONG_FUNCTION:
                    long_functions.append((length, name, place(path, line)))
        again = {name: where for name, where in sorted(named.items()) if len(where) > 1}
        twice[crate.name] = again
        table.append(
            {
                "crate": crate.name,
                "lines": sum(row[kind] for kind in KINDS),
                **{key: row[key] for key in (*KINDS, "files", "small_files", "functions", "types")},
                "names_twice": len(again),
                "types_of_names_twice": sum(len(where) for where in again.values()),
                "test_binaries": len(test_binaries(crate)),
            }
        )
    total = collections.Counter()
    for row in table:
        total.update({key: value for key, value in row.items() if key != "crate"})
    across = {name: where for name, where in places.items() if len(where) > 1}
    tests["all"] = sum(tests[key] for key in ("inline", "tests", "benches", "examples"))
    tests["fuzz"] = lines_in(os.path.join(root, "fuzz"))
    return {
        "crates": table,
        "shipped": {"crate": "shipped", **total},
        "tests": tests,
        "long_files": sorted(long_files, reverse=True),
        "long_functions": sorted(long_functions, reverse=True),
        "median_function": statistics.median(lengths) if lengths else 0,
        "names_twice_in_one_crate": twice,
        "names_twice_anywhere": len(across),
        "types_of_names_twice_anywhere": sum(len(where) for where in across.values()),
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", default=".", help="the checkout to count (default: here)")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--list", action="store_true", help="also list long files, functions, names")
    args = parser.parse_args()
    found = count(os.path.abspath(args.root))
    if args.json:
        print(json.dumps(found, indent=1))
        return

    heads = ("crate", "lines", *KINDS, "files", "functions", "types", "names_twice", "test_binaries")
    print("".join(f"{head:>18}" if n == 0 else f"{head:>14}" for n, head in enumerate(heads)))
    for row in (*found["crates"], found["shipped"]):
        print("".join(f"{row.get(h, '-'):>{14 if n else 18}}" for n, h in enumerate(heads)))
    tests, shipped = found["tests"], found["shipped"]
    print(
        f"""
test lines             {tests['all']:>7}   crates/*/tests {tests['tests']}, inline {tests['inline']}, benches {tests['benches']}, examples {tests['examples']}
testkit source         {tests['testkit']:>7}   and fuzz targets {tests['fuzz']}
files over {LONG_FILE} lines    {len(found['long_files']):>7}   and {shipped['small_files']} under 100
functions over {LONG_FUNCTION} lines {len(found['long_functions']):>7}   of {shipped['functions']}; median {found['median_function']} lines
names defined twice or more in one crate {shipped['names_twice']}, for {shipped['types_of_names_twice']} types
names defined twice or more anywhere {found['names_twice_anywhere']}, for {found['types_of_names_twice_anywhere']} types"""
    )
    if args.list:
        for size, path in found["long_files"]:
            print(f"file {size:>5} {path}")
        for length, name, where in found["long_functions"]:
            print(f"function {length:>4} {name} {where}")
        for crate, names in found["names_twice_in_one_crate"].items():
            for name, where in sorted(names.items(), key=lambda item: (-len(item[1]), item[0])):
                print(f"name {crate} {name} {len(where)}: {' '.join(where)}")


if __name__ == "__main__":
    main()
