"""Reads Rust source just well enough to count it: comments, strings, test code, blocks, modules.

Used by counts.py, cycles.py and walk.py. It is a scanner, not a parser: it knows tokens, braces and
attributes, and nothing of types.
"""

import bisect
import os
import re

TOKEN = re.compile(
    r"""
      (?P<line>//[^\n]*)
    | (?P<block>/\*)
    | (?P<raw>\b(?:b|c)?r(?P<hashes>\#*)")
    | (?P<string>\b(?:b|c)?"|")
    | (?P<char>b?'(?:\\(?:u\{[^}]*\}|x[0-9a-fA-F]{2}|.)|[^\\'\n])')
    """,
    re.VERBOSE,
)
STRING_END = re.compile(r'(?:\\.|[^"\\])*"', re.DOTALL)
NOT_NEWLINE = re.compile(r"[^\n]")
CFG_TEST = re.compile(r"#\s*\[\s*cfg\s*\(\s*(?:all\s*\(\s*)?test\b[^\]]*\]")
ATTRIBUTE = re.compile(r"\s*#\s*!?\s*\[")
ENDS_AT_SEMICOLON = re.compile(
    r"\s*(?:pub(?:\s*\([^)]*\))?\s+)?(?:use|const\s+[A-Z_]|static|type|let|extern\s+crate)\b"
)
MODULE = re.compile(r"\b(?:pub(?:\s*\([^)]*\))?\s+)?mod\s+(\w+)\s*([;{])")
PATH_ATTRIBUTE = re.compile(r'#\s*\[\s*path\s*=\s*"([^"]*)"\s*\]')


def blank(text):
    """The same length and lines, all spaces."""
    return NOT_NEWLINE.sub(" ", text)


class Source:
    """One file. `code` has comments and the insides of strings blanked, `plain` only comments."""

    def __init__(self, path):
        self.path = path
        with open(path, encoding="utf-8") as file:
            self.text = file.read()
        self._scan()
        self.starts = [0] + [m.end() for m in re.finditer("\n", self.text)]
        self.pairs = None

    def _scan(self):
        text, code, plain, at = self.text, [], [], 0
        while True:
            found = TOKEN.search(text, at)
            if not found:
                break
            start, end = found.start(), found.end()
            kind = found.lastgroup if found.lastgroup != "hashes" else "raw"
            if kind == "block":
                depth, end = 1, start + 2
                while depth and end < len(text):
                    if text.startswith("/*", end):
                        depth, end = depth + 1, end + 2
                    elif text.startswith("*/", end):
                        depth, end = depth - 1, end + 2
                    else:
                        end += 1
            elif kind == "raw":
                closing = '"' + found["hashes"]
                end = text.find(closing, end)
                end = len(text) if end < 0 else end + len(closing)
            elif kind == "string":
                close = STRING_END.match(text, end)
                end = close.end() if close else len(text)
            piece = text[start:end]
            code.append(text[at:start])
            plain.append(text[at:start])
            if kind in ("line", "block"):
                code.append(blank(piece))
                plain.append(blank(piece))
            else:
                code.append('"' + blank(piece[1:-1]) + '"')
                plain.append(piece)
            at = end
        code.append(text[at:])
        plain.append(text[at:])
        self.code, self.plain = "".join(code), "".join(plain)

    def line_of(self, offset):
        """The number of the line, counted from 1, that holds this offset."""
        return bisect.bisect_right(self.starts, offset)

    @staticmethod
    def rows(text):
        """The lines as an editor numbers them: nothing after the last newline."""
        rows = text.split("\n")
        return rows[:-1] if rows[-1] == "" else rows

    def lines(self):
        """For each line 'code', 'comment' or 'blank'. A line with both is code."""
        kinds = []
        for whole, bare in zip(self.rows(self.text), self.rows(self.plain)):
            kinds.append("code" if bare.strip() else "comment" if whole.strip() else "blank")
        return kinds

    def closing(self, offset):
        """Where the bracket that opens at `offset` closes."""
        if self.pairs is None:
            self.pairs, open_ = {}, []
            for m in re.finditer(r"[(){}\[\]]", self.code):
                if m[0] in "([{":
                    open_.append(m.start())
                elif open_:
                    self.pairs[open_.pop()] = m.start()
        return self.pairs.get(offset, len(self.code) - 1)

    def after_attributes(self, at):
        """Skips the attributes of an item."""
        while m := ATTRIBUTE.match(self.code, at):
            at = self.closing(m.end() - 1) + 1
        return at

    def end_of_item(self, at):
        """Where the item (or field, or statement) that begins at `at` ends."""
        only_semicolon = ENDS_AT_SEMICOLON.match(self.code, at)
        while at < len(self.code):
            c = self.code[at]
            if c == ";" or (c in ",}" and not only_semicolon):
                return at + 1 if c != "}" else at
            if c in "([{":
                at = self.closing(at)
                if c == "{" and not only_semicolon:
                    return at + 1
            at += 1
        return at

    def test_items(self):
        """Spans (start, end, name and mark of a module or None) of all items under #[cfg(test)]."""
        spans, last = [], -1
        for m in CFG_TEST.finditer(self.code):
            if m.start() < last:
                continue
            start = self.after_attributes(m.start())
            end = self.end_of_item(start)
            module = MODULE.match(self.code[start:end].lstrip())
            spans.append((m.start(), end, (module[1], module[2]) if module else None))
            last = end
        return spans

    def without_tests(self):
        """`code` with all items under #[cfg(test)] blanked."""
        code = self.code
        for start, end, _ in self.test_items():
            code = code[:start] + blank(code[start:end]) + code[end:]
        return code

    def test_lines(self):
        """Numbers of the lines that belong to items under #[cfg(test)]."""
        numbers = set()
        for start, end, _ in self.test_items():
            numbers.update(range(self.line_of(start), self.line_of(end - 1) + 1))
        return numbers

    def children(self):
        """Modules that this file declares: (folders between, name, inline?, in tests?, path)."""
        tests = [(start, end) for start, end, _ in self.test_items()]
        open_, found = [], []
        for m in MODULE.finditer(self.code):
            start = m.start()
            open_ = [(name, end) for name, end in open_ if start < end]
            in_tests = any(a <= start < b for a, b in tests)
            above = self.plain[max(0, start - 200) : start].split(";")[-1].split("}")[-1]
            path = PATH_ATTRIBUTE.search(above)
            found.append(
                ([n for n, _ in open_], m[1], m[2] == "{", in_tests, path[1] if path else None)
            )
            if m[2] == "{":
                open_.append((m[1], self.closing(m.end() - 1)))
        return found


class Crate:
    """One crate: where it is, its root files and which source file is which module."""

    def __init__(self, folder):
        self.folder = folder
        self.name = os.path.basename(folder)
        self.src = os.path.join(folder, "src")
        self.modules = {}  # file -> module path, a tuple
        self.test_files = set()
        self.sources = {}
        for root in ("lib.rs", "main.rs"):
            path = os.path.join(self.src, root)
            if os.path.exists(path):
                self._walk(path, (), False)
        for binary in files(os.path.join(self.src, "bin")):
            if binary not in self.modules:
                self._walk(binary, ("bin",), False)
        for path in files(self.src):
            relative = os.path.relpath(path, self.src).split(os.sep)
            if relative[-1] == "tests.rs" or "tests" in relative[:-1]:
                self.test_files.add(path)
            self.modules.setdefault(path, None)

    def source(self, path):
        if path not in self.sources:
            self.sources[path] = Source(path)
        return self.sources[path]

    def _walk(self, path, module, tests):
        if path in self.modules:
            return
        self.modules[path] = module
        if tests:
            self.test_files.add(path)
        folder, name = os.path.split(path)
        beneath = folder if not module or name == "mod.rs" else os.path.join(folder, name[:-3])
        for between, child, inline, in_tests, elsewhere in self.source(path).children():
            if inline:
                continue
            inside = os.path.join(beneath, *between)
            if elsewhere:
                places = [os.path.normpath(os.path.join(inside if between else folder, elsewhere))]
            else:
                places = [os.path.join(inside, child + ".rs"), os.path.join(inside, child, "mod.rs")]
            for place in places:
                if os.path.exists(place):
                    self._walk(place, module + (*between, child), tests or in_tests)

    def shipped(self):
        """Source files that are not tests, sorted."""
        return sorted(p for p in self.modules if p not in self.test_files)


def files(folder):
    """All Rust files beneath a folder, sorted."""
    return sorted(
        os.path.join(at, name)
        for at, _, names in os.walk(folder)
        for name in names
        if name.endswith(".rs")
    )


def crates(root):
    """All crates of a checkout, by name."""
    folder = os.path.join(root, "crates")
    return [
        Crate(os.path.join(folder, name))
        for name in sorted(os.listdir(folder))
        if os.path.exists(os.path.join(folder, name, "Cargo.toml"))
    ]


TESTKIT = "warmline-testkit"
