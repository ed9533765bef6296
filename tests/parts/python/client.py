"""What every client of these tests does, whatever it is built on.

client_*.py TOOL URL...    at each URL in turn: open a client, list the tools, call the tool twice,
                           close; then print {"version", "tools", "said"} on one line

`version` is what the client negotiated, where its library tells; `said` is the text of each result.
"""

import asyncio
import json
import sys


def visit(talk):
    """Go to every URL of the command line; `talk(url, tool)` gives version, tools and texts."""

    async def all_of_them():
        tool, *urls = sys.argv[1:]
        for url in urls:
            version, tools, said = await talk(url, tool)
            print(json.dumps({"version": version, "tools": tools, "said": said}), flush=True)

    asyncio.run(all_of_them())
