"""The same by the 2024-11-05 transport. See `client.py` for what it does."""

from client import visit
from mcp import ClientSession
from mcp.client.sse import sse_client


async def talk(url, tool):
    async with sse_client(url) as (down, up):
        async with ClientSession(down, up) as session:
            greeting = await session.initialize()
            tools = [one.name for one in (await session.list_tools()).tools]
            said = [(await session.call_tool(tool, {})).content[0].text for _ in range(2)]
            return greeting.protocolVersion, tools, said


visit(talk)
