// The conformance suite's fixture on the TypeScript SDK v1: the legacy era, with sessions, streams
// that can be taken up again, and questions in the middle of a call.
//
//   node fixture-v1.mjs    over HTTP, on a free port of the loopback interface
import { randomUUID } from 'node:crypto';
import express from 'express';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import * as mcp from '@modelcontextprotocol/sdk/types.js';
import { announce, endWithStdin } from './announce.mjs';
import * as fixture from './fixture.mjs';

const { says, text, later } = fixture;

const string = (rest) => ({ type: 'string', ...rest });
const titled = (...names) => names.map((title, at) => ({ const: `value${at + 1}`, title }));

const person = {
  type: 'object',
  properties: {
    username: string({ description: "User's response" }),
    email: string({ description: "User's email address" }),
  },
  required: ['username', 'email'],
};
const defaults = {
  type: 'object',
  properties: {
    name: string({ default: 'John Doe' }),
    age: { type: 'integer', default: 30 },
    score: { type: 'number', default: 95.5 },
    status: string({ enum: ['active', 'inactive', 'pending'], default: 'active' }),
    verified: { type: 'boolean', default: true },
  },
  required: [],
};
const options = ['option1', 'option2', 'option3'];
const choices = {
  type: 'object',
  properties: {
    untitledSingle: string({ enum: options }),
    titledSingle: string({ oneOf: titled('First Option', 'Second Option', 'Third Option') }),
    legacyEnum: string({
      enum: ['opt1', 'opt2', 'opt3'],
      enumNames: ['Option One', 'Option Two', 'Option Three'],
    }),
    untitledMulti: { type: 'array', items: string({ enum: options }) },
    titledMulti: {
      type: 'array',
      items: { anyOf: titled('First Choice', 'Second Choice', 'Third Choice') },
    },
  },
  required: [],
};

async function elicit(extra, message, requestedSchema) {
  const params = { mode: 'form', message, requestedSchema };
  const request = { method: 'elicitation/create', params };
  return extra.sendRequest(request, mcp.ElicitResultSchema);
}

async function elicited(extra, schema) {
  const { action, content } = await elicit(extra, 'Please fill this in', schema);
  return says(text(`Elicitation completed: action=${action}, content=${JSON.stringify(content)}`));
}

const tools = fixture.toolbox({
  async test_tool_with_logging(given, extra) {
    const log = (data) =>
      extra.sendNotification({ method: 'notifications/message', params: { level: 'info', data } });
    await log('Tool execution started');
    await later(50);
    await log('Tool processing data');
    await later(50);
    await log('Tool execution completed');
    return says(text('logged'));
  },
  test_tool_with_progress: (given, extra) =>
    fixture.progress(extra._meta?.progressToken, (notice) => extra.sendNotification(notice)),
  async test_sampling({ prompt }, extra) {
    const messages = [{ role: 'user', content: text(prompt) }];
    const request = { method: 'sampling/createMessage', params: { messages, maxTokens: 100 } };
    const answer = await extra.sendRequest(request, mcp.CreateMessageResultSchema);
    return says(text(`LLM response: ${answer.content.text}`));
  },
  async test_elicitation({ message }, extra) {
    const { action, content } = await elicit(extra, message, person);
    return says(text(`User response: action: ${action}, content: ${JSON.stringify(content)}`));
  },
  test_elicitation_sep1034_defaults: (given, extra) => elicited(extra, defaults),
  test_elicitation_sep1330_enums: (given, extra) => elicited(extra, choices),
  async test_reconnection(given, extra) {
    extra.closeSSEStream?.();
    await later(100);
    return says(text('came back'));
  },
});

function refuse(code, what, data) {
  throw new mcp.McpError(code, what, data);
}

function server() {
  const capabilities = {
    tools: { listChanged: true },
    resources: { subscribe: true, listChanged: true },
    prompts: { listChanged: true },
    logging: {},
    completions: {},
  };
  const one = new Server({ name: 'fixture-v1', version: '1.0.0' }, { capabilities });
  const on = (schema, answer) => one.setRequestHandler(schema, answer);
  on(mcp.ListToolsRequestSchema, () => ({ tools: tools.list() }));
  on(mcp.CallToolRequestSchema, async ({ params }, extra) => {
    const answer = tools.call(params.name, params.arguments ?? {}, extra);
    return answer ?? refuse(mcp.ErrorCode.InvalidParams, `Unknown tool: ${params.name}`);
  });
  on(mcp.ListResourcesRequestSchema, () => ({ resources: fixture.resources }));
  on(mcp.ListResourceTemplatesRequestSchema, () => ({ resourceTemplates: fixture.templates }));
  on(mcp.ReadResourceRequestSchema, ({ params: { uri } }) => {
    return fixture.read(uri) ?? refuse(-32002, 'Resource not found', { uri });
  });
  on(mcp.SubscribeRequestSchema, () => ({}));
  on(mcp.UnsubscribeRequestSchema, () => ({}));
  on(mcp.ListPromptsRequestSchema, () => ({ prompts: fixture.prompts }));
  on(mcp.GetPromptRequestSchema, ({ params }) => {
    const found = fixture.prompt(params.name, params.arguments);
    return found ?? refuse(mcp.ErrorCode.InvalidParams, `Unknown prompt: ${params.name}`);
  });
  on(mcp.CompleteRequestSchema, () => fixture.completion);
  on(mcp.SetLevelRequestSchema, () => ({}));
  return one;
}

// Keeps what was sent, for streams that are taken up again.
function eventStore() {
  const events = [];
  return {
    async storeEvent(stream, message) {
      events.push({ stream, message });
      return String(events.length);
    },
    async replayEventsAfter(last, { send }) {
      const at = Number(last);
      const { stream } = events[at - 1] ?? {};
      for (let next = at; next < events.length; next += 1) {
        const event = events[next];
        if (event.stream === stream) await send(String(next + 1), event.message);
      }
      return stream;
    },
  };
}

const sessions = new Map();
const app = express();
app.use(express.json());
app.all('/mcp', async (request, response) => {
  if (!fixture.isFromHere(request.headers)) return response.status(403).end();
  const id = request.headers['mcp-session-id'];
  let transport = sessions.get(id);
  if (id && !transport) {
    const error = { code: -32001, message: 'Session not found' };
    return response.status(404).json({ jsonrpc: '2.0', error, id: null });
  }
  if (!transport) {
    transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      eventStore: eventStore(),
      retryInterval: 500,
      onsessioninitialized: (fresh) => sessions.set(fresh, transport),
    });
    transport.onclose = () => sessions.delete(transport.sessionId);
    await server().connect(transport);
  }
  await transport.handleRequest(request, response, request.body);
});
endWithStdin();
announce(app.listen(0, '127.0.0.1'));
