"""A counter on the Python SDK 2.x: both eras. Its session objects live for one call, so the count
is the process's.

counter_mcp2.py          over stdio
counter_mcp2.py http     over HTTP, on a free port of the loopback interface
"""

import itertools
import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("counter-mcp2")
counts = itertools.count(1)


@server.tool()
def bump() -> str:
    """Count the calls of this process."""
    return str(next(counts))


if sys.argv[1:] == ["http"]:
    from announce import serve

    serve(server.streamable_http_app())
else:
    server.run("stdio")
