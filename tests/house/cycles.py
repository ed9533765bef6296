#!/usr/bin/env python3
"""Finds cycles between the top-level modules of each crate.

Module A depends on module B when a path in A's source leads into B: in a `use` tree or inline, from
`crate::…`, `super::…` or `self::…`. `lib.rs` and `main.rs` are no modules: a name that they re-export
counts as the module it comes from, and a name that they define themselves counts as none. Test code is
left out. Printed are the strongly connected components of more than one module.
"""

import argparse
import collections
import json
import os
import re
import sys

import rust

PATH = re.compile(r"(?<![\w:])(crate|super|self)\s*::\s*(?=[\w{*])")
USE = re.compile(r"(?<![\w:])use\s+([^;]+);")


def leaves(tree, base=()):
    """All paths of a `use` tree, as tuples, with the name each is known by."""
    tree = tree.strip()
    brace = tree.find("{")
    if brace < 0:
        path, _, known = (part.strip() for part in re.sub(r"\s+as\s+", "@", tree).partition("@"))
        parts = base + tuple(part.strip() for part in path.split("::") if part.strip())
        if parts and parts[-1] == "self":
            parts = parts[:-1]
        if parts:
            yield parts, known or parts[-1]
        return
    base += tuple(part.strip() for part in tree[:brace].split("::") if part.strip())
    depth, start = 0, brace + 1
    for at in range(brace, len(tree)):
        c = tree[at]
        if c == "{":
            depth += 1
        if (c == "," and depth == 1) or (c == "}" and depth == 1):
            if tree[start:at].strip():
                yield from leaves(tree[start:at], base)
            start = at + 1
        if c == "}":
            depth -= 1
            if depth == 0:
                return


def root_names(crate):
    """What `lib.rs` or `main.rs` calls by a name: the path each name stands for."""
    modules, names = set(), {}
    for path, module in crate.modules.items():
        if module != () or path in crate.test_files:
            continue
        source = crate.source(path)
        modules.update(
            child for between, child, _, tests, _ in source.children() if not between and not tests
        )
        for m in USE.finditer(source.without_tests()):
            for parts, known in leaves(m[1]):
                while parts and parts[0] in ("crate", "self"):
                    parts = parts[1:]
                if parts:
                    names[known] = parts
    return modules, names


def paths(source, code):
    """All paths in one file that begin at crate, super or self: (line, parts)."""
    for m in PATH.finditer(code):
        end = m.end()
        while end < len(code) and (code[end].isalnum() or code[end] in "_:* \n"):
            if code[end] in " \n" and not re.match(r"\s*(::|\{)", code[end:]):
                if code[end - 1] != ":":
                    break
            end += 1
        if end < len(code) and code[end] == "{" and code[m.start() : end].rstrip().endswith("::"):
            end = source.closing(end) + 1
        for parts, _ in leaves(code[m.start() : end]):
            yield source.line_of(m.start()), parts


def blocks_of_modules(source):
    """Inline modules: (start, end) of each, for `super` within them."""
    for m in rust.MODULE.finditer(source.code):
        if m[2] == "{":
            yield source.line_of(m.start()), source.line_of(source.closing(m.end() - 1))


def edges(crate):
    """{(from, to): [(file, line), …]} between the top-level modules."""
    modules, names = root_names(crate)
    found = collections.defaultdict(list)

    def top(parts, depth=0):
        """The module that a path from the root of the crate leads into."""
        if not parts or depth > 8:
            return None
        if parts[0] in modules:
            return parts[0]
        again = names.get(parts[0])
        return top(again, depth + 1) if again and again != parts else None

    for path in crate.shipped():
        module = crate.modules[path]
        if not module or module[0] == "bin":
            continue
        source = crate.source(path)
        inline = list(blocks_of_modules(source))
        for line, parts in paths(source, source.without_tests()):
            within = len(module) + sum(a < line <= b for a, b in inline)
            if parts[0] == "crate":
                up, parts = 0, parts[1:]
            else:
                up = within
                while parts and parts[0] in ("self", "super"):
                    up -= parts[0] == "super"
                    parts = parts[1:]
            if up > 0:
                continue  # it stays in this module
            to = top(parts)
            if to and to != module[0]:
                found[module[0], to].append((path, line))
    return modules, found


def components(nodes, found):
    """Strongly connected components of more than one node (Tarjan)."""
    after = collections.defaultdict(set)
    for a, b in found:
        after[a].add(b)
    number, low, stack, result = {}, {}, [], []

    def visit(node):
        number[node] = low[node] = len(number)
        stack.append(node)
        for other in sorted(after[node]):
            if other not in number:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], number[other])
        if low[node] == number[node]:
            at = stack.index(node)
            part, stack[at:] = stack[at:], []
            if len(part) > 1:
                result.append(sorted(part))

    for node in sorted(nodes):
        if node not in number:
            visit(node)
    return sorted(result, key=len, reverse=True)


def size(crate, modules):
    """Lines of shipped source in these modules."""
    lines = 0
    for path in crate.shipped():
        module = crate.modules[path]
        if module and module[0] in modules:
            source = crate.source(path)
            lines += len(source.lines()) - len(source.test_lines())
    return lines


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", default=".", help="the checkout to read (default: here)")
    parser.add_argument("--edges", action="store_true", help="list the edges inside each cycle")
    parser.add_argument("--check", action="store_true", help="exit 1 when there is a cycle")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    args = parser.parse_args()
    root, report = os.path.abspath(args.root), []
    for crate in rust.crates(root):
        if crate.name == rust.TESTKIT:
            continue
        modules, found = edges(crate)
        row = {"crate": crate.name, "modules": len(modules), "edges": len(found), "cycles": []}
        for part in components(modules, found):
            inside = {
                f"{a} -> {b}": [f"{os.path.relpath(path, root)}:{line}" for path, line in sorted(set(places))]
                for (a, b), places in sorted(found.items())
                if a in part and b in part
            }
            row["cycles"].append({"modules": part, "lines": size(crate, part), "edges": inside})
        report.append(row)
    if args.json:
        print(json.dumps(report, indent=1))
    else:
        for row in report:
            head = f"{row['crate']}: {row['modules']} modules, {row['edges']} edges"
            print(f"{head}, {len(row['cycles']) or 'no'} cycle{'s' * (len(row['cycles']) != 1)}")
            for cycle in row["cycles"]:
                print(
                    f"  {len(cycle['modules'])} modules, {cycle['lines']} lines, "
                    f"{len(cycle['edges'])} edges: {' '.join(cycle['modules'])}"
                )
                if args.edges:
                    for edge, places in cycle["edges"].items():
                        print(f"    {edge} ({len(places)}): {' '.join(places)}")
    if args.check and any(row["cycles"] for row in report):
        sys.exit(1)


if __name__ == "__main__":
    main()
