"""A client on langchain-mcp-adapters as its pages show it: every call opens a session and ends it.
See `client.py` for what it does."""

from client import visit
from langchain_mcp_adapters.client import MultiServerMCPClient


async def talk(url, tool):
    client = MultiServerMCPClient({"server": {"transport": "streamable_http", "url": url}})
    tools = {one.name: one for one in await client.get_tools()}
    said = [text(await tools[tool].ainvoke({})) for _ in range(2)]
    return None, list(tools), said


def text(result):
    """Results are a text or a list of blocks."""
    return result if isinstance(result, str) else result[0]["text"]


visit(talk)
