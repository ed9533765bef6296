"""The MCP client of openai-agents as it comes. See `client.py` for what it does."""

from agents.mcp import MCPServerStreamableHttp
from client import visit


async def talk(url, tool):
    async with MCPServerStreamableHttp({"url": url}) as server:
        tools = [one.name for one in await server.list_tools()]
        said = [(await server.call_tool(tool, {})).content[0].text for _ in range(2)]
        return None, tools, said


visit(talk)
