"""A client on FastMCP: 3 is legacy, 4 asks `server/discover` first. See `client.py` for what it
does."""

from client import visit
from fastmcp import Client


async def talk(url, tool):
    async with Client(url) as client:
        tools = [one.name for one in await client.list_tools()]
        said = [(await client.call_tool(tool, {})).content[0].text for _ in range(2)]
        return None, tools, said


visit(talk)
