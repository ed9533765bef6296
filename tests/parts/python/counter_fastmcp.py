"""A counter on FastMCP 3 and 4: one count for each legacy session.

counter_fastmcp.py                over stdio
counter_fastmcp.py http [PORT]    over HTTP, on a free port of the loopback interface or on this one
"""

import sys

from fastmcp import Context, FastMCP

server = FastMCP("counter-fastmcp")


@server.tool
async def bump(ctx: Context) -> str:
    """Count the calls of this session."""
    count = (await ctx.get_state("count") or 0) + 1
    await ctx.set_state("count", count)
    return str(count)


if sys.argv[1:2] == ["http"]:
    from announce import serve

    serve(server.http_app(), *map(int, sys.argv[2:]))
else:
    server.run(show_banner=False)
