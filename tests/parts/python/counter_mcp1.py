"""A counter on the Python SDK 1.x: the legacy era, one count for each session.

counter_mcp1.py                over stdio
counter_mcp1.py http [PORT]    over HTTP, on a free port of the loopback interface or on this one
counter_mcp1.py sse [PORT]     the same over HTTP+SSE, at /sse
"""

import sys
import weakref

from mcp.server.fastmcp import Context, FastMCP

server = FastMCP("counter-mcp1")
counts = weakref.WeakKeyDictionary()


@server.tool()
def bump(ctx: Context) -> str:
    """Count the calls of this session."""
    counts[ctx.session] = counts.get(ctx.session, 0) + 1
    return str(counts[ctx.session])


if sys.argv[1:2] == ["http"]:
    from announce import serve

    serve(server.streamable_http_app(), *map(int, sys.argv[2:]))
elif sys.argv[1:2] == ["sse"]:
    from announce import serve

    serve(server.sse_app(), *map(int, sys.argv[2:]))
else:
    server.run("stdio")
