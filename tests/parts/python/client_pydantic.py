"""An agent of pydantic-ai with the toolset as it comes, and a scripted model. See `client.py` for
what it does."""

from client import visit
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel


async def talk(url, tool):
    tools, said = [], []

    def turn(messages, info):
        """Calls the tool twice, and then is done."""
        tools[:] = [one.name for one in info.function_tools]
        said[:] = [
            part.model_response_str()
            for message in messages
            for part in message.parts
            if isinstance(part, ToolReturnPart)
        ]
        return ModelResponse([TextPart("done") if len(said) == 2 else ToolCallPart(tool, {})])

    agent = Agent(FunctionModel(turn), toolsets=[MCPToolset(url)])
    async with agent:
        await agent.run("count to two")
    return None, tools, said


visit(talk)
