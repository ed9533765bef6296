"""A server on FastMCP 2, over HTTP on a free port of the loopback interface. It keeps nothing: what
a session of FastMCP 2 remembers lives one call.
"""

from announce import serve
from fastmcp import FastMCP

server = FastMCP("hello-fastmcp2")


@server.tool
def hello(name: str, times: int = 1) -> str:
    """Greet somebody."""
    return " ".join([f"Hello, {name}."] * times)


serve(server.http_app())
