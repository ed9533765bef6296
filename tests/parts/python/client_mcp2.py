"""A client on the Python SDK 2.x as it comes: it asks `server/discover` first and falls back to
`initialize`. See `client.py` for what it does."""

from client import visit
from mcp import Client


async def talk(url, tool):
    async with Client(url) as client:
        tools = [one.name for one in (await client.list_tools()).tools]
        said = [(await client.call_tool(tool, {})).content[0].text for _ in range(2)]
        return client.protocol_version, tools, said


visit(talk)
