#!/usr/bin/env python3
"""Records `warmline demo` on a terminal and writes it as an animated SVG.

    docs/record_demo.py target/release/warmline docs/demo.svg

The text and its colours are those of the program. Only the speed is changed: the demo runs in half
a second, and a reader needs longer.
"""

import html
import os
import pty
import re
import sys
import tempfile

COLUMNS, LINE_HEIGHT, CHAR_WIDTH, MARGIN = 80, 19, 8.4, 16
LINE_SECONDS, STEP_SECONDS = 0.3, 3.0
COLOURS = {"31": "#f47067", "32": "#8ddb8c", "33": "#dacc84", "34": "#6cb6ff", "35": "#dcbdfb", "36": "#76e3ea"}
ESCAPE = re.compile(r"\x1b\[([0-9;]*)m")


def record(program):
    """What the program prints on a terminal."""
    with tempfile.TemporaryDirectory() as home:
        pid, terminal = pty.fork()
        if pid == 0:
            environment = {"HOME": home, "PATH": os.environ["PATH"], "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
            os.execve(program, [program, "demo", "--color", "always"], environment)
        output = b""
        while True:
            try:
                part = os.read(terminal, 65536)
            except OSError:  # the terminal of a program that ended
                break
            if not part:
                break
            output += part
        _, status = os.waitpid(pid, 0)
    if status:
        sys.exit(f"{program} demo failed: {status}")
    text = output.decode().replace("\r\n", "\n")
    # A line that was drawn again counts as it was drawn last.
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-HJKhl]", "", line.split("\r")[-1]) for line in text.split("\n")]
    return [line.rstrip() for line in lines]


def steps(lines):
    """The lines of each step of the demo; what stands before the first and behind the last is left out."""
    found = []
    for line in lines:
        plain = ESCAPE.sub("", line)
        if re.match(r"\d  \S", plain):
            found.append([])
        elif plain.startswith("Try your own"):
            break
        if found:
            found[-1].append(line)
    for step in found:
        while step and not step[-1]:
            step.pop()
    return found


def spans(line):
    """One line as SVG text, with the colours that the terminal would show."""
    out, style = "", {}
    for index, part in enumerate(ESCAPE.split(line)):
        if index % 2:
            for code in part.split(";"):
                if code in ("", "0"):
                    style = {}
                elif code == "1":
                    style["font-weight"] = "bold"
                elif code == "2":
                    style["fill"] = "#8b949e"
                elif code in COLOURS:
                    style["fill"] = COLOURS[code]
        elif part:
            attributes = "".join(f' {name}="{value}"' for name, value in style.items())
            out += f"<tspan{attributes}>{html.escape(part)}</tspan>"
    return out


def svg(frames):
    """All steps, one after the other, line by line, again and again."""
    height = MARGIN * 2 + LINE_HEIGHT * (2 + max(map(len, frames)))
    width = round(MARGIN * 2 + CHAR_WIDTH * COLUMNS)
    total = sum(len(frame) * LINE_SECONDS + STEP_SECONDS for frame in frames)
    styles, texts, now = [], [], 0.0
    prompt = '<tspan fill="#8b949e">$</tspan> warmline demo'
    texts.append(f'<text x="{MARGIN}" y="{MARGIN + LINE_HEIGHT}">{prompt}</text>')
    for number, frame in enumerate(frames):
        end = now + len(frame) * LINE_SECONDS + STEP_SECONDS
        for row, line in enumerate(frame):
            name = f"l{number}-{row}"
            begin = 100 * (now + row * LINE_SECONDS) / total
            hidden = "" if begin == 0 else "0%{visibility:hidden}"
            styles.append(
                f"@keyframes {name}{{{hidden}{begin:.3f}%{{visibility:visible}}"
                f"{100 * end / total:.3f}%,100%{{visibility:hidden}}}}#{name}{{animation-name:{name}}}"
            )
            # Without animation the first step is shown.
            first = "" if number == 0 else ' visibility="hidden"'
            y = MARGIN + LINE_HEIGHT * (row + 3)
            texts.append(f'<text id="{name}" class="l" x="{MARGIN}" y="{y}"{first}>{spans(line)}</text>')
        now = end
    style = (
        "text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#e6edf3;white-space:pre}"
        f".l{{animation:{total:.1f}s step-end infinite}}" + "".join(styles)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">\n'
        f"<title>warmline demo</title>\n<style>{style}</style>\n"
        f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/>\n' + "\n".join(texts) + "\n</svg>\n"
    )


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    found = steps(record(os.path.abspath(sys.argv[1])))
    if len(found) < 5:
        sys.exit("the demo printed fewer steps than expected")
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(svg(found))
    print(f"{sys.argv[2]}: {len(found)} steps")


if __name__ == "__main__":
    main()
