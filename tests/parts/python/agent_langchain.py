"""An unmodified LangChain agent over langchain-mcp-adapters: each call of a tool opens a session and
ends it. Its model is scripted, so that nothing but the server is asked.

agent_langchain.py TOOL URL...    at each URL in turn: an agent that calls the tool three times;
                                  then print {"said"} on one line
"""

import asyncio
import json
import sys

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_mcp_adapters.client import MultiServerMCPClient


class Scripted(GenericFakeChatModel):
    """A model that says what it was told to say."""

    def bind_tools(self, tools, **kwargs):
        return self


def calls(tool, number):
    """Turns of a model that calls a tool so often, and then is done."""
    for turn in range(number):
        call = {"name": tool, "args": {}, "id": f"call-{turn}", "type": "tool_call"}
        yield AIMessage(content="", tool_calls=[call])
    yield AIMessage(content="done")


def text(message):
    return message.content if isinstance(message.content, str) else message.content[0]["text"]


async def main(tool, *urls):
    for url in urls:
        client = MultiServerMCPClient({"server": {"transport": "streamable_http", "url": url}})
        agent = create_agent(Scripted(messages=calls(tool, 3)), await client.get_tools())
        ended = await agent.ainvoke({"messages": [("user", "count to three")]})
        said = [text(one) for one in ended["messages"] if isinstance(one, ToolMessage)]
        print(json.dumps({"said": said}), flush=True)


asyncio.run(main(*sys.argv[1:]))
