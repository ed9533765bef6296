"""A client on the Python SDK 1.x: the legacy era only. See `client.py` for what it does."""

from client import visit
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client


async def talk(url, tool):
    async with streamablehttp_client(url) as (down, up, _):
        async with ClientSession(down, up) as session:
            greeting = await session.initialize()
            tools = [one.name for one in (await session.list_tools()).tools]
            said = [(await session.call_tool(tool, {})).content[0].text for _ in range(2)]
            return greeting.protocolVersion, tools, said


visit(talk)
